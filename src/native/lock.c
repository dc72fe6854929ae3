/* A lock that its thread may take again: as threading.RLock, for what C takes at every call.
 *
 * Who has it is only looked at, and changed, under the GIL, so taking it when nobody has it is no more than
 * that. `door` is taken already, and only given back to wake somebody who waits.
 */
#include "call.h"

typedef struct {
    PyObject_HEAD
    unsigned long owner; /* a thread, where count > 0 */
    Py_ssize_t count;    /* how often it took the lock */
    Py_ssize_t waiting;  /* threads that want it */
    int is_open;         /* the door: nobody has come through since it was opened */
    PyThread_type_lock door;
    PyThread_type_lock never; /* is not given back: to wait for it takes as long as it may */
} Lock;

#define PAUSES 20 /* for those that wait, each so many microseconds */
#define PAUSE 50

PyTypeObject *LockType;

/* Wait at the door, without the GIL; -1: a signal handler raised. */
static int wait_at_door(Lock *x) {
    PyLockStatus status;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(x->door, -1, 1);
    Py_END_ALLOW_THREADS
    if (status == PY_LOCK_ACQUIRED) {
        x->is_open = 0;
        return 0;
    }
    return PyErr_CheckSignals();
}

static void open_door(Lock *x) {
    if (x->waiting > 0 && !x->is_open) {
        x->is_open = 1;
        PyThread_release_lock(x->door);
    }
}

/* Let those that wait come first. Who takes the lock again and again would keep them out for ever: they get the
 * GIL when it is let go, which is where the lock is taken. */
static void give_way(const Lock *x) {
    for (int k = 0; k < PAUSES && x->count == 0 && x->waiting > 0; k++) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock_timed(x->never, PAUSE, 0);
        Py_END_ALLOW_THREADS
    }
}

int take_lock(PyObject *lock, int blocking) {
    Lock *x = (Lock *)lock;
    unsigned long me = PyThread_get_thread_ident();
    if (blocking && x->count == 0 && x->waiting > 0) {
        give_way(x);
    }
    if (x->count > 0 && x->owner != me) {
        if (!blocking) {
            return 0;
        }
        int failed = 0;
        x->waiting++;
        while (!failed && x->count > 0) {
            failed = wait_at_door(x) < 0;
        }
        x->waiting--;
        if (failed) {
            return -1; /* a door that was opened stays so, for others */
        }
    }
    x->owner = me;
    x->count++;
    return 1;
}

void give_lock(PyObject *lock) {
    Lock *x = (Lock *)lock;
    if (--x->count == 0) {
        open_door(x);
    }
}

/* acquire(blocking=True): whether it was taken. */
static PyObject *lock_acquire(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"blocking", NULL};
    int blocking = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p:acquire", names, &blocking)) {
        return NULL;
    }
    int taken = take_lock(self, blocking);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyObject *lock_release(PyObject *self, PyObject *Py_UNUSED(args)) {
    const Lock *x = (Lock *)self;
    if (x->count == 0 || x->owner != PyThread_get_thread_ident()) {
        return PyErr_Format(PyExc_RuntimeError, "this thread does not have the lock");
    }
    give_lock(self);
    return Py_NewRef(Py_None);
}

static PyObject *lock_enter(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    return take_lock(self, 1) < 0 ? NULL : Py_NewRef(Py_True);
}

static PyObject *lock_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords)) {
    Lock *x = (Lock *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (x == NULL) {
        return NULL;
    }
    x->door = PyThread_allocate_lock();
    x->never = PyThread_allocate_lock();
    if (x->door != NULL) {
        PyThread_acquire_lock(x->door, 1);
    }
    if (x->never != NULL) {
        PyThread_acquire_lock(x->never, 1);
    }
    if (x->door == NULL || x->never == NULL) {
        Py_DECREF((PyObject *)x);
        return PyErr_NoMemory();
    }
    return (PyObject *)x;
}

static void lock_dealloc(PyObject *self) {
    Lock *x = (Lock *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (x->door != NULL) {
        if (!x->is_open) {
            PyThread_release_lock(x->door);
        }
        PyThread_free_lock(x->door);
    }
    if (x->never != NULL) {
        PyThread_release_lock(x->never);
        PyThread_free_lock(x->never);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef lock_methods[] = {
    {"acquire", (PyCFunction)(void (*)(void))lock_acquire, METH_VARARGS | METH_KEYWORDS, NULL},
    {"release", lock_release, METH_NOARGS, NULL},
    {"__enter__", lock_enter, METH_NOARGS, NULL},
    {"__exit__", lock_release, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot lock_slots[] = {
    {Py_tp_new, lock_new}, {Py_tp_dealloc, lock_dealloc}, {Py_tp_methods, lock_methods}, {0, NULL}};
PyType_Spec lock_spec = {"chainrule._native.Lock", sizeof(Lock), 0, Py_TPFLAGS_DEFAULT, lock_slots};
