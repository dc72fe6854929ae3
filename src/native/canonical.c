/* From a recording to its canonical graph: canonicalise(), its arguments checked, its arrays made.
 *
 * Arrays are made as large as they can get before anything is built, so that nothing fails half way;
 * what was not needed was never touched, and is freed.
 */
#include "canonical.h"

static const char *const given_formats[GIVEN] = {"i", "i", "d", "B", "i", "B", "b", "i",
                                                 "i", "i", "i", "i", "i", "i", "i", "B"};

/* ValueError unless the instruction has the operands that its rule needs; counts what it may add to the
 * arrays. */
static int check_instruction(Lift *x, Py_ssize_t i) {
    int32_t code = x->codes[i];
    const int32_t *p = &x->operands[3 * i];
    int fits = code >= 0 && code < x->rule_count && (code == INPUT) == (i < x->inputs);
    for (int j = 0; j < 3; j++) {
        fits = fits && p[j] >= -1 && p[j] < i && (j == 0 || p[j] < 0 || p[j - 1] >= 0);
    }
    if (fits && code >= FIRST_RULE) {
        int role = x->roles[2 * code], number = x->number[i] != 0;
        fits = p[0] >= 0 && (number || p[1] >= 0 || (role != ROLE_ADD && role != ROLE_MUL));
        x->term_limit += role == ROLE_ADD ? 2 : role != ROLE_PLAIN;
        x->product_limit += role == ROLE_MUL;
        x->known_limit += role == ROLE_ADD ? number && x->constants[x->width * i] != 0.0 : role != ROLE_MUL;
        x->plain_limit += operand_count(x, i);
    }
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "instruction %zd is malformed", i);
        return -1;
    }
    return 0;
}

static int check_given(Lift *x) {
    if (x->inputs < 0 || x->inputs > x->count) {
        PyErr_Format(PyExc_ValueError, "%zd inputs among %zd instructions", x->inputs, x->count);
        return -1;
    }
    for (Py_ssize_t code = 0; code < x->rule_count; code++) {
        int32_t role = x->roles[2 * code], parameters = x->roles[2 * code + 1];
        if (role < ROLE_PLAIN || role > ROLE_MIN || parameters < 0 || parameters > x->width) {
            PyErr_Format(PyExc_ValueError, "code %zd is malformed", code);
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < x->count; i++) {
        if (check_instruction(x, i) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t k = 0; k < x->wanted_count; k++) {
        if (x->wanted[k] < 0 || x->wanted[k] >= x->count) {
            PyErr_Format(PyExc_ValueError, "position %zd lies outside the recording", k);
            return -1;
        }
    }
    if ((x->until = PyMem_Calloc((size_t)x->candidate_count + 1, sizeof *x->until)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int fits = 1;
    for (Py_ssize_t k = 0; fits && k < x->place_count; k++) {
        int32_t at = x->places[k], first = x->first[k], begin = x->candidate_at[2 * k], end = x->candidate_at[2 * k + 1];
        fits = at > (k > 0 ? x->places[k - 1] : -1) && at < 3 * x->count && x->operands[at] >= 0 && begin >= 0 &&
               begin < end && end <= x->candidate_count && first >= 0 && first <= k && x->first[first] == first &&
               x->candidate_at[2 * first] == begin && x->candidate_at[2 * first + 1] == end;
        /* Candidates that come before one place come before all later ones. */
        for (int32_t c = begin; fits && is_new_range(x, k) && c < end; c++) {
            fits = x->candidates[c] >= 0 && x->candidates[c] < at / 3;
        }
        if (fits) {
            note_range(x, k);
            x->plain_limit += first == k ? end - begin : 0;
        }
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the operands that depend on integers do not fit the recording");
        return -1;
    }
    if (x->plain_limit > INT32_MAX || x->product_limit > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more than 2**31 operands");
        return -1;
    }
    return 0;
}

static Py_ssize_t given_items(const Lift *x, int which) {
    return x->views[which].len / x->views[which].itemsize;
}

static int get_given(Lift *x, PyObject **given) {
    Py_ssize_t least[GIVEN] = {0};
    for (int k = 0; k < GIVEN; k++) {
        if (get_buffer(given[k], &x->views[k], given_formats[k], least[k], 0) < 0) {
            return -1;
        }
        x->view_count = k + 1;
        if (k == G_CODES) {
            x->count = least[G_NUMBER] = given_items(x, k);
            least[G_OPERANDS] = 3 * x->count;
            least[G_CONSTANTS] = x->count;
            least[G_CLASSES] = x->inputs;
        } else if (k == G_ROLES) {
            x->rule_count = given_items(x, k) / 2;
            least[G_IDENTITIES] = 8 * x->rule_count;
        } else if (k == G_PLACES) {
            x->place_count = least[G_ORDER] = least[G_FIRST] = given_items(x, k);
            least[G_CANDIDATE_AT] = 2 * x->place_count;
        }
    }
    x->wanted_count = given_items(x, G_WANTED);
    x->candidate_count = given_items(x, G_CANDIDATES);
    x->codes = x->views[G_CODES].buf;
    x->operands = x->views[G_OPERANDS].buf;
    x->constants = x->views[G_CONSTANTS].buf;
    x->width = constants_each(&x->views[G_CONSTANTS], x->count);
    x->number = x->views[G_NUMBER].buf;
    x->roles = x->views[G_ROLES].buf;
    x->identities = x->views[G_IDENTITIES].buf;
    x->classes = x->views[G_CLASSES].buf;
    x->wanted = x->views[G_WANTED].buf;
    x->places = x->views[G_PLACES].buf;
    x->order = x->views[G_ORDER].buf;
    x->first = x->views[G_FIRST].buf;
    x->candidate_at = x->views[G_CANDIDATE_AT].buf;
    x->candidates = x->views[G_CANDIDATES].buf;
    x->tokens = x->views[G_TOKENS].buf;
    x->iterations = given_items(x, G_ITERATIONS) ? x->views[G_ITERATIONS].buf : NULL;
    x->begins = x->views[G_BEGINS].buf;
    if (x->iterations != NULL && (given_items(x, G_ITERATIONS) < x->count || given_items(x, G_BEGINS) < x->count ||
                                  given_items(x, G_TOKENS) < 8 * x->count)) {
        PyErr_SetString(PyExc_ValueError, "the loops do not fit the recording");
        return -1;
    }
    /* Places are 3 * instruction + operand, and as int32 as instructions, nodes and terms. */
    if (x->count > INT32_MAX / 3 || x->place_count > INT32_MAX / 3) {
        PyErr_SetString(PyExc_OverflowError, "more than 2**31 operands");
        return -1;
    }
    return 0;
}

static int make_graph_arrays(Lift *x, int keep_dead) {
    Py_ssize_t count = x->count, nodes = count + x->place_count;
    size_t sets = (size_t)(x->term_limit > x->candidate_count ? x->term_limit : x->candidate_count) + 1;
    size_t known = 16;
    while (known < 2 * (size_t)x->known_limit) {
        known *= 2;
    }
    x->known_mask = known - 1;
    x->known_scale = ((uint64_t)known << 32) / ((uint64_t)nodes + 1);
    if ((!keep_dead && (x->live = PyMem_Malloc((size_t)count + 1)) == NULL) ||
        (x->uses = PyMem_Malloc((size_t)count + 1)) == NULL ||
        (x->iterations != NULL && (x->moving = PyMem_Malloc((size_t)nodes + 1)) == NULL) ||
        (x->terms = PyMem_Malloc(((size_t)x->term_limit + 1) * sizeof *x->terms)) == NULL ||
        (x->known = PyMem_Malloc(known * sizeof *x->known)) == NULL ||
        (x->gathered = PyMem_Malloc(((size_t)x->place_count + 1) * sizeof *x->gathered)) == NULL ||
        (x->alike = PyMem_Malloc(((size_t)x->candidate_count + 1) * sizeof *x->alike)) == NULL ||
        (x->set = PyMem_Malloc(sets * sizeof *x->set)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject **o = x->objects;
    if ((x->kinds = new_array(&o[M_KINDS], nodes, 1)) == NULL ||
        (x->product_at = new_array(&o[M_PRODUCT_AT], nodes + 1, sizeof *x->product_at)) == NULL ||
        (x->products = new_array(&o[M_PRODUCTS], x->product_limit, 2 * sizeof *x->products)) == NULL ||
        (x->plain_at = new_array(&o[M_PLAIN_AT], nodes + 1, sizeof *x->plain_at)) == NULL ||
        (x->plains = new_array(&o[M_PLAINS], x->plain_limit, sizeof *x->plains)) == NULL ||
        (x->origin = new_array(&o[M_ORIGIN], nodes, sizeof *x->origin)) == NULL ||
        (x->at = new_array(&o[M_AT], count, sizeof *x->at)) == NULL ||
        (x->gathers = new_array(&o[M_GATHERS], x->place_count, sizeof *x->gathers)) == NULL ||
        (x->signature = new_array(&o[M_SIGNATURE], nodes, sizeof *x->signature)) == NULL ||
        (x->level = new_array(&o[M_LEVEL], nodes, sizeof *x->level)) == NULL) {
        return -1;
    }
    memset(x->at, 0xFF, (size_t)count * sizeof *x->at); /* -1 everywhere */
    memset(x->known, 0xFF, known * sizeof *x->known);
    memset(x->alike, 0xFF, ((size_t)x->candidate_count + 1) * sizeof *x->alike);
    memset(x->gathered, 0xFF, ((size_t)x->place_count + 1) * sizeof *x->gathered);
    return 0;
}

/* The arrays as a tuple, cut to the lengths that were needed. */
static PyObject *graph_arrays(Lift *x) {
    static const Py_ssize_t sizes[MADE] = {1, 4, 8, 4, 4, 4, 4, 4, 8, 4};
    PyObject *result = PyTuple_New(MADE);
    for (int k = 0; result != NULL && k < MADE; k++) {
        Py_ssize_t items = k == M_PRODUCTS                             ? x->product_count
                           : k == M_PLAINS                             ? x->plain_count
                           : k == M_AT                                 ? x->count
                           : k == M_GATHERS                            ? x->gather_count
                           : k == M_PRODUCT_AT || k == M_PLAIN_AT      ? x->node_count + 1
                                                                       : x->node_count;
        if (PyByteArray_Resize(x->objects[k], items * sizes[k]) < 0) {
            Py_CLEAR(result);
        } else {
            PyTuple_SetItem(result, k, Py_NewRef(x->objects[k]));
        }
    }
    return result;
}

/* canonicalise(inputs, codes, operands, constants, number, roles, identities, classes, wanted,
 * places, order, first, candidate_at, candidates, begins, iterations, tokens, keep_dead): the arrays of a
 * Graph, in its order. */
static PyObject *canonicalise(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[GIVEN], *result = NULL;
    int keep_dead;
    Lift x;
    memset(&x, 0, sizeof x);
    if (!PyArg_ParseTuple(args, "nOOOOOOOOOOOOOOOOp:canonicalise", &x.inputs, &given[0], &given[1], &given[2],
                          &given[3], &given[4], &given[5], &given[6], &given[7], &given[8], &given[9],
                          &given[10], &given[11], &given[12], &given[13], &given[14], &given[15],
                          &keep_dead)) {
        return NULL;
    }
    if (get_given(&x, given) == 0 && check_given(&x) == 0 && make_graph_arrays(&x, keep_dead) == 0) {
        build_graph(&x);
        result = graph_arrays(&x);
    }
    for (int k = 0; k < x.view_count; k++) {
        PyBuffer_Release(&x.views[k]);
    }
    for (int k = 0; k < MADE; k++) {
        Py_XDECREF(x.objects[k]);
    }
    PyMem_Free(x.live);
    PyMem_Free(x.uses);
    PyMem_Free(x.moving);
    PyMem_Free(x.terms);
    PyMem_Free(x.known);
    PyMem_Free(x.gathered);
    PyMem_Free(x.set);
    PyMem_Free(x.until);
    PyMem_Free(x.alike);
    return result;
}

PyMethodDef canonical_functions[] = {
    {"canonicalise", canonicalise, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
