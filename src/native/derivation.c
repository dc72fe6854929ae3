/* An eager derivative: the arguments of a call in, the value of a function and its gradient out, without
 * Python code but for the function itself; see derivatives/transforms.py.
 *
 * Here is the usual call: at the top, with graphs kept, of a usual argument, with no Value around the function.
 * `slow` takes the others before anything has run, and `finish` those whose function did the unusual.
 */
#include "arguments.h"

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *around;          /* the same, or that of a method; NULL: it is no plain function */
    PyObject *code, *names;    /* of it when it was called last, and the global names in it; or NULL */
    PyObject *outside, *cells; /* its globals and closure, which never change */
    PyObject *arguments;       /* Arguments */
    PyObject *slow;      /* slow(args, kwargs): the answer */
    PyObject *finish;    /* finish(x, leaves, returned): the answer */
    PyObject *plain;     /* plain(aux): it, with the numbers of its Values */
    Py_ssize_t *places;  /* which arguments are differentiated by */
    Py_ssize_t count;    /* of them; -1: one, which is not in a tuple */
    int aux;             /* what else the function returns; see below */
    int only_slopes;     /* the value is not wanted */
} Derivation;

enum { NO_AUX, PAIR_ALWAYS, PAIR_IF_TUPLE }; /* the last: whatever is a pair is a value and something else */

PyTypeObject *DerivationType;
THREAD_LOCAL PyObject *outermost;
static PyTypeObject *function_type, *method_type;
static PyObject *code_name, *names_name, *contents_name;

static void put(PyObject **field, PyObject *x) {
    PyObject *before = *field;
    *field = Py_XNewRef(x);
    Py_XDECREF(before);
}

/* ----------------------------------------------------------------- Values around --------------- */

/* Like the next: of some names in a dict. */
static int any_global(PyObject *names, PyObject *outside) {
    if (!PyTuple_CheckExact(names) || !PyDict_CheckExact(outside)) {
        return 1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(names); k++) {
        PyObject *x = PyDict_GetItemWithError(outside, PyTuple_GetItem(names, k));
        if (x == NULL ? PyErr_Occurred() != NULL : is_value(x)) {
            return x == NULL ? -1 : 1;
        }
    }
    return 0;
}

/* Like the next: of the cells of a closure. */
static int any_cell(PyObject *cells) {
    if (cells == Py_None) {
        return 0;
    }
    if (!PyTuple_CheckExact(cells)) {
        return 1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(cells); k++) {
        PyObject *x = PyObject_GetAttr(PyTuple_GetItem(cells, k), contents_name);
        if (x == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
                return -1;
            }
            PyErr_Clear(); /* nothing in it yet */
            continue;
        }
        int is_one = is_value(x);
        Py_DECREF(x);
        if (is_one) {
            return 1;
        }
    }
    return 0;
}

/* Look at the code of a function, which may be another than before; -1: an error. */
static int read_names(Derivation *d) {
    PyObject *code = PyObject_GetAttr(d->around, code_name), *names = NULL;
    int answer = code != NULL && (code == d->code || (names = PyObject_GetAttr(code, names_name)) != NULL) ? 0 : -1;
    if (names != NULL) {
        put(&d->code, code);
        put(&d->names, names);
        Py_DECREF(names);
    }
    Py_XDECREF(code);
    return answer;
}

/* Whether there may be a Value among the variables of enclosing functions and the global ones; -1: an error.
 * `again`: the function has just run, by the code that is known. */
static int any_around(Derivation *d, int again) {
    if (d->around == NULL) { /* something that is called like a function: it has none, unless it has code */
        PyObject *code = PyObject_GetAttr(d->function, code_name);
        if (code == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            return 0;
        }
        Py_XDECREF(code);
        return code != NULL ? 1 : -1;
    }
    if (!again && read_names(d) < 0) {
        return -1;
    }
    int answer = any_global(d->names, d->outside);
    return answer != 0 ? answer : any_cell(d->cells);
}

/* ----------------------------------------------------------------- the call -------------------- */

/* The position of one of the arguments to differentiate by, among so many; negative: there is none. */
static Py_ssize_t place_of(const Derivation *d, Py_ssize_t k, Py_ssize_t given) {
    Py_ssize_t place = d->places[k] < 0 ? d->places[k] + given : d->places[k];
    return place < given ? place : -1;
}

/* Whether all these positions are there, each once. */
static int has_places(const Derivation *d, Py_ssize_t count, Py_ssize_t given) {
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t place = place_of(d, k, given);
        for (Py_ssize_t j = 0; j < k; j++) {
            place = place_of(d, j, given) == place ? -1 : place;
        }
        if (place < 0) {
            return 0;
        }
    }
    return 1;
}

/* What is differentiated by: an argument, or a tuple of some; NULL without an error: `slow` says what is wrong. */
static PyObject *picked(const Derivation *d, PyObject *args) {
    Py_ssize_t given = PyTuple_Size(args), count = d->count < 0 ? 1 : d->count;
    if (!has_places(d, count, given)) {
        return NULL;
    }
    if (d->count < 0) {
        return Py_NewRef(PyTuple_GetItem(args, place_of(d, 0, given)));
    }
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t k = 0; made != NULL && k < count; k++) {
        PyTuple_SetItem(made, k, Py_NewRef(PyTuple_GetItem(args, place_of(d, k, given))));
    }
    return made;
}

/* The arguments with these in the places of those that are differentiated by. */
static PyObject *replaced(const Derivation *d, PyObject *args, PyObject *filled) {
    Py_ssize_t given = PyTuple_Size(args);
    PyObject *made = PyTuple_New(given);
    for (Py_ssize_t k = 0; made != NULL && k < given; k++) {
        PyObject *x = PyTuple_GetItem(args, k);
        for (Py_ssize_t j = 0; j < (d->count < 0 ? 1 : d->count); j++) {
            if (place_of(d, j, given) == k) {
                x = d->count < 0 ? filled : PyTuple_GetItem(filled, j);
            }
        }
        PyTuple_SetItem(made, k, Py_NewRef(x));
    }
    return made;
}

/* What the function returns, called while the transforms in it are nested ones. */
static PyObject *run_nested(PyObject *row, PyObject *function, PyObject *args, PyObject *kwargs) {
    outermost = Py_NewRef(row);
    nested_runs++;
    PyObject *returned = PyObject_Call(function, args, kwargs);
    nested_runs--;
    Py_CLEAR(outermost);
    return returned;
}

/* A tree of plain things with the numbers of its Values; NULL without an error: something else is in it. */
static PyObject *plain_tree(PyObject *x) {
    if (is_exact(x)) {
        return PyFloat_FromDouble(((Node *)x)->data);
    }
    if (PyFloat_CheckExact(x) || PyLong_CheckExact(x) || PyUnicode_CheckExact(x) || x == Py_None || PyBool_Check(x)) {
        return Py_NewRef(x);
    }
    if (!PyDict_CheckExact(x) || Py_EnterRecursiveCall(" in what a function returns") != 0) {
        return NULL;
    }
    PyObject *items = PyDict_Items(x), *made = items != NULL ? PyDict_New() : NULL;
    for (Py_ssize_t k = 0; made != NULL && k < PyList_Size(items); k++) {
        PyObject *pair = PyList_GetItem(items, k), *built = plain_tree(PyTuple_GetItem(pair, 1));
        if (built == NULL || PyDict_SetItem(made, PyTuple_GetItem(pair, 0), built) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(built);
    }
    Py_XDECREF(items);
    Py_LeaveRecursiveCall();
    return made;
}

/* The value of a node, with what else the function returned. */
static PyObject *value_of(const Derivation *d, const Node *y, PyObject *extra, PyObject *slopes) {
    PyObject *aux = NULL, *made = NULL;
    if (extra != NULL) {
        aux = plain_tree(extra);
        aux = aux != NULL || PyErr_Occurred() ? aux : PyObject_CallFunctionObjArgs(d->plain, extra, NULL);
        if (aux == NULL) {
            return NULL;
        }
    }
    if (d->only_slopes) {
        made = aux != NULL ? PyTuple_Pack(2, slopes, aux) : Py_NewRef(slopes);
    } else {
        PyObject *number = PyFloat_FromDouble(y->data);
        PyObject *value = number != NULL && aux != NULL ? PyTuple_Pack(2, number, aux) : Py_XNewRef(number);
        made = value != NULL ? PyTuple_Pack(2, value, slopes) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(value);
    }
    Py_XDECREF(aux);
    return made;
}

/* The answer from what the function returned; `row`: the Values of its argument. */
static PyObject *answer_of(Derivation *d, PyObject *x, PyObject *row, PyObject *returned) {
    int is_tuple = d->aux == PAIR_ALWAYS ? PyTuple_Check(returned) : PyTuple_CheckExact(returned);
    int is_pair = d->aux != NO_AUX && is_tuple && PyTuple_Size(returned) == 2;
    PyObject *y = is_pair ? PyTuple_GetItem(returned, 0) : returned;
    int is_usual = is_exact(y) && (is_pair || d->aux != PAIR_ALWAYS) && recorder == NULL;
    int around = is_usual ? any_around(d, 1) : 1;
    if (around < 0) {
        return NULL;
    }
    if (around) {
        return PyObject_CallFunctionObjArgs(d->finish, x, row, returned, NULL);
    }
    double few[16], *found = few;
    Py_ssize_t count = PyList_Size(row);
    if (count > (Py_ssize_t)(sizeof few / sizeof *few) &&
        (found = PyMem_Malloc((size_t)count * sizeof(double))) == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *slopes = NULL, *answer = NULL;
    if (find_gradients((Node *)y, row, 0, found) == 0) {
        slopes = with_these_numbers((Arguments *)d->arguments, x, found, count);
        if (slopes == NULL && !PyErr_Occurred()) {
            slopes = Py_NewRef(Py_None); /* as usual_like gives it: the function made something else of it */
        }
    }
    if (slopes != NULL) {
        answer = value_of(d, (Node *)y, is_pair ? PyTuple_GetItem(returned, 1) : NULL, slopes);
    }
    Py_XDECREF(slopes);
    if (found != few) {
        PyMem_Free(found);
    }
    return answer;
}

/* The answer to a call with a usual argument x, of which `filled` is the same with the Values of `row` in it. */
static PyObject *answer_for(Derivation *d, PyObject *args, PyObject *kwargs, PyObject *x, PyObject *filled,
                            PyObject *row) {
    PyObject *answer = NULL, *call = replaced(d, args, filled);
    PyObject *returned = call != NULL ? run_nested(row, d->function, call, kwargs) : NULL;
    if (returned != NULL) {
        answer = answer_of(d, x, row, returned);
        Py_DECREF(returned);
    }
    Py_XDECREF(call);
    return answer;
}

PyObject *run_derivation(PyObject *self, PyObject *args, PyObject *kwargs) {
    Derivation *d = (Derivation *)self;
    PyObject *x = NULL, *row = NULL, *filled = NULL, *answer = NULL;
    int is_plain = recorder == NULL && nested_runs == 0 && again_runs == 0 && outermost == NULL && !grad_off && !debug_on;
    if (is_plain && (x = picked(d, args)) != NULL && any_around(d, 0) == 0 && (row = PyList_New(0)) != NULL) {
        filled = with_new_values((Arguments *)d->arguments, x, row);
    }
    if (filled != NULL) {
        answer = answer_for(d, args, kwargs != NULL && PyDict_Size(kwargs) > 0 ? kwargs : NULL, x, filled, row);
    } else if (!PyErr_Occurred()) {
        PyObject *keywords = kwargs != NULL ? Py_NewRef(kwargs) : PyDict_New();
        answer = keywords != NULL ? PyObject_CallFunctionObjArgs(d->slow, args, keywords, NULL) : NULL;
        Py_XDECREF(keywords);
    }
    Py_XDECREF(x);
    Py_XDECREF(row);
    Py_XDECREF(filled);
    return answer;
}

/* ----------------------------------------------------------------- the type -------------------- */

/* answer(args, kwargs): the value and the gradient of a call. */
static PyObject *derivation_answer(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyTuple_CheckExact(given[0]) || !PyDict_CheckExact(given[1])) {
        return PyErr_Format(PyExc_TypeError, "a Derivation answers a tuple of arguments and a dict");
    }
    return run_derivation(self, given[0], given[1]);
}

static int derivation_traverse(PyObject *self, visitproc visit, void *arg) {
    Derivation *d = (Derivation *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(d->function);
    Py_VISIT(d->around);
    Py_VISIT(d->code);
    Py_VISIT(d->names);
    Py_VISIT(d->outside);
    Py_VISIT(d->cells);
    Py_VISIT(d->arguments);
    Py_VISIT(d->slow);
    Py_VISIT(d->finish);
    Py_VISIT(d->plain);
    return 0;
}

/* There is no tp_clear: a cycle through one passes through a Python function too. */
static void derivation_dealloc(PyObject *self) {
    Derivation *d = (Derivation *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyMem_Free(d->places);
    Py_XDECREF(d->function);
    Py_XDECREF(d->around);
    Py_XDECREF(d->code);
    Py_XDECREF(d->names);
    Py_XDECREF(d->outside);
    Py_XDECREF(d->cells);
    Py_XDECREF(d->arguments);
    Py_XDECREF(d->slow);
    Py_XDECREF(d->finish);
    Py_XDECREF(d->plain);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* The places from argnums, an int or a tuple of them; -1: an error. */
static int read_places(Derivation *d, PyObject *argnums) {
    int is_tuple = PyTuple_CheckExact(argnums);
    Py_ssize_t count = is_tuple ? PyTuple_Size(argnums) : 1;
    d->count = is_tuple ? count : -1;
    d->places = PyMem_Malloc(((size_t)count + 1) * sizeof(Py_ssize_t));
    if (d->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        d->places[k] = PyLong_AsSsize_t(is_tuple ? PyTuple_GetItem(argnums, k) : argnums);
        if (d->places[k] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* What of a function stays as it is; -1: an error. */
static int read_function(Derivation *d) {
    PyObject *plain = Py_NewRef(d->function);
    if (Py_TYPE(plain) == method_type) {
        put(&plain, NULL);
        plain = PyObject_GetAttrString(d->function, "__func__");
    }
    if (plain == NULL || Py_TYPE(plain) != function_type) {
        Py_XDECREF(plain);
        return PyErr_Occurred() ? -1 : 0;
    }
    d->around = plain;
    d->outside = PyObject_GetAttrString(plain, "__globals__");
    d->cells = d->outside != NULL ? PyObject_GetAttrString(plain, "__closure__") : NULL;
    return d->cells != NULL ? 0 : -1;
}

/* Derivation(function, arguments, slow, finish, plain, argnums, aux, only_slopes): see the struct. */
static PyObject *derivation_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *function, *arguments, *slow, *finish, *plain, *argnums;
    int aux, only_slopes;
    if (!PyArg_ParseTuple(args, "OO!OOOOip:Derivation", &function, ArgumentsType, &arguments, &slow, &finish, &plain,
                          &argnums, &aux, &only_slopes)) {
        return NULL;
    }
    if (aux < NO_AUX || aux > PAIR_IF_TUPLE) {
        return PyErr_Format(PyExc_ValueError, "aux is 0, 1 or 2, not %d", aux);
    }
    Derivation *d = (Derivation *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (d == NULL) {
        return NULL;
    }
    d->function = Py_NewRef(function);
    d->arguments = Py_NewRef(arguments);
    d->slow = Py_NewRef(slow);
    d->finish = Py_NewRef(finish);
    d->plain = Py_NewRef(plain);
    d->aux = aux;
    d->only_slopes = only_slopes;
    if (read_function(d) < 0 || read_places(d, argnums) < 0) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    return (PyObject *)d;
}

int import_derivation_parts(void) {
    PyObject *types = PyImport_ImportModule("types");
    if (types != NULL) {
        function_type = (PyTypeObject *)PyObject_GetAttrString(types, "FunctionType");
        method_type = (PyTypeObject *)PyObject_GetAttrString(types, "MethodType");
        Py_DECREF(types);
    }
    code_name = PyUnicode_InternFromString("__code__");
    names_name = PyUnicode_InternFromString("co_names");
    contents_name = PyUnicode_InternFromString("cell_contents");
    return function_type && method_type && code_name && names_name && contents_name ? 0 : -1;
}

static PyMethodDef derivation_methods[] = {
    {"answer", (PyCFunction)(void (*)(void))derivation_answer, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
static PyMemberDef derivation_members[] = {{"function", T_OBJECT, offsetof(Derivation, function), READONLY, NULL},
                                           {NULL, 0, 0, 0, NULL}};
static PyType_Slot derivation_slots[] = {{Py_tp_new, derivation_new},
                                         {Py_tp_members, derivation_members},
                                         {Py_tp_dealloc, derivation_dealloc},
                                         {Py_tp_traverse, derivation_traverse},
                                         {Py_tp_methods, derivation_methods},
                                         {0, NULL}};
PyType_Spec derivation_spec = {"chainrule._native.Derivation", sizeof(Derivation), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, derivation_slots};
