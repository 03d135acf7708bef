/* Reading TREC runs. */
#ifndef R2_TREC_H
#define R2_TREC_H

#define R2_RUN_COLUMNS_DOC                                                                                            \
    "run_columns(lines, queries, documents, /)\n--\n\n"                                                               \
    "Whole lines of a TREC run as (int32 queries, int32 documents, float64 scores, tag); ids are numbers in the two\n" \
    "dicts, which take in new ones. None where a line is unusual; the dicts may then have some of its ids already."

PyObject *r2_run_columns(PyObject *self, PyObject *arguments);

#endif
