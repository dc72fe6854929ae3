/* What the integers of a call decide; integers.c computes it, plan.c uses it. */
#ifndef CHAINRULE_INTEGERS_H
#define CHAINRULE_INTEGERS_H

#include "native.h"

/* What became of a call: all is known; the recording is for other integers; an integer does not fit into
 * 64 bits, so that Python must tell; an error of Python's that is none of the function's, as an interrupt. */
enum { KNOWN = 0, ANOTHER_PATH = 1, BEYOND_BITS = 2, UNDECIDED = -1 };

/* What a Decider is given; see compiler/capture/integer_code.py. */
enum { D_CONSTANTS, D_STEPS, D_POOL, D_FLOATS, D_GATHERS, D_CANDIDATES, D_NUMBERS, D_BUFFERS };

typedef struct {
    int64_t index, start, count; /* a node; among the candidates */
} GatherTable;

/* Gathers that follow each other and depend on one node. */
typedef struct {
    int64_t index, count; /* the node, and how many items its tables have */
    int64_t first, length;
    int64_t row; /* where what the first item selects is in `rows`; -1: nowhere */
    int sure;    /* whether every item selects a candidate */
} GatherRun;

/* An integer program as flat arrays. */
typedef struct {
    PyObject_HEAD
    Py_ssize_t arguments, steps, gathers, numbers, nodes;
    Py_buffer views[D_BUFFERS];
    int view_count;
    int64_t *values;   /* of every node; the constants never change */
    int64_t *selected; /* by the gathers of the last call */
    double *computed;  /* the numbers of the last call */
    GatherRun *runs;
    Py_ssize_t run_count;
    int64_t *rows; /* the tables of runs, row by row */
    PyObject *draws;   /* a tuple: what gives the random numbers of a seed, and how many in all before them */
    int64_t *drawn;    /* the random numbers of the last call, the bits of floats */
    Py_ssize_t drawn_count;
    int busy;          /* numbers are being drawn, by Python */
} Decider;

extern PyTypeObject *DeciderType;

/* Evaluate the program: `selected` and `computed`, where they are KNOWN. */
int decide(Decider *d, const int64_t *integers);

/* The same without `selected`, for select_into. */
int decide_numbers(Decider *d, const int64_t *integers);

/* A list's index counted from the beginning; whether there is such an item. */
static inline int wrap(int64_t *index, int64_t count) {
    *index += *index < 0 ? count : 0;
    return *index >= 0 && *index < count;
}

/* selecting.c: find the runs of gathers, -1: an error; what they select, KNOWN or ANOTHER_PATH. That of gather k
 * goes to place k of `to`, or to the k-th of `places`, which increase. */
int make_runs(Decider *d);
int select_into(const Decider *d, int64_t *to, const int64_t *places);

#endif
