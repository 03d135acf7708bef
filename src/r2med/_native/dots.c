/* Inner products of a few queries with many rows, at the speed at which the rows come out of memory; and exact ones.
 *
 * `dots`: a matrix product in blocks copies every row into a layout of its own first, which pays for many queries and
 * costs twice the reading for few. Here each row is read once and meets all queries while it is in the nearest cache.
 * The sums depend on the vector unit of the machine in their last bits. They choose candidates (few_queries in r2med/retrieve/vectors.py).
 *
 * `pairs`: the scores that are reported (exact_products there). Products of float32 numbers are exact in double, and
 * the order of the sums is fixed, so that every machine gets the same bits.
 */
#include "buffers.h"

#include <stdint.h>
#include <string.h>

#include "compiler.h"

enum { TOGETHER = 4, CHAINS = 4, AHEAD = 512 /* floats: 2 kB */ };

typedef struct {
    const float *queries; /* count × dimension */
    Py_ssize_t count, dimension;
    const float *rows;
    const int64_t *places; /* which rows, best in rising order, or NULL for all */
    Py_ssize_t begin, end;
    float *out; /* count × width */
    Py_ssize_t width, offset;
} Job;

/* One row with one query. Four chains of sums, so that none waits for the last addition, and a look ahead: both keep
 * more of memory under way at once. */
INLINE float product(const float *row, const float *query, Py_ssize_t dimension) {
    Lanes sums[CHAINS];
    for (int c = 0; c < CHAINS; c++) sums[c] = zeros();
    Py_ssize_t k = 0;
    for (; k + CHAINS * LANES <= dimension; k += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++) {
            PREFETCH(row + k + c * LANES + AHEAD);
            sums[c] = add(sums[c], multiply(at(row + k + c * LANES), at(query + k + c * LANES)));
        }
    for (; k + LANES <= dimension; k += LANES)
        sums[0] = add(sums[0], multiply(at(row + k), at(query + k)));
    float rest = 0;
    for (; k < dimension; k++) rest += row[k] * query[k];
    return rest + total(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

/* One row with several queries, each in its own chain. One row at a time: rows side by side would be read at several
 * places at once, which takes three times as long. */
INLINE void products(const float *row, const float *queries, Py_ssize_t dimension, float *sums) {
    Lanes lanes[TOGETHER];
    for (int q = 0; q < TOGETHER; q++) lanes[q] = zeros();
    Py_ssize_t k = 0;
    for (; k + LANES <= dimension; k += LANES) {
        PREFETCH(row + k + AHEAD);
        Lanes held = at(row + k);
        for (int q = 0; q < TOGETHER; q++)
            lanes[q] = add(lanes[q], multiply(held, at(queries + q * dimension + k)));
    }
    for (int q = 0; q < TOGETHER; q++) {
        float rest = 0;
        for (Py_ssize_t i = k; i < dimension; i++) rest += row[i] * queries[q * dimension + i];
        sums[q] = rest + total(lanes[q]);
    }
}

INLINE void run(const Job *job) {
    float sums[TOGETHER];
    for (Py_ssize_t i = job->begin; i < job->end; i++) {
        const float *row = job->rows + (job->places ? job->places[i] : i) * job->dimension;
        float *out = job->out + job->offset + (i - job->begin);
        Py_ssize_t q = 0;
        for (; q + TOGETHER <= job->count; q += TOGETHER) {
            products(row, job->queries + q * job->dimension, job->dimension, sums);
            for (int j = 0; j < TOGETHER; j++) out[(q + j) * job->width] = sums[j];
        }
        for (; q < job->count; q++)
            out[q * job->width] = product(row, job->queries + q * job->dimension, job->dimension);
    }
}

static void run_plain(const Job *job) { run(job); }
#ifdef WIDE
TARGET_256 static void run_256(const Job *job) { run(job); }
TARGET_512 static void run_512(const Job *job) { run(job); }
#endif

/* The way of this machine, chosen when the module is loaded. */
static void (*dispatch)(const Job *) = run_plain;

/* Sums in LANES chains that are added up in one order, however wide the vectors of the machine are. */
INLINE double exact_product(const float *row, const double *query, Py_ssize_t dimension) {
    double sums[LANES] = {0};
    Py_ssize_t k = 0;
    for (; k + LANES <= dimension; k += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += (double)row[k + lane] * query[k + lane];
    for (int lane = 0; k + lane < dimension; lane++) sums[lane] += (double)row[k + lane] * query[k + lane];
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
    return sums[0];
}

typedef struct {
    const double *queries;
    const float *rows;
    const int64_t *query, *place;
    double *out;
    Py_ssize_t dimension, begin, end;
} Pairs;

INLINE void sum_pairs(const Pairs *job) {
    for (Py_ssize_t i = job->begin; i < job->end; i++)
        job->out[i] = exact_product(job->rows + job->place[i] * job->dimension,
                                    job->queries + job->query[i] * job->dimension, job->dimension);
}

static void pairs_plain(const Pairs *job) { sum_pairs(job); }
#ifdef WIDE
TARGET_256 static void pairs_256(const Pairs *job) { sum_pairs(job); }
TARGET_512 static void pairs_512(const Pairs *job) { sum_pairs(job); }
#endif

static void (*dispatch_pairs)(const Pairs *) = pairs_plain;

static int all_within(const int64_t *values, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t limit) {
    for (Py_ssize_t i = begin; i < end; i++)
        if (values[i] < 0 || values[i] >= limit) return 0;
    return 1;
}

static PyObject *dots(PyObject *self, PyObject *args) {
    (void)self;
    R2Buffer queries = {0}, rows = {0}, places = {0}, out = {0};
    Job job;
    if (!PyArg_ParseTuple(args, "O&O&O&O&nnnnn", r2_readable, &queries, r2_readable, &rows, r2_readable_or_none, &places,
                          r2_writable, &out, &job.dimension, &job.width, &job.begin, &job.end, &job.offset))
        return NULL;
    int given = places.buf != NULL;
    const Py_ssize_t number = (Py_ssize_t)sizeof(float);
    int fits = job.dimension > 0 && job.dimension <= PY_SSIZE_T_MAX / number && job.width >= 0 && job.begin >= 0 &&
               job.offset >= 0;
    Py_ssize_t size = fits ? job.dimension * number : 1;
    if (fits && queries.len % size == 0 && rows.len % size == 0) {
        job.queries = queries.buf, job.rows = rows.buf, job.out = out.buf, job.places = places.buf;
        job.count = queries.len / size;
        Py_ssize_t known = given ? places.len / (Py_ssize_t)sizeof(int64_t) : rows.len / size;
        /* Divided rather than multiplied: a product of two sizes may overflow and then fit. */
        int whole = job.count ? out.len % (job.count * number) == 0 && out.len / (job.count * number) == job.width
                              : out.len == 0;
        fits = whole && job.begin <= job.end && job.end <= known && job.end - job.begin <= job.width - job.offset &&
               (!given || all_within(job.places, job.begin, job.end, rows.len / size));
    } else {
        fits = 0;
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        dispatch(&job);
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_SetString(PyExc_ValueError, "the sizes of queries, rows, places and products do not fit");
    }
    r2_release(&queries), r2_release(&rows), r2_release(&places), r2_release(&out);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}

static PyObject *pairs(PyObject *self, PyObject *args) {
    (void)self;
    R2Buffer queries = {0}, rows = {0}, query = {0}, place = {0}, out = {0};
    Pairs job;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&nnn", r2_readable, &queries, r2_readable, &rows, r2_readable, &query,
                          r2_readable, &place, r2_writable, &out, &job.dimension, &job.begin, &job.end))
        return NULL;
    const Py_ssize_t wide = (Py_ssize_t)sizeof(double), narrow = (Py_ssize_t)sizeof(float);
    int fits = job.dimension > 0 && job.dimension <= PY_SSIZE_T_MAX / wide && job.begin >= 0 && job.begin <= job.end &&
               job.end <= query.len / wide && job.end <= place.len / wide && job.end <= out.len / wide &&
               queries.len % (job.dimension * wide) == 0 && rows.len % (job.dimension * narrow) == 0;
    if (fits) {
        job.queries = queries.buf, job.rows = rows.buf, job.query = query.buf, job.place = place.buf;
        job.out = out.buf;
        fits = all_within(job.query, job.begin, job.end, queries.len / (job.dimension * wide)) &&
               all_within(job.place, job.begin, job.end, rows.len / (job.dimension * narrow));
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        dispatch_pairs(&job);
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_SetString(PyExc_ValueError, "the sizes of queries, rows, pairs and products do not fit");
    }
    r2_release(&queries), r2_release(&rows), r2_release(&query), r2_release(&place), r2_release(&out);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"dots", dots, METH_VARARGS, "Inner products of a few queries with some rows of a matrix."},
    {"pairs", pairs, METH_VARARGS, "Exact inner products of pairs of a query and a row."},
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
    .m_name = "r2med._dots",
    .m_doc = "Inner products at memory speed.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__dots(void) {
#ifdef WIDE
    int bits = r2_vector_bits();
    dispatch = bits == 512 ? run_512 : bits == 256 ? run_256 : run_plain;
    dispatch_pairs = bits == 512 ? pairs_512 : bits == 256 ? pairs_256 : pairs_plain;
#endif
    return PyModuleDef_Init(&module);
}
