/* Stand-ins for floats: what is computed with them becomes instructions without going through Python.
 *
 * In: numbers that were passed, or read from Values, while a function is recorded. Out: sums, differences and
 * products, of the kind that Python would have. Whatever is not usual (a number of few bits, one that
 * overflows, another stand-in) is left to the methods `combined` and `opposite` of the class in Python.
 */
#include "standins.h"
#include "tape.h"
#include "value.h"

typedef struct {
    PyObject_HEAD
    PyObject *recorder, *value, *kind;
    char is_data;
} Number;

PyTypeObject *NumberType;
static PyTypeObject *number_class; /* compiler.capture.standins.Detached, once it is known */
static PyObject *float64, *floating; /* numpy's float64, and the base of numpy's floats */
static PyObject *combined_name, *opposite_name;

enum { SUM, DIFFERENCE, PRODUCT, OPERATIONS };
static const char *const operations[2][OPERATIONS] = {{"add", "sub", "mul"}, {"radd", "rsub", "rmul"}};
static PyObject *operation_names[2][OPERATIONS];

/* stand_in(class, float64, floating): the class of these, and numpy's. */
static PyObject *stand_in(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[3], *known[3] = {(PyObject *)number_class, float64, floating};
    if (!PyArg_ParseTuple(args, "O!O!O!:stand_in", &PyType_Type, &given[0], &PyType_Type, &given[1],
                          &PyType_Type, &given[2])) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)given[0], NumberType)) {
        PyErr_SetString(PyExc_TypeError, "stand-ins for numbers have a class of their own");
        return NULL;
    }
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < OPERATIONS; k++) {
            PyObject **name = &operation_names[side][k];
            if (*name == NULL && (*name = PyUnicode_InternFromString(operations[side][k])) == NULL) {
                return NULL;
            }
        }
    }
    if ((combined_name == NULL && (combined_name = PyUnicode_InternFromString("combined")) == NULL) ||
        (opposite_name == NULL && (opposite_name = PyUnicode_InternFromString("opposite")) == NULL)) {
        return NULL;
    }
    number_class = (PyTypeObject *)Py_NewRef(given[0]);
    float64 = Py_NewRef(given[1]);
    floating = Py_NewRef(given[2]);
    for (int k = 0; k < 3; k++) {
        Py_XDECREF(known[k]);
    }
    return Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------------------ making --------- */

static PyObject *make(PyTypeObject *type, PyObject *owner, PyObject *value, int is_data, PyObject *kind) {
    Number *n = (Number *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (n != NULL) {
        n->recorder = Py_NewRef(owner);
        n->value = Py_NewRef(value);
        n->kind = Py_NewRef(kind);
        n->is_data = (char)is_data;
    }
    return (PyObject *)n;
}

/* Number(recorder, value, is_data=False, kind=float); what is no float of any kind is one of Python's. */
static PyObject *number_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"recorder", "value", "is_data", "kind", NULL};
    PyObject *owner, *value, *kind = (PyObject *)&PyFloat_Type;
    int is_data = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|pO:Number", names, &owner, &value, &is_data, &kind)) {
        return NULL;
    }
    if (!is_value(value)) {
        PyErr_SetString(PyExc_TypeError, "a stand-in for a number has a Value behind it");
        return NULL;
    }
    if (kind != (PyObject *)&PyFloat_Type && kind != float64) {
        int is_float = floating == NULL ? 0 : PyObject_IsSubclass(kind, floating);
        if (is_float < 0) {
            return NULL;
        }
        kind = is_float ? kind : (PyObject *)&PyFloat_Type;
    }
    return make(type, owner, value, is_data, kind);
}

PyObject *new_stand_in(Watched *owner, PyObject *value) {
    return make(number_class, (PyObject *)owner, value, 0, (PyObject *)&PyFloat_Type);
}

/* stand_ins(recorder, values, kind): a list of stand-ins for data. */
static PyObject *stand_ins(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *owner, *values, *kind;
    if (!PyArg_ParseTuple(args, "OO!O!:stand_ins", &owner, &PyList_Type, &values, &PyType_Type, &kind)) {
        return NULL;
    }
    if (number_class == NULL || (kind != (PyObject *)&PyFloat_Type && kind != float64)) {
        PyErr_SetString(PyExc_TypeError, "these are stand-ins for floats of 64 bits");
        return NULL;
    }
    PyObject *made = PyList_New(0);
    for (Py_ssize_t k = 0; made != NULL && k < PyList_Size(values); k++) {
        PyObject *value = PyList_GetItem(values, k), *one = NULL;
        if (!is_value(value)) {
            PyErr_Format(PyExc_TypeError, "item %zd is not a Value", k);
        } else {
            one = make(number_class, owner, value, 1, kind);
        }
        if (one == NULL || PyList_Append(made, one) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(one);
    }
    return made;
}

/* ---------------------------------------------------------------------------- arithmetic ------- */

static int is_number(PyObject *o) { return number_class != NULL && Py_TYPE(o) == number_class; }

static int is_narrow(const Number *n) { return n->kind != (PyObject *)&PyFloat_Type && n->kind != float64; }

/* Whether what is computed with a stand-in just becomes an instruction. */
static int just_records(const Number *n) {
    return instructions != NULL && n->recorder == recorder && !grad_off && !nonfinite_allowed && !debug_on &&
           Py_TYPE(n->value) == ValueType && !is_narrow(n);
}

/* The number of an operand beside a stand-in, and what the Value behind the latter is computed with; NULL, and
 * maybe an error, where Python has to look at it. */
static PyObject *beside(PyObject *o, double *number) {
    if (is_number(o)) {
        Number *n = (Number *)o;
        *number = just_records(n) ? ((Node *)n->value)->data : NAN;
        return Py_NewRef(n->value);
    }
    if (PyFloat_CheckExact(o)) {
        *number = PyFloat_AsDouble(o);
        return Py_NewRef(o);
    }
    if (!PyLong_CheckExact(o)) {
        return NULL;
    }
    *number = PyLong_AsDouble(o);
    if (*number == -1.0 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return NULL;
        }
        PyErr_Clear(); /* Python raises its own */
        return NULL;
    }
    return PyFloat_FromDouble(*number);
}

/* The stand-in of a number that was computed from one stand-in, or two. */
static PyObject *stand_in_for(PyObject *l, PyObject *r, PyObject *value) {
    Number *a = (Number *)(is_number(l) ? l : r), *b = (Number *)(is_number(r) ? r : l);
    if (value == NULL || !is_value(value)) {
        return value; /* an error */
    }
    PyObject *kind = a->kind == float64 || b->kind == float64 ? float64 : (PyObject *)&PyFloat_Type;
    PyObject *made = make(number_class, (PyObject *)a->recorder, value, a->is_data && b->is_data, kind);
    Py_DECREF(value);
    return made;
}

static PyObject *combine(PyObject *l, PyObject *r, int which) {
    static const binaryfunc functions[OPERATIONS] = {value_add, value_subtract, value_multiply};
    if (!is_number(l) && !is_number(r)) {
        return Py_NewRef(Py_NotImplemented);
    }
    if (is_value(l) || is_value(r)) {
        return Py_NewRef(Py_NotImplemented); /* it knows how to take a stand-in */
    }
    double a = NAN, b = NAN;
    PyObject *left = beside(l, &a), *right = left ? beside(r, &b) : NULL, *out = NULL;
    double y = which == SUM ? a + b : which == DIFFERENCE ? a - b : a * b;
    if (right != NULL && isfinite(y)) {
        out = stand_in_for(l, r, functions[which](left, right));
    } else if (!PyErr_Occurred()) {
        int side = !is_number(l);
        out = PyObject_CallMethodObjArgs(side ? r : l, combined_name, operation_names[side][which], side ? l : r,
                                         NULL);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return out;
}

static PyObject *number_add(PyObject *l, PyObject *r) { return combine(l, r, SUM); }
static PyObject *number_subtract(PyObject *l, PyObject *r) { return combine(l, r, DIFFERENCE); }
static PyObject *number_multiply(PyObject *l, PyObject *r) { return combine(l, r, PRODUCT); }

static PyObject *number_negative(PyObject *self) {
    Number *n = (Number *)self;
    if (!is_number(self)) {
        PyErr_SetString(PyExc_TypeError, "bad operand type for unary -");
        return NULL;
    }
    if (just_records(n) && isfinite(((Node *)n->value)->data)) {
        return stand_in_for(self, self, value_negative(n->value));
    }
    return PyObject_CallMethodObjArgs(self, opposite_name, NULL);
}

/* ------------------------------------------------------------------------- beside Values ------- */

PyObject *data_behind(PyObject *o) {
    return Py_NewRef(is_number(o) && ((Number *)o)->is_data ? ((Number *)o)->value : Py_None);
}

/* What Recorder.detach makes of a Value that it has not met before, and remembers; None: that has to. */
static PyObject *newly_detached(Watched *owner, PyObject *key, const Number *n) {
    PyObject *made = recorded_block(block_names[T_DETACH], &n->value, 1);
    if (made == NULL || made == Py_None) {
        return made;
    }
    PyObject *pair = PyTuple_Pack(2, n->value, made);
    if (pair == NULL || PyDict_SetItem(owner->detached, key, pair) < 0) {
        Py_CLEAR(made);
    }
    Py_XDECREF(pair);
    return made;
}

PyObject *detached_behind(PyObject *o) {
    Watched *owner = is_number(o) && !((Number *)o)->is_data ? watched_recorder() : NULL;
    Number *n = (Number *)o;
    if (owner == NULL || n->recorder != recorder) {
        return Py_NewRef(Py_None);
    }
    PyObject *key = PyLong_FromVoidPtr(n->value), *made = NULL;
    PyObject *found = key ? PyDict_GetItemWithError(owner->detached, key) : NULL;
    if (found != NULL) {
        int fits = PyTuple_Check(found) && PyTuple_Size(found) == 2 && PyTuple_GetItem(found, 0) == n->value;
        made = Py_NewRef(fits ? PyTuple_GetItem(found, 1) : Py_None);
    } else if (key != NULL && !PyErr_Occurred()) {
        made = just_records(n) ? newly_detached(owner, key, n) : Py_NewRef(Py_None);
    }
    Py_XDECREF(key);
    return made;
}

PyObject *negative_behind(PyObject *o) {
    Number *n = (Number *)o;
    if (!is_number(o) || n->is_data || !just_records(n) || !isfinite(((Node *)n->value)->data)) {
        return Py_NewRef(Py_None);
    }
    PyObject *negative = value_negative(n->value);
    PyObject *made = negative ? recorded_block(block_names[T_DETACH], &negative, 1) : NULL;
    Py_XDECREF(negative);
    return made;
}

/* --------------------------------------------------------------------------- max and min ------- */

/* Whether these are all stand-ins of one kind of float, of which what is chosen just becomes an instruction. */
static int may_choose(PyObject *items) {
    PyObject *kind = NULL;
    Py_ssize_t count = PyTuple_Size(items);
    for (Py_ssize_t k = 0; k < count; k++) {
        Number *n = (Number *)PyTuple_GetItem(items, k);
        if (!is_number((PyObject *)n) || !just_records(n) || !isfinite(((Node *)n->value)->data) ||
            (kind != NULL && n->kind != kind)) {
            return 0;
        }
        kind = n->kind;
    }
    return count > 0;
}

/* The extreme one of stand-ins in a tuple; None where it is to be computed in Python. */
static PyObject *chosen(PyObject *items, PyObject *rule, PyObject *start) {
    int known = rule == block_names[T_FIRST_MAX] || rule == block_names[T_FIRST_MIN], is_data = 1;
    if (!known || !may_choose(items)) {
        return Py_NewRef(Py_None);
    }
    Number *first = (Number *)PyTuple_GetItem(items, 0);
    PyObject *best = Py_NewRef(start);
    for (Py_ssize_t k = 0; k < PyTuple_Size(items); k++) {
        Number *n = (Number *)PyTuple_GetItem(items, k);
        PyObject *pair[2] = {k ? best : n->value, k ? n->value : best};
        PyObject *next = recorded_block(rule, pair, 2);
        Py_DECREF(best);
        best = next;
        if (best == NULL || best == Py_None) {
            return best; /* an error, or a start that is not the identity: then nothing was recorded */
        }
        is_data = is_data && n->is_data;
    }
    PyObject *made = make(number_class, (PyObject *)first->recorder, best, is_data, first->kind);
    Py_DECREF(best);
    return made;
}

/* choose(items, rule, start): what Recorder.extreme gives for a list of stand-ins; None where that has to be
 * asked. */
static PyObject *choose(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list, *rule, *start;
    if (!PyArg_ParseTuple(args, "O!OO!:choose", &PyList_Type, &list, &rule, &PyFloat_Type, &start)) {
        return NULL;
    }
    PyObject *items = PyList_AsTuple(list);
    PyObject *made = items ? chosen(items, rule, start) : NULL;
    Py_XDECREF(items);
    return made;
}

/* -------------------------------------------------------------------------------- the type ----- */

static int number_traverse(PyObject *self, visitproc visit, void *arg) {
    Number *n = (Number *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(n->recorder);
    Py_VISIT(n->kind);
    return 0; /* a Value knows of no stand-in */
}

static int number_clear(PyObject *self) {
    Number *n = (Number *)self;
    PyObject *owner = n->recorder;
    n->recorder = Py_NewRef(Py_None);
    Py_XDECREF(owner);
    return 0;
}

static void number_dealloc(PyObject *self) {
    Number *n = (Number *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(n->recorder);
    Py_XDECREF(n->value);
    Py_XDECREF(n->kind);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMemberDef number_members[] = {
    {"_recorder", T_OBJECT_EX, offsetof(Number, recorder), READONLY, NULL},
    {"_value", T_OBJECT_EX, offsetof(Number, value), READONLY, NULL},
    {"kind", T_OBJECT_EX, offsetof(Number, kind), READONLY, NULL},
    {"is_data", T_BOOL, offsetof(Number, is_data), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot number_slots[] = {
    {Py_tp_new, number_new},         {Py_tp_dealloc, number_dealloc},     {Py_tp_traverse, number_traverse},
    {Py_tp_clear, number_clear},     {Py_tp_members, number_members},     {Py_nb_add, number_add},
    {Py_nb_subtract, number_subtract}, {Py_nb_multiply, number_multiply}, {Py_nb_negative, number_negative},
    {0, NULL},
};
PyType_Spec number_spec = {"chainrule._native.Number", sizeof(Number), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, number_slots};

PyMethodDef stand_in_functions[] = {
    {"stand_in", stand_in, METH_VARARGS, NULL},
    {"stand_ins", stand_ins, METH_VARARGS, NULL},
    {"choose", choose, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
