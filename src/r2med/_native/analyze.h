/* Text analysis: tokens of UTF-8 text, and term counts of many texts. Plain C, no Python.
 *
 * The English analyzer equals Lucene's EnglishAnalyzer token for token: UAX #29 words of at most 255 UTF-16 units,
 * possessive 's dropped, lower case, 33 stop words dropped, Porter stems. r2med/text/english.py is its twin.
 * The Nano analyzer is that of NanoR2MED's builder: runs of ASCII letters and digits in lower case, its stop words
 * dropped, stems as NLTK makes them. analyze_nano in r2med/text/english.py is its twin.
 * Malformed UTF-8 reads as U+FFFD, one for each maximal ill-formed part, as Python's "replace" handler does. */
#ifndef R2MED_ANALYZE_H
#define R2MED_ANALYZE_H

#include <stddef.h>
#include <stdint.h>

/* 255 UTF-16 units are at most three bytes each; one more unit for a final e that the stemmer may add. */
#define R2_TERM_MAX (256 * 3)

enum r2_analyzer { R2_ENGLISH = 0, R2_WHITESPACE = 1, R2_NANO = 2 };
enum r2_status { R2_OK = 0, R2_NO_MEMORY, R2_BAD_OFFSETS, R2_TOO_MANY_TERMS, R2_STOPPED };

/* Finds the next English token in text[*at .. size): returns its length in bytes and sets *start, or returns 0 at the
 * end. *at moves behind the token. */
size_t r2_next_token(const uint8_t *text, size_t size, size_t *at, size_t *start);

/* Writes the term of a token to out and returns its length in bytes; 0 for a stop word. */
size_t r2_english_term(const uint8_t *token, size_t size, uint8_t out[R2_TERM_MAX]);

/* The same for the Nano analyzer; w and out have room for size + 1 units and bytes. */
size_t r2_next_run(const uint8_t *text, size_t size, size_t *at, size_t *start);
size_t r2_nano_term(const uint8_t *token, size_t size, uint16_t *w, uint8_t *out);

/* Makes room for capacity postings (keeping what is there) and sets where they are; non-zero stops the count. It is a
 * callback so that the caller may own the memory that it hands on, instead of copying it. */
typedef int (*r2_grow)(void *context, size_t capacity, int32_t **terms, int32_t **counts);

typedef struct {
    uint8_t *text;    /* the terms one after another, in order of first occurrence */
    int64_t *offsets; /* where each begins in text, size + 1 values */
    int64_t size;
} r2_vocabulary;

/* Counts the terms of texts i = data[offsets[i] .. offsets[i + 1]); the offsets are int64. Fills indptr (texts + 1 values) and, through grow,
 * the term ids and counts, in order of first occurrence within each text. The vocabulary is the caller's to free, with
 * r2_vocabulary_free, whatever the status. */
enum r2_status r2_count_terms(const uint8_t *data, size_t size, const void *offsets, size_t texts,
                              enum r2_analyzer analyzer, int64_t *indptr, r2_grow grow, void *context,
                              r2_vocabulary *vocabulary);
void r2_vocabulary_free(r2_vocabulary *vocabulary);

#endif
