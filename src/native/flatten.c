/* Between Values and flat arrays: flatten (the nodes of a recording become instructions), gather (the
 * numbers of Values) and compiled_node (one node for a whole compiled call).
 */
#include "node.h"

static inline int32_t position_of(const Node *n) {
    int64_t position;
    memcpy(&position, &n->grad, sizeof position);
    return (int32_t)position;
}

/* The position of a rule in the list `rules`, adding it if it is new; -1 on error. */
static int rule_position(PyObject *rule, PyObject *rules) {
    Py_ssize_t count = PyList_Size(rules);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyList_GetItem(rules, i) == rule) {
            return (int)i;
        }
    }
    return PyList_Append(rules, rule) < 0 ? -1 : (int)count;
}

typedef struct {
    PyObject *objects[4], *rules;
    int position[KINDS]; /* of each kind's rule in rules, plus one; 0: not there yet */
    int32_t *codes, *operands; /* three operands per instruction, -1 for none */
    double *constants;         /* two per instruction */
    char *number;              /* whether constants[0] stands in the place of the second operand */
    Buffer places, owners;     /* operands that are gathers, and which; int32_t each */
    Buffer grads;              /* Saved: those that were not 0 */
} Arrays;

static void drop_arrays(Arrays *x) {
    for (int i = 0; i < 4; i++) {
        Py_CLEAR(x->objects[i]);
    }
    Py_CLEAR(x->rules);
    PyMem_Free(x->places.bytes);
    PyMem_Free(x->owners.bytes);
    PyMem_Free(x->grads.bytes);
}

static int make_arrays(Arrays *x, Py_ssize_t count) {
    if (count > INT32_MAX / 3) {
        PyErr_SetString(PyExc_OverflowError, "a recording has at most 2**31 operands");
        return -1;
    }
    if ((x->codes = new_array(&x->objects[0], count, sizeof(int32_t))) == NULL ||
        (x->operands = new_array(&x->objects[1], count, 3 * sizeof(int32_t))) == NULL ||
        (x->constants = new_array(&x->objects[2], count, 2 * sizeof(double))) == NULL ||
        (x->number = new_array(&x->objects[3], count, 1)) == NULL) {
        return -1;
    }
    return 0;
}

/* One node as instruction i. 1: done; 0: it uses a node that is in neither list, or is a custom
 * operation; -1: an error. */
static int flatten_node(const Node *n, Arrays *x, Py_ssize_t i, const Node **unknown) {
    Kind kind = kind_of(n);
    int32_t *operands = &x->operands[3 * i];
    double *constants = &x->constants[2 * i];
    operands[0] = operands[1] = operands[2] = -1;
    constants[0] = constants[1] = 0.0;
    x->number[i] = (char)has_number(kind);
    if (is_leaf(kind)) {
        x->codes[i] = CONSTANT;
        constants[0] = n->data;
        return 1;
    }
    PyObject *rule = kind == EXTENDED ? extension_of(n)->rule : rows[kind];
    Py_ssize_t count = kind == EXTENDED ? extension_of(n)->count : 2;
    PyObject *parameters = kind == EXTENDED ? extension_of(n)->parameters : empty_tuple;
    if (kind == EXTENDED && (count > 3 || PyTuple_Size(parameters) > 2 || PyUnicode_Check(rule))) {
        *unknown = n;
        return 0;
    }
    int position = kind == EXTENDED ? 0 : x->position[kind];
    if (position == 0) {
        position = 1 + rule_position(rule, x->rules);
        if (position == 0) {
            return -1;
        }
        x->position[kind] = kind == EXTENDED ? 0 : position;
    }
    x->codes[i] = FIRST_RULE + position - 1;
    if (has_number(kind)) {
        constants[0] = number_of(n, kind);
    } else if (kind == POW) {
        constants[0] = n->slope[1];
    }
    for (Py_ssize_t j = 0; kind == EXTENDED && j < PyTuple_Size(parameters); j++) {
        constants[j] = PyFloat_AsDouble(PyTuple_GetItem(parameters, j)); /* floats: see value_build */
    }
    for (Py_ssize_t j = 0; j < count; j++) {
        const Node *child = walk_child(n, j);
        if (child != NULL && !(child->child[1] & MARK)) {
            *unknown = child;
            return 0;
        }
        operands[j] = child ? position_of(child) : -1;
        if (operands[j] < -1) { /* what a gather selects */
            int32_t place = (int32_t)(3 * i + j), owner = ~operands[j] - 1;
            if (APPEND(x->places, int32_t, place) < 0 || APPEND(x->owners, int32_t, owner) < 0) {
                return -1;
            }
        }
        if (operands[j] > i) { /* it was a plain number then: see materialise() */
            operands[j] = -1;
            constants[0] = child->data;
            x->number[i] = 1;
        }
    }
    return 1;
}

/* The lists of flatten(): in its graph each node holds its position in its grad, and a mark. Those of
 * gathers are -2, -3, ... */
enum { INPUTS, NODES, GATHERS, LISTS };

typedef struct {
    PyObject *list[LISTS];
    Py_ssize_t count[LISTS];
} Lists;

static inline Node *node_in(const Lists *l, int which, Py_ssize_t i) {
    return (Node *)PyList_GetItem(l->list[which], i);
}

/* Mark every node. Those before *end of list *which are marked then: 0: that is all of them; 1: the next
 * is not a Value, or is there twice; -1: an error. */
static int mark_nodes(const Lists *l, Arrays *x, int *which, Py_ssize_t *end) {
    for (*which = 0; *which < LISTS; (*which)++) {
        for (*end = 0; *end < l->count[*which]; (*end)++) {
            PyObject *o = PyList_GetItem(l->list[*which], *end);
            if (o == NULL || !is_value(o) || (((Node *)o)->child[1] & MARK)) {
                return 1;
            }
            Node *n = (Node *)o;
            int64_t position = *which == GATHERS ? -2 - *end : *end + (*which == NODES ? l->count[INPUTS] : 0);
            Saved saved = {n, n->grad};
            if ((n->grad != 0.0 || signbit(n->grad)) && APPEND(x->grads, Saved, saved) < 0) {
                return -1;
            }
            memcpy(&n->grad, &position, sizeof position);
            n->child[1] |= MARK;
        }
    }
    return 0;
}

/* Take all marks off again, those before `end` of list `last`, and put the gradients back. */
static void unmark_nodes(const Lists *l, Arrays *x, int last, Py_ssize_t end) {
    for (int which = 0; which <= last && which < LISTS; which++) {
        for (Py_ssize_t i = 0; i < (which == last ? end : l->count[which]); i++) {
            Node *n = node_in(l, which, i);
            n->grad = 0.0;
            n->child[1] &= ~MARK;
        }
    }
    for (Py_ssize_t i = 0; i < COUNT(x->grads, Saved); i++) {
        ITEM(x->grads, Saved, i).node->grad = ITEM(x->grads, Saved, i).old;
    }
}

/* 1: done; 0: *unknown is in none of the lists, or a custom operation; -1: an error. */
static int flatten_nodes(const Lists *l, Arrays *x, PyObject *wanted, int32_t *found, const Node **unknown) {
    Py_ssize_t inputs = l->count[INPUTS], end = inputs + l->count[NODES];
    for (Py_ssize_t i = 0; i < inputs; i++) {
        x->codes[i] = INPUT;
        x->operands[3 * i] = x->operands[3 * i + 1] = x->operands[3 * i + 2] = -1;
        x->constants[2 * i] = x->constants[2 * i + 1] = 0.0;
        x->number[i] = 0;
    }
    int answer = 1;
    for (Py_ssize_t i = inputs; i < end && answer == 1; i++) {
        answer = flatten_node(node_in(l, NODES, i - inputs), x, i, unknown);
    }
    for (Py_ssize_t k = 0; k < PyList_Size(wanted) && answer == 1; k++) {
        *unknown = (Node *)PyList_GetItem(wanted, k);
        answer = ((*unknown)->child[1] & MARK) != 0 && (found[k] = position_of(*unknown)) >= 0;
    }
    *unknown = answer == 0 ? *unknown : NULL;
    return answer;
}

static PyObject *as_bytes(const Buffer *b) {
    return PyByteArray_FromStringAndSize(b->bytes ? b->bytes : "", (Py_ssize_t)b->size);
}

static PyObject *flattened(Lists *l, PyObject *wanted) {
    PyObject *positions = NULL, *result = NULL, *none[2] = {NULL, NULL};
    Arrays x;
    memset(&x, 0, sizeof x);
    int32_t *found = NULL;
    /* Lists may start the garbage collector: all are made before anything is marked. */
    if ((none[0] = PyList_New(0)) == NULL || (none[1] = PyList_New(0)) == NULL ||
        (x.rules = PyList_New(0)) == NULL) {
        goto done;
    }
    l->list[GATHERS] = l->list[GATHERS] ? l->list[GATHERS] : none[0];
    wanted = wanted ? wanted : none[1];
    for (int which = 0; which < LISTS; which++) {
        l->count[which] = PyList_Size(l->list[which]);
    }
    for (Py_ssize_t k = 0; k < PyList_Size(wanted); k++) {
        if (!is_value(PyList_GetItem(wanted, k))) {
            PyErr_Format(PyExc_ValueError, "wanted %zd is not a Value", k);
            goto done;
        }
    }
    Py_ssize_t count = l->count[INPUTS] + l->count[NODES];
    if (make_arrays(&x, count) < 0 ||
        (found = new_array(&positions, PyList_Size(wanted), sizeof(int32_t))) == NULL) {
        goto done;
    }
    const Node *unknown = NULL;
    int last;
    Py_ssize_t end;
    int wrong = mark_nodes(l, &x, &last, &end);
    int answer = wrong ? -1 : flatten_nodes(l, &x, wanted, found, &unknown);
    unmark_nodes(l, &x, last, end); /* before an error is made, which may start the collector too */
    if (wrong > 0) {
        PyErr_Format(PyExc_ValueError, "entry %zd is not a Value, or is there twice",
                     end + (last == NODES ? l->count[INPUTS] : 0));
    }
    if (answer >= 0) {
        result = Py_BuildValue("(OOOOONNON)", x.objects[0], x.objects[1], x.objects[2], x.objects[3], x.rules,
                               as_bytes(&x.places), as_bytes(&x.owners), positions,
                               Py_NewRef(unknown ? (PyObject *)unknown : Py_None));
    }
done:
    Py_XDECREF(none[0]);
    Py_XDECREF(none[1]);
    Py_XDECREF(positions);
    drop_arrays(&x);
    return result;
}

/* flatten(inputs, nodes, gathers, wanted): (codes, operands, constants, number, rules, places, owners,
 * positions, unknown). An operand that is one of the Values in gathers is -2, -3, ... there; places has
 * 3 * instruction + operand of each, owners which gather it is. positions: of the Values in wanted.
 * unknown: a Value that is used or wanted but in no list, or a custom operation, or None. */
static PyObject *flatten(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *wanted = NULL;
    Lists l = {{NULL}, {0}};
    if (!PyArg_ParseTuple(args, "O!O!|O!O!:flatten", &PyList_Type, &l.list[INPUTS], &PyList_Type, &l.list[NODES],
                          &PyList_Type, &l.list[GATHERS], &PyList_Type, &wanted)) {
        return NULL;
    }
    return flattened(&l, wanted);
}

/* gather(values, out): the numbers of a tuple of Values. */
static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *out;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "O!O:gather", &PyTuple_Type, &values, &out)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(values);
    if (get_buffer(out, &view, "d", count, 1) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *v = PyTuple_GetItem(values, i);
        if (!is_value(v)) {
            PyBuffer_Release(&view);
            return PyErr_Format(PyExc_TypeError, "entry %zd is not a Value", i);
        }
        ((double *)view.buf)[i] = ((Node *)v)->data;
    }
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

/* swap_grads(values, numbers): exchange the gradients of a list of Values and a float64 buffer. */
static PyObject *swap_grads(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *numbers;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "O!O:swap_grads", &PyList_Type, &values, &numbers)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(values);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_value(PyList_GetItem(values, i))) {
            return PyErr_Format(PyExc_TypeError, "entry %zd is not a Value", i);
        }
    }
    if (get_buffer(numbers, &view, "d", count, 1) < 0) {
        return NULL;
    }
    double *number = view.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *n = (Node *)PyList_GetItem(values, i);
        double before = n->grad;
        n->grad = number[i];
        number[i] = before;
    }
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

/* compiled_node(y, name, children, slopes): a custom operation, slopes from a float64 buffer. */
static PyObject *compiled_node(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *name, *children, *out;
    Py_buffer view;
    double y;
    if (!PyArg_ParseTuple(args, "dUO!O:compiled_node", &y, &name, &PyTuple_Type, &children, &out)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(children);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_value(PyTuple_GetItem(children, i))) {
            return PyErr_Format(PyExc_TypeError, "child %zd is not a Value", i);
        }
    }
    if (get_buffer(out, &view, "d", count, 0) < 0) {
        return NULL;
    }
    if (grad_off == TANGENTS && count > 0 && asks_graph((Node *)PyTuple_GetItem(children, 0)) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Node *n = new_leaf(y);
    if (n != NULL && count > 0 && build_extended(n, name, empty_tuple, children, view.buf) < 0) {
        Py_DECREF((PyObject *)n);
        n = NULL;
    }
    PyBuffer_Release(&view);
    return (PyObject *)n;
}

PyMethodDef flatten_functions[] = {
    {"flatten", flatten, METH_VARARGS, NULL},
    {"gather", gather, METH_VARARGS, NULL},
    {"swap_grads", swap_grads, METH_VARARGS, NULL},
    {"compiled_node", compiled_node, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
