/* The loops of maxsim.c for one instruction set. Included once for each, with these set:
 *
 *   SUFFIX   what names of functions end in
 *   TARGET   the attribute that lets the compiler use the instruction set
 *   WIDTH    query tokens in one vector register
 *   SUMS     registers that hold sums: the fewer tokens, the more rows they meet at once, up to MOST_ROWS
 *   MADD     a sum, and in each of its 32-bit lanes the two products of 16-bit numbers added to it
 */
#define JOIN(a, b) a##b
#define NAMED(name, suffix) JOIN(name, suffix)
#define Vector NAMED(Vector, SUFFIX)
#define Unsigned NAMED(Unsigned, SUFFIX)
#define INSIDE TARGET INLINE

typedef int32_t Vector __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t Unsigned __attribute__((vector_size(4 * WIDTH)));

INSIDE Vector NAMED(at, SUFFIX)(const void *place) {
    Vector loaded;
    memcpy(&loaded, place, sizeof loaded);
    return loaded;
}

INSIDE Vector NAMED(larger, SUFFIX)(Vector a, Vector b) {
    Vector first = a > b;
    return (a & first) | (b & ~first);
}

/* `rows` rows with `groups` registers of query tokens; both are constants where it is called. */
INSIDE void NAMED(tile, SUFFIX)(const int16_t *row, Py_ssize_t dimension, const int16_t *panel, int groups, int rows,
                                Vector *best) {
    const Py_ssize_t stride = dimension * WIDTH;
    Unsigned sums[SUMS];
    for (int s = 0; s < groups * rows; s++) sums[s] = (Unsigned){0};
#pragma GCC unroll 2 /* without it every sum is copied once more */
    for (Py_ssize_t k = 0; k < dimension; k += 2) {
        Vector pairs[SUMS];
        if (rows > 1) PREFETCH(row + AHEAD + k * rows); /* a line at a time: many at once would wait for each other */
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, row + r * dimension + k, sizeof pair);
            pairs[r] = pair - (Vector){0};
        }
        for (int g = 0; g < groups; g++) {
            Vector tokens = NAMED(at, SUFFIX)(panel + g * stride + k * WIDTH);
            for (int r = 0; r < rows; r++) sums[g * rows + r] = (Unsigned)MADD(sums[g * rows + r], tokens, pairs[r]);
        }
    }
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < rows; r++) best[g] = NAMED(larger, SUFFIX)(best[g], (Vector)sums[g * rows + r]);
}

/* All rows of a document with `groups` registers of query tokens, GROUPS at most: the best product of each token. */
INSIDE void NAMED(document, SUFFIX)(const Job *job, const int16_t *rows, Py_ssize_t count, const int16_t *panel,
                                    int groups, int32_t *out) {
    const int together = SUMS / groups < MOST_ROWS ? SUMS / groups : MOST_ROWS;
    Vector best[GROUPS];
    for (int g = 0; g < groups; g++) best[g] = INT32_MIN - (Vector){0};
    if (count < together) {
        for (Py_ssize_t r = 0; r < count; r++)
            NAMED(tile, SUFFIX)(rows + r * job->dimension, job->dimension, panel, groups, 1, best);
    } else {
        for (Py_ssize_t r = 0; r < count; r += together) { /* the last rows may come twice, which changes no maximum */
            const int16_t *row = rows + (r + together <= count ? r : count - together) * job->dimension;
            NAMED(tile, SUFFIX)(row, job->dimension, panel, groups, together, best);
        }
    }
    memcpy(out, best, (size_t)groups * sizeof *best);
}

TARGET static void NAMED(run, SUFFIX)(const Job *job) {
    const Py_ssize_t registers = (job->tokens + WIDTH - 1) / WIDTH;
    for (Py_ssize_t i = job->begin; i < job->end; i++) {
        const int16_t *rows = job->rows + job->starts[i] * job->dimension;
        for (Py_ssize_t g = 0; g < registers; g += GROUPS) {
            const int16_t *panel = job->panel + g * WIDTH * job->dimension;
            int32_t *out = job->best + g * WIDTH;
            switch (registers - g) {
                case 1: NAMED(document, SUFFIX)(job, rows, job->sizes[i], panel, 1, out); break;
                case 2: NAMED(document, SUFFIX)(job, rows, job->sizes[i], panel, 2, out); break;
                case 3: NAMED(document, SUFFIX)(job, rows, job->sizes[i], panel, 3, out); break;
                default: NAMED(document, SUFFIX)(job, rows, job->sizes[i], panel, GROUPS, out);
            }
        }
        totals(job, i);
    }
}

#undef JOIN
#undef NAMED
#undef Vector
#undef Unsigned
#undef INSIDE
#undef SUFFIX
#undef TARGET
#undef WIDTH
#undef SUMS
#undef MADD
