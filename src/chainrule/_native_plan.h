/* A compiled call that is known again, part of _native.c; see compiler/recall.py.
 *
 * A Plan copies the parameters into the arena, runs machine code forward and backward, and gives the
 * gradient in the structure of the parameters. Arrays are asked for their buffers every time, and no
 * Python code of theirs or the collector's runs between reading the first and having the gradient in
 * memory of its own.
 */

/* What a Plan is given beside the parameters: the arenas of the machine code, all of one kind of
 * numbers; what gathers select, trip counts, and which gathers a call sets. */
enum { P_SHARED, P_OWN, P_SHARED_ADJOINTS, P_ADJOINTS, P_SEEDS, P_GATHERS, P_COUNTS, P_PLACES, P_ARENAS };

typedef struct {
    PyObject_HEAD
    PyObject *arrays;   /* a tuple: the parameters */
    PyObject *template; /* their nest, with the name of a field of `record` in the place of each */
    PyObject *record;   /* a numpy dtype: the gradient, one field for each array */
    PyObject *make;     /* numpy.ndarray */
    PyObject *owner;    /* of the machine code */
    PyObject *choose;   /* a function: the addresses that gathers select for the integers of a call, or None */
    PyObject *seen;     /* a list: when it has grown, more is known of that */
    PyObject *choices;  /* a dict: what `choose` answered since */
    Py_ssize_t known;   /* how long the list was then */
    Py_buffer views[P_ARENAS];
    int view_count;
    int is_float;              /* float32 in the arenas */
    int in_place;              /* the machine code writes into what becomes the gradient */
    Py_ssize_t size;           /* how many parameters there are */
    Buffer extents;            /* of each array: how many dimensions, and each of these */
    uintptr_t forward, backward;
    const void *root;
} Plan;

#define MOST_CHOICES 10000
#define LINE 64

static PyTypeObject *PlanType;

typedef double (*Forward)(void *, void *, void *, void *);
typedef float (*FloatForward)(void *, void *, void *, void *);
typedef double (*Backward)(void *, void *, void *, void *, void *, void *, void *);
typedef float (*FloatBackward)(void *, void *, void *, void *, void *, void *, void *);

/* Forward and backward, with the gradient by what is shared going into `to_shared`; whether all is
 * finite. */
static int run_code(const Plan *p, void *to_shared) {
    void *shared = p->views[P_SHARED].buf, *own = p->views[P_OWN].buf, *seeds = p->views[P_SEEDS].buf;
    void *to_own = p->views[P_ADJOINTS].buf, *gathers = p->views[P_GATHERS].buf;
    void *counts = p->views[P_COUNTS].buf;
    if (p->is_float) {
        return isfinite(((FloatForward)p->forward)(shared, own, gathers, counts)) &&
               isfinite(((FloatBackward)p->backward)(shared, own, to_shared, to_own, seeds, gathers, counts));
    }
    return isfinite(((Forward)p->forward)(shared, own, gathers, counts)) &&
           isfinite(((Backward)p->backward)(shared, own, to_shared, to_own, seeds, gathers, counts));
}

static void narrow(float *restrict to, const double *restrict from, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = (float)from[k];
    }
}

static void widen(double *restrict to, const float *restrict from, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = from[k];
    }
}

/* The buffer of an array of float64 in one piece. 0 where it is none; -1: an error. */
static int open_parameter(PyObject *array, Py_buffer *view) {
    if (PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (view->format == NULL || strcmp(view->format, "d") != 0 || !PyBuffer_IsContiguous(view, 'C')) {
        PyBuffer_Release(view);
        return 0;
    }
    return 1;
}

/* Copy the parameters into the arena. 0 where an array is no longer like it was; -1: an error. */
static int read_parameters(const Plan *p) {
    const Py_ssize_t *extent = (const Py_ssize_t *)p->extents.bytes;
    Py_ssize_t at = 0, count = PyTuple_Size(p->arrays);
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_buffer view;
        int fits = open_parameter(PyTuple_GetItem(p->arrays, k), &view);
        if (fits <= 0) {
            return fits;
        }
        Py_ssize_t dimensions = *extent++, items = view.len / (Py_ssize_t)sizeof(double);
        fits = view.ndim == dimensions;
        for (Py_ssize_t j = 0; j < dimensions && fits; j++) {
            fits = view.shape[j] == extent[j];
        }
        extent += dimensions;
        if (fits && p->is_float) {
            narrow((float *)p->views[P_SHARED].buf + at, view.buf, items);
        } else if (fits) {
            memcpy((double *)p->views[P_SHARED].buf + at, view.buf, (size_t)items * sizeof(double));
        }
        PyBuffer_Release(&view);
        if (!fits) {
            return 0;
        }
        at += items;
    }
    return 1;
}

/* The addresses that gathers select for these integers, None where that is not known. */
static PyObject *chosen_by(Plan *p, PyObject *ids) {
    if (PyList_Size(p->seen) != p->known || PyDict_Size(p->choices) > MOST_CHOICES) {
        p->known = PyList_Size(p->seen);
        PyDict_Clear(p->choices);
    }
    PyObject *choice = PyDict_GetItemWithError(p->choices, ids);
    if (choice != NULL || PyErr_Occurred()) {
        return Py_XNewRef(choice);
    }
    choice = PyObject_CallFunctionObjArgs(p->choose, ids, NULL);
    if (choice != NULL && PyDict_SetItem(p->choices, ids, choice) < 0) {
        Py_CLEAR(choice);
    }
    return choice;
}

/* Let the gathers of a call select these addresses. */
static int set_gathers(const Plan *p, PyObject *gathered) {
    Py_ssize_t count = p->views[P_PLACES].len / (Py_ssize_t)sizeof(int64_t);
    int64_t size = (int64_t)((p->views[P_SHARED].len + p->views[P_OWN].len) / p->views[P_SHARED].itemsize);
    const int64_t *places = p->views[P_PLACES].buf;
    int64_t *gathers = p->views[P_GATHERS].buf;
    Py_buffer view;
    if (get_buffer(gathered, &view, "q", count, 0) < 0) {
        return -1;
    }
    const int64_t *addresses = view.buf;
    int fits = view.len == p->views[P_PLACES].len;
    for (Py_ssize_t k = 0; k < count && fits; k++) {
        fits = addresses[k] >= 0 && addresses[k] < size;
    }
    for (Py_ssize_t k = 0; k < count && fits; k++) {
        gathers[places[k]] = addresses[k];
    }
    PyBuffer_Release(&view);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "a call selects %zd addresses, all of them below %lld", count,
                     (long long)size);
        return -1;
    }
    return 0;
}

/* Memory for the gradient by the parameters; where machine code writes it right there, with what else
 * is shared, it begins on a cache line and another comes after it. */
static PyObject *new_gradient(const Plan *p, Py_ssize_t *offset) {
    PyObject *bytes;
    Py_ssize_t size = p->in_place ? p->views[P_SHARED].len + 2 * LINE : p->size * (Py_ssize_t)sizeof(double);
    const char *at = new_array(&bytes, size, 1);
    *offset = p->in_place ? (Py_ssize_t)(-(uintptr_t)at % LINE) : 0;
    return bytes;
}

static void copy_gradient(const Plan *p, PyObject *bytes) {
    double *to = (double *)(void *)PyByteArray_AsString(bytes);
    const void *from = p->views[P_SHARED_ADJOINTS].buf;
    if (p->is_float) {
        widen(to, from, p->size);
    } else {
        memcpy(to, from, (size_t)p->size * sizeof *to);
    }
}

static PyObject *fill_template(PyObject *template, PyObject *record);

static PyObject *fill_dict(PyObject *template, PyObject *record) {
    PyObject *result = PyDict_Copy(template), *key, *item;
    Py_ssize_t at = 0;
    while (result != NULL && PyDict_Next(template, &at, &key, &item)) {
        Py_INCREF(key); /* keys may run Python code */
        Py_INCREF(item);
        PyObject *filled = fill_template(item, record);
        if (filled == NULL || PyDict_SetItem(result, key, filled) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(filled);
        Py_DECREF(key);
        Py_DECREF(item);
    }
    return result;
}

/* A nest like the template, with the field of the record that is named there in each place. */
static PyObject *fill_template(PyObject *template, PyObject *record) {
    int is_list = PyList_CheckExact(template);
    if (PyUnicode_Check(template)) {
        return PyObject_GetItem(record, template);
    }
    if (!is_list && !PyDict_CheckExact(template) && !PyTuple_CheckExact(template)) {
        return PyErr_Format(PyExc_TypeError, "a template is a nest of dicts, lists, tuples and names");
    }
    if (Py_EnterRecursiveCall(" in a nest of gradients") != 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (PyDict_CheckExact(template)) {
        result = fill_dict(template, record);
    } else {
        Py_ssize_t count = is_list ? PyList_Size(template) : PyTuple_Size(template);
        result = is_list ? PyList_New(count) : PyTuple_New(count);
        for (Py_ssize_t k = 0; result != NULL && k < count; k++) {
            PyObject *item = PySequence_GetItem(template, k);
            PyObject *filled = item ? fill_template(item, record) : NULL;
            Py_XDECREF(item);
            if (filled == NULL) {
                Py_CLEAR(result);
            } else if (is_list) {
                PyList_SetItem(result, k, filled);
            } else {
                PyTuple_SetItem(result, k, filled);
            }
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* The value and its gradient, which is in `bytes`, in the structure of the parameters. */
static PyObject *answer_of(const Plan *p, double number, PyObject *bytes, Py_ssize_t offset) {
    PyObject *value = PyFloat_FromDouble(number), *at = PyLong_FromSsize_t(offset), *result = NULL;
    PyObject *record =
        value && at ? PyObject_CallFunctionObjArgs(p->make, empty_tuple, p->record, bytes, at, NULL) : NULL;
    PyObject *gradient = record ? fill_template(p->template, record) : NULL;
    if (gradient != NULL) {
        result = PyTuple_Pack(2, value, gradient);
    }
    Py_XDECREF(value);
    Py_XDECREF(at);
    Py_XDECREF(record);
    Py_XDECREF(gradient);
    return result;
}

/* run(ids): the value and its gradient, or None where something is not finite, an array has another
 * shape or type than it had, or it is not known what these integers select. One at a time for all
 * Plans with the same arenas: the machine code runs without the GIL. */
static PyObject *plan_run(PyObject *self, PyObject *ids) {
    Plan *p = (Plan *)self;
    PyObject *gathered = chosen_by(p, ids), *result = NULL;
    if (gathered == NULL || gathered == Py_None) {
        return gathered;
    }
    Py_ssize_t offset;
    PyObject *bytes = new_gradient(p, &offset);
    int fine = bytes == NULL || set_gathers(p, gathered) < 0 ? -1 : read_parameters(p);
    Py_DECREF(gathered);
    if (fine > 0) {
        void *to_shared = p->in_place ? PyByteArray_AsString(bytes) + offset : p->views[P_SHARED_ADJOINTS].buf;
        PyThreadState *state = PyEval_SaveThread();
        fine = run_code(p, to_shared);
        PyEval_RestoreThread(state);
    }
    if (fine > 0) {
        if (!p->in_place) {
            copy_gradient(p, bytes);
        }
        double number = p->is_float ? *(const float *)p->root : *(const double *)p->root;
        result = answer_of(p, number, bytes, offset);
    } else if (fine == 0) {
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF(bytes);
    return result;
}

/* Note what the arrays are like now, and how many numbers they hold. */
static int measure_arrays(Plan *p) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(p->arrays); k++) {
        Py_buffer view;
        int fits = open_parameter(PyTuple_GetItem(p->arrays, k), &view);
        if (fits == 0) {
            PyErr_Format(PyExc_TypeError, "array %zd is not a contiguous array of float64", k);
        }
        if (fits <= 0) {
            return -1;
        }
        int failed = APPEND(p->extents, Py_ssize_t, view.ndim);
        for (int j = 0; j < view.ndim && failed == 0; j++) {
            failed = APPEND(p->extents, Py_ssize_t, view.shape[j]);
        }
        p->size += view.len / (Py_ssize_t)sizeof(double);
        PyBuffer_Release(&view);
        if (failed < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether the arenas hold what the machine code and the parameters need of them. */
static int check_arenas(Plan *p, Py_ssize_t root) {
    Py_buffer *v = p->views;
    Py_ssize_t shared = v[P_SHARED].len / v[P_SHARED].itemsize, own = v[P_OWN].len / v[P_OWN].itemsize;
    Py_ssize_t gathers = v[P_GATHERS].len / v[P_GATHERS].itemsize;
    const int64_t *places = v[P_PLACES].buf;
    int fits = p->size <= shared && root >= 0 && root < shared + own &&
               v[P_SHARED_ADJOINTS].len == v[P_SHARED].len && v[P_ADJOINTS].len == v[P_OWN].len;
    for (Py_ssize_t k = 0; k < v[P_PLACES].len / v[P_PLACES].itemsize && fits; k++) {
        fits = places[k] >= 0 && places[k] < gathers;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the arenas do not fit the arrays, the root or each other");
        return -1;
    }
    Py_ssize_t item = v[P_SHARED].itemsize;
    p->in_place = !p->is_float && shared <= 2 * p->size; /* else too much would be kept with it */
    p->root = root < shared ? (const char *)v[P_SHARED].buf + root * item
                            : (const char *)v[P_OWN].buf + (root - shared) * item;
    return 0;
}

static int plan_traverse(PyObject *self, visitproc visit, void *arg) {
    Plan *p = (Plan *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(p->arrays);
    Py_VISIT(p->template);
    Py_VISIT(p->record);
    Py_VISIT(p->make);
    Py_VISIT(p->owner);
    Py_VISIT(p->choose);
    Py_VISIT(p->seen);
    Py_VISIT(p->choices);
    return 0;
}

/* There is no tp_clear: a cycle through a Plan passes through a dict, a list or an instance too. */
static void plan_dealloc(PyObject *self) {
    Plan *p = (Plan *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < p->view_count; k++) {
        PyBuffer_Release(&p->views[k]);
    }
    PyMem_Free(p->extents.bytes);
    Py_XDECREF(p->arrays);
    Py_XDECREF(p->template);
    Py_XDECREF(p->record);
    Py_XDECREF(p->make);
    Py_XDECREF(p->owner);
    Py_XDECREF(p->choose);
    Py_XDECREF(p->seen);
    Py_XDECREF(p->choices);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Plan(arrays, template, record, make, choose, seen, owner, forward, backward, arenas, root): see the
 * struct; `root` is the address of the value, `forward` and `backward` are where the machine code is. */
static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *arrays, *template, *record, *make, *choose, *seen, *owner, *forward, *backward, *arenas;
    Py_ssize_t root;
    if (!PyArg_ParseTuple(args, "O!OOOOO!OO!O!O!n:Plan", &PyTuple_Type, &arrays, &template, &record, &make, &choose,
                          &PyList_Type, &seen, &owner, &PyLong_Type, &forward, &PyLong_Type, &backward,
                          &PyTuple_Type, &arenas, &root)) {
        return NULL;
    }
    if (PyTuple_Size(arenas) != P_ARENAS) {
        return PyErr_Format(PyExc_TypeError, "a Plan takes %d arenas, not %zd", P_ARENAS, PyTuple_Size(arenas));
    }
    Plan *p = (Plan *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (p == NULL) {
        return NULL;
    }
    p->arrays = Py_NewRef(arrays);
    p->template = Py_NewRef(template);
    p->record = Py_NewRef(record);
    p->make = Py_NewRef(make);
    p->owner = Py_NewRef(owner);
    p->choose = Py_NewRef(choose);
    p->seen = Py_NewRef(seen);
    p->choices = PyDict_New();
    p->forward = (uintptr_t)PyLong_AsVoidPtr(forward);
    p->backward = (uintptr_t)PyLong_AsVoidPtr(backward);
    int failed = PyErr_Occurred() != NULL; /* also where there is no dict */
    if (!failed && (p->forward == 0 || p->backward == 0)) {
        PyErr_SetString(PyExc_ValueError, "machine code is not at address 0");
        failed = 1;
    }
    for (; p->view_count < P_ARENAS && !failed; p->view_count++) {
        int k = p->view_count, numbers = k < P_GATHERS;
        const char *format = !numbers ? "q" : p->is_float ? "f" : "d";
        PyObject *arena = PyTuple_GetItem(arenas, k);
        failed = get_buffer(arena, &p->views[k], format, k == P_SEEDS, k != P_COUNTS && k != P_PLACES) < 0;
        if (failed && k == P_SHARED && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            p->is_float = 1;
            failed = get_buffer(arena, &p->views[k], "f", 0, 1) < 0;
        }
        p->view_count -= failed;
    }
    failed = failed || measure_arrays(p) < 0 || check_arenas(p, root) < 0;
    if (failed) {
        Py_DECREF((PyObject *)p);
        return NULL;
    }
    return (PyObject *)p;
}

static PyMethodDef plan_methods[] = {{"run", plan_run, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot plan_slots[] = {{Py_tp_new, plan_new},           {Py_tp_dealloc, plan_dealloc},
                                   {Py_tp_traverse, plan_traverse}, {Py_tp_methods, plan_methods},
                                   {0, NULL}};
static PyType_Spec plan_spec = {"chainrule._native.Plan", sizeof(Plan), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plan_slots};
