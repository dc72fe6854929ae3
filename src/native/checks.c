/* Checks: whether captured state (globals, closures, attributes) is unchanged since a recording was made.
 *
 * compiler/capture/captured.py asks before every compiled call. All comparisons are by identity.
 */
#include "call.h"

PyTypeObject *ChecksType;

/* A list or dict and the tuple of what it held, or a namespace, a name, and what that stood for. */
typedef struct {
    PyObject *where, *name, *expected; /* name is NULL: a list or dict; expected is NULL: for nothing */
    int is_dict;
    getter get;                        /* how to ask for the attribute, where that is known */
    void *closure;
} Check;

typedef struct {
    PyObject_HEAD
    PyObject *tuple; /* holds the references to everything in checks */
    Py_ssize_t count;
    Check *checks;
} Checks;

/* Whether a list or dict holds exactly these objects, in this order (of a dict: key, value, key, ...). The type
 * Checks in the place of a value stands for any. */
static int holds(const Check *c) {
    PyObject *expected = c->expected;
    Py_ssize_t count = PyTuple_Size(expected), j = 0, at = 0;
    if (!c->is_dict) {
        if (PyList_Size(c->where) != count) {
            return 0;
        }
        for (; j < count && PyList_GetItem(c->where, j) == PyTuple_GetItem(expected, j); j++) {
        }
        return j == count;
    }
    PyObject *key, *item;
    if (2 * PyDict_Size(c->where) != count) {
        return 0;
    }
    while (count > 0 && PyDict_Next(c->where, &at, &key, &item)) {
        PyObject *before = j < count ? PyTuple_GetItem(expected, j + 1) : NULL;
        if (before == NULL || key != PyTuple_GetItem(expected, j)) {
            return 0;
        }
        if (item != before && before != (PyObject *)ChecksType) {
            return 0;
        }
        j += 2;
    }
    return 1;
}

/* Whether a name stands for this object, in a dict or as an attribute; -1: an error. */
static int stands_for(const Check *c) {
    if (c->is_dict) {
        PyObject *found = PyDict_GetItemWithError(c->where, c->name);
        return found == NULL && PyErr_Occurred() ? -1 : found == c->expected;
    }
    PyObject *found = c->get ? c->get(c->where, c->closure) : PyObject_GetAttr(c->where, c->name);
    if (found == NULL) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1; /* says nothing about the attribute */
        }
        PyErr_Clear();
        return c->expected == NULL;
    }
    Py_DECREF(found);
    return found == c->expected;
}

Py_ssize_t first_failed(PyObject *checks) {
    const Checks *x = (Checks *)checks;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        int same = x->checks[i].name ? stands_for(&x->checks[i]) : holds(&x->checks[i]);
        if (same <= 0) {
            return same < 0 ? -2 : i;
        }
    }
    return -1;
}

/* failed(): the position of the first check that fails, or -1. */
static PyObject *checks_failed(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    Py_ssize_t failed = first_failed(self);
    return failed == -2 ? NULL : PyLong_FromSsize_t(failed);
}

/* The attributes of functions and cells are computed by getters of immutable types, which cannot change:
 * they are looked up once. */
static int find_getter(Check *c) {
    PyTypeObject *type = Py_TYPE(c->where);
    if ((PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) ||
        PyType_GetSlot(type, Py_tp_getattro) != (void *)PyObject_GenericGetAttr) {
        return 0;
    }
    PyGetSetDef *attributes = PyType_GetSlot(type, Py_tp_getset);
    PyObject *name = attributes ? PyUnicode_AsUTF8String(c->name) : NULL;
    if (attributes != NULL && name == NULL) {
        return -1;
    }
    for (; attributes != NULL && attributes->name != NULL; attributes++) {
        if (strcmp(attributes->name, PyBytes_AsString(name)) == 0) {
            c->get = attributes->get;
            c->closure = attributes->closure;
        }
    }
    Py_XDECREF(name);
    return 0;
}

/* 0 where this is no check, -1: an error. */
static int read_check(PyObject *check, Check *c) {
    Py_ssize_t width = PyTuple_Check(check) ? PyTuple_Size(check) : 0;
    if (width < 2 || width > 4) {
        return 0;
    }
    PyObject *second = PyTuple_GetItem(check, 1);
    c->where = PyTuple_GetItem(check, 0);
    c->is_dict = PyDict_Check(c->where);
    if (width == 2) {
        c->expected = second;
        return PyTuple_Check(second) && (c->is_dict || PyList_Check(c->where));
    }
    c->name = second;
    c->is_dict = PyDict_CheckExact(c->where); /* of one of another class it is an attribute */
    c->expected = width == 3 ? PyTuple_GetItem(check, 2) : NULL;
    if (!PyUnicode_CheckExact(c->name)) {
        return 0;
    }
    return c->is_dict || find_getter(c) == 0 ? 1 : -1;
}

static int checks_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Checks *)self)->tuple);
    return 0;
}

/* There is no tp_clear, as of tuples: what makes a cycle of them can be changed, and is cleared. */
static void checks_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyMem_Free(((Checks *)self)->checks);
    Py_XDECREF(((Checks *)self)->tuple);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Checks(checks): each is (list or dict, tuple of what it held), (namespace, name, what it stood for),
 * or (namespace, name, None, None) where it stood for nothing; all by identity. */
static PyObject *checks_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *tuple;
    if (!PyArg_ParseTuple(args, "O!:Checks", &PyTuple_Type, &tuple)) {
        return NULL;
    }
    Checks *x = (Checks *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (x == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(tuple);
    x->tuple = Py_NewRef(tuple);
    x->checks = PyMem_Calloc((size_t)count + 1, sizeof *x->checks);
    int good = x->checks != NULL;
    if (!good) {
        PyErr_NoMemory();
    }
    for (; good && x->count < count; x->count++) {
        int answer = read_check(PyTuple_GetItem(tuple, x->count), &x->checks[x->count]);
        if (answer == 0) {
            PyErr_Format(PyExc_TypeError, "check %zd is not one", x->count);
        }
        good = answer > 0;
    }
    if (!good) {
        Py_DECREF((PyObject *)x);
        return NULL;
    }
    return (PyObject *)x;
}

/* same_bytes(array, contents): whether a contiguous array still holds these bytes, at memory's speed. */
static PyObject *same_bytes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *array, *contents;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OO!:same_bytes", &array, &PyBytes_Type, &contents) ||
        PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS) < 0) {
        return NULL;
    }
    int same = view.len == PyBytes_Size(contents);
    if (same && view.len > 0) {
        const char *bytes = PyBytes_AsString(contents);
        Py_BEGIN_ALLOW_THREADS
        same = memcmp(view.buf, bytes, (size_t)view.len) == 0;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(same);
}

PyMethodDef check_functions[] = {
    {"same_bytes", same_bytes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef checks_methods[] = {{"failed", checks_failed, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot checks_slots[] = {{Py_tp_new, checks_new},
                                     {Py_tp_dealloc, checks_dealloc},
                                     {Py_tp_traverse, checks_traverse},
                                     {Py_tp_methods, checks_methods},
                                     {0, NULL}};
PyType_Spec checks_spec = {"chainrule._native.Checks", sizeof(Checks), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, checks_slots};
