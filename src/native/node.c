/* Making nodes: the parts that run seldom. What runs for every node is in node.h. */
#include "node.h"

PyTypeObject *ValueType;
PyObject *rows[KINDS];

Node *new_leaf(double data) {
    Node *n = bare_node(data);
    if (n != NULL) {
        set_kind(n, LEAF, NULL, NULL);
    }
    return n;
}

int tell_progress(void) {
    PyObject *none = PyObject_CallMethod(recorder, "progress", NULL);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* Inside no_grad the recorder puts another node in this one's place, which propagates no gradient. */
PyObject *record(PyObject *made) {
    if (LIKELY(!grad_off && !nonfinite_allowed)) {
        if (PyList_Append(recorded, made) < 0 ||
            (UNLIKELY((PyList_Size(recorded) & PROGRESS) == 0) && tell_progress() < 0)) {
            Py_CLEAR(made);
        }
        return made;
    }
    PyObject *kept = ask_recorder(MADE, made);
    Py_DECREF(made);
    return kept;
}

int note_location(Node *n) {
    PyObject *line = PyObject_CallMethod(errors_module, "caller", NULL);
    int failed = line == NULL || (line != Py_None && set_note(n, line, 1) < 0);
    Py_XDECREF(line);
    return failed ? -1 : 0;
}

/* Turn a number operand into the leaf it stands for, with the gradient that leaf would have. A recorder is
 * told, after the node: see flatten.c. */
int materialise(Node *n, Kind kind) {
    Node *leaf = new_leaf(number_of(n, kind));
    if (leaf == NULL) {
        return -1;
    }
    if (recorder != NULL && record_leaf((PyObject *)leaf) < 0) {
        Py_DECREF((PyObject *)leaf);
        return -1;
    }
    if ((n->child[1] & SWEPT) && n->grad != 0.0) {
        leaf->grad = 0.0 + share(number_slope(n, kind), n->grad);
    }
    uintptr_t flags = n->child[1] & (MARK | NOTED);
    n->slope[1] = number_slope(n, kind);
    set_kind(n, (Kind)(kind - 1), child_of(n, 0), leaf);
    n->child[1] |= flags;
    return 0;
}

int build_extended(Node *n, PyObject *rule, PyObject *parameters, PyObject *children,
                   const double *slopes) {
    Py_ssize_t count = PyTuple_Size(children);
    Extension *x = PyMem_Malloc(sizeof(Extension) + (size_t)count * (sizeof(Node *) + sizeof(double)));
    if (x == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    x->count = count;
    x->rule = Py_NewRef(rule);
    x->parameters = Py_NewRef(parameters);
    x->slopes = (double *)(x->children + count);
    memcpy(x->slopes, slopes, (size_t)count * sizeof(double));
    for (Py_ssize_t i = 0; i < count; i++) {
        x->children[i] = (Node *)Py_NewRef(PyTuple_GetItem(children, i));
        settle(x->children[i]);
    }
    uintptr_t noted = n->child[1] & NOTED;
    set_kind(n, EXTENDED, x, NULL);
    n->child[1] |= noted;
    return 0;
}

/* ----------------------------------------------------------------------------------- checks ---- */

static int check_value(PyObject *row, double y, PyObject *a, PyObject *b, PyObject *parameters) {
    PyObject *operands = b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a);
    PyObject *number = PyFloat_FromDouble(y), *result = NULL;
    if (operands != NULL && number != NULL) {
        result = PyObject_CallMethod(errors_module, "check", "OOOO", row, number, operands,
                                     parameters ? parameters : empty_tuple);
    }
    Py_XDECREF(operands);
    Py_XDECREF(number);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

int check_binary(Kind row, double y, Node *a, Node *b, double number) {
    if (nonfinite_allowed || !isfinite(a->data) || !isfinite(b ? b->data : number)) {
        return 0;
    }
    PyObject *second = b ? Py_NewRef((PyObject *)b) : PyFloat_FromDouble(number);
    if (second == NULL) {
        return -1;
    }
    int result = check_value(rows[row], y, (PyObject *)a, second, NULL);
    Py_DECREF(second);
    return result;
}

int check_unary(Kind row, double y, Node *a) {
    if (nonfinite_allowed || !isfinite(a->data)) {
        return 0;
    }
    return check_value(rows[row], y, (PyObject *)a, NULL, NULL);
}

int check_power(double y, double x, PyObject *operand, double exponent) {
    if (nonfinite_allowed || !isfinite(x)) {
        return 0;
    }
    PyObject *parameters = Py_BuildValue("(d)", exponent);
    int result = parameters ? check_value(rows[POW], y, operand, NULL, parameters) : -1;
    Py_XDECREF(parameters);
    return result;
}

int forbidden(const char *what) {
    if (LIKELY(recorder == NULL)) {
        return 0;
    }
    PyObject *answer = PyObject_CallMethod(recorder, "forbid", "s", what);
    Py_XDECREF(answer);
    return answer == NULL;
}

int real_number(PyObject *o, const char *role, double *out) {
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AsDouble(o);
        return 0;
    }
    if (PyLong_CheckExact(o)) {
        *out = PyLong_AsDouble(o);
        return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *number = PyObject_CallMethod(errors_module, "real", "Os", o, role);
    if (number == NULL) {
        return -1;
    }
    *out = PyFloat_AsDouble(number);
    Py_DECREF(number);
    return 0;
}
