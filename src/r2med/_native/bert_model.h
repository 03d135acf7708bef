/* The weights of a BERT encoder as bert.c holds them: packed once, for the way in which they are multiplied. */
#ifndef R2MED_BERT_MODEL_H
#define R2MED_BERT_MODEL_H

#include <stdint.h>
#include <string.h>

enum {
    UNIT = 4,   /* bytes: four numbers of 8 bits or two of 16, which meet in one lane */
    PANEL = 16, /* columns side by side */
    MOST_LAYERS = 64,
    MOST_SIZE = 256, /* of a head */
    MOST_ROWS = 6,   /* of one tile */
    MOST_TALL = 32   /* of one tile of bytes */
};

/* What is multiplied: bytes by signed bytes, by those that are 64 at most, or signed numbers of 16 bits by such. */
enum { BYTES = 1, SHORTS = 2, NARROW = 3 };

/* A matrix of whole numbers, in panels of sixteen columns; a panel holds units of a few rows of all its columns. */
typedef struct {
    const int8_t *packed;
    const int32_t *sums; /* of each column */
    const float *scale, *bias;
    int64_t rows, columns;
    int narrow; /* no number is above 64 */
} Matrix;

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Matrix heads, out, wide, narrow; /* queries, keys and values; attention's output; the two of the network */
    Norm attended, made;
} Layer;

/* A table of vectors as bytes. */
typedef struct {
    const uint8_t *rows;
    int64_t count;
    float scale, zero;
} Table;

typedef struct Text Text;

typedef struct {
    int64_t hidden, heads, wide, layers;
    Table words, types, positions;
    Norm embedded;
    float epsilon, divisor; /* of the products of queries and keys */
    int16_t limit;          /* of queries and keys as whole numbers: their products must fit into 32 bits */
    Layer layer[MOST_LAYERS];
    void (*run)(const Text *); /* in the way for which the matrices are packed */
    void *memory;
} Model;

/* One text, and memory for what is in between. */
struct Text {
    const Model *model;
    const int32_t *ids, *types;
    int64_t tokens, wanted; /* states of so many tokens are asked for, from the first */
    float *out;
    float *states, *sums, *wide; /* tokens × hidden, the same, tokens × max(wide, 3 × hidden) */
    uint8_t *bytes;              /* tokens × max(wide, hidden), padded to whole tiles of bytes */
    int16_t *queries, *keys, *values, *weights; /* of one head; padded to whole panels */
    int32_t *products; /* of a tile's rows with all keys */
    float *scores;     /* and of these, as floats */
    float *sizes;      /* the largest of queries, keys and values, for each sixteen columns */
};

/* How a way packs the right-hand side of a product: so many panels side by side, of each a unit at a time. A unit holds
 * neighbours of a column, or (`across`) one row after the other. */
typedef struct {
    int panels, across;
} Packing;

/* Where the bytes of a matrix stand. */
static inline int64_t packed_at(Packing packing, int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const int64_t most = packing.panels * PANEL, group = column / most, left = columns - group * most;
    const int64_t width = left < most ? left : most, inside = column - group * most;
    const int64_t unit = group * most * rows + row / UNIT * UNIT * width;
    return unit + (packing.across ? row % UNIT * width + inside : inside * UNIT + row % UNIT);
}

/* Tiles of bytes: the compiler has to know them, and Linux is asked for them (bert.c). */
#if defined(__x86_64__) && defined(__linux__) && !defined(R2_PORTABLE)
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define TILES
#endif
#endif

/* The ways of computing it, a file each. */
void r2_bert_amx(const Text *text);
void r2_bert_vnni(const Text *text);
void r2_bert_avx2(const Text *text);
void r2_bert_plain(const Text *text);

static inline int32_t unit_at(const void *place) {
    int32_t unit;
    memcpy(&unit, place, sizeof unit);
    return unit;
}

#endif
