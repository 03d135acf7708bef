/* The forward pass of bert.c for one instruction set. A file for each includes this, with these set:
 *
 *   RUN      the name of the function that it makes
 *   ACROSS   how matrices are packed (packed_at)
 *   ROWS     rows of one tile
 *   PANELS   panels of one tile
 *   KINDS    2, or 3 where NARROW is another kind of product than BYTES
 *   TILE(kind, rows, panels, a, stride, units, b, out, gap)   the products of a tile as whole numbers; `kind`, `rows`
 *            and `panels` are constants where it is called, unless ANY_TILE is set
 *
 * and, where bytes are multiplied by an instruction of their own:
 *
 *   TALL     rows of one tile of bytes
 *   TALL_TILE(rows, panels, a, stride, units, b, out, gap)   its products; up to TALL rows of `a` may be read
 *   BEGIN, END   what comes before all tiles and after them
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bert_math.h"
#include "bert_model.h"

#define WIDTH (PANELS * PANEL)
#ifndef TALL
#define TALL ROWS
#define TALL_TILE(...) multiply_tile(matrix->narrow ? NARROW : BYTES, __VA_ARGS__)
#define BEGIN
#define END
#endif

/* `rows` rows with `panels` panels; rows of `out` lie `gap` numbers apart. */
static void multiply_tile(int kind, int rows, int panels, const void *a, int64_t stride, int64_t units, const void *b,
                          int32_t *out, int64_t gap) {
#ifdef ANY_TILE
    TILE(kind > KINDS ? BYTES : kind, rows, panels, a, stride, units, b, out, gap);
#else
#define CASE(k, r, p) \
    case (k) * 64 + (r) * 8 + (p): TILE(k, r, p, a, stride, units, b, out, gap); break;
#if PANELS > 1
#define PANEL_CASES(k, r) CASE(k, r, 1) CASE(k, r, 2) CASE(k, r, 3) CASE(k, r, 4)
#else
#define PANEL_CASES(k, r) CASE(k, r, 1)
#endif
#if ROWS > 4
#define CASES(k) \
    PANEL_CASES(k, 1) PANEL_CASES(k, 2) PANEL_CASES(k, 3) PANEL_CASES(k, 4) PANEL_CASES(k, 5) PANEL_CASES(k, 6)
#else
#define CASES(k) PANEL_CASES(k, 1) PANEL_CASES(k, 2) PANEL_CASES(k, 3) PANEL_CASES(k, 4)
#endif
    switch ((kind > KINDS ? BYTES : kind) * 64 + rows * 8 + panels) {
        CASES(BYTES)
        CASES(SHORTS)
#if KINDS > 2
        CASES(NARROW)
#endif
    }
#endif
}

enum { BIAS, RESIDUAL, GELU };

/* Bytes times a matrix, with scale and bias: and then nothing, `beside` added, or GELU, whose range is returned. The
 * first keeps the largest size in each sixteen columns, and puts `together` columns, those of a head, in one place. */
static Range multiplied(const uint8_t *bytes, int64_t rows, Step step, const Matrix *matrix, int then,
                        const float *beside, int64_t together, float *sizes, float *out) {
    const int64_t units = matrix->rows / UNIT, panels = matrix->columns / PANEL;
    int32_t products[TALL * WIDTH];
    Range range = empty_range();
    for (int64_t panel = 0; panel < panels; panel += PANELS) {
        const int64_t some = panels - panel < PANELS ? panels - panel : PANELS, from = panel * PANEL;
        float scale[WIDTH];
        int32_t offset[WIDTH];
        Lanes most[PANELS];
        float *to[PANELS];
        for (int64_t i = 0; i < some; i++) {
            const int64_t column = from + i * PANEL;
            most[i] = zeros();
            to[i] = out + column / together * together * rows + column % together;
        }
        for (int64_t i = 0; i < some * PANEL; i++) {
            scale[i] = step.scale * matrix->scale[from + i];
            offset[i] = step.zero * matrix->sums[from + i];
        }
        for (int64_t row = 0; row < rows; row += TALL) {
            const int64_t few = rows - row < TALL ? rows - row : TALL;
            TALL_TILE((int)few, (int)some, bytes + row * matrix->rows, matrix->rows, units,
                      matrix->packed + from * matrix->rows, products, WIDTH);
            for (int64_t r = 0; r < few; r++) {
                const float *residual = beside + (row + r) * matrix->columns + from;
                for (int64_t i = 0; i < some * PANEL; i += LANES) {
                    const Whole whole = difference(wholes_at(products + r * WIDTH + i), wholes_at(offset + i));
                    Lanes made = add(at(matrix->bias + from + i), multiply(from_whole(whole), at(scale + i)));
                    if (then == RESIDUAL) made = add(made, at(residual + i));
                    if (then == GELU) made = gelu(made);
                    if (then == BIAS) most[i / LANES] = higher(magnitude(made), most[i / LANES]);
                    if (then == GELU) widen(&range, made);
                    put(made, to[i / LANES] + (row + r) * together);
                }
            }
        }
        for (int64_t i = 0; then == BIAS && i < some; i++) sizes[panel + i] = highest(most[i]);
    }
    return range;
}

static void quantized(const float *in, int64_t count, Step step, uint8_t *out) {
#ifdef IN_WIDE
    quantize_wide(in, count, step, out);
#else
    quantize(in, count, step, out);
#endif
}

#ifdef IN_WIDE
#define WEIGH weigh
#else
#define WEIGH weigh_plainly
INLINE void weigh_plainly(const float *scores, int64_t keys, float factor, int16_t *out) {
    for (int64_t i = 0; i < keys; i += LANES)
        put_shorts(add(multiply(at(scores + i), splat(factor)), splat(ROUNDER)), out + i);
}
#endif

INLINE Lanes power_at(const int32_t *products, float scale, float top) {
    return power_of_two(minus(multiply(from_whole(wholes_at(products)), splat(scale)), splat(top)));
}

/* Products of a few queries with all keys become weights that sum to 1, in steps of 1 / 32767. `scale` is of powers of
 * two. Each step is taken for all rows before the next: none waits for the sum or the quotient of its own row. */
static void softmax(const int32_t *products, int64_t rows, int64_t keys, float scale, float *scratch, int16_t *out) {
    float top[ROWS], factor[ROWS];
    for (int64_t r = 0; r < rows; r++) {
        Whole most = wholes_at(products + r * keys);
        for (int64_t i = LANES; i < keys; i += LANES) most = larger(most, wholes_at(products + r * keys + i));
        top[r] = (float)largest_of(most) * scale;
    }
    for (int64_t r = 0; r < rows; r += 2) { /* two together, so that neither waits for its own sum */
        const int64_t other = r + 1 < rows ? keys : 0;
        Lanes first = zeros(), second = zeros();
        for (int64_t i = r * keys; i < (r + 1) * keys; i += LANES) {
            const Lanes made = power_at(products + i, scale, top[r]);
            first = add(first, made);
            put(made, scratch + i);
            if (!other) continue;
            const Lanes next = power_at(products + i + other, scale, top[r + 1]);
            second = add(second, next);
            put(next, scratch + i + other);
        }
        /* A sum is no less than its parts: no weight is above 32767. */
        factor[r] = 32767.0f / sum_of(first);
        if (other) factor[r + 1] = 32767.0f / sum_of(second);
    }
    for (int64_t r = 0; r < rows; r++) WEIGH(scratch + r * keys, keys, factor[r], out + r * keys);
}

#ifndef IN_WIDE
/* A row in whole numbers of at most `limit`. */
INLINE void fixed(const float *in, int64_t count, float factor, float limit, int16_t *out) {
    for (int64_t i = 0; i < count; i += LANES)
        put_shorts(add(within(multiply(at(in + i), splat(factor)), limit), splat(ROUNDER)), out + i);
}

/* Keys as columns, one a token; values as columns, one a number. */
INLINE void pack_key(const int16_t *key, int64_t size, int64_t token, int64_t padded, int16_t *keys) {
    const int64_t from = token / WIDTH * WIDTH, lane = token - from, width = padded - from < WIDTH ? padded - from : WIDTH;
    keys += from * size;
    if (ACROSS)
        for (int64_t i = 0; i < size; i++) keys[i * width + lane] = key[i];
    else
        for (int64_t i = 0; i < size; i += 2) memcpy(keys + i * width + lane * 2, key + i, 2 * sizeof *key);
}

INLINE void pack_value(const int16_t *value, int64_t size, int64_t token, int64_t padded, int16_t *values) {
    for (int64_t from = 0; from < size; from += WIDTH) {
        const int64_t width = size - from < WIDTH ? size - from : WIDTH;
        int16_t *to = values + from * padded;
        for (int64_t i = 0; i < width; i++)
            to[ACROSS ? token * width + i : (token / 2 * width + i) * 2 + token % 2] = value[from + i];
    }
}

#endif

/* Attention of one head, from its parts of `text->wide` to columns of `text->sums`. Queries, keys, values and weights
 * are taken as whole numbers of 14 to 16 bits: their products are exact, so that no order of sums matters, and take
 * half the time of floats. What that changes is a hundredth of what the model's own bytes do. */
static void attend(const Text *text, int64_t head, Range *range) {
    const Model *model = text->model;
    const int64_t size = model->hidden / model->heads, stride = size, tokens = text->tokens;
    const int64_t padded = (tokens + LANES - 1) / LANES * LANES;
    const float *queries = text->wide + head * size * tokens, *keys = queries + model->hidden * tokens;
    const float *values = keys + model->hidden * tokens;
    const float limit = model->limit;
    float most[3] = {0};
    for (int64_t i = 0; i < 3; i++)
        for (int64_t k = 0; k < size / LANES; k++) {
            const float found = text->sizes[(i * model->hidden + head * size) / LANES + k];
            if (found > most[i]) most[i] = found;
        }
    const float factors[3] = {most[0] > 0 ? limit / most[0] : 0, most[1] > 0 ? limit / most[1] : 0,
                              most[2] > 0 ? 32767.0f / most[2] : 0};
    const float scale = most[0] / limit * (most[1] / limit) / model->divisor * 1.44269504f; /* 1 / ln 2 */
    const float shrink = most[2] / 32767.0f / 32767.0f;
#ifdef IN_WIDE
    pack_queries(queries, tokens, stride, size, factors[0], limit, text->queries);
    pack_keys(keys, tokens, stride, size, factors[1], limit, WIDTH, text->keys);
    pack_values(values, tokens, stride, size, factors[2], WIDTH, text->values);
#else
    for (int64_t token = 0; token < padded; token++) {
        int16_t key[MOST_SIZE], value[MOST_SIZE];
        if (token >= tokens) {
            memset(key, 0, (size_t)size * sizeof *key), memset(value, 0, (size_t)size * sizeof *value);
        } else {
            fixed(queries + token * stride, size, factors[0], limit, text->queries + token * size);
            fixed(keys + token * stride, size, factors[1], limit, key);
            fixed(values + token * stride, size, factors[2], 32767.0f, value);
        }
        pack_key(key, size, token, padded, text->keys);
        pack_value(value, size, token, padded, text->values);
    }
#endif
    int32_t products[ROWS * WIDTH];
    for (int64_t row = 0; row < tokens; row += ROWS) {
        const int64_t few = tokens - row < ROWS ? tokens - row : ROWS;
        for (int64_t from = 0; from < padded; from += WIDTH)
            multiply_tile(SHORTS, (int)few, (int)((padded - from < WIDTH ? padded - from : WIDTH) / PANEL),
                          text->queries + row * size, 2 * size, size / 2, text->keys + from * size,
                          text->products + from, padded);
        for (int64_t r = 0; r < few; r++) {
            int32_t *line = text->products + r * padded;
            for (int64_t i = tokens; i < padded; i++) line[i] = INT32_MIN; /* no token, no weight */
        }
        softmax(text->products, few, padded, scale, text->scores, text->weights);
        for (int64_t from = 0; from < size; from += WIDTH) {
            const int64_t width = size - from < WIDTH ? size - from : WIDTH;
            multiply_tile(SHORTS, (int)few, (int)(width / PANEL), text->weights, 2 * padded, padded / 2,
                          text->values + from * padded, products, WIDTH);
            for (int64_t r = 0; r < few; r++)
                for (int64_t i = 0; i < width; i += LANES) {
                    const Lanes made = multiply(from_whole(wholes_at(products + r * WIDTH + i)), splat(shrink));
                    widen(range, made);
                    put(made, text->sums + (row + r) * model->hidden + head * size + from + i);
                }
        }
    }
}

/* Sums of the vectors of word, kind and place, as the graph adds them. */
static Range embedded(const Text *text) {
    const Model *model = text->model;
    Range range = empty_range();
    for (int64_t token = 0; token < text->tokens; token++) {
        const uint8_t *word = model->words.rows + text->ids[token] * model->hidden;
        const uint8_t *type = model->types.rows + text->types[token] * model->hidden;
        const uint8_t *place = model->positions.rows + token * model->hidden;
        float *out = text->sums + token * model->hidden;
        for (int64_t i = 0; i < model->hidden; i++)
            out[i] = ((float)word[i] - model->words.zero) * model->words.scale +
                     ((float)type[i] - model->types.zero) * model->types.scale +
                     ((float)place[i] - model->positions.zero) * model->positions.scale;
        layer_norm(out, model->hidden, model->embedded.weight, model->embedded.bias, model->epsilon,
                   text->states + token * model->hidden, &range);
    }
    return range;
}

static Range normed(const Text *text, int64_t rows, const Norm *norm, float *out) {
    const int64_t hidden = text->model->hidden;
    Range range = empty_range();
    for (int64_t row = 0; row < rows; row++)
        layer_norm(text->sums + row * hidden, hidden, norm->weight, norm->bias, text->model->epsilon,
                   out + row * hidden, &range);
    return range;
}

void RUN(const Text *text) {
    const Model *model = text->model;
    const int64_t tokens = text->tokens, hidden = model->hidden;
    Range range = embedded(text);
    BEGIN
    for (int64_t i = 0; i < model->layers; i++) {
        const Layer *layer = model->layer + i;
        const int last = i + 1 == model->layers;
        Step step = step_of(range);
        quantized(text->states, tokens * hidden, step, text->bytes);
        multiplied(text->bytes, tokens, step, &layer->heads, BIAS, text->sums, hidden / model->heads, text->sizes,
                   text->wide);
        range = empty_range();
        for (int64_t head = 0; head < model->heads; head++) attend(text, head, &range);
        step = step_of(range);
        quantized(text->sums, tokens * hidden, step, text->bytes);
        multiplied(text->bytes, tokens, step, &layer->out, RESIDUAL, text->states, hidden, NULL, text->sums);
        range = normed(text, tokens, &layer->attended, text->states);
        step = step_of(range);
        quantized(text->states, tokens * hidden, step, text->bytes);
        range = multiplied(text->bytes, tokens, step, &layer->wide, GELU, text->sums, model->wide, NULL, text->wide);
        /* The scale of this tensor depends on all tokens, what follows on each alone: the last layer stops early. */
        const int64_t rows = last ? text->wanted : tokens;
        step = step_of(range);
        quantized(text->wide, rows * model->wide, step, text->bytes);
        multiplied(text->bytes, rows, step, &layer->narrow, RESIDUAL, text->states, hidden, NULL, text->sums);
        range = normed(text, rows, &layer->made, last ? text->out : text->states);
    }
    END
}
