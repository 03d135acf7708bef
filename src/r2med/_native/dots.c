/* Inner products of a few queries with many rows, at the speed at which the rows come out of memory; and exact ones.
 *
 * `dots`: a matrix product in blocks copies every row into a layout of its own first, which pays for many queries and
 * costs twice the reading for few. Here each row is read once and meets all queries while it is in the nearest cache.
 * The sums depend on the vector unit of the machine in their last bits. They choose candidates (r2med/retrieve/few.py).
 *
 * `pairs`: the scores that are reported (r2med/retrieve/exact.py). Products of float32 numbers are exact in double, and
 * the order of the sums is fixed, so that every machine gets the same bits.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, TOGETHER = 4, CHAINS = 4, AHEAD = 512 /* floats: 2 kB */ };

typedef float Lanes __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))
#ifdef __x86_64__
#define WIDE 1 /* there may be wider vectors than the compiler counts on */
#endif

typedef struct {
    const float *queries; /* count × dimension */
    Py_ssize_t count, dimension;
    const float *rows;
    const int64_t *places; /* which rows, best in rising order, or NULL for all */
    Py_ssize_t begin, end;
    float *out; /* count × width */
    Py_ssize_t width, offset;
} Job;

INLINE Lanes at(const float *values) {
    Lanes loaded;
    memcpy(&loaded, values, sizeof loaded);
    return loaded;
}

INLINE float total(Lanes lanes) {
    float parts[LANES];
    memcpy(parts, &lanes, sizeof parts);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) parts[lane] += parts[lane + half];
    return parts[0];
}

/* One row with one query. Four chains of sums, so that none waits for the last addition, and a look ahead: both keep
 * more of memory under way at once. */
INLINE float product(const float *row, const float *query, Py_ssize_t dimension) {
    Lanes sums[CHAINS];
    for (int c = 0; c < CHAINS; c++) sums[c] = (Lanes){0};
    Py_ssize_t k = 0;
    for (; k + CHAINS * LANES <= dimension; k += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++) {
            __builtin_prefetch(row + k + c * LANES + AHEAD);
            sums[c] += at(row + k + c * LANES) * at(query + k + c * LANES);
        }
    for (; k + LANES <= dimension; k += LANES) sums[0] += at(row + k) * at(query + k);
    float rest = 0;
    for (; k < dimension; k++) rest += row[k] * query[k];
    return rest + total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* One row with several queries, each in its own chain. One row at a time: rows side by side would be read at several
 * places at once, which takes three times as long. */
INLINE void products(const float *row, const float *queries, Py_ssize_t dimension, float *sums) {
    Lanes lanes[TOGETHER];
    for (int q = 0; q < TOGETHER; q++) lanes[q] = (Lanes){0};
    Py_ssize_t k = 0;
    for (; k + LANES <= dimension; k += LANES) {
        __builtin_prefetch(row + k + AHEAD);
        Lanes held = at(row + k);
        for (int q = 0; q < TOGETHER; q++) lanes[q] += held * at(queries + q * dimension + k);
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

#ifdef WIDE
__attribute__((target("avx512f,fma,prefer-vector-width=512"))) static void run_512(const Job *job) { run(job); }
__attribute__((target("avx2,fma"))) static void run_256(const Job *job) { run(job); }
#endif
static void run_plain(const Job *job) { run(job); }

static void dispatch(const Job *job) {
#ifdef WIDE
    if (__builtin_cpu_supports("avx512f")) {
        run_512(job);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        run_256(job);
        return;
    }
#endif
    run_plain(job);
}

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

#ifdef WIDE
__attribute__((target("avx512f,fma"))) static void sum_pairs_512(const Pairs *job) { sum_pairs(job); }
__attribute__((target("avx2,fma"))) static void sum_pairs_256(const Pairs *job) { sum_pairs(job); }
#endif
static void sum_pairs_plain(const Pairs *job) { sum_pairs(job); }

static void dispatch_pairs(const Pairs *job) {
#ifdef WIDE
    if (__builtin_cpu_supports("avx512f")) {
        sum_pairs_512(job);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        sum_pairs_256(job);
        return;
    }
#endif
    sum_pairs_plain(job);
}

static int all_within(const int64_t *values, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t limit) {
    for (Py_ssize_t i = begin; i < end; i++)
        if (values[i] < 0 || values[i] >= limit) return 0;
    return 1;
}

static PyObject *dots(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer queries, rows, out, places = {0};
    PyObject *chosen;
    Job job;
    if (!PyArg_ParseTuple(args, "y*y*Ow*nnnnn", &queries, &rows, &chosen, &out, &job.dimension, &job.width, &job.begin,
                          &job.end, &job.offset))
        return NULL;
    int given = chosen != Py_None;
    if (given && PyObject_GetBuffer(chosen, &places, PyBUF_C_CONTIGUOUS) < 0) {
        PyBuffer_Release(&queries), PyBuffer_Release(&rows), PyBuffer_Release(&out);
        return NULL;
    }
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
    PyBuffer_Release(&queries), PyBuffer_Release(&rows), PyBuffer_Release(&out);
    if (given) PyBuffer_Release(&places);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}

static PyObject *pairs(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer queries, rows, query, place, out;
    Pairs job;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nnn", &queries, &rows, &query, &place, &out, &job.dimension, &job.begin,
                          &job.end))
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
    PyBuffer_Release(&queries), PyBuffer_Release(&rows), PyBuffer_Release(&query), PyBuffer_Release(&place);
    PyBuffer_Release(&out);
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

PyMODINIT_FUNC PyInit__dots(void) { return PyModuleDef_Init(&module); }
