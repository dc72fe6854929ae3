/* What the gathers of an integer program select; see compiler/capture/integer_code.py.
 *
 * In: the tables that gathers choose from, a column for each gather. Out: what they select, where they are wanted.
 * Most gathers come in runs that depend on one integer, such as the numbers of one row of a matrix. The
 * tables of a run are kept row by row, so that what an integer selects is copied at once.
 */
#include "integers.h"

#define MOST_REPRESENTATIVES 64 /* runs that are looked at for one with the same tables */

static int is_same_run(const GatherTable *a, const GatherTable *b, Py_ssize_t length) {
    Py_ssize_t k = 0;
    for (; k < length && a[k].start == b[k].start; k++) {
    }
    return k == length;
}

/* The rows of a run, at `to`; whether each is a candidate. */
static int write_rows(const GatherTable *gathers, const int64_t *candidates, const GatherRun *run, int64_t *to) {
    int sure = 1;
    for (int64_t i = 0; i < run->count; i++) {
        for (int64_t k = 0; k < run->length; k++) {
            int64_t chosen = candidates[gathers[run->first + k].start + i];
            sure = sure && chosen >= 0;
            *to++ = chosen;
        }
    }
    return sure;
}

int make_runs(Decider *d) {
    const GatherTable *gathers = d->views[D_GATHERS].buf;
    const int64_t *candidates = d->views[D_CANDIDATES].buf;
    int64_t most = 2 * (int64_t)(d->views[D_CANDIDATES].len / (Py_ssize_t)sizeof(int64_t)), used = 0;
    d->runs = PyMem_Calloc((size_t)d->gathers + 1, sizeof *d->runs);
    d->rows = PyMem_Calloc((size_t)most + 1, sizeof *d->rows);
    if (d->runs == NULL || d->rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < d->gathers; d->run_count++) {
        GatherRun *run = &d->runs[d->run_count];
        *run = (GatherRun){.index = gathers[k].index, .count = gathers[k].count, .first = k, .row = -1};
        for (; k < d->gathers && gathers[k].index == run->index && gathers[k].count == run->count; k++) {
            run->length++;
        }
        Py_ssize_t seen = d->run_count > MOST_REPRESENTATIVES ? d->run_count - MOST_REPRESENTATIVES : 0;
        for (; seen < d->run_count && run->row < 0; seen++) {
            const GatherRun *other = &d->runs[seen];
            if (other->row >= 0 && other->length == run->length && other->count == run->count &&
                is_same_run(gathers + other->first, gathers + run->first, run->length)) {
                run->row = other->row;
                run->sure = other->sure;
            }
        }
        int64_t need = run->count <= most / run->length ? run->count * run->length : most + 1;
        if (run->row < 0 && need <= most - used) {
            run->row = used;
            run->sure = write_rows(gathers, candidates, run, d->rows + used);
            used += need;
        }
    }
    return 0;
}

int select_into(const Decider *d, int64_t *to, const int64_t *places) {
    const GatherTable *gathers = d->views[D_GATHERS].buf;
    const int64_t *candidates = d->views[D_CANDIDATES].buf;
    for (Py_ssize_t r = 0; r < d->run_count; r++) {
        const GatherRun *run = &d->runs[r];
        const int64_t *at = places == NULL ? NULL : places + run->first;
        int64_t index = d->values[run->index], first = at == NULL ? run->first : at[0];
        if (!wrap(&index, run->count)) {
            return ANOTHER_PATH;
        }
        int beside = at == NULL || at[run->length - 1] - first == run->length - 1;
        if (run->row >= 0 && run->sure && beside) {
            const int64_t *from = d->rows + run->row + index * run->length;
            if (run->length == 1) {
                to[first] = *from;
            } else {
                memcpy(to + first, from, (size_t)run->length * sizeof *to);
            }
            continue;
        }
        for (int64_t k = 0; k < run->length; k++) {
            int64_t chosen = candidates[gathers[run->first + k].start + index];
            if (chosen < 0) {
                return ANOTHER_PATH;
            }
            to[at == NULL ? first + k : at[k]] = chosen;
        }
    }
    return KNOWN;
}
