/* Where nodes live: slabs, the side table of labels and source lines, and freeing without recursion. */
#include "value.h"

/* ------------------------------------------------------------------------------------ slabs ---- */

Slab *current_slab;
Py_ssize_t live_nodes, slab_count;

#ifdef CHAINRULE_SANITIZE

Node *take_from_next_slab(void) {
    Node *n = PyMem_Malloc(sizeof(Node));
    if (n == NULL) {
        PyErr_NoMemory();
    }
    return n;
}
static void give_memory(Node *n) { PyMem_Free(n); }

#else

static Slab *waiting_first, *waiting_last; /* empty slabs in front */
static Py_ssize_t empty_slabs;

static void unlink_slab(Slab *s) {
    *(s->previous ? &s->previous->next : &waiting_first) = s->next;
    *(s->next ? &s->next->previous : &waiting_last) = s->previous;
    s->waiting = 0;
}

static void link_slab(Slab *s, int in_front) {
    s->previous = in_front ? NULL : waiting_last;
    s->next = in_front ? waiting_first : NULL;
    *(s->previous ? &s->previous->next : &waiting_first) = s;
    *(s->next ? &s->next->previous : &waiting_last) = s;
    s->waiting = 1;
}

#ifdef __linux__

/* Slabs have address space of their own. In the C library's heap, the gaps that a large graph leaves
 * would take in whatever large arrays come next, and no page of these would ever go back. */
#define BLOCK_SLABS 32

static char *block, *block_end; /* of a reserved block, what was never used */
static Slab *returned;          /* slabs whose pages the system has; linked through next */

static Slab *take_slab(void) {
    Slab *s = returned;
    if (s != NULL) {
        returned = s->next;
        return s;
    }
    if (block == block_end) {
        size_t bytes = BLOCK_SLABS * SLAB_BYTES;
        char *mapped = mmap(NULL, bytes + SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) {
            return NULL;
        }
        block = (char *)(((uintptr_t)mapped + SLAB_BYTES - 1) & ~(uintptr_t)(SLAB_BYTES - 1));
        block_end = block + bytes;
        if (block > mapped) {
            munmap(mapped, (size_t)(block - mapped));
        }
        if (block_end < mapped + bytes + SLAB_BYTES) {
            munmap(block_end, (size_t)(mapped + bytes + SLAB_BYTES - block_end));
        }
    }
    s = (Slab *)block;
    block += SLAB_BYTES;
    return s;
}

static void give_slab(Slab *s) {
    madvise(s, SLAB_BYTES, MADV_DONTNEED);
    s->next = returned;
    returned = s;
}

#elif defined(_MSC_VER)
static Slab *take_slab(void) { return _aligned_malloc(SLAB_BYTES, SLAB_BYTES); }
static void give_slab(Slab *s) { _aligned_free(s); }
#else
static Slab *take_slab(void) { return aligned_alloc(SLAB_BYTES, SLAB_BYTES); }
static void give_slab(Slab *s) { free(s); }
#endif

static Slab *new_slab(void) {
    /* The small allocation lets a test inject failure through Python's allocator. */
    void *probe = PyMem_Malloc(1);
    if (probe == NULL) {
        return NULL;
    }
    PyMem_Free(probe);
    Slab *s = take_slab();
    if (s != NULL) {
        memset(s, 0, sizeof *s);
        slab_count++;
    }
    return s;
}

static void free_slab(Slab *s) {
    slab_count--;
    give_slab(s);
}

Node *take_from_next_slab(void) {
    Slab *s = waiting_first;
    if (s != NULL) {
        unlink_slab(s);
        empty_slabs -= s->live == 0;
    } else if ((s = new_slab()) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    current_slab = s;
    s->live++;
    if (s->fresh < SLAB_NODES) {
        return (Node *)((char *)s + SLAB_HEADER) + s->fresh++;
    }
    Node *n = s->freed;
    s->freed = link_of(n);
    return n;
}

static void slab_got_empty(Slab *s) {
    s->freed = NULL;
    s->fresh = 0;
    if (s == current_slab) {
        return;
    }
    if (s->waiting) {
        unlink_slab(s);
    }
    empty_slabs++;
    link_slab(s, 1);
    /* Keep as many empty slabs as are in use, and some more; give the rest back. */
    while (empty_slabs > 64 && empty_slabs * 2 > slab_count) {
        Slab *spare = waiting_first; /* the empty ones are in front */
        unlink_slab(spare);
        empty_slabs--;
        free_slab(spare);
    }
}

static inline void give_memory(Node *n) {
    Slab *s = (Slab *)((uintptr_t)n & ~(uintptr_t)(SLAB_BYTES - 1));
    set_link(n, s->freed);
    s->freed = n;
    s->live--;
    if (UNLIKELY(s->live == 0)) {
        slab_got_empty(s);
    } else if (UNLIKELY(s->live == SLAB_NODES / 2) && !s->waiting && s != current_slab) {
        link_slab(s, 0);
    }
}

#endif

/* ------------------------------------------------------------------------------------ notes ---- */

/* Labels and source lines: few nodes have them, so they live beside the nodes, in an open-addressed
 * table keyed by address. Taking an entry out never allocates, so freeing a node cannot fail. */
static Note *notes;
static size_t note_capacity;
size_t note_count;

static inline size_t note_home(const Node *n, size_t capacity) {
    return (size_t)(((uintptr_t)n >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (capacity - 1);
}

Note *find_note(const Node *n) {
    size_t i = note_home(n, note_capacity);
    while (notes[i].key != n) {
        i = (i + 1) & (note_capacity - 1);
    }
    return &notes[i];
}

static Note *add_note(Node *n) {
    if ((note_count + 1) * 2 > note_capacity) {
        size_t capacity = note_capacity ? note_capacity * 2 : 64;
        Note *bigger = PyMem_Calloc(capacity, sizeof(Note));
        if (bigger == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        for (size_t i = 0; i < note_capacity; i++) {
            if (notes[i].key != NULL) {
                size_t j = note_home(notes[i].key, capacity);
                while (bigger[j].key != NULL) {
                    j = (j + 1) & (capacity - 1);
                }
                bigger[j] = notes[i];
            }
        }
        PyMem_Free(notes);
        notes = bigger;
        note_capacity = capacity;
    }
    size_t i = note_home(n, note_capacity);
    while (notes[i].key != NULL) {
        i = (i + 1) & (note_capacity - 1);
    }
    notes[i] = (Note){n, NULL, NULL};
    note_count++;
    n->child[1] |= NOTED;
    return &notes[i];
}

void drop_note(Node *n) {
    size_t mask = note_capacity - 1, hole = (size_t)(find_note(n) - notes);
    Note gone = notes[hole];
    for (size_t i = (hole + 1) & mask; notes[i].key != NULL; i = (i + 1) & mask) {
        /* Move an entry back over the hole unless it would land before its home. */
        if (((i - note_home(notes[i].key, note_capacity)) & mask) >= ((i - hole) & mask)) {
            notes[hole] = notes[i];
            hole = i;
        }
    }
    notes[hole].key = NULL;
    note_count--;
    n->child[1] &= ~NOTED;
    Py_XDECREF(gone.label);
    Py_XDECREF(gone.location);
}

/* Set a node's label or source line; an empty label needs no entry. */
int set_note(Node *n, PyObject *text, int is_location) {
    Note *note;
    if (n->child[1] & NOTED) {
        note = find_note(n);
    } else if (!is_location && PyUnicode_GetLength(text) == 0) {
        return 0;
    } else if ((note = add_note(n)) == NULL) {
        return -1;
    }
    PyObject **slot = is_location ? &note->location : &note->label, *old = *slot;
    Py_INCREF(text);
    *slot = text;
    Py_XDECREF(old); /* a str: runs no code */
    return 0;
}

/* ---------------------------------------------------------------------------------- freeing ---- */

/* Freeing a node may free a chain of ten million. Nodes whose last reference is gone are linked
 * through their grad and freed in a loop. A subclass's instance runs Python code when it dies
 * (its __dict__, __del__), so it waits, alive, in an array; should that array not grow, a bounded
 * recursion takes its place, and beyond that memory is leaked rather than the stack overrun. */
static Node *dead_nodes;
static Buffer dying_instances;
static int draining, recursion;

static void drop_child(Node *c) {
    if (Py_TYPE((PyObject *)c) == ValueType) {
        if (--((PyObject *)c)->ob_refcnt == 0) {
            set_link(c, dead_nodes);
            dead_nodes = c;
        }
    } else if (Py_REFCNT((PyObject *)c) > 1) {
        Py_DECREF((PyObject *)c);
    } else {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        int failed = APPEND(dying_instances, Node *, c);
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
        if (failed && recursion < 100) {
            recursion++;
            Py_DECREF((PyObject *)c);
            recursion--;
        }
    }
}

static void drop_parts(Node *n) {
    if (UNLIKELY(n->child[1] & NOTED)) {
        drop_note(n);
    }
    if (UNLIKELY(kind_of(n) == EXTENDED)) {
        Extension *x = extension_of(n);
        for (Py_ssize_t i = 0; i < x->count; i++) {
            drop_child(x->children[i]);
        }
        PyObject *rule = x->rule, *parameters = x->parameters;
        PyMem_Free(x);
        set_kind(n, LEAF, NULL, NULL);
        Py_XDECREF(rule);
        Py_XDECREF(parameters);
        return;
    }
    Node *first = child_of(n, 0), *second = child_of(n, 1);
    if (first != NULL) {
        drop_child(first);
    }
    if (second != NULL) {
        drop_child(second);
    }
}

static void drain(void) {
    draining = 1;
    for (;;) {
        if (dead_nodes != NULL) {
            Node *n = dead_nodes;
            dead_nodes = link_of(n);
            drop_parts(n);
            give_memory(n);
            live_nodes--;
        } else if (dying_instances.size > 0) {
            dying_instances.size -= sizeof(Node *);
            Node *n = *(Node **)(dying_instances.bytes + dying_instances.size);
            Py_DECREF((PyObject *)n); /* may run Python code, which may come back here: draining is set */
        } else {
            break;
        }
    }
    draining = 0;
}

void value_dealloc(PyObject *self) {
    Node *n = (Node *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (type == ValueType) {
        set_link(n, dead_nodes);
        dead_nodes = n;
    } else {
        drop_parts(n);
        live_nodes--;
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
        Py_DECREF((PyObject *)type);
    }
    if (!draining) {
        drain();
    }
}
