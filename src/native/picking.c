/* where, clip, maximum and minimum of Values and numbers, as the op table has them.
 *
 * In: operands that are exactly Values or numbers of Python's, outside of recordings. Out: the node; None where there
 * is more to it, and the rows of the table are to be asked in Python: for arrays, subclasses, wrong types and errors.
 */
#include "node.h"

static PyObject *where_row, *clip_row, *minimum_row, *yes, *no;
static PyTypeObject *numpys_bool;

/* 1: a Value or a number of Python's; 0: anything else, which another one answers for. */
static int pick_operand(PyObject *o, Node **node, double *number) {
    *node = NULL;
    if (is_exact(o)) {
        *node = (Node *)o;
        *number = ((Node *)o)->data;
        return 1;
    }
    if (PyFloat_CheckExact(o)) {
        *number = PyFloat_AsDouble(o);
        return 1;
    }
    if (!PyLong_CheckExact(o)) {
        return 0;
    }
    *number = PyLong_AsDouble(o);
    if (*number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear(); /* beyond floats */
        return 0;
    }
    return 1;
}

static int picks_here(double y) {
    return recorder == NULL && !debug_on && grad_off != TANGENTS && isfinite(y);
}

/* A node of a row that has no kind of its own; a number among its operands is a leaf. */
static PyObject *picked(PyObject *row, PyObject *parameters, double y, Py_ssize_t count, Node **nodes,
                        const double *numbers, const double *slopes) {
    Node *made = new_leaf(y);
    if (made == NULL || grad_off) {
        return (PyObject *)made;
    }
    PyObject *children = PyTuple_New(count);
    int failed = children == NULL;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        Node *child = nodes[i] ? (Node *)Py_NewRef((PyObject *)nodes[i]) : new_leaf(numbers[i]);
        failed = child == NULL || PyTuple_SetItem(children, i, (PyObject *)child) < 0;
    }
    failed = failed || build_extended(made, row, parameters, children, slopes) < 0;
    Py_XDECREF(children);
    if (failed) {
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}

/* The truth of a bool, of numpy's or Python's, or of a Value; -1: of anything else. */
static int picking_truth(PyObject *condition) {
    if (PyBool_Check(condition)) {
        return condition == Py_True;
    }
    if (is_exact(condition)) {
        return ((Node *)condition)->data != 0.0;
    }
    return Py_TYPE(condition) == numpys_bool ? PyObject_IsTrue(condition) : -1;
}

static PyObject *pick_where(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *condition, *a, *b;
    if (!PyArg_ParseTuple(args, "OOO:where", &condition, &a, &b)) {
        return NULL;
    }
    Node *nodes[2];
    double numbers[2];
    int known = pick_operand(a, &nodes[0], &numbers[0]) && pick_operand(b, &nodes[1], &numbers[1]) &&
                (nodes[0] != NULL || nodes[1] != NULL);
    int truth = known && picks_here(0.0) ? picking_truth(condition) : -1;
    if (truth < 0 || !isfinite(numbers[!truth])) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    double slopes[2] = {truth ? 1.0 : 0.0, truth ? 0.0 : 1.0};
    return picked(where_row, truth ? yes : no, numbers[!truth], 2, nodes, numbers, slopes);
}

/* A bound of clip: None is none. */
static int pick_bound(PyObject *o, double none, double *number) {
    Node *node;
    *number = none;
    return o == Py_None || (pick_operand(o, &node, number) && node == NULL);
}

static PyObject *pick_clip(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *lowest, *highest;
    if (!PyArg_ParseTuple(args, "OOO:clip", &x, &lowest, &highest)) {
        return NULL;
    }
    double low, high;
    int known = is_exact(x) && pick_bound(lowest, -INFINITY, &low) && pick_bound(highest, INFINITY, &high);
    if (!known || low > high) {
        return Py_NewRef(Py_None);
    }
    double at = ((Node *)x)->data, y = clipped(at, low, high);
    if (!picks_here(y)) {
        return Py_NewRef(Py_None);
    }
    double slope = clipped_slope(at, low, high);
    Node *node = (Node *)x;
    PyObject *bounds = Py_BuildValue("(dd)", low, high);
    PyObject *made = bounds ? picked(clip_row, bounds, y, 1, &node, &at, &slope) : NULL;
    Py_XDECREF(bounds);
    return made;
}

static PyObject *pick_maximum(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *l, *r;
    if (!PyArg_ParseTuple(args, "OO:maximum", &l, &r)) {
        return NULL;
    }
    Node *a, *b;
    double x, y;
    int known = pick_operand(l, &a, &x) && pick_operand(r, &b, &y);
    if (known && a != NULL && b != NULL) {
        return make_maximum(a, b, 0.0);
    }
    if (!known || (a == NULL && b == NULL) || !picks_here(larger(x, y))) {
        return Py_NewRef(Py_None);
    }
    if (a != NULL) {
        return make_maximum(a, NULL, y);
    }
    Node *leaf = new_leaf(x);
    PyObject *made = leaf ? make_maximum(leaf, b, 0.0) : NULL;
    Py_XDECREF((PyObject *)leaf);
    return made;
}

static PyObject *pick_minimum(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *l, *r;
    if (!PyArg_ParseTuple(args, "OO:minimum", &l, &r)) {
        return NULL;
    }
    Node *nodes[2];
    double x[2];
    int known = pick_operand(l, &nodes[0], &x[0]) && pick_operand(r, &nodes[1], &x[1]) &&
                (nodes[0] != NULL || nodes[1] != NULL);
    double y = known ? smaller(x[0], x[1]) : NAN;
    if (!picks_here(y)) {
        return Py_NewRef(Py_None);
    }
    double slope = smaller_slope(x[0], x[1]), slopes[2] = {slope, 1.0 - slope};
    return picked(minimum_row, empty_tuple, y, 2, nodes, x, slopes);
}

/* What is needed of the op table, and of numpy. */
int import_picking_parts(PyObject *ops) {
    PyObject *numpy = PyObject_GetAttrString(errors_module, "np");
    where_row = PyObject_GetAttrString(ops, "_where");
    clip_row = PyObject_GetAttrString(ops, "clip");
    minimum_row = PyObject_GetAttrString(ops, "minimum");
    yes = Py_BuildValue("(d)", 1.0);
    no = Py_BuildValue("(d)", 0.0);
    numpys_bool = numpy ? (PyTypeObject *)PyObject_GetAttrString(numpy, "bool_") : NULL;
    Py_XDECREF(numpy);
    return where_row && clip_row && minimum_row && yes && no && numpys_bool ? 0 : -1;
}

PyMethodDef picking_functions[] = {
    {"where", pick_where, METH_VARARGS, NULL},
    {"clip", pick_clip, METH_VARARGS, NULL},
    {"maximum", pick_maximum, METH_VARARGS, NULL},
    {"minimum", pick_minimum, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
