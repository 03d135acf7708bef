/* BERT in plain C, for every processor and compiler. */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2") /* half the time of compiling what proves the other ways, and runs where nothing else does */
#endif
#if defined(__GNUC__) && !defined(R2_PORTABLE)
typedef float Part __attribute__((vector_size(16)));
typedef int32_t WholePart __attribute__((vector_size(16)));
typedef uint32_t BitsPart __attribute__((vector_size(16)));
#define PARTS(do) do(a) do(b) do(c) do(d)
#endif
#include "bert_math.h"
#include "bert_model.h"

/* One panel in plain C, packed across: the inner loops have sixteen neighbours, which any compiler makes vectors of. */
static void tile(int kind, int rows, int panels, const void *a, int64_t stride, int64_t units,
                 const void *b, int32_t *out, int64_t gap) {
    const int64_t count = units * (UNIT / kind);
    (void)panels;
    for (int r = 0; r < rows; r++) {
        const uint8_t *left = (const uint8_t *)a + r * stride;
        uint32_t sums[PANEL] = {0};
        for (int64_t k = 0; k < count; k++) {
            int16_t held = left[k * kind], right[PANEL];
            if (kind == SHORTS) {
                memcpy(&held, left + k * kind, sizeof held);
                memcpy(right, (const int16_t *)b + k * PANEL, sizeof right);
            } else {
                for (int lane = 0; lane < PANEL; lane++) right[lane] = ((const int8_t *)b)[k * PANEL + lane];
            }
            for (int lane = 0; lane < PANEL; lane++) sums[lane] += (uint32_t)(held * right[lane]);
        }
        memcpy(out + r * gap, sums, sizeof sums);
    }
}

#define RUN r2_bert_plain
#define ACROSS 1
#define ROWS 4
#define PANELS 1
#define KINDS 2
#define ANY_TILE
#define TILE tile
#include "bert_layers.h"
