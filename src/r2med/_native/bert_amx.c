/* BERT in 512-bit vectors, with the instruction that multiplies whole tiles of bytes. */
#include "bert_model.h"

#ifdef TILES
/* For the whole file: vectors are taken apart before a function is inlined into one that could hold them. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni,amx-tile,amx-int8"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni,amx-tile,amx-int8,prefer-vector-width=512")
#endif

#include "bert_wide.h"

enum { HIGH = 16, ACROSS_TILE = 64, DEEP = ACROSS_TILE / UNIT }; /* rows of a tile, bytes of a row, units of a row */

/* Compilers do not know that instructions on tiles read memory: what was written before stands there. */
#define WRITTEN __asm__ volatile("" ::: "memory")

/* All tiles are whole: what rows that are not there would give is written where nobody reads it. */
#define EIGHT(n) {n, n, n, n, n, n, n, n}
static const struct {
    uint8_t palette, first, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shapes = {.palette = 1, .bytes = EIGHT(ACROSS_TILE), .rows = EIGHT(HIGH)};

/* A tile of fewer rows or bytes, with zeros up to a whole one. */
static const uint8_t *padded(const uint8_t *from, int64_t stride, int64_t rows, int64_t bytes, uint8_t *to) {
    memset(to, 0, HIGH * ACROSS_TILE);
    for (int64_t row = 0; row < rows; row++) memcpy(to + row * ACROSS_TILE, from + row * stride, (size_t)bytes);
    return to;
}

/* Two tiles of rows with two panels at a time: each tile that is read is used twice. */
static void tall_tile(int rows, int panels, const void *a, int64_t stride, int64_t units, const void *b, int32_t *out,
                      int64_t gap) {
    uint8_t rest[4][HIGH * ACROSS_TILE];
    const int tall = rows > HIGH;
    WRITTEN;
    for (int panel = 0; panel < panels; panel += 2) {
        const int both = panel + 1 < panels;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t unit = 0; unit < units; unit += DEEP) {
            const uint8_t *left = (const uint8_t *)a + unit * UNIT, *lower_left = left + HIGH * stride;
            const uint8_t *right = (const uint8_t *)b + (unit * panels + panel) * ACROSS_TILE;
            const uint8_t *next_right = right + ACROSS_TILE;
            int64_t left_gap = stride, right_gap = panels * ACROSS_TILE;
            const int64_t last = units - unit;
            if (last < DEEP) {
                left = padded(left, stride, HIGH, last * UNIT, rest[0]);
                if (tall) lower_left = padded(lower_left, stride, HIGH, last * UNIT, rest[1]);
                right = padded(right, right_gap, last, ACROSS_TILE, rest[2]);
                if (both) next_right = padded(next_right, right_gap, last, ACROSS_TILE, rest[3]);
                left_gap = right_gap = ACROSS_TILE;
                WRITTEN;
            }
            _tile_loadd(4, left, left_gap);
            _tile_loadd(6, right, right_gap);
            _tile_dpbusd(0, 4, 6);
            if (both) {
                _tile_loadd(7, next_right, right_gap);
                _tile_dpbusd(1, 4, 7);
            }
            if (!tall) continue;
            _tile_loadd(5, lower_left, left_gap);
            _tile_dpbusd(2, 5, 6);
            if (both) _tile_dpbusd(3, 5, 7);
        }
        int32_t *place = out + panel * PANEL;
        _tile_stored(0, place, gap * 4);
        if (both) _tile_stored(1, place + PANEL, gap * 4);
        if (!tall) continue;
        _tile_stored(2, place + HIGH * gap, gap * 4);
        if (both) _tile_stored(3, place + HIGH * gap + PANEL, gap * 4);
    }
}

#define RUN r2_bert_amx
#define TALL (2 * HIGH)
#define TALL_TILE tall_tile
#define BEGIN _tile_loadconfig(&shapes);
#define END _tile_release();
#include "bert_layers.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
