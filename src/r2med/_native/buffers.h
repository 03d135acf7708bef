/* Memory of Python objects (bytes, numpy arrays, mapped files), by the limited API of Python 3.10.
 *
 * One build of the extensions serves every Python from 3.10 on, on condition that they use the limited API alone.
 * Py_buffer and PyObject_GetBuffer are part of it only from 3.11. A memoryview, which is, holds the memory: as long as
 * it lives, nobody can resize or free what it shows, also while the GIL is released. Its address and size come from
 * PyObject_AsReadBuffer and PyObject_AsWriteBuffer, which refuse memory that is not contiguous or not writable. Both
 * are in the stable ABI of every Python 3, though headers from 3.13 on declare them no more. Alone, they would give
 * addresses that nothing keeps valid; asked of a memoryview that is held, they do not.
 *
 * In PyArg_ParseTuple "O&" with r2_readable or r2_writable and an R2Buffer stands where "y*" and "w*" would stand:
 *
 *     R2Buffer rows = {0}, out = {0};
 *     if (!PyArg_ParseTuple(args, "O&O&", r2_readable, &rows, r2_writable, &out)) return NULL;
 *     ... rows.buf, rows.len ...
 *     r2_release(&rows), r2_release(&out);
 */
#ifndef R2MED_BUFFERS_H
#define R2MED_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

typedef struct {
    void *buf;
    Py_ssize_t len; /* in bytes */
    PyObject *view; /* the memoryview that holds the memory; NULL: none is held */
} R2Buffer;

#if PY_VERSION_HEX >= 0x030D0000
PyAPI_FUNC(int) PyObject_AsReadBuffer(PyObject *, const void **, Py_ssize_t *);
PyAPI_FUNC(int) PyObject_AsWriteBuffer(PyObject *, void **, Py_ssize_t *);
#endif

static inline void r2_release(R2Buffer *buffer) {
    Py_CLEAR(buffer->view);
}

/* Borrows the memory of an object until r2_release: 0, or -1 with an exception set and nothing borrowed. */
static inline int r2_borrow(PyObject *object, R2Buffer *buffer, int writable) {
    const void *start = NULL;

    buffer->buf = NULL, buffer->len = 0;
    buffer->view = PyMemoryView_FromObject(object);
    if (!buffer->view) return -1;
    if (writable ? PyObject_AsWriteBuffer(buffer->view, &buffer->buf, &buffer->len)
                 : PyObject_AsReadBuffer(buffer->view, &start, &buffer->len)) {
        r2_release(buffer);
        return -1;
    }
    if (!writable) buffer->buf = (void *)start; /* the callers read it as const */
    if (!buffer->buf) buffer->buf = (void *)""; /* no bytes, but an address: NULL means that none is held */
    return 0;
}

/* Converters for "O&". Where a later argument does not fit, Python calls them again, without an object, to release. */
static inline int r2_readable(PyObject *object, void *buffer) {
    if (!object) r2_release(buffer);
    return object && r2_borrow(object, buffer, 0) == 0 ? Py_CLEANUP_SUPPORTED : 0;
}

static inline int r2_writable(PyObject *object, void *buffer) {
    if (!object) r2_release(buffer);
    return object && r2_borrow(object, buffer, 1) == 0 ? Py_CLEANUP_SUPPORTED : 0;
}

/* None gives a buffer without an address. */
static inline int r2_readable_or_none(PyObject *object, void *buffer) {
    if (object != Py_None) return r2_readable(object, buffer);
    memset(buffer, 0, sizeof(R2Buffer));
    return Py_CLEANUP_SUPPORTED;
}

#endif
