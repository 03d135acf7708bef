/* BERT in 256-bit vectors. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(R2_PORTABLE)
/* For the whole file: vectors are taken apart before a function is inlined into one that could hold them. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#include <immintrin.h>
#include <stdint.h>

#include "bert_math.h"
#include "bert_model.h"

/* One panel. Bytes are widened to 16 bits on the way: the instruction that multiplies bytes would saturate. */
#define ADD(r, p) s##r##p = _mm256_add_epi32(s##r##p, _mm256_madd_epi16(row##r, columns));
#define ROW(r) \
    if (rows > r) \
        row##r = size == 1 ? _mm256_cvtepu8_epi16(_mm_set1_epi32(unit_at(left + r * stride))) \
                           : _mm256_set1_epi32(unit_at(left + r * stride));
#define PART(p) \
    if (size == 1 || p < 2) { \
        const __m256i columns = size == 1 ? _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(right + p * 16))) \
                                          : _mm256_loadu_si256((const void *)(right + p * 32)); \
        ADD(0, p) \
        if (rows > 1) { ADD(1, p) } \
        if (rows > 2) { ADD(2, p) } \
    }
/* Of bytes, two sums of each column, brought into order. */
#define KEEP(r) \
    if (rows > r) { \
        const __m256i low = size == 1 ? _mm256_permute4x64_epi64(_mm256_hadd_epi32(s##r##0, s##r##1), 0xd8) : s##r##0; \
        const __m256i high = size == 1 ? _mm256_permute4x64_epi64(_mm256_hadd_epi32(s##r##2, s##r##3), 0xd8) : s##r##1; \
        _mm256_storeu_si256((void *)(out + r * gap), low); \
        _mm256_storeu_si256((void *)(out + r * gap + PANEL / 2), high); \
    }

INLINE void tile(int size, int rows, int panels, const void *a, int64_t stride, int64_t units,
                 const void *b, int32_t *out, int64_t gap) {
    const uint8_t *left = a, *right = b;
    const __m256i none = _mm256_setzero_si256();
    __m256i s00 = none, s01 = none, s02 = none, s03 = none, s10 = none, s11 = none, s12 = none, s13 = none;
    __m256i s20 = none, s21 = none, s22 = none, s23 = none, row0 = none, row1 = none, row2 = none;
    (void)panels;
    for (int64_t unit = 0; unit < units; unit++, left += UNIT, right += UNIT * PANEL) {
        ROW(0) ROW(1) ROW(2)
        PART(0) PART(1) PART(2) PART(3)
    }
    KEEP(0) KEEP(1) KEEP(2)
}

#define RUN r2_bert_avx2
#define ACROSS 0
#define ROWS 3
#define PANELS 1
#define TILE tile
#include "bert_layers.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
