/* Sparse exact search: postings from term counts, scoring of whole query sets, top-k in trec_eval's order.
 *
 * Every function takes buffers (numpy arrays on the Python side), checks their sizes and bounds, and releases the
 * GIL while it works, so that Python threads spread the queries of a task over the cores. The Python twin of each
 * function stands in r2med/retrieve/_native_python.py and gives the same bits: sums run in double precision, in the
 * same order, without fused multiply-add.
 */
#include "buffers.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUFFERS = 9, STRIDE = 16, STRETCH = 32 };

typedef struct {
    R2Buffer view[MAX_BUFFERS];
    int held;
} Buffers;

static void release(Buffers *buffers) {
    while (buffers->held > 0) r2_release(&buffers->view[--buffers->held]);
}

/* Borrow `object` as a contiguous array of `count` items (any number if count < 0) of `size` bytes. */
static void *borrow(Buffers *buffers, PyObject *object, Py_ssize_t size, Py_ssize_t count, int writable) {
    R2Buffer *view = &buffers->view[buffers->held];
    if (r2_borrow(object, view, writable) < 0) return NULL;
    buffers->held++;
    if (view->len % size != 0 || (count >= 0 && view->len != count * size)) {
        PyErr_Format(PyExc_ValueError, "buffer %d has %zd bytes, expected %zd items of %zd", buffers->held - 1, view->len,
                     count, size);
        return NULL;
    }
    return view->buf;
}

static Py_ssize_t items(const Buffers *buffers, int index, Py_ssize_t size) { return buffers->view[index].len / size; }

static int bad_pointers(const int64_t *pointers, Py_ssize_t rows, Py_ssize_t end) {
    if (pointers[0] != 0 || pointers[rows] != end) return 1;
    for (Py_ssize_t i = 0; i < rows; i++)
        if (pointers[i] > pointers[i + 1]) return 1;
    return 0;
}

static int out_of_range(const int32_t *values, Py_ssize_t count, int64_t limit) {
    uint32_t most = limit < 0 ? 0 : limit > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)limit;
    int bad = 0; /* all of them, without a way out half-way: that runs at the width of a vector */
    for (Py_ssize_t i = 0; i < count; i++) bad |= (uint32_t)values[i] >= most;
    return bad;
}

/* postings(indptr, terms, counts, norms, idf, term_ptr, docs, impacts)
 * Turns document-major counts into term-major postings with impact idf * count / (count + norm). */
static PyObject *postings(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object[8];
    Buffers b = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &object[0], &object[1], &object[2], &object[3], &object[4], &object[5],
                          &object[6], &object[7]))
        return NULL;
    const int64_t *indptr = borrow(&b, object[0], 8, -1, 0);
    if (!indptr) goto fail;
    Py_ssize_t rows = items(&b, 0, 8) - 1;
    const int32_t *terms = borrow(&b, object[1], 4, -1, 0);
    if (!terms) goto fail;
    Py_ssize_t nnz = items(&b, 1, 4);
    const int32_t *counts = borrow(&b, object[2], 4, nnz, 0);
    if (!counts) goto fail;
    const double *norms = borrow(&b, object[3], 8, rows < 0 ? 0 : rows, 0);
    if (!norms) goto fail;
    const double *idf = borrow(&b, object[4], 8, -1, 0);
    if (!idf) goto fail;
    Py_ssize_t vocabulary = items(&b, 4, 8);
    int64_t *term_ptr = borrow(&b, object[5], 8, vocabulary + 1, 1);
    if (!term_ptr) goto fail;
    int32_t *docs = borrow(&b, object[6], 4, nnz, 1);
    if (!docs) goto fail;
    float *impacts = borrow(&b, object[7], 4, nnz, 1);
    if (!impacts) goto fail;
    if (rows < 0 || bad_pointers(indptr, rows, nnz) || out_of_range(terms, nnz, vocabulary)) {
        PyErr_SetString(PyExc_ValueError, "term counts are not a valid matrix");
        goto fail;
    }
    int64_t *next = malloc(sizeof(int64_t) * (size_t)(vocabulary + 1));
    if (!next) {
        PyErr_NoMemory();
        goto fail;
    }
    Py_BEGIN_ALLOW_THREADS;
    memset(term_ptr, 0, sizeof(int64_t) * (size_t)(vocabulary + 1));
    for (Py_ssize_t i = 0; i < nnz; i++) term_ptr[terms[i] + 1]++;
    for (Py_ssize_t t = 0; t < vocabulary; t++) term_ptr[t + 1] += term_ptr[t];
    memcpy(next, term_ptr, sizeof(int64_t) * (size_t)(vocabulary + 1));
    for (Py_ssize_t d = 0; d < rows; d++) {
        double norm = norms[d];
        for (int64_t i = indptr[d]; i < indptr[d + 1]; i++) {
            int64_t at = next[terms[i]]++;
            double count = counts[i];
            docs[at] = (int32_t)d;
            impacts[at] = (float)(idf[terms[i]] * (count / (count + norm)));
        }
    }
    Py_END_ALLOW_THREADS;
    free(next);
    release(&b);
    Py_RETURN_NONE;
fail:
    release(&b);
    return NULL;
}

/* Order-preserving image of a float in an unsigned integer. */
static uint32_t sortable(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float unsortable(uint32_t bits) {
    float value;
    bits = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
    memcpy(&value, &bits, 4);
    return value;
}

/* Move the `k` largest keys to the front (quickselect with median of three, insertion sort for small ranges). */
static void select_largest(uint64_t *keys, Py_ssize_t n, Py_ssize_t k) {
    Py_ssize_t low = 0, high = n - 1;
    while (high - low > 16) {
        uint64_t a = keys[low], b = keys[low + (high - low) / 2], c = keys[high];
        uint64_t pivot = a > b ? (b > c ? b : (a > c ? c : a)) : (a > c ? a : (b > c ? c : b));
        Py_ssize_t i = low, j = high;
        while (i <= j) {
            while (keys[i] > pivot) i++;
            while (keys[j] < pivot) j--;
            if (i <= j) {
                uint64_t swap = keys[i];
                keys[i++] = keys[j];
                keys[j--] = swap;
            }
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else return;
    }
    for (Py_ssize_t i = low + 1; i <= high; i++) {
        uint64_t key = keys[i];
        Py_ssize_t j = i;
        while (j > low && keys[j - 1] < key) {
            keys[j] = keys[j - 1];
            j--;
        }
        keys[j] = key;
    }
}

/* Sort keys in descending order, a byte at a time; `spare` holds as many. Bytes that all keys share cost one look. */
static void sort_descending(uint64_t *keys, uint64_t *spare, Py_ssize_t n) {
    uint64_t *from = keys, *to = spare;
    for (int shift = 0; shift < 64; shift += 8) {
        Py_ssize_t count[256] = {0};
        for (Py_ssize_t i = 0; i < n; i++) count[(from[i] >> shift) & 255]++;
        if (n && count[(from[0] >> shift) & 255] == n) continue;
        Py_ssize_t start = 0;
        for (int digit = 255; digit >= 0; digit--) {
            Py_ssize_t size = count[digit];
            count[digit] = start;
            start += size;
        }
        for (Py_ssize_t i = 0; i < n; i++) to[count[(from[i] >> shift) & 255]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, sizeof(uint64_t) * (size_t)n);
}

/* Keep the best `depth` of `n` keys, in order; a key is (score image, complement of the tie rank). */
static Py_ssize_t best(uint64_t *keys, uint64_t *spare, Py_ssize_t n, Py_ssize_t depth) {
    if (n > depth) {
        if (depth > 0) select_largest(keys, n, depth);
        n = depth;
    }
    sort_descending(keys, spare, n);
    return n;
}

static void emit(const uint64_t *keys, Py_ssize_t n, Py_ssize_t depth, const int32_t *by_rank, int32_t *docs,
                 float *scores) {
    for (Py_ssize_t i = 0; i < n; i++) {
        docs[i] = by_rank[0xffffffffu - (uint32_t)keys[i]];
        scores[i] = unsortable((uint32_t)(keys[i] >> 32));
    }
    for (Py_ssize_t i = n; i < depth; i++) {
        docs[i] = -1;
        scores[i] = -INFINITY;
    }
}

/* search(term_ptr, docs, impacts, query_ptr, query_terms, query_weights, tie_rank, out_docs, out_scores, single=False)
 * With single, sums are rounded to single precision at every step. A sum of two floats made in double precision and
 * then rounded is the float nearest to it, so one array of sums serves both.
 * out_docs and out_scores are (queries x depth). Documents that share no term with a query are not retrieved. */
static PyObject *search(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object[9];
    Buffers b = {.held = 0};
    double *sums = NULL;
    uint64_t *keys = NULL;
    int32_t *by_rank = NULL;
    int single = 0;
    if (!PyArg_ParseTuple(args, "OOOOOOOOO|p", &object[0], &object[1], &object[2], &object[3], &object[4], &object[5],
                          &object[6], &object[7], &object[8], &single))
        return NULL;
    const int64_t *term_ptr = borrow(&b, object[0], 8, -1, 0);
    if (!term_ptr) goto fail;
    Py_ssize_t vocabulary = items(&b, 0, 8) - 1;
    const int32_t *docs = borrow(&b, object[1], 4, -1, 0);
    if (!docs) goto fail;
    Py_ssize_t nnz = items(&b, 1, 4);
    const float *impacts = borrow(&b, object[2], 4, nnz, 0);
    if (!impacts) goto fail;
    const int64_t *query_ptr = borrow(&b, object[3], 8, -1, 0);
    if (!query_ptr) goto fail;
    Py_ssize_t queries = items(&b, 3, 8) - 1;
    const int32_t *query_terms = borrow(&b, object[4], 4, -1, 0);
    if (!query_terms) goto fail;
    Py_ssize_t query_nnz = items(&b, 4, 4);
    const double *weights = borrow(&b, object[5], 8, query_nnz, 0);
    if (!weights) goto fail;
    const int32_t *tie_rank = borrow(&b, object[6], 4, -1, 0);
    if (!tie_rank) goto fail;
    Py_ssize_t n = items(&b, 6, 4);
    int32_t *out_docs = borrow(&b, object[7], 4, -1, 1);
    if (!out_docs) goto fail;
    Py_ssize_t cells = items(&b, 7, 4);
    float *out_scores = borrow(&b, object[8], 4, cells, 1);
    if (!out_scores) goto fail;
    if (vocabulary < 0 || queries < 0 || (queries > 0 && cells % queries != 0) ||
        bad_pointers(term_ptr, vocabulary, nnz) || bad_pointers(query_ptr, queries, query_nnz) ||
        out_of_range(query_terms, query_nnz, vocabulary) || out_of_range(tie_rank, n, n)) {
        PyErr_SetString(PyExc_ValueError, "postings, queries or output do not fit together");
        goto fail;
    }
    Py_ssize_t depth = queries ? cells / queries : 0;
    sums = calloc((size_t)n + 1, sizeof(double));
    keys = malloc(sizeof(uint64_t) * 2 * ((size_t)n + 1));
    by_rank = malloc(sizeof(int32_t) * ((size_t)n + 1));
    if (!sums || !keys || !by_rank) {
        PyErr_NoMemory();
        goto fail;
    }
    int broken = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t d = 0; d < n; d++) by_rank[tie_rank[d]] = (int32_t)d;
    for (Py_ssize_t q = 0; q < queries && !broken; q++) {
        for (int64_t i = query_ptr[q]; i < query_ptr[q + 1]; i++) {
            double weight = weights[i];
            int64_t end = term_ptr[query_terms[i] + 1];
            for (int64_t j = term_ptr[query_terms[i]]; j < end; j++) {
                uint32_t doc = (uint32_t)docs[j];
                if (doc >= (uint64_t)n) { /* a mapped index file can be damaged after it was checked */
                    broken = 1;
                    break;
                }
                double sum = sums[doc] + weight * (double)impacts[j];
                sums[doc] = single ? (double)(float)sum : sum;
            }
        }
        Py_ssize_t found = 0;
        for (Py_ssize_t d = 0; d < n; d++) {
            if (sums[d] != 0.0) {
                keys[found++] = ((uint64_t)sortable((float)sums[d]) << 32) | (0xffffffffu - (uint32_t)tie_rank[d]);
                sums[d] = 0.0;
            }
        }
        found = best(keys, keys + n + 1, found, depth);
        emit(keys, found, depth, by_rank, out_docs + q * depth, out_scores + q * depth);
    }
    Py_END_ALLOW_THREADS;
    if (broken) {
        PyErr_SetString(PyExc_ValueError, "postings name a document that does not exist");
        goto fail;
    }
    free(sums);
    free(keys);
    free(by_rank);
    release(&b);
    Py_RETURN_NONE;
fail:
    free(sums);
    free(keys);
    free(by_rank);
    release(&b);
    return NULL;
}

/* A score that more than `depth` of a row reach, guessed from every 16th: the sample's share of the best, three standard
 * deviations of it and a few more. Minus infinity where the row is too short to be worth it. */
static float likely_floor(const float *row, Py_ssize_t n, Py_ssize_t depth, uint64_t *keys) {
    double share = (double)depth / STRIDE;
    Py_ssize_t sampled = n / STRIDE, rank = (Py_ssize_t)(share + 3.0 * sqrt(share)) + 8;
    if (2 * rank > sampled) return -INFINITY;
    for (Py_ssize_t i = 0; i < sampled; i++) keys[i] = sortable(row[i * STRIDE]);
    select_largest(keys, sampled, rank);
    uint64_t worst = keys[0];
    for (Py_ssize_t i = 1; i < rank; i++)
        if (keys[i] < worst) worst = keys[i];
    return unsortable((uint32_t)worst);
}

/* Positions of all scores that are not below `floor`. Most stretches of a row hold none: those are passed over at the
 * width of a vector. Within one there is no branch, which could not be predicted. */
static Py_ssize_t positions_from(const float *row, Py_ssize_t n, float floor, uint32_t *positions) {
    Py_ssize_t found = 0;
    for (Py_ssize_t begin = 0; begin < n; begin += STRETCH) {
        Py_ssize_t end = n - begin < STRETCH ? n : begin + STRETCH;
        int any = end - begin < STRETCH;
        if (!any)
            for (int i = 0; i < STRETCH; i++) any |= !(row[begin + i] < floor);
        if (!any) continue;
        for (Py_ssize_t d = begin; d < end; d++) {
            positions[found] = (uint32_t)d;
            found += !(row[d] < floor);
        }
    }
    return found;
}

/* topk(scores, tie_rank, out_docs, out_scores): exact top-k of a dense float32 score matrix (rows x documents). */
static PyObject *topk(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object[4];
    Buffers b = {.held = 0};
    uint64_t *keys = NULL;
    int32_t *by_rank = NULL;
    uint32_t *positions = NULL;
    if (!PyArg_ParseTuple(args, "OOOO", &object[0], &object[1], &object[2], &object[3])) return NULL;
    const float *scores = borrow(&b, object[0], 4, -1, 0);
    if (!scores) goto fail;
    const int32_t *tie_rank = borrow(&b, object[1], 4, -1, 0);
    if (!tie_rank) goto fail;
    Py_ssize_t n = items(&b, 1, 4), rows = n ? items(&b, 0, 4) / n : 0;
    int32_t *out_docs = borrow(&b, object[2], 4, -1, 1);
    if (!out_docs) goto fail;
    Py_ssize_t cells = items(&b, 2, 4);
    float *out_scores = borrow(&b, object[3], 4, cells, 1);
    if (!out_scores) goto fail;
    if (rows * n != items(&b, 0, 4) || (rows > 0 && cells % rows != 0) || out_of_range(tie_rank, n, n)) {
        PyErr_SetString(PyExc_ValueError, "scores, tie ranks or output do not fit together");
        goto fail;
    }
    keys = malloc(sizeof(uint64_t) * 2 * ((size_t)n + 1));
    by_rank = malloc(sizeof(int32_t) * ((size_t)n + 1));
    positions = malloc(sizeof(uint32_t) * ((size_t)n + 1));
    if (!keys || !by_rank || !positions) {
        PyErr_NoMemory();
        goto fail;
    }
    Py_BEGIN_ALLOW_THREADS;
    Py_ssize_t depth = rows ? cells / rows : 0;
    int ranked = 0; /* whether by_rank is filled: for a row or two it costs more than everything else */
    for (Py_ssize_t r = 0; r < rows; r++) {
        const float *row = scores + r * n;
        Py_ssize_t found = positions_from(row, n, likely_floor(row, n, depth, keys), positions);
        if (found < depth) found = positions_from(row, n, -INFINITY, positions); /* a bad guess */
        for (Py_ssize_t i = 0; i < found; i++) {
            uint32_t d = positions[i];
            keys[i] = ((uint64_t)sortable(row[d]) << 32) | (0xffffffffu - (uint32_t)tie_rank[d]);
        }
        if (!ranked && (rows > 2 || found > n / 4)) {
            for (Py_ssize_t d = 0; d < n; d++) by_rank[tie_rank[d]] = (int32_t)d;
            ranked = 1;
        }
        if (!ranked)
            for (Py_ssize_t i = 0; i < found; i++) by_rank[tie_rank[positions[i]]] = (int32_t)positions[i];
        found = best(keys, keys + n + 1, found, depth);
        emit(keys, found, depth, by_rank, out_docs + r * depth, out_scores + r * depth);
    }
    Py_END_ALLOW_THREADS;
    free(keys);
    free(by_rank);
    free(positions);
    release(&b);
    Py_RETURN_NONE;
fail:
    free(keys);
    free(by_rank);
    free(positions);
    release(&b);
    return NULL;
}

static PyMethodDef methods[] = {
    {"postings", postings, METH_VARARGS, "Term-major postings with impacts from document-major counts."},
    {"search", search, METH_VARARGS, "Score queries against postings and keep the best documents of each."},
    {"topk", topk, METH_VARARGS, "The best documents of each row of a score matrix."},
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
    .m_name = "r2med._sparse",
    .m_doc = "Sparse exact search.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__sparse(void) { return PyModuleDef_Init(&module); }
