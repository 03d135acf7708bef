/* BERT in 256-bit vectors. */
#include "bert_model.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(R2_PORTABLE)
/* For the whole file: vectors are taken apart before a function is inlined into one that could hold them. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#include <immintrin.h>
#include <stdint.h>

typedef float Part __attribute__((vector_size(32)));
typedef int32_t WholePart __attribute__((vector_size(32)));
typedef uint32_t BitsPart __attribute__((vector_size(32)));
#define PARTS(do) do(a) do(b)
#define PUT_BYTES
#include "bert_parts.h"

/* Numbers of two registers to one of shorts; instructions that pack work in halves of registers. */
INLINE __m256i as_shorts(Lanes x, int mask) {
    const __m256i kept = _mm256_set1_epi32(mask);
    const __m256i a = _mm256_and_si256((__m256i)x.a, kept), b = _mm256_and_si256((__m256i)x.b, kept);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}
INLINE void put_shorts(Lanes x, int16_t *out) { _mm256_storeu_si256((void *)out, as_shorts(x, 0xffff)); }
INLINE void put_bytes(Lanes x, uint8_t *out) {
    const __m256i shorts = as_shorts(x, 0xff);
    const __m128i low = _mm256_castsi256_si128(shorts), high = _mm256_extracti128_si256(shorts, 1);
    _mm_storeu_si128((void *)out, _mm_packus_epi16(low, high));
}
INLINE Lanes lower_parts(Lanes x, Lanes y) {
    return (Lanes){(Part)_mm256_min_ps((__m256)x.a, (__m256)y.a), (Part)_mm256_min_ps((__m256)x.b, (__m256)y.b)};
}
INLINE Lanes higher_parts(Lanes x, Lanes y) {
    return (Lanes){(Part)_mm256_max_ps((__m256)x.a, (__m256)y.a), (Part)_mm256_max_ps((__m256)x.b, (__m256)y.b)};
}
#define LOWER(a, b) lower_parts(a, b)
#define HIGHER(a, b) higher_parts(a, b)
#include "bert_math.h"

/* One panel, in two registers of a unit of eight columns each. The instruction that multiplies bytes adds two products in
 * 16 bits, where bytes up to 127 with any weights fit: the lowest bit of each byte is multiplied apart. Where no weight
 * is above 64, as quantization makes them for this instruction (`NARROW`), whole bytes fit too. */
#define PRODUCTS(r, p) \
    if (kind == SHORTS) \
        s##r##p = _mm256_add_epi32(s##r##p, _mm256_madd_epi16(held, c##p)); \
    else \
        s##r##p = _mm256_add_epi32(s##r##p, _mm256_madd_epi16(_mm256_maddubs_epi16(held, c##p), times));
#define LOW_BITS(r, p) \
    s##r##p = _mm256_add_epi32(s##r##p, _mm256_madd_epi16(_mm256_maddubs_epi16(low, c##p), ones));
#define ROW(r) \
    if (rows > r) { \
        __m256i held = _mm256_set1_epi32(unit_at(left + r * stride)); \
        if (kind == BYTES) { \
            const __m256i low = _mm256_and_si256(held, bits); \
            LOW_BITS(r, 0) \
            LOW_BITS(r, 1) \
            held = _mm256_srli_epi16(_mm256_andnot_si256(bits, held), 1); \
        } \
        PRODUCTS(r, 0) \
        PRODUCTS(r, 1) \
    }
#define KEEP(r) \
    if (rows > r) { \
        _mm256_storeu_si256((void *)(out + r * gap), s##r##0); \
        _mm256_storeu_si256((void *)(out + r * gap + PANEL / 2), s##r##1); \
    }

INLINE void tile(int kind, int rows, int panels, const void *a, int64_t stride, int64_t units,
                 const void *b, int32_t *out, int64_t gap) {
    const uint8_t *left = a, *right = b;
    const __m256i none = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1), bits = _mm256_set1_epi8(1);
    const __m256i times = _mm256_set1_epi16(kind == BYTES ? 2 : 1);
    __m256i s00 = none, s01 = none, s10 = none, s11 = none, s20 = none, s21 = none, s30 = none, s31 = none;
    (void)panels;
    for (int64_t unit = 0; unit < units; unit++, left += UNIT, right += UNIT * PANEL) {
        const __m256i c0 = _mm256_loadu_si256((const void *)right);
        const __m256i c1 = _mm256_loadu_si256((const void *)(right + UNIT * PANEL / 2));
        ROW(0) ROW(1) ROW(2) ROW(3)
    }
    KEEP(0) KEEP(1) KEEP(2) KEEP(3)
}

#define RUN r2_bert_avx2
#define ACROSS 0
#define ROWS 4
#define KINDS 3
#define PANELS 1
#define TILE tile
#include "bert_layers.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
