/* Text analysis; analyze.h says what, this file how. Parts: UTF-8, words, terms, the Nano analyzer, fields, counting. */
#include "analyze.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "porter.h"
#include "tables.h"

#define TOKEN_UNITS 255 /* Lucene's limit: a longer token goes on as a new one */
#define REPLACEMENT 0xFFFDu

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------ */

/* Reads one character of at least one byte; *length is what it takes. */
static uint32_t decode(const uint8_t *p, size_t size, size_t *length)
{
    uint32_t lead = p[0], low = 0x80, high = 0xBF, value;
    size_t need, i;

    *length = 1;
    if (lead < 0x80)
        return lead;
    if (lead >= 0xC2 && lead <= 0xDF) {
        need = 1, value = lead & 0x1F;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        need = 2, value = lead & 0x0F;
        if (lead == 0xE0)
            low = 0xA0; /* else overlong */
        if (lead == 0xED)
            high = 0x9F; /* else a surrogate */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        need = 3, value = lead & 0x07;
        if (lead == 0xF0)
            low = 0x90;
        if (lead == 0xF4)
            high = 0x8F; /* else above U+10FFFF */
    } else {
        return REPLACEMENT;
    }
    for (i = 1; i <= need; i++) {
        if (i >= size || p[i] < low || p[i] > high)
            return REPLACEMENT;
        value = value << 6 | (p[i] & 0x3F);
        *length = i + 1;
        low = 0x80, high = 0xBF;
    }
    return value;
}

/* Writes one character, at most four bytes. */
static size_t encode(uint32_t c, uint8_t *out)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6), out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12), out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18), out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F)), out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* What a byte can do in a word; 0 ends one. HARD is for the automaton: connectors, keycaps, all beyond ASCII. */
enum { LETTER = 1, DIGIT = 2, MID_LETTER = 4, MID_DIGIT = 8, HARD = 16 };
#define LETTERS_26(f) f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f
#define HARD_16 HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD, HARD
static const uint8_t kinds[256] = {
    ['#'] = HARD, ['\''] = MID_LETTER | MID_DIGIT, ['*'] = HARD, [','] = MID_DIGIT, ['.'] = MID_LETTER | MID_DIGIT,
    ['0'] = DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT,
    [':'] = MID_LETTER, [';'] = MID_DIGIT,
    ['A'] = LETTERS_26(LETTER), ['_'] = HARD, ['a'] = LETTERS_26(LETTER),
    [0x80] = HARD_16, HARD_16, HARD_16, HARD_16, HARD_16, HARD_16, HARD_16, HARD_16,
};

static uint8_t class_of(uint32_t c)
{
    size_t i;

    if (c < WB_HIGH)
        return wb_pages[(size_t)wb_index[c >> WB_PAGE_BITS] << WB_PAGE_BITS | (c & ((1u << WB_PAGE_BITS) - 1))];
    for (i = 0; i < sizeof wb_high / sizeof wb_high[0]; i++)
        if (c >= wb_high[i].first && c <= wb_high[i].last)
            return wb_high[i].cls;
    return 0;
}

/* The longest token at p by the automaton: its length in bytes, or 0 where none begins. */
static size_t match(const uint8_t *p, size_t size)
{
    size_t at = 0, best = 0, length;
    unsigned units = 0, state = 1;

    while (at < size) {
        uint32_t c = decode(p + at, size - at, &length);
        units += c > 0xFFFF ? 2 : 1;
        if (units > TOKEN_UNITS)
            break;
        state = wb_next[state][class_of(c)];
        if (!state)
            break;
        at += length;
        if (wb_accepts[state])
            best = at;
    }
    return best;
}

/* How many ASCII letters and digits stand at p. */
static inline size_t run_length(const uint8_t *p, size_t size)
{
    size_t at = 0;

#if defined(__SSE2__)
    /* sixteen at a time: the length of a word is hard to predict for a loop over its letters */
    for (; size - at >= 16; at += 16) {
        const __m128i text = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
        const __m128i folded = _mm_or_si128(text, _mm_set1_epi8(0x20));
        /* signed comparisons: bytes from 0x80 on are negative, and so in no range */
        const __m128i letter = _mm_and_si128(_mm_cmpgt_epi8(folded, _mm_set1_epi8('a' - 1)),
                                             _mm_cmplt_epi8(folded, _mm_set1_epi8('z' + 1)));
        const __m128i digit = _mm_and_si128(_mm_cmpgt_epi8(text, _mm_set1_epi8('0' - 1)),
                                            _mm_cmplt_epi8(text, _mm_set1_epi8('9' + 1)));
        const unsigned other = ~(unsigned)_mm_movemask_epi8(_mm_or_si128(letter, digit)) & 0xFFFFu;
        if (other)
            return at + (size_t)__builtin_ctz(other);
    }
#endif
    while (at < size && kinds[p[at]] & (LETTER | DIGIT))
        at++;
    return at;
}

/* The token that begins with the ASCII letter or digit at p, where only ASCII decides; else the automaton's. */
static inline size_t match_ascii(const uint8_t *p, size_t size)
{
    size_t at = 0;

    for (;;) {
        unsigned kind, next;
        at += run_length(p + at, size - at);
        if (at >= size || !(kind = kinds[p[at]]))
            break;
        if (kind & HARD)
            return match(p, size);
        if (at + 1 >= size)
            break;
        /* a middle character holds the word together between two letters, or two digits, as its kind is */
        next = kinds[p[at + 1]];
        if (next & HARD && p[at + 1] >= 0x80)
            return match(p, size);
        if (!(kind >> 2 & next & kinds[p[at - 1]]))
            break;
        at++;
    }
    return at <= TOKEN_UNITS ? at : match(p, size);
}

/* r2_next_token, to be compiled into its callers. */
static inline size_t next_token(const uint8_t *text, size_t size, size_t *at, size_t *start)
{
    size_t i = *at, length;

    while (i < size) {
        unsigned c = text[i];
        if (kinds[c] & (LETTER | DIGIT)) {
            length = match_ascii(text + i, size - i);
        } else if (kinds[c] & HARD) {
            length = match(text + i, size - i);
        } else {
            i++;
            continue;
        }
        if (length) {
            *start = i;
            *at = i + length;
            return length;
        }
        decode(text + i, size - i, &length);
        i += length;
    }
    *at = size;
    return 0;
}

size_t r2_next_token(const uint8_t *text, size_t size, size_t *at, size_t *start)
{
    return next_token(text, size, at, start);
}

/* ---- terms ------------------------------------------------------------------------------------------------------ */

static const char *const stop_words[] = { /* in alphabetical order */
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
};

static int in_list(const char *const *list, size_t entries, const uint16_t *w, size_t n)
{
    size_t i, k;

    if (n < 1)
        return 0;
    for (i = 0; i < entries && (uint16_t)list[i][0] <= w[0]; i++) {
        for (k = 0; k < n && list[i][k] && w[k] == (uint16_t)list[i][k]; k++)
            ;
        if (k == n && !list[i][k])
            return 1;
    }
    return 0;
}

static uint32_t lower(uint32_t c)
{
    size_t from = 0, to = sizeof lower_ranges / sizeof lower_ranges[0];

    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (c < lower_ranges[middle].first)
            to = middle;
        else if (c > lower_ranges[middle].last)
            from = middle + 1;
        else if ((c - lower_ranges[middle].first) % lower_ranges[middle].step)
            return c;
        else
            return c - lower_ranges[middle].first + lower_ranges[middle].lower;
    }
    return c;
}

size_t r2_english_term(const uint8_t *token, size_t size, uint8_t out[R2_TERM_MAX])
{
    uint16_t w[TOKEN_UNITS + 3];
    size_t at = 0, length = 0, step;
    int n = 0, i;

    while (at < size && n < TOKEN_UNITS) {
        uint32_t c = decode(token + at, size - at, &step);
        at += step;
        /* the possessive goes before the case does, and Lucene knows three apostrophes */
        if (n && at < size && (c == '\'' || c == 0x2019 || c == 0xFF07) && at + 1 == size && (token[at] | 0x20) == 's')
            break;
        c = lower(c);
        if (c > 0xFFFF) {
            w[n++] = (uint16_t)(0xD800 + ((c - 0x10000) >> 10));
            w[n++] = (uint16_t)(0xDC00 + (c & 0x3FF));
        } else {
            w[n++] = (uint16_t)c;
        }
    }
    if (n <= 5 && in_list(stop_words, sizeof stop_words / sizeof stop_words[0], w, (size_t)n))
        return 0;
    n = r2_porter(w, n);
    for (i = 0; i < n; i++) {
        uint32_t c = w[i];
        if (c >= 0xD800 && c < 0xDC00 && i + 1 < n)
            c = 0x10000 + ((c - 0xD800) << 10) + (w[++i] - 0xDC00u);
        length += encode(c, out + length);
    }
    return length;
}

/* ---- the Nano analyzer ------------------------------------------------------------------------------------------- */

/* The stop words of NanoR2MED's builder, in alphabetical order. */
static const char *const nano_stop_words[] = {
    "a", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "for", "from", "had", "has", "have", "he",
    "her", "hers", "him", "his", "i", "if", "in", "into", "is", "it", "its", "itself", "me", "my", "myself", "of", "on",
    "or", "our", "ours", "ourselves", "she", "so", "than", "that", "the", "their", "theirs", "them", "themselves",
    "then", "there", "these", "they", "this", "those", "to", "too", "up", "very", "was", "we", "were", "what", "when",
    "where", "which", "who", "whom", "why", "will", "with", "you", "your", "yours", "yourself", "yourselves",
};

static inline size_t next_run(const uint8_t *text, size_t size, size_t *at, size_t *start)
{
    size_t i = *at, length;

    while (i < size && !(kinds[text[i]] & (LETTER | DIGIT)))
        i++;
    length = run_length(text + i, size - i);
    *start = i;
    *at = i + length;
    return length;
}

size_t r2_next_run(const uint8_t *text, size_t size, size_t *at, size_t *start)
{
    return next_run(text, size, at, start);
}

size_t r2_nano_term(const uint8_t *token, size_t size, uint16_t *w, uint8_t *out)
{
    size_t i;
    int n;

    for (i = 0; i < size; i++)
        w[i] = (uint16_t)(token[i] >= 'A' && token[i] <= 'Z' ? token[i] | 0x20 : token[i]);
    if (in_list(nano_stop_words, sizeof nano_stop_words / sizeof nano_stop_words[0], w, size))
        return 0;
    n = r2_porter_nltk(w, (int)size);
    for (i = 0; i < (size_t)n; i++)
        out[i] = (uint8_t)w[i];
    return (size_t)n;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* Unicode White_Space. */
static int is_space(uint32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static size_t next_field(const uint8_t *text, size_t size, size_t *at, size_t *start)
{
    size_t i = *at, length = 1;

    while (i < size && is_space(text[i] < 0x80 ? text[i] : decode(text + i, size - i, &length)))
        i += length, length = 1;
    for (*start = i; i < size && !is_space(text[i] < 0x80 ? text[i] : decode(text + i, size - i, &length)); length = 1)
        i += length;
    *at = i;
    return i - *start;
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

#define STOPPED (-1)     /* instead of a term id: a stop word */
#define FAILED (-2)      /* no memory */
#define FULL (-3)        /* more terms than an int32 can number */
#define INLINE 16        /* tokens up to this length are compared inside the table */
#define MEMO_MOST 400000 /* tokens remembered at most; then all are forgotten, and the frequent ones soon are back */
#define MEMO_LONGEST 1024

/* Remembers the term of each token as it stands in the text, so that most tokens are not analyzed at all. Up to INLINE
 * bytes the token is in the slot itself, longer ones are looked up where they first stood. */
typedef struct {
    uint64_t head, tail; /* the token, filled with zeros; or its place in the data and its hash */
    uint32_t length;     /* 0: an empty slot */
    int32_t term;
} memo_slot;

typedef struct {
    const uint8_t *data, *end;
    memo_slot *memo;
    size_t memo_slots, memo_used;
    uint32_t *table; /* term id + 1 by hash of the term, open addressing */
    size_t table_slots;
    int64_t *last; /* by term: its posting counted last */
    int64_t terms, room;
    uint8_t *text;
    size_t text_used, text_room;
    int64_t *starts;
    uint8_t *scratch; /* a repaired field */
    size_t scratch_room;
} counter;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u ^ (b << 32 | b >> 32) * 0x94D049BB133111EBu;
    return (h ^ h >> 32) * 0x9E3779B97F4A7C15u;
}

static uint64_t hash_bytes(const uint8_t *p, size_t size)
{
    uint64_t h = size, part;

    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&part, p, 8);
        h = mix(h, part);
    }
    part = 0;
    memcpy(&part, p, size);
    h = mix(h, part);
    return h ^ h >> 29;
}

/* A larger array, or NULL; the old one stays valid then. */
static void *enlarge(void *array, size_t count, size_t size)
{
    return count > SIZE_MAX / size ? NULL : realloc(array, count * size);
}

static int add_term(counter *c, const uint8_t *term, size_t size)
{
    if (c->terms == c->room) {
        int64_t room = c->room + c->room / 2 + 1024;
        int64_t *last = enlarge(c->last, (size_t)room, sizeof *last), *starts;
        if (!last)
            return 0;
        c->last = last;
        if (!(starts = enlarge(c->starts, (size_t)room + 1, sizeof *starts)))
            return 0;
        c->starts = starts;
        c->room = room;
    }
    if (size > c->text_room - c->text_used) {
        size_t room = c->text_room + c->text_room / 2 + size + 4096;
        uint8_t *text = room < size ? NULL : enlarge(c->text, room, 1);
        if (!text)
            return 0;
        c->text = text;
        c->text_room = room;
    }
    memcpy(c->text + c->text_used, term, size);
    c->text_used += size;
    c->last[c->terms] = -1;
    c->starts[++c->terms] = (int64_t)c->text_used;
    return 1;
}

static uint64_t hash_of_term(const counter *c, int64_t id)
{
    return hash_bytes(c->text + c->starts[id], (size_t)(c->starts[id + 1] - c->starts[id]));
}

/* Twice the slots, or the first ones. */
static int grow_table(counter *c)
{
    size_t slots = c->table_slots ? c->table_slots * 2 : 1 << 12, i;
    uint32_t *table = slots > SIZE_MAX / sizeof *table ? NULL : calloc(slots, sizeof *table);
    int64_t id;

    if (!table)
        return 0;
    for (id = 0; id < c->terms; id++) {
        for (i = (size_t)hash_of_term(c, id) & (slots - 1); table[i]; i = (i + 1) & (slots - 1))
            ;
        table[i] = (uint32_t)id + 1;
    }
    free(c->table);
    c->table = table;
    c->table_slots = slots;
    return 1;
}

/* The id of a term, new or known. */
static int32_t intern(counter *c, const uint8_t *term, size_t size)
{
    size_t i;

    if ((uint64_t)c->terms * 3 >= c->table_slots * 2 && !grow_table(c))
        return FAILED;
    for (i = (size_t)hash_bytes(term, size) & (c->table_slots - 1); c->table[i]; i = (i + 1) & (c->table_slots - 1)) {
        int64_t id = (int64_t)c->table[i] - 1;
        if ((size_t)(c->starts[id + 1] - c->starts[id]) == size && !memcmp(c->text + c->starts[id], term, size))
            return (int32_t)id;
    }
    if (c->terms == INT32_MAX)
        return FULL;
    if (!add_term(c, term, size))
        return FAILED;
    c->table[i] = (uint32_t)c->terms;
    return (int32_t)(c->terms - 1);
}

static int32_t english_term(counter *c, const uint8_t *token, size_t size)
{
    uint8_t term[R2_TERM_MAX];
    size_t length = r2_english_term(token, size, term);

    return length ? intern(c, term, length) : STOPPED;
}

/* Room for a token of any length: its letters as the stemmer takes them, and the term. */
static int32_t nano_term(counter *c, const uint8_t *token, size_t size)
{
    const size_t letters = size + 1; /* one more for a final e that the stemmer may add */
    size_t length;

    if (size >= INT_MAX)
        return FAILED;
    if (c->scratch_room < letters * 3) {
        uint8_t *scratch = realloc(c->scratch, letters * 3);
        if (!scratch)
            return FAILED;
        c->scratch = scratch;
        c->scratch_room = letters * 3;
    }
    length = r2_nano_term(token, size, (uint16_t *)(void *)c->scratch, c->scratch + letters * 2);
    return length ? intern(c, c->scratch + letters * 2, length) : STOPPED;
}

/* A field as it is, but for malformed bytes. */
static int32_t field_term(counter *c, const uint8_t *field, size_t size)
{
    size_t at, step, used = 0;

    if (size > SIZE_MAX / 3)
        return FAILED;
    if (c->scratch_room < size * 3) {
        uint8_t *scratch = realloc(c->scratch, size * 3);
        if (!scratch)
            return FAILED;
        c->scratch = scratch;
        c->scratch_room = size * 3;
    }
    for (at = 0; at < size; at += step)
        used += encode(decode(field + at, size - at, &step), c->scratch + used);
    return intern(c, c->scratch, used);
}

static int grow_memo(counter *c)
{
    size_t slots = c->memo_slots ? c->memo_slots * 2 : 1 << 13, i, k;
    memo_slot *memo = calloc(slots, sizeof *memo);

    if (!memo)
        return 0;
    for (i = 0; i < c->memo_slots; i++)
        if (c->memo[i].length) {
            const memo_slot *slot = &c->memo[i];
            uint64_t h = slot->length <= INLINE ? mix(slot->head, slot->tail) : slot->tail;
            for (k = h >> 20 & (slots - 1); memo[k].length; k = (k + 1) & (slots - 1))
                ;
            memo[k] = *slot;
        }
    free(c->memo);
    c->memo = memo;
    c->memo_slots = slots;
    return 1;
}

/* A token of at most INLINE bytes as two words. */
static inline void load(const counter *c, const uint8_t *token, size_t size, uint64_t *head, uint64_t *tail)
{
    uint64_t part[2] = {0, 0};

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* read past the token where the data goes on, and blank the rest: faster than a copy of unknown length */
    if (c->end - token >= INLINE) {
        memcpy(part, token, INLINE);
        part[0] &= size >= 8 ? ~(uint64_t)0 : ((uint64_t)1 << size * 8) - 1;
        part[1] &= size >= 16 ? ~(uint64_t)0 : size <= 8 ? 0 : ((uint64_t)1 << (size - 8) * 8) - 1;
        *head = part[0], *tail = part[1];
        return;
    }
#endif
    memcpy(part, token, size);
    *head = part[0];
    *tail = part[1];
}

/* The term id of a token, STOPPED, FAILED or FULL. */
static inline int32_t term_of(counter *c, const uint8_t *token, size_t size, enum r2_analyzer analyzer)
{
    uint64_t head, tail, h;
    memo_slot *slot;
    size_t i;
    int32_t term;

    if (size <= INLINE) {
        load(c, token, size, &head, &tail);
        h = mix(head, tail);
    } else {
        head = (uint64_t)(token - c->data);
        h = tail = hash_bytes(token, size);
    }
    for (i = h >> 20 & (c->memo_slots - 1); (slot = &c->memo[i])->length; i = (i + 1) & (c->memo_slots - 1))
        if (slot->tail == tail && slot->length == size &&
            (size <= INLINE ? slot->head == head : !memcmp(c->data + slot->head, token, size)))
            return slot->term;
    term = analyzer == R2_ENGLISH ? english_term(c, token, size)
           : analyzer == R2_NANO  ? nano_term(c, token, size)
                                  : field_term(c, token, size);
    if (term < STOPPED || size > MEMO_LONGEST)
        return term;
    if (c->memo_used >= MEMO_MOST) {
        memset(c->memo, 0, c->memo_slots * sizeof *c->memo);
        c->memo_used = 0;
        return term;
    }
    slot->head = head, slot->tail = tail, slot->length = (uint32_t)size, slot->term = term;
    if (++c->memo_used * 2 > c->memo_slots && !grow_memo(c))
        return FAILED;
    return term;
}

static inline int64_t offset_at(const void *offsets, size_t i)
{
    int64_t value;

    memcpy(&value, (const uint8_t *)offsets + i * sizeof value, sizeof value); /* it need not be aligned */
    return value;
}

/* The loop over all texts, compiled once for each analyzer. */
static inline enum r2_status count(counter *c, const void *offsets, size_t texts, const enum r2_analyzer analyzer,
                                   int64_t *indptr, r2_grow grow, void *context)
{
    int32_t *terms = NULL, *counts = NULL;
    int64_t used = 0, room = 0;
    size_t i;

    indptr[0] = 0;
    for (i = 0; i < texts; i++) {
        const int64_t from = offset_at(offsets, i), to = offset_at(offsets, i + 1), first = used;
        const uint8_t *text;
        size_t at = 0, start = 0, length;

        if (from < 0 || to < from || to > c->end - c->data)
            return R2_BAD_OFFSETS;
        text = c->data + from;
        while ((length = analyzer == R2_ENGLISH ? next_token(text, (size_t)(to - from), &at, &start)
                         : analyzer == R2_NANO  ? next_run(text, (size_t)(to - from), &at, &start)
                                                : next_field(text, (size_t)(to - from), &at, &start))) {
            int32_t term = term_of(c, text + start, length, analyzer);
            if (term == STOPPED)
                continue;
            if (term < 0)
                return term == FULL ? R2_TOO_MANY_TERMS : R2_NO_MEMORY;
            if (c->last[term] >= first) {
                counts[c->last[term]]++;
                continue;
            }
            if (used == room) {
                room += room / 2 + 4096;
                if (grow(context, (size_t)room, &terms, &counts))
                    return R2_STOPPED;
            }
            c->last[term] = used;
            terms[used] = term;
            counts[used++] = 1;
        }
        indptr[i + 1] = used;
    }
    return R2_OK;
}

enum r2_status r2_count_terms(const uint8_t *data, size_t size, const void *offsets, size_t texts,
                              enum r2_analyzer analyzer, int64_t *indptr, r2_grow grow, void *context,
                              r2_vocabulary *vocabulary)
{
    counter c = {.data = data, .end = data + size};
    enum r2_status status = R2_NO_MEMORY;

    if (grow_memo(&c) && grow_table(&c) && (c.starts = calloc(1, sizeof *c.starts)))
        status = analyzer == R2_ENGLISH ? count(&c, offsets, texts, R2_ENGLISH, indptr, grow, context)
                 : analyzer == R2_NANO  ? count(&c, offsets, texts, R2_NANO, indptr, grow, context)
                                        : count(&c, offsets, texts, R2_WHITESPACE, indptr, grow, context);
    free(c.memo);
    free(c.table);
    free(c.last);
    free(c.scratch);
    vocabulary->text = c.text;
    vocabulary->offsets = c.starts;
    vocabulary->size = c.terms;
    return status;
}

void r2_vocabulary_free(r2_vocabulary *vocabulary)
{
    free(vocabulary->text);
    free(vocabulary->offsets);
    memset(vocabulary, 0, sizeof *vocabulary);
}
