/* The forward pass of a BERT encoder whose matrices are bytes (r2med/retrieve/encoders/native_bert.py reads them).
 *
 * Products of bytes are whole numbers, exact in every instruction set, and what is done with floats has one order
 * (bert_math.h): the states of a text are the same bits on every processor, in every way (bert_amx.c, bert_vnni.c,
 * bert_avx2.c, bert_plain.c) and on any number of threads. A model is read-only once it is made; each call has memory
 * of its own.
 */
#include "buffers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bert_model.h"
#include "compiler.h"

typedef struct {
    const char *name;
    void (*run)(const Text *);
    Packing packing;
} Way;

enum { MOST_WAYS = 4, SIZES = 7, ALIGNED = 64 };

#ifdef TILES
/* Whether processor and operating system have tiles; the system is asked for them once, for all threads. */
static int has_tiles(void) {
    enum { ARCH_PRCTL = 158, ASK = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, low, high;
    long refused = ARCH_PRCTL;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low >> 17 & 3) != 3 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3) return 0;
    __asm__ volatile("syscall" : "+a"(refused) : "D"((long)ASK), "S"((long)TILE_DATA) : "rcx", "r11", "memory");
    return !refused;
}
#endif

/* The ways that this processor has, the fastest first: found once, so that a number always means the same. */
static Way known[MOST_WAYS];
static int ways;

static void find_ways(void) {
    ways = 0;
#ifdef WIDE
    const int bits = r2_vector_bits(), wide = bits >= 512 && r2_has_vnni();
#ifdef TILES
    if (wide && has_tiles()) known[ways++] = (Way){"amx", r2_bert_amx, {4, 0}};
#endif
    if (wide) known[ways++] = (Way){"vnni", r2_bert_vnni, {4, 0}};
    if (bits >= 256) known[ways++] = (Way){"avx2", r2_bert_avx2, {1, 0}};
#endif
    known[ways++] = (Way){"plain", r2_bert_plain, {1, 1}};
}

/* Parts of one piece of memory, handed out one after the other; without memory, only their sizes are added up. */
typedef struct {
    unsigned char *start;
    size_t used;
} Pool;

static void *part(Pool *pool, int64_t count, size_t size) {
    void *found = pool->start ? pool->start + pool->used : NULL;
    pool->used += ((size_t)count * size + ALIGNED - 1) / ALIGNED * ALIGNED;
    return found;
}

/* Sizes that any BERT has; products of them stay far below 2^63, and sums of products of bytes below 2^31. */
static int sensible(const int64_t *sizes) {
    static const int64_t most[SIZES] = {4096, 256, 1 << 14, MOST_LAYERS, 1 << 20, 1 << 10, 1 << 11};
    for (int i = 0; i < SIZES; i++)
        if (sizes[i] < 1 || sizes[i] > most[i]) return 0;
    const int64_t hidden = sizes[0], heads = sizes[1];
    return hidden % heads == 0 && hidden / heads % PANEL == 0 && hidden / heads <= MOST_SIZE && sizes[2] % PANEL == 0;
}

/* What is read from the three buffers of a model, and how much is left of each. */
typedef struct {
    const int8_t *weights;
    const float *numbers;
    const uint8_t *bytes;
    int64_t weights_left, numbers_left, bytes_left;
} Source;

static const float *take_numbers(Source *source, Pool *pool, int64_t count) {
    float *held = part(pool, count, sizeof *held);
    source->numbers_left -= count;
    if (held && count) memcpy(held, source->numbers, (size_t)count * sizeof *held);
    if (held) source->numbers += count;
    return held;
}

static Norm take_norm(Source *source, Pool *pool, int64_t hidden) {
    Norm norm;
    norm.weight = take_numbers(source, pool, hidden);
    norm.bias = take_numbers(source, pool, hidden);
    return norm;
}

/* Some matrices with as many rows, side by side. */
static Matrix take_matrix(Source *source, Pool *pool, int64_t rows, int64_t columns, int64_t count,
                          Packing packing) {
    Matrix matrix = {0};
    int8_t *packed = part(pool, rows * columns * count, 1);
    int32_t *sums = part(pool, columns * count, sizeof *sums);
    matrix.packed = packed, matrix.sums = sums, matrix.rows = rows, matrix.columns = columns * count, matrix.narrow = 1;
    source->weights_left -= rows * columns * count;
    if (packed) {
        memset(sums, 0, (size_t)(columns * count) * sizeof *sums);
        for (int64_t m = 0; m < count; m++)
            for (int64_t row = 0; row < rows; row++, source->weights += columns)
                for (int64_t column = 0; column < columns; column++) {
                    const int64_t place = m * columns + column;
                    packed[packed_at(packing, rows, columns * count, row, place)] = source->weights[column];
                    sums[place] += source->weights[column];
                    if (abs(source->weights[column]) > 64) matrix.narrow = 0;
                }
    }
    matrix.scale = take_numbers(source, pool, columns * count);
    matrix.bias = take_numbers(source, pool, columns * count);
    return matrix;
}

static Table take_table(Source *source, Pool *pool, int64_t count, int64_t hidden) {
    uint8_t *rows = part(pool, count * hidden, 1);
    const float *step = take_numbers(source, pool, 2);
    Table table = {rows, count, step ? step[0] : 0, step ? step[1] : 0};
    source->bytes_left -= count * hidden;
    if (rows) memcpy(rows, source->bytes, (size_t)(count * hidden)), source->bytes += count * hidden;
    return table;
}

/* All parts in the order in which native_bert.py writes them. */
static void take_model(Model *model, const int64_t *sizes, Source *source, Pool *pool,
                       Packing packing) {
    const int64_t hidden = model->hidden = sizes[0], wide = model->wide = sizes[2];
    model->heads = sizes[1], model->layers = sizes[3];
    const float *two = take_numbers(source, pool, 2);
    if (two) model->epsilon = two[0], model->divisor = two[1];
    model->words = take_table(source, pool, sizes[4], hidden);
    model->types = take_table(source, pool, sizes[5], hidden);
    model->positions = take_table(source, pool, sizes[6], hidden);
    model->embedded = take_norm(source, pool, hidden);
    for (int64_t i = 0; i < model->layers; i++) {
        Layer *layer = model->layer + i;
        layer->heads = take_matrix(source, pool, hidden, hidden, 3, packing);
        layer->out = take_matrix(source, pool, hidden, hidden, 1, packing);
        layer->attended = take_norm(source, pool, hidden);
        layer->wide = take_matrix(source, pool, hidden, wide, 1, packing);
        layer->narrow = take_matrix(source, pool, wide, hidden, 1, packing);
        layer->made = take_norm(source, pool, hidden);
    }
    model->limit = 0;
    while (model->limit < INT16_MAX &&
           (int64_t)(model->limit + 1) * (model->limit + 1) * (hidden / model->heads) <= INT32_MAX)
        model->limit++;
}

static void *aligned(void *memory) {
    return (void *)(((uintptr_t)memory + ALIGNED - 1) / ALIGNED * ALIGNED);
}

static const char *const CAPSULE = "r2med._bert.model";

static void release(PyObject *capsule) {
    Model *model = PyCapsule_GetPointer(capsule, CAPSULE);
    if (model) free(model->memory), free(model);
}

static PyObject *make(PyObject *self, PyObject *args) {
    (void)self;
    R2Buffer given[4] = {{0}};
    int chosen;
    if (!PyArg_ParseTuple(args, "iO&O&O&O&", &chosen, r2_readable, &given[0], r2_readable, &given[1], r2_readable,
                          &given[2], r2_readable, &given[3]))
        return NULL;
    PyObject *made = NULL;
    const int64_t *sizes = given[0].buf;
    Model *model = calloc(1, sizeof *model);
    if (!model) {
        PyErr_NoMemory();
    } else if (chosen < 0 || chosen >= ways || given[0].len != SIZES * (Py_ssize_t)sizeof *sizes ||
               !sensible(sizes)) {
        PyErr_SetString(PyExc_ValueError, "no sizes of a model");
    } else {
        const Source start = {given[1].buf, given[2].buf, given[3].buf, given[1].len,
                              given[2].len / (Py_ssize_t)sizeof(float), given[3].len};
        Source source = start;
        Pool pool = {NULL, 0};
        take_model(model, sizes, &source, &pool, known[chosen].packing); /* how much is needed and given */
        const int fits = !source.weights_left && !source.numbers_left && !source.bytes_left &&
                         given[2].len % (Py_ssize_t)sizeof(float) == 0;
        model->memory = fits ? malloc(pool.used + ALIGNED) : NULL;
        model->run = known[chosen].run;
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "the sizes of a model and of its parts do not fit");
        } else if (!model->memory) {
            PyErr_NoMemory();
        } else {
            pool = (Pool){aligned(model->memory), 0};
            source = start;
            Py_BEGIN_ALLOW_THREADS;
            take_model(model, sizes, &source, &pool, known[chosen].packing);
            Py_END_ALLOW_THREADS;
            made = PyCapsule_New(model, CAPSULE, release);
        }
    }
    if (!made && model) free(model->memory), free(model);
    for (int i = 0; i < 4; i++) r2_release(&given[i]);
    return made;
}

/* Where in one piece of memory the parts of a text lie. */
static void lay_out(Text *text, Pool *pool) {
    const Model *model = text->model;
    const int64_t hidden = model->hidden, size = hidden / model->heads, tokens = text->tokens;
    const int64_t padded = (tokens + PANEL - 1) / PANEL * PANEL;
    const int64_t widest = model->wide > 3 * hidden ? model->wide : 3 * hidden;
    text->states = part(pool, tokens * hidden, sizeof(float));
    text->sums = part(pool, tokens * hidden, sizeof(float));
    text->wide = part(pool, tokens * widest, sizeof(float));
    text->bytes = part(pool, (tokens + MOST_TALL - 1) / MOST_TALL * MOST_TALL * widest, 1);
    text->queries = part(pool, padded * size, sizeof(int16_t));
    text->keys = part(pool, padded * size, sizeof(int16_t));
    text->values = part(pool, padded * size, sizeof(int16_t));
    text->weights = part(pool, MOST_ROWS * padded, sizeof(int16_t));
    text->products = part(pool, MOST_ROWS * padded, sizeof(int32_t));
    text->scores = part(pool, MOST_ROWS * padded, sizeof(float));
    text->sizes = part(pool, 3 * hidden / LANES, sizeof(float));
}

static int within_table(const int32_t *values, int64_t count, int64_t limit) {
    for (int64_t i = 0; i < count; i++)
        if (values[i] < 0 || values[i] >= limit) return 0;
    return 1;
}

static PyObject *states(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    R2Buffer ids = {0}, types = {0}, out = {0};
    if (!PyArg_ParseTuple(args, "OO&O&O&", &capsule, r2_readable, &ids, r2_readable, &types, r2_writable, &out))
        return NULL;
    const Model *model = PyCapsule_GetPointer(capsule, CAPSULE);
    if (model) {
        const Py_ssize_t number = sizeof(int32_t), row = (Py_ssize_t)(model->hidden * (int64_t)sizeof(float));
        Text text = {.model = model, .ids = ids.buf, .types = types.buf, .out = out.buf};
        text.tokens = ids.len / number, text.wanted = out.len / row;
        Pool pool = {NULL, 0};
        if (ids.len % number || types.len != ids.len || out.len % row || text.tokens < 1 || text.wanted < 1 ||
            text.tokens > model->positions.count || text.wanted > text.tokens ||
            !within_table(text.ids, text.tokens, model->words.count) ||
            !within_table(text.types, text.tokens, model->types.count)) {
            PyErr_SetString(PyExc_ValueError, "a text is empty or too long for the model, or has tokens it does not know");
        } else {
            lay_out(&text, &pool);
            void *memory = malloc(pool.used + ALIGNED);
            if (memory) {
                Py_BEGIN_ALLOW_THREADS;
                pool = (Pool){aligned(memory), 0};
                lay_out(&text, &pool);
                model->run(&text);
                free(memory);
                Py_END_ALLOW_THREADS;
            } else {
                PyErr_NoMemory();
            }
        }
    }
    r2_release(&ids), r2_release(&types), r2_release(&out);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *names(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    PyObject *list = PyList_New(ways);
    for (int i = 0; list && i < ways; i++) {
        PyObject *name = PyUnicode_FromString(known[i].name);
        if (!name || PyList_SetItem(list, i, name) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, "A model for the way of that number, from its sizes, matrices, numbers and tables."},
    {"states", states, METH_VARARGS, "States of the first tokens of a text, as many as there is room for."},
    {"ways", names, METH_NOARGS, "Names of the ways this processor has, the fastest first."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "r2med._bert",
    .m_doc = "The forward pass of BERT in bytes.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__bert(void) {
    if (!ways) find_ways();
    return PyModuleDef_Init(&module);
}
