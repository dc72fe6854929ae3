/* The gate of a compiled function: what every call passes first; see compiler/runtime/fast_path.py.
 *
 * In: the arguments of a call. Out: its answer, from the first cached call of the same structure that is up
 * to date, or None, and then the slow path finds it; for a while, where the slow path has found that calls had
 * better run eagerly, that of the function itself. One call of a function at a time: the gate holds the
 * function's lock while it looks and computes, and `busy` keeps out what Python runs meanwhile on the same
 * thread (finalizers, signal handlers).
 */
#include "arguments.h"
#include "call.h"

/* A Plan, and when it answers. */
typedef struct {
    PyObject_HEAD
    PyObject *plan;
    PyObject *variant; /* whose recording it computes */
    PyObject *binding; /* how the variant ran when it was cached: on this machine code; None: on a tape */
    PyObject *attributes;    /* of the variant, a dict; or NULL */
    PyObject *machine, *fit; /* of the binding; NULL: on a tape */
    PyObject *finish;        /* what becomes of its answer, a function; or None */
    int takes_call;          /* that takes the arguments and the Passed too, and may give NotImplemented */
    PyObject *otherwise;     /* a Plan of the variant's tape, for calls that the machine code cannot decide; or NULL */
    int finite_data;         /* it is for finite data only */
} CachedCall;

typedef struct {
    PyObject_HEAD
    PyObject *lock;              /* of the function, a Lock */
    PyObject *enter;             /* is called when answered calls should be counted */
    PyObject *path;              /* the FastPath, or None; the next four are its own */
    PyObject *plans;             /* dict: signature -> list of cached calls */
    PyObject *opened;            /* dict: how other types are looked into */
    PyObject *classes;           /* dict: Checks of the classes whose instances are looked into */
    PyObject *changed;           /* Checks, or a function that gives None where nothing captured has changed */
    PyObject *answered;          /* the variant that answered last, or None */
    PyObject *signature;         /* of the last call that was in `plans`; NULL: of none */
    PyObject *cached;            /* what it found there */
    Py_ssize_t quick;            /* calls answered since they were counted */
    PyObject *derivation;        /* Derivation, which runs the function eagerly; or NULL */
    Py_ssize_t tried;            /* cached calls that were run in vain, as they are for another path */
    Py_ssize_t resting;          /* calls that are to run eagerly, without looking for a cached one of the slow path */
    Py_ssize_t rested;           /* calls that did since they were counted, */
    Py_ssize_t failed;           /* and how many of them ended in an error */
    Py_ssize_t misses;           /* calls in a row that no cached one answered */
    Py_ssize_t skip;             /* calls that are not looked up, if they are to run eagerly otherwise */
    Py_ssize_t due;              /* so many calls alike of which nothing is cached, and one is not to rest; 0: all are */
    PyObject *tallies;           /* of such calls, a dict: a hash of their signature -> how many; NULL: none yet */
    char is_due;                 /* the last call is such a one, or something was cached for it once */
    char busy;                   /* a call is being computed */
    char by_tape;                /* the last answer is a tape's */
    Look look;
} Gate;

#define QUICK 64              /* calls that are counted at a time */
#define QUICK_IF_WAITING 8    /* likewise of a variant that may get machine code when enough were counted */
#define MISSES 8              /* in a row after which, while calls are to run eagerly, as many are not looked up, */
#define MOST_SKIPPED 64       /* at most so many: they may have become regular */
#define MOST_KEPT (1 << 16)   /* bytes of each buffer that are kept between calls */
#define MOST_TALLIES 4096     /* structures whose calls are counted */

PyTypeObject *CachedCallType, *GateType;
static PyObject *binding_name, *current_name, *settle_name, *waits_name, *executor_name;

static void put(PyObject **field, PyObject *x) {
    PyObject *before = *field;
    *field = Py_XNewRef(x);
    Py_XDECREF(before);
}

/* ----------------------------------------------------------------- cached calls ---------------- */

/* Whether an attribute of an object is a certain object; -1: an error. */
static int attribute_is(PyObject *x, PyObject *name, const PyObject *expected) {
    PyObject *found = PyObject_GetAttr(x, name);
    if (found == NULL) {
        return -1;
    }
    int same = found == expected;
    Py_DECREF(found);
    return same;
}

/* Whether the variant still runs as when it was cached; -1: an error. */
static int is_bound(const CachedCall *c) {
    PyObject *binding = c->attributes != NULL ? PyDict_GetItemWithError(c->attributes, binding_name) : NULL;
    if (binding != NULL) {
        return binding == c->binding;
    }
    return PyErr_Occurred() ? -1 : attribute_is(c->variant, binding_name, c->binding);
}

/* Whether a cached call may answer this one: 0: another has to; -1: an error. */
static int is_ready(const CachedCall *c, const Passed *call, int differentiate) {
    int ready = is_bound(c);
    if (ready > 0 && c->machine != NULL) {
        int settled = attribute_is(c->machine, current_name, c->fit);
        if (settled == 0) {
            PyObject *done = PyObject_CallMethodObjArgs(c->machine, settle_name, c->fit, NULL);
            settled = done != NULL ? 1 : -1;
            Py_XDECREF(done);
        }
        ready = settled;
    }
    if (ready > 0 && c->finite_data) {
        ready = holds_finite(call, differentiate ? plan_first(c->plan) : 0);
    }
    return ready;
}

/* The answer of the tape, where there is one still, to a call that the machine code could not decide; or None. */
static PyObject *undecided_answer(CachedCall *c, const Passed *call, PyObject *out, Mean *mean) {
    if (c->otherwise == NULL || !plan_is_undecided(c->plan)) {
        return Py_NewRef(Py_None);
    }
    PyObject *tape = c->attributes != NULL ? PyDict_GetItemWithError(c->attributes, executor_name) : NULL;
    if (tape == NULL && PyErr_Occurred()) {
        return NULL;
    }
    if (tape == NULL || !plan_runs_on(c->otherwise, tape)) {
        put(&c->otherwise, NULL); /* the variant has let go of it */
        return Py_NewRef(Py_None);
    }
    PyObject *plan = Py_NewRef(c->otherwise), *answer = run_plan(plan, call, out, mean);
    Py_DECREF(plan);
    return answer;
}

static int cached_call_traverse(PyObject *self, visitproc visit, void *arg) {
    CachedCall *c = (CachedCall *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->plan);
    Py_VISIT(c->variant);
    Py_VISIT(c->attributes);
    Py_VISIT(c->binding);
    Py_VISIT(c->machine);
    Py_VISIT(c->fit);
    Py_VISIT(c->finish);
    Py_VISIT(c->otherwise);
    return 0;
}

/* There is no tp_clear: a cycle through a cached call passes through an instance too. */
static void cached_call_dealloc(PyObject *self) {
    CachedCall *c = (CachedCall *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(c->plan);
    Py_XDECREF(c->variant);
    Py_XDECREF(c->attributes);
    Py_XDECREF(c->binding);
    Py_XDECREF(c->machine);
    Py_XDECREF(c->fit);
    Py_XDECREF(c->finish);
    Py_XDECREF(c->otherwise);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* CachedCall(plan, variant, binding, finish, finite_data, takes_call=False): see the struct. */
static PyObject *cached_call_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *plan, *variant, *binding, *finish;
    int finite_data, takes_call = 0;
    if (!PyArg_ParseTuple(args, "O!OOOp|p:CachedCall", PlanType, &plan, &variant, &binding, &finish, &finite_data,
                          &takes_call)) {
        return NULL;
    }
    CachedCall *c = (CachedCall *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (c == NULL) {
        return NULL;
    }
    c->plan = Py_NewRef(plan);
    c->variant = Py_NewRef(variant);
    c->binding = Py_NewRef(binding);
    c->finish = Py_NewRef(finish);
    c->finite_data = finite_data;
    c->takes_call = takes_call;
    c->attributes = PyObject_GenericGetDict(variant, NULL);
    if (c->attributes == NULL) {
        PyErr_Clear(); /* it has none: it is asked */
    } else if (!PyDict_CheckExact(c->attributes)) {
        put(&c->attributes, NULL);
    }
    if (binding != Py_None) {
        c->machine = PyObject_GetAttrString(binding, "machine");
        c->fit = c->machine != NULL ? PyObject_GetAttrString(binding, "fit") : NULL;
        if (c->fit == NULL) {
            Py_DECREF((PyObject *)c);
            return NULL;
        }
    }
    return (PyObject *)c;
}

static PyMemberDef cached_call_members[] = {
    {"plan", T_OBJECT, offsetof(CachedCall, plan), READONLY, NULL},
    {"variant", T_OBJECT, offsetof(CachedCall, variant), READONLY, NULL},
    {"binding", T_OBJECT, offsetof(CachedCall, binding), READONLY, NULL},
    {"finish", T_OBJECT, offsetof(CachedCall, finish), READONLY, NULL},
    {"otherwise", T_OBJECT, offsetof(CachedCall, otherwise), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot cached_call_slots[] = {{Py_tp_new, cached_call_new},
                                          {Py_tp_dealloc, cached_call_dealloc},
                                          {Py_tp_traverse, cached_call_traverse},
                                          {Py_tp_members, cached_call_members},
                                          {0, NULL}};
PyType_Spec cached_call_spec = {"chainrule._native.CachedCall", sizeof(CachedCall), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, cached_call_slots};

/* ----------------------------------------------------------------- the gate -------------------- */

/* Move an item of a list to its front. */
static void move_to_front(PyObject *list, Py_ssize_t k) {
    PyObject *moved = Py_NewRef(PyList_GetItem(list, k));
    for (; k > 0; k--) {
        PyList_SetItem(list, k, Py_NewRef(PyList_GetItem(list, k - 1)));
    }
    PyList_SetItem(list, 0, moved);
}

/* The arguments of a call as a tuple. */
static PyObject *as_tuple(Given given) {
    if (given.tuple != NULL) {
        return Py_NewRef(given.tuple);
    }
    PyObject *made = PyTuple_New(given.count);
    for (Py_ssize_t k = 0; made != NULL && k < given.count; k++) {
        PyTuple_SetItem(made, k, Py_NewRef(given.items[k]));
    }
    return made;
}

/* What a call returns, of the answer of its plan, which is taken; None where only the slow path can tell, and
 * NotImplemented where it is None. */
static PyObject *finished(const Gate *g, const CachedCall *c, Given given, PyObject *answer) {
    PyObject *made = NULL, *finish = Py_NewRef(c->finish), *arguments = c->takes_call ? as_tuple(given) : NULL;
    if (arguments != NULL) {
        made = PyObject_CallFunctionObjArgs(finish, answer, arguments, (PyObject *)g->look.to, NULL);
    } else if (!c->takes_call) {
        made = PyObject_CallFunctionObjArgs(finish, answer, NULL);
    }
    Py_XDECREF(arguments);
    Py_DECREF(finish);
    Py_DECREF(answer);
    if (c->takes_call && (made == Py_None || made == Py_NotImplemented)) {
        PyObject *other = Py_NewRef(made == Py_None ? Py_NotImplemented : Py_None);
        Py_DECREF(made);
        made = other;
    }
    return made;
}

/* The answer of the first of some cached calls that has one, or None; NULL: an error. NotImplemented is for None,
 * where that is what the function returned. */
static PyObject *first_answer(Gate *g, PyObject *cached, Given given, int differentiate, PyObject *out, Mean *mean) {
    PyObject *answer = Py_NewRef(Py_None);
    for (Py_ssize_t k = 0; answer == Py_None && k < PyList_Size(cached); k++) {
        PyObject *item = Py_NewRef(PyList_GetItem(cached, k));
        CachedCall *c = (CachedCall *)item;
        int ready = Py_TYPE(item) == CachedCallType ? is_ready(c, g->look.to, differentiate) : 0;
        if (ready != 0) {
            Py_DECREF(answer);
            PyObject *to = c->finish == Py_None ? out : NULL; /* what it makes of a gradient is no tree of arrays */
            answer = ready > 0 ? run_plan(c->plan, g->look.to, to, mean) : NULL;
            if (answer == Py_None && c->otherwise != NULL) {
                Py_DECREF(answer);
                answer = undecided_answer(c, g->look.to, to, mean);
            }
            if (answer != NULL && answer != Py_None && mean == NULL && c->finish != Py_None) {
                answer = finished(g, c, given, answer);
            }
            g->tried += answer == Py_None;
        }
        if (answer != NULL && answer != Py_None) {
            if (mean != NULL) {
                put(&mean->plan, c->plan);
                put(&mean->finish, c->finish);
            }
            if (k < PyList_Size(cached)) {
                move_to_front(cached, k);
            }
            put(&g->answered, c->variant);
            g->quick++;
            g->by_tape = c->machine == NULL;
        }
        Py_DECREF(item);
        if (answer == NULL) {
            break;
        }
    }
    return answer;
}

/* The cached calls of the structure that was looked at, a list; or NULL, which may be an error. A signature
 * that is in `plans` stays there with its list until that is empty. */
static PyObject *cached_calls(Gate *g) {
    const Buffer *words = &g->look.words;
    if (g->signature != NULL && PyBytes_Size(g->signature) == (Py_ssize_t)words->size &&
        memcmp(PyBytes_AsString(g->signature), words->bytes, words->size) == 0 && PyList_Size(g->cached) > 0) {
        return Py_NewRef(g->cached);
    }
    PyObject *signature = PyBytes_FromStringAndSize(words->bytes, (Py_ssize_t)words->size);
    PyObject *found = signature != NULL ? PyDict_GetItemWithError(g->plans, signature) : NULL;
    if (found != NULL && PyList_CheckExact(found)) {
        put(&g->signature, signature);
        put(&g->cached, found);
        Py_INCREF(found);
    } else {
        found = NULL;
    }
    Py_XDECREF(signature);
    return found;
}

/* Whether the slow path is to look at a call of which nothing is cached, even while calls rest: there was something
 * once, or calls alike have come so often that it is due. Two structures may be taken for one: then it is due too
 * early, and no more. -1: an error. */
static int is_worth_a_look(Gate *g, int was_cached) {
    if (was_cached) {
        PyObject *signature = Py_NewRef(g->signature);
        int failed = PyDict_DelItem(g->plans, signature); /* unless it is cached again, that is all */
        Py_DECREF(signature);
        return failed < 0 ? -1 : 1;
    }
    if (g->due <= 0) {
        return 0;
    }
    uint64_t structure = 14695981039346656037u;
    for (size_t k = 0; k + sizeof structure <= g->look.words.size; k += sizeof structure) {
        uint64_t word;
        memcpy(&word, g->look.words.bytes + k, sizeof word);
        structure = (structure ^ word) * 1099511628211u;
        structure ^= structure >> 29;
    }
    if (g->tallies == NULL) {
        g->tallies = PyDict_New();
    } else if (PyDict_Size(g->tallies) >= MOST_TALLIES) {
        PyDict_Clear(g->tallies); /* what comes often is soon counted again */
    }
    PyObject *key = g->tallies != NULL ? PyLong_FromUnsignedLongLong(structure) : NULL;
    PyObject *known = key != NULL ? PyDict_GetItemWithError(g->tallies, key) : NULL;
    Py_ssize_t count = known != NULL ? PyLong_AsSsize_t(known) + 1 : 1;
    PyObject *next = key != NULL ? PyLong_FromSsize_t(count < g->due ? count : 0) : NULL;
    int failed = next == NULL || PyDict_SetItem(g->tallies, key, next) < 0;
    Py_XDECREF(key);
    Py_XDECREF(next);
    return failed ? -1 : count >= g->due;
}

/* Let go of a buffer that one call made large. */
static void shrink(Buffer *b) {
    if (b->capacity > MOST_KEPT) {
        PyMem_Free(b->bytes);
        *b = (Buffer){0};
    }
}

/* The answer to a call, or None; NULL: an error. */
static PyObject *find_answer(Gate *g, Given given, int differentiate, PyObject *out, Mean *mean) {
    PyObject *answer = NULL;
    begin_look(&g->look, g->opened);
    int plain = look_at_arguments(&g->look, given, differentiate);
    if (plain > 0) {
        PyObject *cached = cached_calls(g);
        if (cached != NULL && PyList_Size(cached) > 0) {
            answer = first_answer(g, cached, given, differentiate, out, mean);
        } else if (!PyErr_Occurred()) {
            int is_due = is_worth_a_look(g, cached != NULL);
            g->is_due = is_due > 0;
            answer = is_due < 0 ? NULL : Py_NewRef(Py_None);
        }
        Py_XDECREF(cached);
    }
    if (answer == NULL && !PyErr_Occurred()) {
        answer = Py_NewRef(Py_None);
    }
    empty_passed(g->look.to);
    shrink(&g->look.words);
    shrink(&g->look.to->entries);
    shrink(&g->look.to->integers);
    shrink(&g->look.to->containers);
    return answer;
}

/* Whether something that the function captured has changed; -1: an error. */
static int has_changed(PyObject *changed) {
    if (Py_TYPE(changed) == ChecksType) {
        Py_ssize_t failed = first_failed(changed);
        return failed == -2 ? -1 : failed >= 0;
    }
    PyObject *what = PyObject_CallNoArgs(changed);
    int answer = what == NULL ? -1 : what != Py_None;
    Py_XDECREF(what);
    return answer;
}

/* Whether a class changed whose instances are looked into; -1: an error. */
static int classes_changed(const Gate *g) {
    PyObject *key, *checks;
    Py_ssize_t at = 0, failed = -1;
    while (failed == -1 && PyDict_Next(g->classes, &at, &key, &checks)) { /* it runs no Python code */
        failed = Py_TYPE(checks) == ChecksType ? first_failed(checks) : 0;
    }
    return failed == -2 ? -1 : failed >= 0;
}

static void forget_path(Gate *g) {
    put(&g->path, Py_None);
    put(&g->signature, NULL);
    put(&g->cached, NULL);
    put(&g->plans, NULL);
    put(&g->opened, NULL);
    put(&g->classes, NULL);
    put(&g->changed, NULL);
}

/* The arguments of a call: the one that all samples share, and a sample's. */
static PyObject *joined(PyObject *params, PyObject *sample) {
    Py_ssize_t count = PyTuple_Size(sample);
    PyObject *arguments = PyTuple_New(count + 1);
    for (Py_ssize_t k = 0; arguments != NULL && k <= count; k++) {
        PyTuple_SetItem(arguments, k, Py_NewRef(k == 0 ? params : PyTuple_GetItem(sample, k - 1)));
    }
    return arguments;
}

/* Add calls to a mean, one after the other, up to the first that no cached one answers. The value of the last;
 * None where there is one that has no answer; NULL: an error. */
static PyObject *add_calls(Gate *g, PyObject *params, Mean *mean) {
    PyObject *answer = Py_NewRef(Py_None);
    while (mean->done < PyList_Size(mean->samples)) {
        PyObject *sample = PyList_GetItem(mean->samples, mean->done);
        Py_DECREF(answer);
        if (!PyTuple_Check(sample)) {
            return Py_NewRef(Py_None);
        }
        PyObject *arguments = joined(params, sample);
        answer = arguments != NULL ? find_answer(g, given_tuple(arguments), 1, NULL, mean) : NULL;
        Py_XDECREF(arguments);
        if (answer == NULL || answer == Py_None) {
            break;
        }
        mean->done++;
        if (PyErr_CheckSignals() < 0) {
            Py_CLEAR(answer);
            break;
        }
    }
    return answer;
}

/* What `answer` and `mean` do with the lock held; of a mean there is one argument, which all its calls share. */
static PyObject *answer_alone(Gate *g, Given given, int differentiate, PyObject *out, Mean *mean) {
    if (g->busy || g->path == Py_None) {
        return Py_NewRef(Py_None);
    }
    PyObject *path = Py_NewRef(g->path), *captured = Py_NewRef(g->changed), *answer = NULL;
    Py_ssize_t before = g->quick;
    g->busy = 1;
    int changed = has_changed(captured), is_other = 0;
    if (changed > 0 && g->path == path) {
        forget_path(g);
    } else if (changed == 0 && g->path == path) {
        is_other = classes_changed(g);
        if (is_other > 0) {
            forget_path(g);
        } else if (is_other == 0) {
            answer = mean != NULL ? add_calls(g, given_item(&given, 0), mean)
                                  : find_answer(g, given, differentiate, out, NULL);
        }
    }
    g->busy = 0;
    Py_DECREF(path);
    Py_DECREF(captured);
    if (answer == NULL && changed >= 0 && is_other >= 0 && !PyErr_Occurred()) {
        return Py_NewRef(Py_None);
    }
    if (answer != NULL && g->quick > before) {
        int soon = g->by_tape && g->quick / QUICK_IF_WAITING > before / QUICK_IF_WAITING;
        int now = g->quick >= QUICK ? 1 : soon ? attribute_is(g->answered, waits_name, Py_True) : 0;
        PyObject *entered = now > 0 ? PyObject_CallNoArgs(g->enter) : NULL;
        if (now != 0 && entered == NULL) {
            Py_CLEAR(answer);
        }
        Py_XDECREF(entered);
    }
    return answer;
}

/* The answer of the function itself, where calls are to run eagerly for a while; else None. No lock is held: it
 * may call other compiled functions. */
static PyObject *eager_answer(Gate *g, Given given, int differentiate) {
    if (g->resting <= 0 || !differentiate || g->derivation == NULL || given.count == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *arguments = as_tuple(given);
    if (arguments == NULL) {
        return NULL;
    }
    g->resting--;
    g->rested++;
    PyObject *derivation = Py_NewRef(g->derivation), *answer = run_derivation(derivation, arguments, NULL);
    g->failed += answer == NULL;
    Py_DECREF(derivation);
    Py_DECREF(arguments);
    return answer;
}

/* rest(): whether this call is to run eagerly, for whoever runs it; it is counted. */
static PyObject *gate_rest(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    Gate *g = (Gate *)self;
    int rests = g->resting > 0 && !g->is_due && recorder == NULL && internal_runs == 0 && nested_runs <= 1 && again_runs == 0;
    g->resting -= rests;
    g->rested += rests;
    return PyBool_FromLong(rests);
}

/* take_rested(): how many calls ran eagerly since this was asked last. */
static PyObject *gate_take_rested(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    Gate *g = (Gate *)self;
    Py_ssize_t rested = g->rested;
    g->rested = 0;
    return PyLong_FromSsize_t(rested);
}

/* The answer to a call from a cached one; None for the slow path. */
static PyObject *cached_answer(Gate *g, Given given, int differentiate, PyObject *out, Mean *mean) {
    PyObject *lock = Py_NewRef(g->lock), *answer = NULL;
    if (take_lock(lock, 1) > 0) {
        answer = answer_alone(g, given, differentiate, out, mean);
        give_lock(lock);
    }
    Py_DECREF(lock);
    return answer;
}

PyObject *ask_gate(PyObject *gate, Given given, int differentiate, PyObject *out) {
    Gate *g = (Gate *)gate;
    int is_inner = differentiate ? nested_runs > 0 : nested_runs > 1 || again_runs > 0;
    if (recorder != NULL || internal_runs > 0 || is_inner) {
        return Py_NewRef(Py_None);
    }
    g->is_due = 0;
    if (g->path == Py_None || (g->skip > 0 && g->resting > 0)) {
        g->skip -= g->skip > 0;
        return eager_answer(g, given, differentiate);
    }
    PyObject *answer = cached_answer(g, given, differentiate, out, NULL);
    g->misses = answer == Py_None ? g->misses + 1 : 0;
    if (answer == Py_None && g->resting > 0 && !g->is_due) {
        int is_looked_up = g->due > 0 || g->misses < MISSES; /* what is counted is looked up */
        g->skip = is_looked_up ? 0 : g->misses < MOST_SKIPPED ? g->misses : MOST_SKIPPED;
        Py_DECREF(answer);
        return eager_answer(g, given, differentiate);
    }
    return answer;
}

/* answer(arguments, differentiate, out=None): the value of a call, and its gradient, or all that a function
 * returns; None for the slow path. Where the gradient is arrays and fits `out`, it goes there, and the
 * value is all that is returned. While something records, or is differentiated from outside, the answer is
 * None too: the slow path knows what to do then. */
static PyObject *gate_answer(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count < 2 || count > 3 || !PyTuple_Check(given[0]) || !PyBool_Check(given[1])) {
        return PyErr_Format(PyExc_TypeError, "a Gate answers a tuple of arguments, a bool and an array");
    }
    return ask_gate(self, given_tuple(given[0]), given[1] == Py_True, count == 3 ? given[2] : NULL);
}

/* Compute calls by cached ones, as far as these answer them: the last value, None or, at an error, NULL. Captured
 * state is compared once: nothing changes it meanwhile, but for other threads, before or after which all is. */
static PyObject *run_calls(Gate *g, PyObject *const *given, Mean *mean) {
    int others = recorder != NULL || internal_runs > 0 || nested_runs > 0 || g->path == Py_None;
    mean->samples = given[1];
    return others ? Py_NewRef(Py_None) : cached_answer(g, (Given){NULL, given, 1}, 1, NULL, mean);
}

static void release_mean(Mean *mean) {
    Py_CLEAR(mean->values);
    Py_CLEAR(mean->gradient);
    Py_CLEAR(mean->plan);
    Py_CLEAR(mean->finish);
}

/* mean(params, samples): the mean over a list of samples, each a tuple of further arguments, and its gradient,
 * where cached calls answer all of them. If they answer only the first ones: what these add to the mean, their
 * gradient as a bytearray, and how many they are. None where they answer none, or `answer` would not. */
static PyObject *gate_mean(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyList_CheckExact(given[1])) {
        return PyErr_Format(PyExc_TypeError, "a Gate takes the mean over a list of samples");
    }
    Mean mean = {.count = (double)PyList_Size(given[1])};
    PyObject *last = run_calls((Gate *)self, given, &mean), *answer = NULL;
    if (last != NULL && mean.done == 0) {
        answer = Py_NewRef(Py_None);
    } else if (last != NULL && mean.done < PyList_Size(given[1])) {
        answer = Py_BuildValue("dOn", mean.value, mean.gradient, mean.done);
    } else if (last != NULL) {
        answer = answer_of_mean(&mean);
        if (answer != NULL && mean.finish != Py_None) {
            PyObject *plain = answer;
            answer = PyObject_CallFunctionObjArgs(mean.finish, plain, NULL);
            Py_DECREF(plain);
        }
    }
    Py_XDECREF(last);
    release_mean(&mean);
    return answer;
}

/* rows(params, samples): the values of calls as `mean` takes them, and a gradient for each, as two bytearrays of
 * doubles; None where cached calls do not answer all of them with a number and a gradient in its own containers. */
static PyObject *gate_rows(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyList_CheckExact(given[1]) || PyList_Size(given[1]) == 0) {
        return PyErr_Format(PyExc_TypeError, "a Gate gives rows for a list of samples");
    }
    Mean mean = {.count = 1.0, .rows = PyList_Size(given[1])};
    if (new_array(&mean.values, mean.rows, sizeof(double)) == NULL) {
        return NULL;
    }
    PyObject *last = run_calls((Gate *)self, given, &mean), *answer = NULL;
    if (last != NULL) {
        int all = mean.done == mean.rows && last != Py_None && mean.finish == Py_None;
        answer = all ? PyTuple_Pack(2, mean.values, mean.gradient) : Py_NewRef(Py_None);
    }
    Py_XDECREF(last);
    release_mean(&mean);
    return answer;
}

static PyObject *get_derivation(PyObject *self, void *Py_UNUSED(name)) {
    const Gate *g = (Gate *)self;
    return Py_NewRef(g->derivation ? g->derivation : Py_None);
}

static int set_derivation(PyObject *self, PyObject *derivation, void *Py_UNUSED(name)) {
    if (derivation != NULL && derivation != Py_None && Py_TYPE(derivation) != DerivationType) {
        PyErr_SetString(PyExc_TypeError, "the derivation of a Gate is a Derivation, or None");
        return -1;
    }
    put(&((Gate *)self)->derivation, derivation == Py_None ? NULL : derivation);
    return 0;
}

static PyObject *get_path(PyObject *self, void *Py_UNUSED(name)) {
    return Py_NewRef(((Gate *)self)->path);
}

/* An attribute of a FastPath that is a dict. */
static PyObject *dict_of(PyObject *path, const char *name) {
    PyObject *found = PyObject_GetAttrString(path, name);
    if (found != NULL && !PyDict_CheckExact(found)) {
        PyErr_Format(PyExc_TypeError, "the %s of a FastPath are a dict", name);
        Py_CLEAR(found);
    }
    return found;
}

static int set_path(PyObject *self, PyObject *path, void *Py_UNUSED(name)) {
    Gate *g = (Gate *)self;
    if (path == NULL || path == Py_None) {
        forget_path(g);
        return 0;
    }
    PyObject *plans = dict_of(path, "plans");
    PyObject *opened = plans != NULL ? dict_of(path, "opened") : NULL;
    PyObject *classes = opened != NULL ? dict_of(path, "classes") : NULL;
    PyObject *tells = classes != NULL ? PyObject_GetAttrString(path, "tells") : NULL;
    PyObject *changed = tells != NULL ? PyObject_GetAttrString(path, "changed") : NULL;
    PyObject *mask = changed != NULL ? PyObject_GetAttrString(path, "texts") : NULL;
    uint64_t texts = mask != NULL ? PyLong_AsUnsignedLongLong(mask) : 0;
    if (changed != NULL && PyErr_Occurred()) {
        Py_CLEAR(changed);
    }
    if (changed != NULL) {
        forget_path(g);
        g->look.tells = tells == Py_True;
        g->look.texts = texts;
        put(&g->plans, plans);
        put(&g->opened, opened);
        put(&g->classes, classes);
        put(&g->changed, changed);
        put(&g->path, path);
    }
    Py_XDECREF(plans);
    Py_XDECREF(opened);
    Py_XDECREF(classes);
    Py_XDECREF(tells);
    Py_XDECREF(mask);
    Py_XDECREF(changed);
    return changed != NULL ? 0 : -1;
}

static int gate_traverse(PyObject *self, visitproc visit, void *arg) {
    Gate *g = (Gate *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(g->lock);
    Py_VISIT(g->enter);
    Py_VISIT(g->path);
    Py_VISIT(g->plans);
    Py_VISIT(g->opened);
    Py_VISIT(g->classes);
    Py_VISIT(g->changed);
    Py_VISIT(g->answered);
    Py_VISIT(g->cached);
    Py_VISIT(g->derivation);
    Py_VISIT(g->look.array_type);
    Py_VISIT(g->look.number_type);
    return 0;
}

/* There is no tp_clear: a cycle through a gate passes through the function's Dispatch, an instance. */
static void gate_dealloc(PyObject *self) {
    Gate *g = (Gate *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyMem_Free(g->look.words.bytes);
    Py_XDECREF((PyObject *)g->look.to);
    Py_XDECREF((PyObject *)g->look.array_type);
    Py_XDECREF((PyObject *)g->look.number_type);
    Py_XDECREF(g->lock);
    Py_XDECREF(g->enter);
    Py_XDECREF(g->path);
    Py_XDECREF(g->plans);
    Py_XDECREF(g->opened);
    Py_XDECREF(g->classes);
    Py_XDECREF(g->changed);
    Py_XDECREF(g->answered);
    Py_XDECREF(g->signature);
    Py_XDECREF(g->cached);
    Py_XDECREF(g->derivation);
    Py_XDECREF(g->tallies);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Gate(lock, array, number, enter): `array` and `number` are numpy's ndarray and float64. */
static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *lock, *array, *number, *enter;
    if (!PyArg_ParseTuple(args, "O!O!O!O:Gate", LockType, &lock, &PyType_Type, &array, &PyType_Type, &number, &enter)) {
        return NULL;
    }
    Gate *g = (Gate *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (g == NULL) {
        return NULL;
    }
    g->look.array_type = (PyTypeObject *)Py_NewRef(array);
    g->look.number_type = (PyTypeObject *)Py_NewRef(number);
    g->enter = Py_NewRef(enter);
    g->path = Py_NewRef(Py_None);
    g->answered = Py_NewRef(Py_None);
    g->look.to = (Passed *)((allocfunc)PyType_GetSlot(PassedType, Py_tp_alloc))(PassedType, 0);
    g->lock = Py_NewRef(lock);
    if (g->look.to == NULL) {
        Py_DECREF((PyObject *)g);
        return NULL;
    }
    return (PyObject *)g;
}

int import_gate_parts(void) {
    binding_name = PyUnicode_InternFromString("binding");
    current_name = PyUnicode_InternFromString("current");
    settle_name = PyUnicode_InternFromString("settle");
    waits_name = PyUnicode_InternFromString("waits");
    executor_name = PyUnicode_InternFromString("executor");
    return binding_name && current_name && settle_name && waits_name && executor_name ? 0 : -1;
}

static PyMethodDef gate_methods[] = {{"answer", (PyCFunction)(void (*)(void))gate_answer, METH_FASTCALL, NULL},
                                     {"mean", (PyCFunction)(void (*)(void))gate_mean, METH_FASTCALL, NULL},
                                     {"rows", (PyCFunction)(void (*)(void))gate_rows, METH_FASTCALL, NULL},
                                     {"rest", gate_rest, METH_NOARGS, NULL},
                                     {"take_rested", gate_take_rested, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyMemberDef gate_members[] = {{"busy", T_BOOL, offsetof(Gate, busy), 0, NULL},
                                     {"quick", T_PYSSIZET, offsetof(Gate, quick), 0, NULL},
                                     {"resting", T_PYSSIZET, offsetof(Gate, resting), 0, NULL},
                                     {"failed", T_PYSSIZET, offsetof(Gate, failed), 0, NULL},
                                     {"tried", T_PYSSIZET, offsetof(Gate, tried), 0, NULL},
                                     {"due", T_PYSSIZET, offsetof(Gate, due), 0, NULL},
                                     {"is_due", T_BOOL, offsetof(Gate, is_due), READONLY, NULL},
                                     {"answered", T_OBJECT, offsetof(Gate, answered), READONLY, NULL},
                                     {NULL, 0, 0, 0, NULL}};
static PyGetSetDef gate_properties[] = {{"path", get_path, set_path, "the FastPath, or None", NULL},
                                        {"derivation", get_derivation, set_derivation, "a Derivation, or None", NULL},
                                        {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot gate_slots[] = {{Py_tp_new, gate_new},           {Py_tp_dealloc, gate_dealloc},
                                   {Py_tp_traverse, gate_traverse}, {Py_tp_methods, gate_methods},
                                   {Py_tp_members, gate_members},   {Py_tp_getset, gate_properties},
                                   {0, NULL}};
PyType_Spec gate_spec = {"chainrule._native.Gate", sizeof(Gate), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                         gate_slots};
