/* Porter's stemmer on UTF-16 units, as Lucene and as NLTK have it. Plain C, no Python. r2med/text/english.py is its twin. */
#ifndef R2MED_PORTER_H
#define R2MED_PORTER_H

#include <stdint.h>

/* The stem replaces the word in place; its length is returned. There must be room for one unit more. */
int r2_porter(uint16_t *w, int n);

/* The same in NLTK's default mode: some irregular words, -ied, other rules for -y, -alli, -fulli, -logi. */
int r2_porter_nltk(uint16_t *w, int n);

#endif
