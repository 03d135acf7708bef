/* Steps of bert_layers.h in instructions of 512 bits, with the bits of those in bert_math.h. Whole numbers may stand in
 * another order where all that is done with them is to add up products: it saves turning them back. */
#ifndef R2MED_BERT_WIDE_H
#define R2MED_BERT_WIDE_H

#include <immintrin.h>
#include <stdint.h>

#define LOWER(a, b) ((Lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define HIGHER(a, b) ((Lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LARGER(a, b) ((Whole)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#include "bert_math.h"
#include "bert_model.h"

enum { PAIRS = 2 * LANES }; /* numbers of two registers that become one of 16 bits each */

/* As `quantize`. What the rounder makes of a number below 2^22 is what the instruction makes of it. */
INLINE void quantize_wide(const float *in, int64_t count, Step step, uint8_t *out) {
    const __m512 inverse = _mm512_set1_ps(step.inverse), sizes = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));
    const __m512i zero = _mm512_set1_epi16((short)step.zero);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const int64_t whole = step.inverse < 1e30f ? count / CHUNK * CHUNK : 0; /* else numbers too large may come out */
    for (int64_t i = 0; i < whole; i += CHUNK) {
        __m512 rest = _mm512_setzero_ps();
#define PART(k) \
    const __m512 about##k = _mm512_mul_ps(_mm512_loadu_ps(in + i + k * LANES), inverse); \
    const __m512i made##k = _mm512_cvtps_epi32(about##k); \
    const __m512 rest##k = _mm512_sub_ps(about##k, _mm512_cvtepi32_ps(made##k)); \
    rest = _mm512_max_ps(_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(rest##k), \
                                                              _mm512_castps_si512(sizes))), rest);
        PART(0) PART(1) PART(2) PART(3)
#undef PART
        const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(made0, made1), zero);
        const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(made2, made3), zero);
        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
        if (__builtin_expect(_mm512_cmp_ps_mask(_mm512_set1_ps(0.4999f), rest, _CMP_LT_OQ) != 0, 0))
            quantize(in + i, CHUNK, step, out + i);
    }
    quantize(in + whole, count - whole, step, out + whole);
}

/* Sixteen floats as whole numbers of at most `limit`. */
INLINE __m512i wholes_of(const float *in, float factor, float limit) {
    return _mm512_cvtps_epi32((__m512)within(multiply(at(in), splat(factor)), limit));
}

/* Numbers of a query or a key from number `i` on, 32 of them, or 16 and zeros; pairs of neighbours stay together. */
INLINE __m512i shorts_of(const float *in, int64_t i, int64_t size, float factor, float limit) {
    const __m512i first = wholes_of(in + i, factor, limit);
    if (i + LANES < size) return _mm512_packs_epi32(first, wholes_of(in + i + LANES, factor, limit));
    return _mm512_zextsi256_si512(_mm512_cvtepi32_epi16(first));
}

INLINE void pack_queries(const float *in, int64_t tokens, int64_t stride, int64_t size, float factor, float limit,
                         int16_t *out) {
    for (int64_t token = 0; token < tokens; token++, in += stride, out += size)
        for (int64_t i = 0; i < size; i += PAIRS) {
            const __m512i made = shorts_of(in, i, size, factor, limit);
            if (i + LANES < size)
                _mm512_storeu_si512(out + i, made);
            else
                _mm256_storeu_si256((void *)(out + i), _mm512_castsi512_si256(made));
        }
}

/* Keys as columns, one a token, in groups of `most`: sixteen tokens are turned at a time. */
INLINE void pack_keys(const float *in, int64_t tokens, int64_t stride, int64_t size, float factor, float limit,
                      int64_t most, int16_t *out) {
    const int64_t padded = (tokens + LANES - 1) / LANES * LANES;
    for (int64_t token = 0; token < padded; token += LANES) {
        const int64_t from = token / most * most, width = padded - from < most ? padded - from : most;
        int16_t *to = out + from * size + (token - from) * 2;
        for (int64_t i = 0; i < size; i += PAIRS) {
            __m512i a[LANES], b[LANES];
            for (int k = 0; k < LANES; k++)
                a[k] = token + k < tokens ? shorts_of(in + (token + k) * stride, i, size, factor, limit)
                                          : _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int k = 0; k < LANES; k += 2) {
                b[k] = _mm512_unpacklo_epi32(a[k], a[k + 1]), b[k + 1] = _mm512_unpackhi_epi32(a[k], a[k + 1]);
            }
#pragma GCC unroll 4
            for (int k = 0; k < LANES; k += 4) {
                a[k] = _mm512_unpacklo_epi64(b[k], b[k + 2]), a[k + 1] = _mm512_unpackhi_epi64(b[k], b[k + 2]);
                a[k + 2] = _mm512_unpacklo_epi64(b[k + 1], b[k + 3]);
                a[k + 3] = _mm512_unpackhi_epi64(b[k + 1], b[k + 3]);
            }
            /* Quarter q of a[4 g + k] holds column 4 q + k of tokens 4 g to 4 g + 3. */
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                const __m512i even0 = _mm512_shuffle_i32x4(a[k], a[k + 4], 0x88);
                const __m512i odd0 = _mm512_shuffle_i32x4(a[k], a[k + 4], 0xdd);
                const __m512i even1 = _mm512_shuffle_i32x4(a[k + 8], a[k + 12], 0x88);
                const __m512i odd1 = _mm512_shuffle_i32x4(a[k + 8], a[k + 12], 0xdd);
                int16_t *column = to + (i / 2 + k) * 2 * width;
                _mm512_storeu_si512(column, _mm512_shuffle_i32x4(even0, even1, 0x88));
                _mm512_storeu_si512(column + 8 * width, _mm512_shuffle_i32x4(odd0, odd1, 0x88));
                if (i + LANES < size) {
                    _mm512_storeu_si512(column + 16 * width, _mm512_shuffle_i32x4(even0, even1, 0xdd));
                    _mm512_storeu_si512(column + 24 * width, _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
                }
            }
        }
    }
}

/* Values as columns, one a number, in groups of `most`: two tokens meet in one lane. Pairs of tokens stand as `weigh`
 * leaves them. */
INLINE void pack_values(const float *in, int64_t tokens, int64_t stride, int64_t size, float factor, int64_t most,
                        int16_t *out) {
    const int64_t padded = (tokens + LANES - 1) / LANES * LANES;
    for (int64_t token = 0; token < padded; token += 2) {
        const int64_t group = token / PAIRS * PAIRS, pair = (token - group) / 2;
        const int64_t unit = group / 2 + (group + PAIRS <= padded ? pair % 8 / 2 * 4 + pair / 8 * 2 + pair % 2 : pair);
        for (int64_t from = 0; from < size; from += most) {
            const int64_t width = size - from < most ? size - from : most;
            int16_t *to = out + from * padded + unit * 2 * width;
            for (int64_t i = 0; i < width; i += LANES) {
                const float *place = in + token * stride + from + i;
                __m512i first = _mm512_setzero_si512(), second = first;
                if (token < tokens) first = wholes_of(place, factor, 32767.0f);
                if (token + 1 < tokens) second = _mm512_slli_epi32(wholes_of(place + stride, factor, 32767.0f), 16);
                _mm512_storeu_si512(to + 2 * i, _mm512_mask_blend_epi16(0xaaaaaaaa, first, second));
            }
        }
    }
}

/* Weights as whole numbers, 32 at a time in the order that packing leaves. */
INLINE void weigh(const float *scores, int64_t keys, float factor, int16_t *out) {
    const __m512 by = _mm512_set1_ps(factor < 3e38f ? factor : 0); /* else all scores are no numbers, and weights 0 */
    int64_t i = 0;
    for (; i + PAIRS <= keys; i += PAIRS) {
        const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(scores + i), by));
        const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(scores + i + LANES), by));
        _mm512_storeu_si512(out + i, _mm512_packs_epi32(first, second));
    }
    if (i < keys) {
        const __m512i last = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(scores + i), by));
        _mm256_storeu_si256((void *)(out + i), _mm512_cvtepi32_epi16(last));
    }
}

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

#define ACROSS 0
#define ROWS 6
#define PANELS 4
#define KINDS 2
#define TILE tile
#define IN_WIDE

#endif
