/* Late interaction: for each token of a query the best product among a document's tokens, summed over the query.
 *
 * Vectors are 16-bit fixed-point numbers, so products and sums are whole numbers: a score is the same whatever
 * instruction set, number of threads or order of queries computes it. A vector of length one is 2^15 long, and a
 * product of two, or of any of their parts, stays within 32 bits. Sums are kept without a sign, so that numbers of a
 * damaged file cannot overflow one.
 *
 * Query tokens lie across the lanes of a vector register, and a document's token meets all of them: the best product
 * of each is one comparison of registers, and no sum runs across lanes.
 */
#include "buffers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"

#ifdef WIDE
#include <immintrin.h>
#endif

enum { MOST_WAYS = 4, WIDEST = 16, GROUPS = 4, MOST_ROWS = 8, AHEAD = 2048 /* numbers: 4 kB */ };

typedef struct {
    const int16_t *queries; /* tokens × dimension */
    const int64_t *ends;    /* where the tokens of each query end */
    Py_ssize_t count, tokens, dimension;
    const int16_t *rows;
    const int64_t *starts; /* first row of each document */
    const int64_t *sizes;  /* and how many it has */
    Py_ssize_t begin, end;
    float *out; /* count × width */
    Py_ssize_t width, offset;
    int16_t *panel; /* the queries, pairs of numbers of neighbouring tokens side by side */
    int32_t *best;  /* of each token */
} Job;

/* Sums of the best products, rounded to float once. */
static void totals(const Job *job, Py_ssize_t document) {
    float *out = job->out + job->offset + (document - job->begin);
    Py_ssize_t token = 0;
    for (Py_ssize_t q = 0; q < job->count; q++) {
        int64_t sum = 0;
        for (; token < job->ends[q]; token++) sum += job->best[token];
        out[q * job->width] = (float)((double)sum * 0x1p-30);
    }
}

#if defined(__GNUC__) && !defined(R2_PORTABLE)

#ifdef WIDE
#define SUFFIX _vnni
#define TARGET TARGET_VNNI
#define WIDTH 16
#define SUMS 16 /* each waits for the one before it */
#define MADD(sum, a, b) _mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b))
#include "maxsim_tile.h"

#define SUFFIX _512
#define TARGET TARGET_512
#define WIDTH 16
#define SUMS 16
#define MADD(sum, a, b) _mm512_add_epi32((__m512i)(sum), _mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#include "maxsim_tile.h"

#define SUFFIX _256
#define TARGET TARGET_256
#define WIDTH 8
#define SUMS 8
#define MADD(sum, a, b) _mm256_add_epi32((__m256i)(sum), _mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#include "maxsim_tile.h"
#endif

enum { PLAIN = 4 };
#define SUFFIX _plain
#define TARGET
#define WIDTH 4
#define SUMS 8
#ifdef WIDE
/* every x86-64 has it */
#define MADD(sum, a, b) _mm_add_epi32((__m128i)(sum), _mm_madd_epi16((__m128i)(a), (__m128i)(b)))
#else
#define LOW(a) ((Vector_plain)((Unsigned_plain)(a) << 16) >> 16)
#define MADD(sum, a, b) ((sum) + (Unsigned_plain)(LOW(a) * LOW(b)) + (Unsigned_plain)(((a) >> 16) * ((b) >> 16)))
#endif
#include "maxsim_tile.h"

#else

enum { PLAIN = 1 };

static void run_plain(const Job *job) {
    for (Py_ssize_t i = job->begin; i < job->end; i++) {
        const int16_t *rows = job->rows + job->starts[i] * job->dimension;
        for (Py_ssize_t token = 0; token < job->tokens; token++) {
            const int16_t *query = job->panel + token * job->dimension;
            job->best[token] = INT32_MIN;
            for (Py_ssize_t r = 0; r < job->sizes[i]; r++) {
                uint32_t sum = 0;
                for (Py_ssize_t k = 0; k < job->dimension; k++)
                    sum += (uint32_t)((int32_t)rows[r * job->dimension + k] * query[k]);
                if ((int32_t)sum > job->best[token]) job->best[token] = (int32_t)sum;
            }
        }
        totals(job, i);
    }
}

#endif

typedef struct {
    const char *name;
    void (*run)(const Job *);
    int lanes;
} Way;

/* The ways that this processor has, the fastest first. */
static int ways(Way *found) {
    int count = 0;
#ifdef WIDE
    const int bits = r2_vector_bits();
    if (bits >= 512 && r2_has_vnni()) found[count++] = (Way){"vnni", run_vnni, 16};
    if (bits >= 512) found[count++] = (Way){"avx512", run_512, 16};
    if (bits >= 256) found[count++] = (Way){"avx2", run_256, 8};
#endif
    found[count++] = (Way){"plain", run_plain, PLAIN};
    return count;
}

/* Query tokens as lanes: for each register of tokens and each pair of dimensions, the pairs of all its tokens. */
static void pack(const Job *job, int lanes) {
    for (Py_ssize_t token = 0; token < job->tokens; token++) {
        const int16_t *from = job->queries + token * job->dimension;
        int16_t *to = job->panel + token / lanes * lanes * job->dimension + token % lanes * 2;
        for (Py_ssize_t k = 0; k < job->dimension; k += 2, to += 2 * lanes) memcpy(to, from + k, 2 * sizeof *from);
    }
}

static int within(const Job *job, Py_ssize_t rows) {
    int64_t last = 0;
    for (Py_ssize_t q = 0; q < job->count; last = job->ends[q++])
        if (job->ends[q] < last || job->ends[q] > job->tokens) return 0;
    for (Py_ssize_t i = job->begin; i < job->end; i++)
        if (job->starts[i] < 0 || job->sizes[i] < 1 || job->starts[i] > rows || job->sizes[i] > rows - job->starts[i])
            return 0;
    return last == job->tokens;
}

/* Whether all sizes fit each other; divided rather than multiplied, as a product of two sizes may overflow. */
static int fits(Job *job, const R2Buffer *given) {
    const Py_ssize_t number = sizeof(int16_t), place = sizeof(int64_t), score = sizeof(float);
    if (job->dimension < 2 || job->dimension % 2 || job->dimension > PY_SSIZE_T_MAX / (WIDEST * number)) return 0;
    const Py_ssize_t row = job->dimension * number;
    if (given[0].len % row || given[1].len % place || given[2].len % row || given[3].len != given[4].len) return 0;
    job->tokens = given[0].len / row, job->count = given[1].len / place;
    const Py_ssize_t documents = given[3].len / place;
    if (job->begin < 0 || job->begin > job->end || job->end > documents || job->offset < 0 || job->width < 0) return 0;
    if (!job->count || given[5].len % (job->count * score) || given[5].len / (job->count * score) != job->width) return 0;
    return job->end - job->begin <= job->width - job->offset && within(job, given[2].len / row);
}

static PyObject *scores(PyObject *self, PyObject *args) {
    (void)self;
    R2Buffer given[6] = {{0}};
    Job job = {0};
    int chosen;
    Way known[MOST_WAYS];
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&nnnnni", r2_readable, &given[0], r2_readable, &given[1], r2_readable,
                          &given[2], r2_readable, &given[3], r2_readable, &given[4], r2_writable, &given[5],
                          &job.dimension, &job.width, &job.begin, &job.end, &job.offset, &chosen))
        return NULL;
    job.queries = given[0].buf, job.ends = given[1].buf, job.rows = given[2].buf;
    job.starts = given[3].buf, job.sizes = given[4].buf, job.out = given[5].buf;
    int good = chosen >= 0 && chosen < ways(known) && fits(&job, given);
    if (good) {
        const Way way = known[chosen];
        const size_t lanes = ((size_t)job.tokens + WIDEST - 1) / WIDEST * WIDEST;
        job.panel = calloc(lanes * (size_t)job.dimension + 1, sizeof *job.panel);
        job.best = calloc(lanes + 1, sizeof *job.best);
        if (job.panel && job.best) {
            Py_BEGIN_ALLOW_THREADS;
            pack(&job, way.lanes);
            way.run(&job);
            Py_END_ALLOW_THREADS;
        } else {
            PyErr_NoMemory();
        }
        free(job.panel), free(job.best);
    } else {
        PyErr_SetString(PyExc_ValueError, "the sizes of queries, rows, documents and scores do not fit");
    }
    for (int i = 0; i < 6; i++) r2_release(&given[i]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *names(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Way known[MOST_WAYS];
    const int count = ways(known);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *name = PyUnicode_FromString(known[i].name);
        if (!name || PyList_SetItem(list, i, name) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"scores", scores, METH_VARARGS, "MaxSim of queries with some documents, in the way of that number."},
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
    .m_name = "r2med._maxsim",
    .m_doc = "Late interaction in whole numbers.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__maxsim(void) { return PyModuleDef_Init(&module); }
