/* Going through arrays, as numpy does it, but without the error that numpy raises, and words, at each end.
 *
 * In: an array of numpy's, or of data (compiler/capture/arrays.py). Out: its items, one after the other, as they are
 * when they are asked for. Rows of two numbers end as often as they give two numbers, so that these errors
 * take more time than all the rest.
 */
#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *array; /* NULL once it has ended */
    Py_ssize_t next;
} Items;

PyTypeObject *ItemsType;
static PyTypeObject *array_types[2]; /* numpy's, and that of data */
static lenfunc array_length;         /* numpy's own, */
static ssizeargfunc array_item;
static getiterfunc array_iterator;
static PyObject *iterator_type;      /* and the type of what it gives for iter(array) */

/* set_arrays(ndarray, of_data, iterator): the types of arrays, and that of numpy's iterators. */
static PyObject *set_arrays(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[3];
    if (!PyArg_ParseTuple(args, "O!O!O!:set_arrays", &PyType_Type, &given[0], &PyType_Type, &given[1], &PyType_Type,
                          &given[2])) {
        return NULL;
    }
    PyTypeObject *numpys = (PyTypeObject *)given[0];
    lenfunc length = (lenfunc)PyType_GetSlot(numpys, Py_sq_length);
    ssizeargfunc item = (ssizeargfunc)PyType_GetSlot(numpys, Py_sq_item);
    getiterfunc iterator = (getiterfunc)PyType_GetSlot(numpys, Py_tp_iter);
    if (length == NULL || item == NULL || iterator == NULL ||
        !PyType_IsSubtype((PyTypeObject *)given[1], numpys)) {
        PyErr_SetString(PyExc_TypeError, "these are no types of arrays");
        return NULL;
    }
    PyObject *old[3] = {(PyObject *)array_types[0], (PyObject *)array_types[1], iterator_type};
    array_types[0] = (PyTypeObject *)Py_NewRef(given[0]);
    array_types[1] = (PyTypeObject *)Py_NewRef(given[1]);
    iterator_type = Py_NewRef(given[2]);
    array_length = length;
    array_item = item;
    array_iterator = iterator;
    for (int k = 0; k < 3; k++) {
        Py_XDECREF(old[k]);
    }
    return Py_NewRef(Py_None);
}

static int is_array(PyObject *o) {
    return array_types[0] != NULL && (Py_TYPE(o) == array_types[0] || Py_TYPE(o) == array_types[1]);
}

/* iter(array); of one number that is an error, which is numpy's to raise. */
static PyObject *items_of(PyObject *array) {
    if (array_length(array) < 0) {
        PyErr_Clear();
        return array_iterator(array);
    }
    Items *made = (Items *)((allocfunc)PyType_GetSlot(ItemsType, Py_tp_alloc))(ItemsType, 0);
    if (made != NULL) {
        made->array = Py_NewRef(array);
        made->next = 0;
    }
    return (PyObject *)made;
}

/* items(array): iter(array). */
static PyObject *items(PyObject *Py_UNUSED(module), PyObject *array) {
    if (!is_array(array)) {
        PyErr_SetString(PyExc_TypeError, "these are the items of an array");
        return NULL;
    }
    return items_of(array);
}

/* zip_items(*iterables, strict=False): zip. */
static PyObject *zip_items(PyObject *Py_UNUSED(module), PyObject *args, PyObject *keywords) {
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *given = PyTuple_New(count), *made = NULL;
    Py_ssize_t k = 0;
    for (; given != NULL && k < count; k++) {
        PyObject *one = PyTuple_GetItem(args, k);
        PyObject *taken = is_array(one) && array_length(one) >= 0 ? items_of(one) : Py_NewRef(one);
        PyErr_Clear(); /* of an array of one number, which zip raises */
        if (taken == NULL || PyTuple_SetItem(given, k, taken) < 0) {
            break;
        }
    }
    if (given != NULL && k == count) {
        made = PyObject_Call((PyObject *)&PyZip_Type, given, keywords);
    }
    Py_XDECREF(given);
    return made;
}

/* -------------------------------------------------------------------------------- the type ----- */

static PyObject *items_next(PyObject *self) {
    Items *x = (Items *)self;
    if (x->array == NULL || !is_array(x->array)) {
        return NULL;
    }
    PyObject *array = Py_NewRef(x->array), *found = NULL;
    if (x->next < array_length(array)) {
        found = array_item(array, x->next++);
    } else {
        Py_CLEAR(x->array);
    }
    Py_DECREF(array);
    return found;
}

static int items_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Items *)self)->array);
    return 0;
}

static int items_clear(PyObject *self) {
    Py_CLEAR(((Items *)self)->array);
    return 0;
}

static void items_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    items_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Code that asks is told of the iterators that numpy's arrays have. */
static PyObject *items_class(PyObject *Py_UNUSED(self), void *Py_UNUSED(name)) { return Py_NewRef(iterator_type); }

static PyGetSetDef items_attributes[] = {
    {"__class__", items_class, NULL, "that of iter(array)", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot items_slots[] = {
    {Py_tp_dealloc, items_dealloc},   {Py_tp_traverse, items_traverse}, {Py_tp_clear, items_clear},
    {Py_tp_iter, PyObject_SelfIter},  {Py_tp_iternext, items_next},     {Py_tp_getset, items_attributes},
    {0, NULL},
};
PyType_Spec items_spec = {"chainrule._native.Items", sizeof(Items), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, items_slots};

PyMethodDef item_functions[] = {
    {"set_arrays", set_arrays, METH_VARARGS, NULL},
    {"items", items, METH_O, NULL},
    {"zip_items", (PyCFunction)(void (*)(void))zip_items, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};
