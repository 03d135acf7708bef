/* Sixteen floats in the vectors that a processor has: PARTS(do) names them, each of type Part (WholePart, BitsPart).
 *
 * Compilers keep a vector that is wider than the processor's in memory; a struct of narrower ones they take apart. */
#ifndef R2MED_BERT_PARTS_H
#define R2MED_BERT_PARTS_H

#include <stdint.h>
#include <string.h>

#include "compiler.h"

#define DECLARE(m) Part m;
typedef struct {
    PARTS(DECLARE)
} Sixteen;
#undef DECLARE
#define DECLARE(m) WholePart m;
typedef struct {
    PARTS(DECLARE)
} WholeSixteen;
#undef DECLARE
#define Lanes Sixteen
#define Whole WholeSixteen
#define add parts_add
#define multiply parts_multiply
#define at parts_at
#define zeros parts_zeros

#define MAKE(name, type, expression) \
    INLINE type name { \
        type made; \
        PARTS(expression) \
        return made; \
    }
#define DO(m) made.m = x.m + y.m;
MAKE(add(Lanes x, Lanes y), Lanes, DO)
#undef DO
#define DO(m) made.m = x.m * y.m;
MAKE(multiply(Lanes x, Lanes y), Lanes, DO)
#undef DO
#define DO(m) made.m = x.m - y.m;
MAKE(minus(Lanes x, Lanes y), Lanes, DO)
MAKE(difference(Whole x, Whole y), Whole, DO)
#undef DO
#define DO(m) made.m = x.m / y.m;
MAKE(divide(Lanes x, Lanes y), Lanes, DO)
#undef DO
#define DO(m) made.m = value - (Part){0};
MAKE(splat(float value), Lanes, DO)
#undef DO
#define DO(m) made.m = x.m < y.m;
MAKE(below(Lanes x, Lanes y), Whole, DO)
#undef DO
#define DO(m) made.m = x.m | y.m;
MAKE(either(Whole x, Whole y), Whole, DO)
#undef DO
#define DO(m) made.m = (Part)(((WholePart)x.m & first.m) | ((WholePart)y.m & ~first.m));
MAKE(choose(Whole first, Lanes x, Lanes y), Lanes, DO)
#undef DO
#define DO(m) made.m = (x.m & (x.m > y.m)) | (y.m & ~(x.m > y.m));
MAKE(larger(Whole x, Whole y), Whole, DO)
#undef DO
#define DO(m) made.m = __builtin_convertvector(x.m, Part);
MAKE(from_whole(Whole x), Lanes, DO)
#undef DO
#define DO(m) made.m = (Part)((WholePart)x.m & 0x7fffffff);
MAKE(magnitude(Lanes x), Lanes, DO)
#undef DO
#define DO(m) made.m = (Part)((BitsPart)x.m + ((BitsPart)power.m << 23));
MAKE(scaled(Lanes x, Lanes power), Lanes, DO)
#undef DO
#define DO(m) made.m = (Part){0};
MAKE(zeros(void), Lanes, DO)
#undef DO
#define DO(m) made.m = (WholePart){0};
MAKE(nothing(void), Whole, DO)
#undef DO
#define DO(m) memcpy(&made.m, values, sizeof made.m), values += sizeof made.m / sizeof *values;
MAKE(at(const float *values), Lanes, DO)
MAKE(wholes_at(const int32_t *values), Whole, DO)
#undef DO
#undef MAKE

#define DO(m) memcpy(out, &x.m, sizeof x.m), out += sizeof x.m / sizeof *out;
INLINE void put(Lanes x, float *out) { PARTS(DO) }
INLINE void put_whole(Whole x, int32_t *out) { PARTS(DO) }
#undef DO

#ifndef PUT_BYTES
INLINE void put_bytes(Lanes x, uint8_t *out) {
    float held[LANES];
    uint32_t bits[LANES];
    put(x, held);
    memcpy(bits, held, sizeof bits);
    for (int i = 0; i < LANES; i++) out[i] = (uint8_t)(bits[i] & 255);
}
INLINE void put_shorts(Lanes x, int16_t *out) {
    float held[LANES];
    uint32_t bits[LANES];
    uint16_t low[LANES];
    put(x, held);
    memcpy(bits, held, sizeof bits);
    for (int i = 0; i < LANES; i++) low[i] = (uint16_t)bits[i];
    memcpy(out, low, sizeof low);
}
#endif

#endif
