/* Lines of a TREC run, `query Q0 document rank score tag`, as columns. What is not plainly such a line is left to the
 * reader in Python, which says what is wrong with it. */
#include "buffers.h"

#include <stdint.h>
#include <string.h>

#include "trec.h"

#define FIELDS 6

typedef struct {
    const char *start;
    Py_ssize_t size;
} Field;

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The fields of the line at `at`, which moves behind it: how many there are, at most one too many. */
static int split(const char **at, const char *end, Field *fields)
{
    int count = 0;
    const char *p = *at;

    while (p < end && *p != '\n') {
        const char *start;
        if (is_space(*p)) {
            p++;
            continue;
        }
        start = p;
        while (p < end && !is_space(*p))
            p++;
        if (count < FIELDS)
            fields[count] = (Field){start, p - start};
        count += count <= FIELDS;
    }
    *at = p < end ? p + 1 : end;
    return count;
}

static int same(Field a, Field b)
{
    return a.size == b.size && !memcmp(a.start, b.start, (size_t)a.size);
}

static int is_utf8(Field field)
{
    PyObject *text = PyUnicode_DecodeUTF8(field.start, field.size, NULL);
    if (!text)
        PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* The number of an id, which a new one gets; -1 where it is not UTF-8, -2 with an error set. */
static long number_of(PyObject *known, Field field)
{
    long number = -2;
    PyObject *name = PyBytes_FromStringAndSize(field.start, field.size), *found;

    if (!name)
        return -2;
    found = PyDict_GetItemWithError(known, name);
    if (found) {
        number = PyLong_AsLong(found);
        if (number < 0 && PyErr_Occurred())
            number = -2;
    } else if (!PyErr_Occurred()) {
        if (!is_utf8(field))
            number = -1;
        else if ((found = PyLong_FromSsize_t(PyDict_Size(known)))) {
            number = PyDict_SetItem(known, name, found) < 0 ? -2 : PyLong_AsLong(found);
            Py_DECREF(found);
        }
    }
    Py_DECREF(name);
    return number;
}

PyObject *r2_run_columns(PyObject *self, PyObject *arguments)
{
    PyObject *lines, *queries, *documents, *columns[3] = {NULL, NULL, NULL}, *result = NULL;
    Py_ssize_t rows = 0, row = 0;
    const char *at, *end, *p;
    Field fields[FIELDS], query = {"", -1}, tag = {"", -1};
    long query_number = 0;

    (void)self;
    if (!PyArg_ParseTuple(arguments, "O!O!O!:run_columns", &PyBytes_Type, &lines, &PyDict_Type, &queries, &PyDict_Type,
                          &documents))
        return NULL;
    at = PyBytes_AsString(lines);
    end = at + PyBytes_Size(lines);
    for (p = at; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        rows++;
    rows++; /* the last line may lack its end */
    columns[0] = PyByteArray_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(int32_t));
    columns[1] = PyByteArray_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(int32_t));
    columns[2] = PyByteArray_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(double));
    if (!columns[0] || !columns[1] || !columns[2])
        goto done;
    while (at < end) {
        char *stop;
        double score;
        long document;
        int count = split(&at, end, fields);
        if (!count)
            continue;
        if (count != FIELDS || (!same(fields[5], tag) && (tag.size >= 0 || !is_utf8(fields[5]))))
            goto unusual;
        tag = fields[5];
        score = PyOS_string_to_double(fields[4].start, &stop, NULL);
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError))
                goto done;
            PyErr_Clear();
            goto unusual;
        }
        if (stop != fields[4].start + fields[4].size || score != score)
            goto unusual;
        if (!same(fields[0], query)) {
            query = fields[0];
            query_number = number_of(queries, query);
        }
        document = query_number < 0 ? query_number : number_of(documents, fields[2]);
        if (document == -2)
            goto done;
        if (document < 0 || document > INT32_MAX || query_number > INT32_MAX)
            goto unusual;
        ((int32_t *)PyByteArray_AsString(columns[0]))[row] = (int32_t)query_number;
        ((int32_t *)PyByteArray_AsString(columns[1]))[row] = (int32_t)document;
        ((double *)PyByteArray_AsString(columns[2]))[row] = score;
        row++;
    }
    if (PyByteArray_Resize(columns[0], row * (Py_ssize_t)sizeof(int32_t)) < 0 ||
        PyByteArray_Resize(columns[1], row * (Py_ssize_t)sizeof(int32_t)) < 0 ||
        PyByteArray_Resize(columns[2], row * (Py_ssize_t)sizeof(double)) < 0)
        goto done;
    result = Py_BuildValue("OOOy#", columns[0], columns[1], columns[2], tag.start, tag.size > 0 ? tag.size : (Py_ssize_t)0);
    goto done;
unusual:
    result = Py_None;
    Py_INCREF(result);
done:
    Py_XDECREF(columns[0]);
    Py_XDECREF(columns[1]);
    Py_XDECREF(columns[2]);
    return result;
}
