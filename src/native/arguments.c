/* The argument that a function is differentiated by: Values in the place of its numbers, and its
 * gradient in the same containers; see derivatives/arguments.py, which does this for every argument.
 *
 * Here are the usual ones: floats, integers and numpy's numbers, lists, tuples, dicts and arrays, exactly of
 * these types, named tuples and dataclasses.
 */
#include "arguments.h"

PyTypeObject *ArgumentsType;
static PyObject *shape_name, *size_name, *fields_name, *dataclass_name, *kind_name, *items_name, *new_name;

typedef struct {
    const Arguments *how;
    PyObject *row;         /* the Values made so far, or what goes into the containers */
    const double *numbers; /* or these do */
    Py_ssize_t count;      /* of them */
    Py_ssize_t at;         /* of the next number; negative: Values are made */
} Rebuilding;

/* The tree with other leaves; NULL without an error: something else is in it. */
static PyObject *rebuild(Rebuilding *r, PyObject *x);

static PyObject *rebuild_number(Rebuilding *r, PyObject *x) {
    if (r->at >= 0 && r->numbers == NULL) {
        PyObject *number = PyList_GetItem(r->row, r->at++);
        return Py_XNewRef(number);
    }
    if (r->at >= 0) {
        if (r->at >= r->count) {
            return PyErr_Format(PyExc_IndexError, "the argument has grown meanwhile");
        }
        return PyFloat_FromDouble(r->numbers[r->at++]);
    }
    double number = PyLong_CheckExact(x) ? PyLong_AsDouble(x) : PyFloat_AsDouble(x);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear(); /* an integer beyond floats */
        return NULL;
    }
    PyObject *made = (PyObject *)new_leaf(number);
    if (made != NULL && PyList_Append(r->row, made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

/* ----------------------------------------------------------------- arrays ---------------------- */

/* A new array of this shape, of floats or of objects. */
static PyObject *empty_array(const Arguments *how, PyObject *shape, int is_object) {
    return PyObject_CallFunctionObjArgs(how->empty, shape, is_object ? (PyObject *)&PyBaseObject_Type : NULL, NULL);
}

static PyObject *shape_of(const Py_buffer *view) {
    PyObject *shape = PyTuple_New(view->ndim);
    for (int j = 0; shape != NULL && j < view->ndim; j++) {
        PyObject *length = PyLong_FromSsize_t(view->shape[j]);
        if (length == NULL) {
            Py_CLEAR(shape);
        } else {
            PyTuple_SetItem(shape, j, length);
        }
    }
    return shape;
}

/* The memory of an array that was made here, for so many items of this size; NULL: an error. */
static void *open_made(PyObject *array, Py_buffer *view, Py_ssize_t count, size_t size) {
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    if (view->len != count * (Py_ssize_t)size) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "an array was made with another size");
        return NULL;
    }
    return view->buf;
}

/* Whether the numbers of an array are read here: 'd', 'f' or 'q' for doubles, floats and 64-bit integers, or 0. */
static char format_of(const Py_buffer *view) {
    const char *format = view->format;
    if (format == NULL || format[0] == 0 || format[1] != 0 || !PyBuffer_IsContiguous(view, 'C')) {
        return 0;
    }
    switch (format[0]) {
    case 'd': return view->itemsize == sizeof(double) ? 'd' : 0;
    case 'f': return view->itemsize == sizeof(float) ? 'f' : 0;
    case 'l':
    case 'q': return view->itemsize == sizeof(int64_t) ? 'q' : 0;
    default: return 0;
    }
}

static double number_at(const void *numbers, char format, Py_ssize_t k) {
    switch (format) {
    case 'd': return ((const double *)numbers)[k];
    case 'f': return ((const float *)numbers)[k];
    default: return (double)((const int64_t *)numbers)[k];
    }
}

/* An array of Values for the numbers of another, which go into the row. */
static PyObject *array_of_values(Rebuilding *r, const Py_buffer *given, char format) {
    Py_ssize_t count = given->len / given->itemsize;
    Py_buffer view;
    PyObject *shape = shape_of(given), *made = shape != NULL ? empty_array(r->how, shape, 1) : NULL;
    PyObject **items = made != NULL ? open_made(made, &view, count, sizeof(PyObject *)) : NULL;
    Py_XDECREF(shape);
    if (items == NULL) {
        Py_XDECREF(made);
        return NULL;
    }
    Py_ssize_t k = 0;
    for (; k < count; k++) {
        PyObject *leaf = (PyObject *)new_leaf(number_at(given->buf, format, k));
        if (leaf == NULL || PyList_Append(r->row, leaf) < 0) {
            Py_XDECREF(leaf);
            break;
        }
        Py_XDECREF(items[k]); /* None */
        items[k] = leaf;
    }
    PyBuffer_Release(&view);
    if (k < count) {
        Py_CLEAR(made);
    }
    return made;
}

/* The same; *is_other: it is not read here. */
static PyObject *values_for(Rebuilding *r, PyObject *x, int *is_other) {
    Py_buffer view;
    if (PyObject_GetBuffer(x, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        *is_other = !PyErr_ExceptionMatches(PyExc_MemoryError) && PyErr_ExceptionMatches(PyExc_Exception);
        if (*is_other) {
            PyErr_Clear(); /* such as dates */
        }
        return NULL;
    }
    char format = format_of(&view);
    *is_other = format == 0;
    PyObject *made = format == 0 ? NULL : array_of_values(r, &view, format);
    PyBuffer_Release(&view);
    return made;
}

/* An array of the shape of another, with the next numbers in it. */
static PyObject *array_of_numbers(Rebuilding *r, PyObject *x) {
    PyObject *shape = PyObject_GetAttr(x, shape_name);
    PyObject *made = shape != NULL ? empty_array(r->how, shape, 0) : NULL;
    Py_buffer view;
    Py_XDECREF(shape);
    if (made == NULL || PyObject_GetBuffer(made, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    Py_ssize_t count = view.len / (Py_ssize_t)sizeof(double);
    if (count > r->count - r->at || view.itemsize != sizeof(double)) {
        PyErr_SetString(PyExc_IndexError, "the argument has grown meanwhile");
        Py_CLEAR(made);
    } else if (count > 0) {
        memcpy(view.buf, r->numbers + r->at, (size_t)view.len);
        r->at += count;
    }
    PyBuffer_Release(&view);
    return made;
}

/* fill_values(array, row): an array of Values, which go into the row; fill_numbers(array, row, at): one of the
 * numbers from there on. None: it is for others. */
static PyObject *filled_array(Rebuilding *r, PyObject *x) {
    PyObject *size = r->at < 0 ? NULL : PyObject_GetAttr(x, size_name);
    PyObject *at = r->at < 0 ? NULL : PyLong_FromSsize_t(r->at), *made = NULL;
    if (r->at < 0) {
        made = PyObject_CallFunctionObjArgs(r->how->fill_values, x, r->row, NULL);
    } else if (size != NULL && at != NULL) {
        made = PyObject_CallFunctionObjArgs(r->how->fill_numbers, x, r->row, at, NULL);
        r->at += PyLong_AsSsize_t(size);
    }
    Py_XDECREF(size);
    Py_XDECREF(at);
    if (made == Py_None) {
        Py_CLEAR(made);
    }
    return made;
}

static PyObject *rebuild_array(Rebuilding *r, PyObject *x) {
    int is_other = r->at >= 0 && r->numbers == NULL;
    PyObject *made = NULL;
    if (r->at < 0) {
        made = values_for(r, x, &is_other);
    } else if (!is_other) {
        made = array_of_numbers(r, x);
    }
    return is_other ? filled_array(r, x) : made;
}

/* ----------------------------------------------------------------- containers ------------------ */

static PyObject *rebuild_dict(Rebuilding *r, PyObject *x) {
    PyObject *items = PyDict_Items(x), *made = items ? PyDict_New() : NULL;
    for (Py_ssize_t k = 0; made != NULL && k < PyList_Size(items); k++) {
        PyObject *pair = PyList_GetItem(items, k);
        PyObject *item = rebuild(r, PyTuple_GetItem(pair, 1));
        if (item == NULL || PyDict_SetItem(made, PyTuple_GetItem(pair, 0), item) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(item);
    }
    Py_XDECREF(items);
    return made;
}

static PyObject *rebuild_items(Rebuilding *r, PyObject *x, int is_list) {
    Py_ssize_t count = is_list ? PyList_Size(x) : PyTuple_Size(x);
    PyObject *made = is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t k = 0; made != NULL && k < count; k++) {
        /* which may have been taken out meanwhile */
        PyObject *item = Py_XNewRef(is_list ? PyList_GetItem(x, k) : PyTuple_GetItem(x, k));
        PyObject *built = item ? rebuild(r, item) : NULL;
        Py_XDECREF(item);
        if (built == NULL) {
            Py_CLEAR(made);
        } else if (is_list) {
            PyList_SetItem(made, k, built);
        } else {
            PyTuple_SetItem(made, k, built);
        }
    }
    return made;
}

/* An attribute; NULL without an error where there is none. */
static PyObject *attribute(PyObject *x, PyObject *name) {
    PyObject *found = PyObject_GetAttr(x, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return found;
}

/* A named tuple is made by its class, as in Python. */
static PyObject *rebuild_named(Rebuilding *r, PyObject *x) {
    if (PyType_GetSlot(Py_TYPE(x), Py_tp_iter) != PyType_GetSlot(&PyTuple_Type, Py_tp_iter)) {
        return NULL;
    }
    PyObject *names = attribute(x, fields_name), *made = NULL;
    PyObject *items = names != NULL ? rebuild_items(r, x, 0) : NULL;
    if (items != NULL) {
        made = PyObject_CallObject((PyObject *)Py_TYPE(x), items);
    }
    Py_XDECREF(names);
    Py_XDECREF(items);
    return made;
}

/* 1 where an attribute of a dataclass is one of its fields; -1: an error. */
static int is_field(const Rebuilding *r, PyObject *described) {
    PyObject *kind = PyObject_GetAttr(described, kind_name);
    int answer = kind == NULL ? -1 : kind == r->how->field;
    Py_XDECREF(kind);
    return answer;
}

/* The fields of a dataclass, by its `__dataclass_fields__`, into a new instance. */
static int rebuild_fields(Rebuilding *r, PyObject *x, PyObject *fields, PyObject *made) {
    PyObject *names = PyDict_Items(fields); /* attributes may be anybody's code */
    int answer = names != NULL ? 1 : -1;
    for (Py_ssize_t k = 0; answer > 0 && k < PyList_Size(names); k++) {
        PyObject *pair = PyList_GetItem(names, k), *name = PyTuple_GetItem(pair, 0);
        int wanted = is_field(r, PyTuple_GetItem(pair, 1));
        if (wanted <= 0) {
            answer = wanted < 0 ? -1 : 1;
            continue;
        }
        PyObject *item = PyObject_GetAttr(x, name), *built = item != NULL ? rebuild(r, item) : NULL;
        answer = built == NULL || PyObject_GenericSetAttr(made, name, built) < 0 ? -1 : 1;
        Py_XDECREF(item);
        Py_XDECREF(built);
    }
    Py_XDECREF(names);
    return answer;
}

/* A dataclass, made without its code, frozen or not; what is a mapping too, or numpy's, is for others. */
static PyObject *rebuild_dataclass(Rebuilding *r, PyObject *x) {
    PyObject *type = (PyObject *)Py_TYPE(x), *made = NULL;
    if (PyType_Check(x) || PyType_IsSubtype(Py_TYPE(x), r->how->leaf) ||
        PyType_IsSubtype(Py_TYPE(x), r->how->array)) {
        return NULL;
    }
    PyObject *fields = attribute(type, dataclass_name);
    PyObject *items = fields != NULL ? attribute(type, items_name) : NULL;
    if (fields != NULL && items == NULL && !PyErr_Occurred() && PyDict_CheckExact(fields)) {
        PyObject *new = PyObject_GetAttr((PyObject *)&PyBaseObject_Type, new_name);
        made = new != NULL ? PyObject_CallFunctionObjArgs(new, type, NULL) : NULL;
        Py_XDECREF(new);
        if (made != NULL && rebuild_fields(r, x, fields, made) < 0) {
            Py_CLEAR(made);
        }
    }
    Py_XDECREF(fields);
    Py_XDECREF(items);
    return made;
}

static int is_numpy_number(const Rebuilding *r, PyObject *x) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(r->how->numbers); k++) {
        if ((PyObject *)Py_TYPE(x) == PyTuple_GetItem(r->how->numbers, k)) {
            return 1;
        }
    }
    return 0;
}

static PyObject *rebuild(Rebuilding *r, PyObject *x) {
    if (PyFloat_CheckExact(x) || PyLong_CheckExact(x)) {
        return rebuild_number(r, x);
    }
    if (Py_TYPE(x) == r->how->array) {
        return rebuild_array(r, x);
    }
    int is_list = PyList_CheckExact(x), is_tuple = PyTuple_CheckExact(x), is_dict = PyDict_CheckExact(x);
    if (!is_list && !is_tuple && !is_dict) {
        if (is_numpy_number(r, x)) {
            return rebuild_number(r, x);
        }
        if (x == Py_None || PyUnicode_Check(x) || PyBool_Check(x) || is_value(x)) {
            return NULL;
        }
    }
    if (Py_EnterRecursiveCall(" in an argument") != 0) {
        return NULL;
    }
    PyObject *made;
    if (is_dict) {
        made = rebuild_dict(r, x);
    } else if (is_list || is_tuple) {
        made = rebuild_items(r, x, is_list);
    } else {
        made = PyTuple_Check(x) ? rebuild_named(r, x) : rebuild_dataclass(r, x);
    }
    Py_LeaveRecursiveCall();
    return made;
}

PyObject *with_new_values(const Arguments *how, PyObject *x, PyObject *row) {
    Rebuilding r = {.how = how, .row = row, .at = -1};
    return rebuild(&r, x);
}

PyObject *with_these_numbers(const Arguments *how, PyObject *x, const double *numbers, Py_ssize_t count) {
    Rebuilding r = {.how = how, .numbers = numbers, .count = count};
    return rebuild(&r, x);
}

/* ----------------------------------------------------------------- for Python ------------------ */

/* with_values(x): the argument with Values for its numbers, and a list of these; None where it is not one of
 * the usual. */
static PyObject *arguments_with_values(PyObject *self, PyObject *x) {
    PyObject *row = PyList_New(0), *result = NULL;
    PyObject *made = row != NULL ? with_new_values((Arguments *)self, x, row) : NULL;
    if (made != NULL) {
        result = PyTuple_Pack(2, made, row);
    } else if (!PyErr_Occurred()) {
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF(made);
    Py_XDECREF(row);
    return result;
}

/* with_numbers(x, numbers): the argument's containers with the numbers, or Values, of a list; None where it is
 * not one of the usual. */
static PyObject *arguments_with_numbers(PyObject *self, PyObject *args) {
    PyObject *x, *numbers;
    if (!PyArg_ParseTuple(args, "OO!:with_numbers", &x, &PyList_Type, &numbers)) {
        return NULL;
    }
    Rebuilding r = {.how = (Arguments *)self, .row = numbers};
    PyObject *made = rebuild(&r, x);
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

static int arguments_traverse(PyObject *self, visitproc visit, void *arg) {
    Arguments *a = (Arguments *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(a->array);
    Py_VISIT(a->empty);
    Py_VISIT(a->numbers);
    Py_VISIT(a->leaf);
    Py_VISIT(a->field);
    Py_VISIT(a->fill_values);
    Py_VISIT(a->fill_numbers);
    return 0;
}

/* There is no tp_clear: a cycle through one passes through the dict of its module too. */
static void arguments_dealloc(PyObject *self) {
    Arguments *a = (Arguments *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF((PyObject *)a->array);
    Py_XDECREF(a->empty);
    Py_XDECREF(a->numbers);
    Py_XDECREF((PyObject *)a->leaf);
    Py_XDECREF(a->field);
    Py_XDECREF(a->fill_values);
    Py_XDECREF(a->fill_numbers);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Arguments(array, empty, numbers, leaf, field, fill_values, fill_numbers): see the struct. */
static PyObject *arguments_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *array, *empty, *numbers, *leaf, *field, *values, *filled;
    if (!PyArg_ParseTuple(args, "O!OO!O!OOO:Arguments", &PyType_Type, &array, &empty, &PyTuple_Type, &numbers,
                          &PyType_Type, &leaf, &field, &values, &filled)) {
        return NULL;
    }
    Arguments *a = (Arguments *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (a != NULL) {
        a->array = (PyTypeObject *)Py_NewRef(array);
        a->empty = Py_NewRef(empty);
        a->numbers = Py_NewRef(numbers);
        a->leaf = (PyTypeObject *)Py_NewRef(leaf);
        a->field = Py_NewRef(field);
        a->fill_values = Py_NewRef(values);
        a->fill_numbers = Py_NewRef(filled);
    }
    return (PyObject *)a;
}

int import_argument_parts(void) {
    shape_name = PyUnicode_InternFromString("shape");
    size_name = PyUnicode_InternFromString("size");
    fields_name = PyUnicode_InternFromString("_fields");
    dataclass_name = PyUnicode_InternFromString("__dataclass_fields__");
    kind_name = PyUnicode_InternFromString("_field_type");
    items_name = PyUnicode_InternFromString("items");
    new_name = PyUnicode_InternFromString("__new__");
    return shape_name && size_name && fields_name && dataclass_name && kind_name && items_name && new_name ? 0 : -1;
}

static PyMethodDef arguments_methods[] = {{"with_values", arguments_with_values, METH_O, NULL},
                                          {"with_numbers", arguments_with_numbers, METH_VARARGS, NULL},
                                          {NULL, NULL, 0, NULL}};
static PyType_Slot arguments_slots[] = {{Py_tp_new, arguments_new},
                                        {Py_tp_dealloc, arguments_dealloc},
                                        {Py_tp_traverse, arguments_traverse},
                                        {Py_tp_methods, arguments_methods},
                                        {0, NULL}};
PyType_Spec arguments_spec = {"chainrule._native.Arguments", sizeof(Arguments), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, arguments_slots};
