/* The Python module r2med._fast: arguments and results of the C library, and nothing else.
 *
 * Texts come in through the buffer protocol and are read without the GIL; results are handed over as they are. */
#include "buffers.h"

#include <limits.h>
#include <stdlib.h>

#include "analyze.h"

static PyObject *fast_analyze(PyObject *self, PyObject *argument)
{
    R2Buffer text;
    PyObject *tokens;
    size_t at = 0, start, length;
    uint8_t term[R2_TERM_MAX];

    (void)self;
    if (r2_borrow(argument, &text, 0) < 0)
        return NULL;
    tokens = PyList_New(0);
    while (tokens && (length = r2_next_token(text.buf, (size_t)text.len, &at, &start))) {
        size_t size = r2_english_term((const uint8_t *)text.buf + start, length, term);
        PyObject *token;
        if (!size)
            continue;
        token = PyUnicode_DecodeUTF8((const char *)term, (Py_ssize_t)size, "replace");
        if (!token || PyList_Append(tokens, token) < 0)
            Py_CLEAR(tokens);
        Py_XDECREF(token);
    }
    r2_release(&text);
    return tokens;
}

static PyObject *fast_analyze_nano(PyObject *self, PyObject *argument)
{
    R2Buffer text;
    PyObject *tokens = NULL;
    size_t at = 0, start, length;
    uint16_t *letters;
    uint8_t *term;

    (void)self;
    if (r2_borrow(argument, &text, 0) < 0)
        return NULL;
    letters = text.len < INT_MAX ? malloc(((size_t)text.len + 1) * 3) : NULL; /* a token may be the whole text */
    if (!letters) {
        PyErr_NoMemory();
        r2_release(&text);
        return NULL;
    }
    term = (uint8_t *)(letters + text.len + 1);
    tokens = PyList_New(0);
    while (tokens && (length = r2_next_run(text.buf, (size_t)text.len, &at, &start))) {
        size_t size = r2_nano_term((const uint8_t *)text.buf + start, length, letters, term);
        PyObject *token;
        if (!size)
            continue;
        token = PyUnicode_DecodeASCII((const char *)term, (Py_ssize_t)size, NULL);
        if (!token || PyList_Append(tokens, token) < 0)
            Py_CLEAR(tokens);
        Py_XDECREF(token);
    }
    free(letters);
    r2_release(&text);
    return tokens;
}

/* Where count_terms puts its postings. */
typedef struct {
    PyObject *terms, *counts;
    PyThreadState *thread; /* what PyEval_SaveThread gave */
} postings;

/* bytearrays may only be resized with the GIL held. */
static int grow_postings(void *context, size_t capacity, int32_t **terms, int32_t **counts)
{
    postings *p = context;
    int failed = 1;

    PyEval_RestoreThread(p->thread);
    if (capacity > PY_SSIZE_T_MAX / sizeof(int32_t)) {
        PyErr_NoMemory();
    } else if (PyErr_CheckSignals() == 0 &&
               PyByteArray_Resize(p->terms, (Py_ssize_t)(capacity * sizeof(int32_t))) == 0 &&
               PyByteArray_Resize(p->counts, (Py_ssize_t)(capacity * sizeof(int32_t))) == 0) {
        *terms = (int32_t *)PyByteArray_AsString(p->terms);
        *counts = (int32_t *)PyByteArray_AsString(p->counts);
        failed = 0;
    }
    p->thread = PyEval_SaveThread();
    return failed;
}

static void raise_status(enum r2_status status)
{
    if (status == R2_BAD_OFFSETS)
        PyErr_SetString(PyExc_ValueError, "offsets must not decrease and must lie within the data");
    else if (status == R2_TOO_MANY_TERMS)
        PyErr_SetString(PyExc_OverflowError, "more than 2**31 - 1 terms");
    else if (status == R2_NO_MEMORY)
        PyErr_NoMemory();
    /* R2_STOPPED: the callback has raised already */
}

static PyObject *count_terms(const R2Buffer *data, const R2Buffer *offsets, enum r2_analyzer analyzer)
{
    const Py_ssize_t texts = offsets->len / (Py_ssize_t)sizeof(int64_t) - 1;
    r2_vocabulary vocabulary = {NULL, NULL, 0};
    PyObject *indptr = PyByteArray_FromStringAndSize(NULL, offsets->len), *result = NULL;
    postings p = {PyByteArray_FromStringAndSize(NULL, 0), PyByteArray_FromStringAndSize(NULL, 0), NULL};
    enum r2_status status;
    int64_t *ends;

    if (!indptr || !p.terms || !p.counts)
        goto done;
    ends = (int64_t *)PyByteArray_AsString(indptr);
    p.thread = PyEval_SaveThread();
    status = r2_count_terms(data->buf, (size_t)data->len, offsets->buf, (size_t)texts, analyzer, ends, grow_postings, &p,
                            &vocabulary);
    PyEval_RestoreThread(p.thread);
    if (status != R2_OK) {
        raise_status(status);
        goto done;
    }
    if (PyByteArray_Resize(p.terms, (Py_ssize_t)(ends[texts] * (int64_t)sizeof(int32_t))) < 0 ||
        PyByteArray_Resize(p.counts, (Py_ssize_t)(ends[texts] * (int64_t)sizeof(int32_t))) < 0)
        goto done;
    result = Py_BuildValue("y#y#OOO", vocabulary.text ? (const char *)vocabulary.text : "",
                           (Py_ssize_t)vocabulary.offsets[vocabulary.size], (const char *)vocabulary.offsets,
                           (Py_ssize_t)((vocabulary.size + 1) * (int64_t)sizeof(int64_t)), indptr, p.terms, p.counts);
done:
    r2_vocabulary_free(&vocabulary);
    Py_XDECREF(indptr);
    Py_XDECREF(p.terms);
    Py_XDECREF(p.counts);
    return result;
}

static PyObject *fast_count_terms(PyObject *self, PyObject *arguments)
{
    R2Buffer data = {0}, offsets = {0};
    PyObject *result = NULL;
    int analyzer;

    (void)self;
    if (!PyArg_ParseTuple(arguments, "O&O&i:count_terms", r2_readable, &data, r2_readable, &offsets, &analyzer))
        return NULL;
    if (offsets.len < (Py_ssize_t)sizeof(int64_t) || offsets.len % (Py_ssize_t)sizeof(int64_t))
        PyErr_SetString(PyExc_ValueError, "offsets must be one or more int64 values");
    else if (analyzer != R2_ENGLISH && analyzer != R2_WHITESPACE && analyzer != R2_NANO)
        PyErr_Format(PyExc_ValueError, "no analyzer has the number %d", analyzer);
    else
        result = count_terms(&data, &offsets, (enum r2_analyzer)analyzer);
    r2_release(&data);
    r2_release(&offsets);
    return result;
}

static PyMethodDef methods[] = {
    {"analyze", fast_analyze, METH_O,
     "analyze(text, /)\n--\n\nThe terms of UTF-8 text, by the English analyzer: a list of str."},
    {"analyze_nano", fast_analyze_nano, METH_O,
     "analyze_nano(text, /)\n--\n\nThe terms of UTF-8 text, by the analyzer of NanoR2MED's builder: a list of str."},
    {"count_terms", fast_count_terms, METH_VARARGS,
     "count_terms(data, offsets, analyzer, /)\n--\n\n"
     "Term counts of the UTF-8 texts data[offsets[i]:offsets[i + 1]] (int64); analyzer 0 is English, 1 whitespace,\n"
     "2 that of NanoR2MED's builder.\n\n"
     "Returns (vocabulary, its int64 offsets, int64 indptr, int32 terms, int32 counts). Terms are numbered by first\n"
     "occurrence over all texts, and stand in order of first occurrence within each."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "r2med._fast", "The parts of r2med that are written in C for speed.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    return PyModuleDef_Init(&definition);
}
