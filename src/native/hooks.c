/* The hooks that rewritten code calls at every turn, answered here where nothing has to be noted.
 *
 * In: what has an attribute that is read, a container and a key, or a function that is called, while a
 * function is recorded or not. Out: what Python would have. All that a recorder might want to know goes to
 * the hook in Python (compiler/capture/hooks.py), which says what each of these tests is about.
 */
#include "standins.h"

PyTypeObject *WatchedType;

/* What set_hooks was given, in this order. */
enum { ASKED, READ, CALLED, CHANGES, NOTED_NAMES, SILENT, SUBSTITUTES, STAND_INS, KEYED, CACHE, PARTS };
static PyObject *parts[PARTS];

Watched *watched_recorder(void) {
    if (recorder == NULL || !PyType_IsSubtype(Py_TYPE(recorder), WatchedType)) {
        return NULL;
    }
    Watched *w = (Watched *)recorder;
    int whole = w->either && w->watched && w->simple && w->known && w->detached && w->true_sites;
    return whole && PyDict_CheckExact(w->either) && PyDict_CheckExact(w->detached) &&
                   PyAnySet_CheckExact(w->watched) && PyAnySet_CheckExact(w->simple) && PyAnySet_CheckExact(w->known)
               ? w
               : NULL;
}

/* set_hooks(asked, read, called, changing, names, silent, substitutes, stand_in, keyed, cache): the hooks in Python; names
 * of attributes, types, and functions that have to be looked at; the classes of stand-ins. */
static PyObject *set_hooks(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[PARTS], **g = given;
    if (!PyArg_ParseTuple(args, "OOOOO!O!O!O!O!O!:set_hooks", &g[ASKED], &g[READ], &g[CALLED], &g[CHANGES],
                          &PyFrozenSet_Type, &g[NOTED_NAMES], &PyFrozenSet_Type, &g[SILENT], &PyDict_Type, &g[SUBSTITUTES],
                          &PyType_Type, &g[STAND_INS], &PyType_Type, &g[KEYED], &PyType_Type, &g[CACHE])) {
        return NULL;
    }
    for (int k = 0; k < PARTS; k++) {
        PyObject *old = parts[k];
        parts[k] = Py_NewRef(given[k]);
        Py_XDECREF(old);
    }
    return Py_NewRef(Py_None);
}

static int takes(Py_ssize_t count, Py_ssize_t wanted, const char *name) {
    if (count != wanted || parts[ASKED] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, after set_hooks", name, wanted);
        return 0;
    }
    return 1;
}

static int is_a(PyObject *o, int which) { return PyType_IsSubtype(Py_TYPE(o), (PyTypeObject *)parts[which]); }

/* Whether a container is in neither of two sets of addresses; -1: an error. */
static int is_unwatched(const Watched *w, PyObject *o) {
    PyObject *key = PyLong_FromVoidPtr(o);
    int found = key == NULL ? -1 : PySet_Contains(w->watched, key);
    found = found == 0 ? PySet_Contains(w->known, key) : found;
    Py_XDECREF(key);
    return found < 0 ? -1 : !found;
}

/* Whether nothing has to be noted about reading this attribute; -1: an error. */
static int is_silent(const Watched *w, PyObject *x, PyObject *name) {
    if (w->texts || !PyUnicode_CheckExact(name) || PyUnicode_GetLength(name) == 0) {
        return 0;
    }
    PyObject *kind = (PyObject *)Py_TYPE(x);
    if (kind == (PyObject *)ValueType) {
        return w->told && PyDict_Size(w->either) == 0;
    }
    if (kind == (PyObject *)&PyList_Type && PyUnicode_CompareWithASCIIString(name, "append") == 0) {
        return is_unwatched(w, x);
    } else if (PyDict_Size(w->either) != 0 || PyType_Check(x) || is_a(x, STAND_INS)) {
        return 0;
    } else if (!w->told) {
        int known = PySet_Contains(parts[SILENT], kind);
        known = known == 0 ? PySet_Contains(w->simple, kind) : known;
        if (known != 1) {
            return known;
        }
    }
    int noted = PySet_Contains(parts[NOTED_NAMES], name);
    if (noted != 0) {
        return noted < 0 ? -1 : 0;
    }
    return w->told || PyUnicode_ReadChar(name, 0) != '_';
}

/* asked(x, name): x, of which the attribute is read. */
static PyObject *asked(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (!takes(count, 2, "asked")) {
        return NULL;
    }
    if (recorder == NULL) {
        return Py_NewRef(given[0]);
    }
    Watched *w = watched_recorder();
    int silent = w == NULL ? 0 : is_silent(w, given[0], given[1]);
    if (silent != 0) {
        return silent < 0 ? NULL : Py_NewRef(given[0]);
    }
    return PyObject_CallFunctionObjArgs(parts[ASKED], given[0], given[1], NULL);
}

static int is_plain_key(PyObject *key) {
    return PyLong_CheckExact(key) || Py_TYPE(key) == &PySlice_Type;
}

/* read(container, key): container[key]. */
static PyObject *read_item(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (!takes(count, 2, "read")) {
        return NULL;
    }
    PyObject *container = given[0], *key = given[1];
    int plain = is_plain_key(key) || PyUnicode_CheckExact(key);
    if (!plain && PyTuple_CheckExact(key)) {
        plain = 1;
        for (Py_ssize_t k = 0; plain && k < PyTuple_Size(key); k++) {
            plain = is_plain_key(PyTuple_GetItem(key, k));
        }
    }
    if (is_a(container, KEYED) || (!plain && recorder != NULL)) {
        return PyObject_CallFunctionObjArgs(parts[READ], container, key, NULL);
    }
    int among = recorder != NULL && PyLong_CheckExact(key) && (PyList_CheckExact(container) || PyTuple_CheckExact(container));
    PyObject *found = PyObject_GetItem(container, key);
    if (found != NULL && among && PyLong_CheckExact(found)) { /* it may be one of traced integers */
        Py_DECREF(found);
        return PyObject_CallFunctionObjArgs(parts[READ], container, key, NULL);
    }
    return found;
}

/* called(function): what to call in its place. */
static PyObject *called(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (!takes(count, 1, "called")) {
        return NULL;
    }
    PyObject *function = given[0];
    if (recorder == NULL) {
        return Py_NewRef(function);
    }
    Watched *w = watched_recorder();
    if (w == NULL || w->true_sites != Py_None || (PyObject *)Py_TYPE(function) == parts[CACHE]) {
        return PyObject_CallFunctionObjArgs(parts[CALLED], function, NULL);
    }
    PyObject *found = PyDict_GetItemWithError(parts[SUBSTITUTES], function);
    if (found == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
            return NULL;
        }
        PyErr_Clear(); /* not hashable: none of these */
    }
    return Py_NewRef(found ? found : function);
}

/* Whether this is a number or a text, or stands for one, which nothing changes. */
static int is_immutable(PyObject *o) {
    PyTypeObject *kind = Py_TYPE(o);
    return kind == &PyFloat_Type || kind == &PyLong_Type || kind == ValueType || kind == &PyUnicode_Type ||
           kind == &PyTuple_Type || is_a(o, STAND_INS);
}

/* a += b and its like: where a container may be changed, that is noted before. */
static PyObject *in_place(PyObject *const *given, Py_ssize_t count, binaryfunc compute, const char *name) {
    if (!takes(count, 2, name)) {
        return NULL;
    }
    if (recorder != NULL && !is_immutable(given[0])) {
        PyObject *same = PyObject_CallFunctionObjArgs(parts[CHANGES], given[0], NULL);
        if (same == NULL) {
            return NULL;
        }
        Py_DECREF(same);
    }
    return compute(given[0], given[1]);
}

static PyObject *power_in_place(PyObject *a, PyObject *b) { return PyNumber_InPlacePower(a, b, Py_None); }

#define IN_PLACE(name, compute) \
    static PyObject *hook_##name(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) { \
        return in_place(given, count, compute, #name); \
    }

IN_PLACE(iadd, PyNumber_InPlaceAdd)
IN_PLACE(isub, PyNumber_InPlaceSubtract)
IN_PLACE(imul, PyNumber_InPlaceMultiply)
IN_PLACE(imatmul, PyNumber_InPlaceMatrixMultiply)
IN_PLACE(itruediv, PyNumber_InPlaceTrueDivide)
IN_PLACE(ifloordiv, PyNumber_InPlaceFloorDivide)
IN_PLACE(imod, PyNumber_InPlaceRemainder)
IN_PLACE(ipow, power_in_place)
IN_PLACE(ilshift, PyNumber_InPlaceLshift)
IN_PLACE(irshift, PyNumber_InPlaceRshift)
IN_PLACE(iand, PyNumber_InPlaceAnd)
IN_PLACE(ior, PyNumber_InPlaceOr)
IN_PLACE(ixor, PyNumber_InPlaceXor)

/* -------------------------------------------------------------------------- the recorder ------- */

#define MEMBERS(visit) visit(either); visit(watched); visit(simple); visit(known); visit(detached); visit(true_sites)

static int watched_traverse(PyObject *self, visitproc visit, void *arg) {
    Watched *w = (Watched *)self;
    Py_VISIT(Py_TYPE(self));
#define VISIT(member) Py_VISIT(w->member)
    MEMBERS(VISIT);
    return 0;
}

static int watched_clear(PyObject *self) {
    Watched *w = (Watched *)self;
#define CLEAR(member) Py_CLEAR(w->member)
    MEMBERS(CLEAR);
    return 0;
}

static void watched_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    watched_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

#define OBJECT(name, member) {name, T_OBJECT_EX, offsetof(Watched, member), 0, NULL}
static PyMemberDef watched_members[] = {
    {"told", T_BOOL, offsetof(Watched, told), 0, NULL},
    {"texts", T_BOOL, offsetof(Watched, texts), 0, NULL},
    OBJECT("either", either),
    OBJECT("watched", watched),
    OBJECT("simple", simple),
    OBJECT("known", known),
    OBJECT("_detached", detached),
    OBJECT("true_sites", true_sites),
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot watched_slots[] = {
    {Py_tp_dealloc, watched_dealloc}, {Py_tp_traverse, watched_traverse}, {Py_tp_clear, watched_clear},
    {Py_tp_members, watched_members}, {0, NULL},
};
PyType_Spec watched_spec = {"chainrule._native.Watched", sizeof(Watched), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, watched_slots};

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
PyMethodDef hook_functions[] = {
    {"set_hooks", set_hooks, METH_VARARGS, NULL},
    FAST("asked", asked),
    FAST("read", read_item),
    FAST("called", called),
    FAST("iadd", hook_iadd),
    FAST("isub", hook_isub),
    FAST("imul", hook_imul),
    FAST("imatmul", hook_imatmul),
    FAST("itruediv", hook_itruediv),
    FAST("ifloordiv", hook_ifloordiv),
    FAST("imod", hook_imod),
    FAST("ipow", hook_ipow),
    FAST("ilshift", hook_ilshift),
    FAST("irshift", hook_irshift),
    FAST("iand", hook_iand),
    FAST("ior", hook_ior),
    FAST("ixor", hook_ixor),
    {NULL, NULL, 0, NULL},
};
