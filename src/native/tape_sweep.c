/* The sweep of a tape, in the order of eager backward(): every adjoint receives the same terms in the
 * same order, so its bits are eager's.
 *
 * That order is the reverse of the one in which a depth-first walk finishes the results. It depends on
 * the operands, which point() changes, so it is often computed again. But most results are used once,
 * and the walk reaches them through that use. So the results are cut into trees, once: the root of a tree
 * is a result that is used more than once (or by operands that change, or nowhere); the tree is everything
 * below it that is used once. The order inside a tree is fixed, and the walk looks only at its exits: the
 * operands that are roots of other trees. Between two exits that the walk takes lies a stretch of steps,
 * known beforehand.
 *
 * A step adds slope times adjoint to another adjoint. Slopes that are not numbers of the tape already are
 * computed first, many of one kind in a row, so that all steps are alike. A sum needs no steps for terms
 * in its own tree: their adjoint equals its own, and they read it there.
 */
#include "tape.h"

typedef struct {
    int32_t slope, source, target; /* places; slope -1: the row of result `target`, in Python */
} Step;

typedef struct {
    int32_t result, step, slope; /* a result whose operands change, its first step and first slope */
} Mover;

typedef struct {
    int32_t step; /* the walk takes the exit before this step */
    int32_t tree; /* negative: ~(3 * result + slot), an operand that changes */
} Exit;

typedef struct {
    int32_t step, exit; /* its first ones; its last are before the next tree's first */
} Tree;

typedef struct {
    int32_t begin, end;
} Stretch;

typedef struct {
    int32_t tree, exit, step;
} Visit;

typedef struct {
    int32_t begin, end, slope; /* results of one code; the place of their first slope */
} Alike;

struct Forest {
    Py_ssize_t references; /* a running sweep holds one: rows may change the tape meanwhile */
    Py_ssize_t trees, stretches;
    int32_t root;     /* the place that the order begins at; -1: not computed yet */
    int moved;        /* the steps of movers are out of date */
    int32_t *tree_of; /* each result: the tree it is the root of, or -1 */
    Tree *tree;       /* and one more */
    Buffer steps, exits, movers, alike;
    Stretch *stretch; /* the order */
    Visit *stack;
    uint8_t *visited; /* each tree */
};

static void drop_forest(Forest *f) {
    if (f != NULL && --f->references == 0) {
        PyMem_Free(f->tree_of);
        PyMem_Free(f->tree);
        PyMem_Free(f->steps.bytes);
        PyMem_Free(f->exits.bytes);
        PyMem_Free(f->movers.bytes);
        PyMem_Free(f->alike.bytes);
        PyMem_Free(f->stretch);
        PyMem_Free(f->stack);
        PyMem_Free(f->visited);
        PyMem_Free(f);
    }
}

void fell_forest(Tape *t) {
    drop_forest(t->forest);
    t->forest = NULL;
}

/* Whether an adjoint in this place is needed: by the caller, or further down. */
static inline int carries(const Tape *t, int32_t place) {
    if (place < t->first) {
        return place < t->inputs;
    }
    const Instruction *x = &t->instructions[place - t->first];
    return x->first < x->arity;
}

/* ----------------------------------------------------------------------------------- slopes ---- */

static void find_slopes(const Tape *t, Alike some) {
    const double *data = t->data, *y = data + t->first + some.begin;
    const Instruction *x = t->instructions + some.begin, *end = t->instructions + some.end;
    double *slope = t->data + some.slope;
#define EACH(CODE, ...)                                                                           \
    case CODE:                                                                                    \
        for (; x < end; x++, y++, slope += slopes_of(CODE)) {                                     \
            double a = data[x->operand[0]], b = data[x->operand[1]];                              \
            (void)a, (void)b;                                                                     \
            __VA_ARGS__;                                                                          \
        }                                                                                         \
        break;
    switch (x->code) {
    EACH(POW, slope[0] = power_slope(a, b))
    EACH(LOG, slope[0] = 1.0 / a)
    EACH(RELU, slope[0] = a > 0.0 ? 1.0 : 0.0)
    EACH(ABS, slope[0] = a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0)
    EACH(TANH, slope[0] = 1.0 - *y * *y)
    EACH(SIGMOID, slope[0] = *y * (1.0 - *y))
    EACH(SOFTPLUS, slope[0] = logistic(a))
    EACH(SQRT, slope[0] = 0.5 / *y)
    EACH(SIN, slope[0] = cos(a))
    EACH(COS, slope[0] = -sin(a))
    EACH(MAXIMUM, slope[0] = larger_slope(a, b); slope[1] = 1.0 - slope[0])
    EACH(POWER, slope[0] = b * positive_power(a, b - 1.0); slope[1] = *y * log(a))
    EACH(T_SELECT, slope[0] = a > 0.0 ? 1.0 : 0.0; slope[1] = 1.0 - slope[0])
    EACH(T_FIRST_MAX, slope[1] = b > a ? 1.0 : 0.0; slope[0] = 1.0 - slope[1])
    EACH(T_INTEGER_POWER, slope[0] = power_slope(b, a))
    EACH(T_FIRST_MIN, slope[1] = b < a ? 1.0 : 0.0; slope[0] = 1.0 - slope[1])
    EACH(T_CLIP, slope[0] = clipped_slope(a, b, data[x->operand[2]]))
    EACH(T_MINIMUM, slope[0] = smaller_slope(a, b); slope[1] = 1.0 - slope[0])
    }
#undef EACH
}

/* The place of the slope by an operand of result k, whose own slopes begin at `slope`. */
static int32_t slope_place(const Tape *t, Py_ssize_t k, int slot, int32_t slope) {
    const Instruction *x = &t->instructions[k];
    switch (x->code) {
    case ADD: return t->one;
    case MUL: return x->operand[!slot];
    case EXP: return (int32_t)(t->first + k);
    default: return slope + slot - x->first;
    }
}

/* ------------------------------------------------------------------------- growing the trees --- */

/* Where the slopes of each result begin; results in a row with the same code make one entry. */
static int place_slopes(const Tape *t, Forest *f, int32_t *slopes) {
    int32_t next = (int32_t)t->size, begin = 0;
    for (int32_t k = 0; k < t->size - t->first; k++) {
        int code = t->instructions[k].code;
        slopes[k] = next;
        next += slopes_of(code);
        if (code != t->instructions[k + 1].code) {
            Alike some = {begin, k + 1, slopes[begin]};
            if (slopes_of(code) > 0 && APPEND(f->alike, Alike, some) < 0) {
                return -1;
            }
            begin = k + 1;
        }
    }
    return 0;
}

/* How often each result is used: 1, or 2 for anything that makes it a tree of its own. */
static void find_uses(const Tape *t, uint8_t *uses) {
    for (Py_ssize_t k = 0; k < t->size - t->first; k++) {
        const Instruction *x = &t->instructions[k];
        for (int j = x->first; j < x->arity; j++) {
            Py_ssize_t operand = x->operand[j] - t->first;
            if (operand >= 0) {
                uses[operand] += uses[operand] < 2;
            }
        }
    }
    for (Py_ssize_t k = 0; k < t->size - t->first; k++) {
        uses[k] = uses[k] == 0 || t->instructions[k].flags & APART ? 2 : uses[k];
    }
}

typedef struct {
    int32_t result, source, next; /* the operand to look at next */
} Branch;

/* What a forest is grown from. */
typedef struct {
    const Tape *t;
    Forest *f;
    uint8_t *uses;
    int32_t *slopes;
    Branch *stack;
    int32_t *met; /* each tree: the last one, plus one, that has an exit to it */
} Seeds;

/* The steps of a result, the last operand first. A mover has one for every operand: any may become
 * needed. */
static int add_steps(Seeds *s, Py_ssize_t k, int32_t source) {
    const Tape *t = s->t;
    const Instruction *x = &t->instructions[k];
    if (x->code == T_ROW) {
        Step step = {-1, source, (int32_t)k};
        return APPEND(s->f->steps, Step, step);
    }
    Mover mover = {(int32_t)k, (int32_t)COUNT(s->f->steps, Step), s->slopes[k]};
    if (any_moves(x) && APPEND(s->f->movers, Mover, mover) < 0) {
        return -1;
    }
    for (int j = x->arity - 1; j >= x->first; j--) {
        int32_t target = x->operand[j];
        int borrows = x->code == ADD && target >= t->first && s->uses[target - t->first] == 1;
        int needed = any_moves(x) || (carries(t, target) && !borrows);
        Step step = {slope_place(t, k, j, s->slopes[k]), source, target};
        if (needed && APPEND(s->f->steps, Step, step) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The steps and exits of one tree, in the order of the walk. */
static int grow_tree(Seeds *s, Py_ssize_t root) {
    const Tape *t = s->t;
    Forest *f = s->f;
    int32_t tree = f->tree_of[root];
    Py_ssize_t top = 0;
    f->tree[tree] = (Tree){(int32_t)COUNT(f->steps, Step), (int32_t)COUNT(f->exits, Exit)};
    s->stack[top++] = (Branch){(int32_t)root, (int32_t)(t->first + root), t->instructions[root].first};
    while (top > 0) {
        Branch *branch = &s->stack[top - 1];
        const Instruction *x = &t->instructions[branch->result];
        if (branch->next >= x->arity) {
            if (add_steps(s, branch->result, branch->source) < 0) {
                return -1;
            }
            top--;
            continue;
        }
        int slot = branch->next++;
        int32_t place = x->operand[slot], operand = place - (int32_t)t->first;
        Exit exit = {(int32_t)COUNT(f->steps, Step), ~(3 * branch->result + slot)};
        if (!slot_moves(x, slot)) {
            if (operand < 0 || !carries(t, place)) {
                continue;
            }
            if (s->uses[operand] == 1) {
                s->stack[top++] = (Branch){operand, x->code == ADD ? branch->source : place,
                                           t->instructions[operand].first};
                continue;
            }
            exit.tree = f->tree_of[operand];
            if (s->met[exit.tree] == tree + 1) {
                continue; /* this tree has an exit to it already */
            }
            s->met[exit.tree] = tree + 1;
        }
        if (APPEND(f->exits, Exit, exit) < 0) {
            return -1;
        }
    }
    return 0;
}

static int grow_trees(Seeds *s) {
    Forest *f = s->f;
    Py_ssize_t count = s->t->size - s->t->first;
    f->references = 1;
    f->root = -1;
    f->tree_of = PyMem_Malloc(((size_t)count + 1) * sizeof(int32_t));
    if (f->tree_of == NULL || place_slopes(s->t, f, s->slopes) < 0) {
        return -1;
    }
    find_uses(s->t, s->uses);
    for (Py_ssize_t k = 0; k < count; k++) {
        int is_root = s->uses[k] == 2 && carries(s->t, (int32_t)(s->t->first + k));
        f->tree_of[k] = is_root ? (int32_t)f->trees++ : -1;
    }
    size_t trees = (size_t)f->trees;
    s->met = PyMem_Calloc(trees + 1, sizeof(int32_t));
    f->tree = PyMem_Malloc((trees + 1) * sizeof(Tree));
    f->stretch = PyMem_Calloc(2 * trees + 1, sizeof(Stretch));
    f->stack = PyMem_Malloc((trees + 1) * sizeof(Visit));
    f->visited = PyMem_Malloc(trees + 1);
    if (!s->met || !f->tree || !f->stretch || !f->stack || !f->visited) {
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (f->tree_of[k] >= 0 && grow_tree(s, k) < 0) {
            return -1;
        }
    }
    f->tree[trees] = (Tree){(int32_t)COUNT(f->steps, Step), (int32_t)COUNT(f->exits, Exit)};
    return 0;
}

static int grow_forest(Tape *t) {
    size_t count = (size_t)(t->size - t->first) + 1;
    Seeds s = {t, PyMem_Calloc(1, sizeof(Forest)), PyMem_Calloc(count, 1),
               PyMem_Malloc(count * sizeof(int32_t)), PyMem_Malloc(count * sizeof(Branch)), NULL};
    int failed = !s.f || !s.uses || !s.slopes || !s.stack || grow_trees(&s) < 0;
    PyMem_Free(s.uses);
    PyMem_Free(s.slopes);
    PyMem_Free(s.stack);
    PyMem_Free(s.met);
    if (failed) {
        if (s.f != NULL) {
            s.f->references = 1;
        }
        drop_forest(s.f);
        PyErr_NoMemory();
        return -1;
    }
    t->forest = s.f;
    return 0;
}

/* ---------------------------------------------------------------------------------- the walk --- */

/* The tree that an exit leads to now, or -1. */
static int32_t tree_at(const Tape *t, const Forest *f, const Exit *exit) {
    if (exit->tree >= 0) {
        return exit->tree;
    }
    int32_t moving = ~exit->tree;
    Py_ssize_t operand = t->instructions[moving / 3].operand[moving % 3] - t->first;
    return operand < 0 ? -1 : f->tree_of[operand];
}

/* The steps that root reaches, those of an operand's tree before those that use it. */
static void make_order(const Tape *t, Forest *f, int32_t root) {
    const Exit *exits = (const Exit *)f->exits.bytes;
    const Tree *trees = f->tree;
    uint8_t *visited = f->visited;
    Stretch *stretch = f->stretch;
    Visit *top = f->stack;
    int32_t tree = f->tree_of[root - t->first];
    Visit now = {tree, trees[tree].exit, trees[tree].step};
    memset(visited, 0, (size_t)f->trees);
    visited[tree] = 1;
    for (;;) {
        int32_t last = trees[now.tree + 1].exit, end = trees[now.tree + 1].step, next = -1;
        while (now.exit < last && next < 0) {
            next = tree_at(t, f, &exits[now.exit++]);
            next = next >= 0 && visited[next] ? -1 : next;
        }
        if (next >= 0) {
            end = exits[now.exit - 1].step;
        }
        if (end > now.step) {
            *stretch++ = (Stretch){now.step, end};
        }
        if (next >= 0) {
            visited[next] = 1;
            now.step = end;
            *top++ = now;
            now = (Visit){next, trees[next].exit, trees[next].step};
        } else if (top > f->stack) {
            now = *--top;
        } else {
            break;
        }
    }
    f->stretches = stretch - f->stretch;
    f->root = root;
}

/* Let an operand of result k read another place. Places and trees stay valid, unless they were computed
 * as if the operand, or the uses of what it reads now, never changed. */
void move_operand(Tape *t, Py_ssize_t k, int slot, int32_t place) {
    Instruction *x = &t->instructions[k];
    Py_ssize_t old = x->operand[slot] - t->first, new = place - t->first;
    int fixed = !slot_moves(x, slot), branch = 0;
    x->flags |= (uint8_t)(MOVES << slot);
    x->operand[slot] = place;
    if (new >= 0) {
        t->instructions[new].flags |= APART;
        branch = t->forest != NULL && t->forest->tree_of[new] < 0 && carries(t, place);
    }
    t->misplaced = t->misplaced || fixed || new > k;
    if (fixed || branch) {
        fell_forest(t);
    } else if (t->forest != NULL && old != new) {
        t->forest->moved = 1;
        if (old >= 0 || new >= 0) {
            t->forest->root = -1; /* the order changes */
        }
    }
}

/* The steps of results whose operands have changed. */
static void move_steps(const Tape *t, Forest *f) {
    for (Py_ssize_t n = 0; n < COUNT(f->movers, Mover); n++) {
        Mover mover = ITEM(f->movers, Mover, n);
        const Instruction *x = &t->instructions[mover.result];
        Step *step = &ITEM(f->steps, Step, mover.step);
        for (int j = x->arity - 1; j >= x->first; j--, step++) {
            step->slope = slope_place(t, mover.result, j, mover.slope);
            step->target = x->operand[j];
        }
    }
    f->moved = 0;
}

/* ---------------------------------------------------------------------------------- sweeping --- */

static int row_backward(const Tape *t, Py_ssize_t k, double g) {
    const Instruction x = t->instructions[k]; /* before Python code runs */
    PyObject *slopes = call_row(t, k, 1);
    if (slopes != NULL && (!PyTuple_Check(slopes) || PyTuple_Size(slopes) != x.arity)) {
        Py_ssize_t i = t->inputs;
        while (i < t->count - 1 && result_of(t, i) != k) {
            i++;
        }
        bad_instruction(i);
    }
    for (Py_ssize_t j = 0; slopes != NULL && j < x.arity && !PyErr_Occurred(); j++) {
        double slope = PyFloat_AsDouble(PyTuple_GetItem(slopes, j));
        t->grads[x.operand[j]] += share(slope, g);
    }
    Py_XDECREF(slopes);
    return PyErr_Occurred() ? -1 : 0;
}

/* Where one factor is 0 and the other infinite or NaN, eager propagates nothing. A step without that
 * check makes a NaN, which reaches the inputs: only then are all steps taken again with care. */
static inline int take_steps(const Tape *t, const Forest *f, int care) {
    const double *data = t->data;
    double *grads = t->grads;
    const Step *steps = (const Step *)f->steps.bytes;
    for (Py_ssize_t n = f->stretches - 1; n >= 0; n--) {
        const Step *s = steps + f->stretch[n].end, *begin = steps + f->stretch[n].begin;
        while (s > begin) {
            s--;
            if (!care) {
                grads[s->target] += data[s->slope] * grads[s->source];
            } else if (grads[s->source] != 0.0 && s->slope >= 0) {
                grads[s->target] += share(data[s->slope], grads[s->source]);
            } else if (grads[s->source] != 0.0 && row_backward(t, s->target, grads[s->source]) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int sweep_from(Tape *t, Forest *f, int32_t root, double seed) {
    if (f->moved) {
        move_steps(t, f);
    }
    if (f->root != root) {
        make_order(t, f, root);
    }
    for (Py_ssize_t n = 0; n < COUNT(f->alike, Alike); n++) {
        find_slopes(t, ITEM(f->alike, Alike, n));
    }
    if (t->row == NULL) {
        int defined = 1;
        take_steps(t, f, 0);
        for (Py_ssize_t i = 0; i < t->inputs; i++) {
            defined &= t->grads[i] == t->grads[i];
        }
        if (defined) {
            return 0;
        }
        memset(t->grads, 0, (size_t)t->size * sizeof(double));
        t->grads[root] = seed;
    }
    return take_steps(t, f, 1);
}

int sweep_tape(Tape *t, Py_ssize_t position, double seed, double *out) {
    int32_t root = t->place[position];
    int failed = 0, walks = root >= t->first && carries(t, root);
    if (walks && (t->forest == NULL || t->forest->tree_of[root - t->first] < 0)) {
        fell_forest(t);
        t->instructions[root - t->first].flags |= APART;
        failed = grow_forest(t);
    }
    if (!failed) {
        memset(t->grads, 0, (size_t)t->size * sizeof(double));
        t->grads[root] = seed;
    }
    if (walks && !failed) {
        Forest *f = t->forest;
        f->references++;
        failed = sweep_from(t, f, root, seed);
        drop_forest(f);
    }
    if (!failed) {
        memcpy(out, t->grads, (size_t)t->inputs * sizeof(double));
    }
    return failed ? -1 : 0;
}

/* sweep(root, seed, out): the derivative of instruction `root` with respect to every input. */
PyObject *tape_sweep(PyObject *self, PyObject *args) {
    Tape *t = (Tape *)self;
    Py_ssize_t position;
    double seed;
    PyObject *out;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "ndO:sweep", &position, &seed, &out)) {
        return NULL;
    }
    if (position < 0 || position >= t->count) {
        bad_instruction(position);
        return NULL;
    }
    if (get_buffer(out, &view, "d", t->inputs, 1) < 0) {
        return NULL;
    }
    int failed = sweep_tape(t, position, seed, view.buf);
    PyBuffer_Release(&view);
    return failed ? NULL : Py_NewRef(Py_None);
}
