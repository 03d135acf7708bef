/* BERT in 512-bit vectors, with the instruction that multiplies and adds four bytes in each lane. */
#include "bert_model.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(R2_PORTABLE)
/* For the whole file: vectors are taken apart before a function is inlined into one that could hold them. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni,prefer-vector-width=512")
#endif

#include <immintrin.h>
#include <stdint.h>

#define LOWER(a, b) ((Lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define HIGHER(a, b) ((Lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LARGER(a, b) ((Whole)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#include "bert_wide.h"

/* Sums have names of their own: compilers keep those of an array in memory.
 *
 * A unit of every column of a panel is one register; a unit of a row meets all of them. */
#define ADD(r, p) \
    if (panels > p) \
        s##r##p = kind == BYTES ? _mm512_dpbusd_epi32(s##r##p, held, c##p) : _mm512_dpwssd_epi32(s##r##p, held, c##p);
#define COLUMN(p) \
    if (panels > p) c##p = _mm512_loadu_si512(right + p * UNIT * PANEL);
#define ROW(r) \
    if (rows > r) { \
        const __m512i held = _mm512_set1_epi32(unit_at(left + r * stride)); \
        ADD(r, 0) ADD(r, 1) ADD(r, 2) ADD(r, 3) \
    }
#define KEEP(r, p) \
    if (rows > r && panels > p) _mm512_storeu_si512(out + r * gap + p * PANEL, s##r##p);
#define KEEP_ROW(r) KEEP(r, 0) KEEP(r, 1) KEEP(r, 2) KEEP(r, 3)

INLINE void tile(int kind, int rows, int panels, const void *a, int64_t stride, int64_t units,
                 const void *b, int32_t *out, int64_t gap) {
    const uint8_t *left = a, *right = b;
    const __m512i none = _mm512_setzero_si512();
    __m512i s00 = none, s01 = none, s02 = none, s03 = none, s10 = none, s11 = none, s12 = none, s13 = none;
    __m512i s20 = none, s21 = none, s22 = none, s23 = none, s30 = none, s31 = none, s32 = none, s33 = none;
    __m512i s40 = none, s41 = none, s42 = none, s43 = none, s50 = none, s51 = none, s52 = none, s53 = none;
    __m512i c0 = none, c1 = none, c2 = none, c3 = none;
    for (int64_t unit = 0; unit < units; unit++, left += UNIT, right += panels * UNIT * PANEL) {
        COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5)
    }
    KEEP_ROW(0) KEEP_ROW(1) KEEP_ROW(2) KEEP_ROW(3) KEEP_ROW(4) KEEP_ROW(5)
}

#define RUN r2_bert_vnni
#define ACROSS 0
#define ROWS 6
#define PANELS 4
#define KINDS 2
#define TILE tile
#define IN_WIDE
#include "bert_layers.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
