/* Instructions: what a recording is made of, written while the recorded function runs.
 *
 * A node that is made while it is recorded becomes an instruction at once. It keeps its number and its
 * position, but no children: when the function lets go of it, it is free, and a recording takes no more
 * memory than its arrays. With another recording to compare with, nothing is written as long as the two
 * are alike. Or nothing is written at all, and each node keeps a mark of what it is computed by (marks.h) and
 * its derivative along a direction. That a node may carry in any recording, as its grad.
 */
#include "marks.h"

/* Another recording's arrays. */
enum { CODES, OPERANDS, CONSTANTS, NUMBER, ARRAYS };
static const char *const formats[ARRAYS] = {"i", "i", "d", "B"};

/* A Value that is no instruction, and what stands for it as an operand: a position, or -2, -3, ... for
 * those that are foreign; -1: nothing yet. */
typedef struct {
    Node *key;
    int32_t stands;
} Place;

typedef struct {
    int32_t at, owner; /* 3 * index + operand, and which foreign Value that is */
} Use;

typedef struct Instructions {
    PyObject_HEAD
    uint64_t session;          /* which Instructions a node's position belongs to */
    PyObject *inputs;          /* a list of Values */
    PyObject *foreign;         /* a list of those that are neither inputs nor instructions */
    PyObject *rules;           /* a list */
    PyObject *unknown;         /* a custom operation, or NULL */
    int position[KINDS];       /* of each kind's rule in rules, plus one; 0: not there yet */
    Place *places;             /* of inputs and foreign Values, by address */
    size_t capacity;           /* of places; a power of two, or 0 */
    Py_ssize_t users;          /* how many of them are the user's own Values */
    Py_ssize_t base, count;    /* how many inputs there will be, and how many instructions there are */
    Py_ssize_t room;           /* instructions that fit into the arrays; */
    PyObject *array[ARRAYS];   /* bytearrays; NULL as long as all is like another recording */
    char *row[ARRAYS];         /* their contents */
    Py_buffer like[ARRAYS];    /* another recording's, */
    Py_ssize_t likes;          /* and how many instructions it has; -1: there is none */
    Py_ssize_t width, like_width; /* constants of each instruction: two where an operation has two parameters */
    Buffer uses;               /* Use: where foreign Values are operands */
    int carries;               /* the grad of a node is its derivative along a direction */
    int hides;                 /* a derivative is 0, so that a result may not show what was multiplied by it */
    Marks marks;               /* on: nodes have marks in place of positions */
    MarkSet hashed;            /* of operations other than sums, products and maxima */
} Instructions;

PyTypeObject *InstructionsType;
static uint64_t sessions;

typedef struct {
    int32_t code, operand[3];
    double constant[2];
    char number, is_wide; /* wide: both constants are its operation's */
} Row;

/* The bytes of one instruction in an array. */
static inline size_t row_bytes(const Instructions *x, int array) {
    switch (array) {
    case CODES: return sizeof(int32_t);
    case OPERANDS: return 3 * sizeof(int32_t);
    case CONSTANTS: return (size_t)x->width * sizeof(double);
    default: return 1;
    }
}

/* ------------------------------------------------------------------------------ positions ------ */

static inline size_t home(const Node *n, size_t capacity) {
    return (size_t)(((uintptr_t)n >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (capacity - 1);
}

static Place *find_place(const Instructions *x, const Node *n) {
    size_t i = home(n, x->capacity);
    while (x->places[i].key != NULL && x->places[i].key != n) {
        i = (i + 1) & (x->capacity - 1);
    }
    return &x->places[i];
}

/* Room for so many places, at most half of them taken. */
static int make_places(Instructions *x, size_t count) {
    size_t capacity = 64;
    while (capacity < 2 * count) {
        capacity *= 2;
    }
    if (capacity <= x->capacity) {
        return 0;
    }
    Place *old = x->places;
    size_t before = x->capacity;
    Place *made = PyMem_Calloc(capacity, sizeof(Place));
    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    x->places = made;
    x->capacity = capacity;
    for (size_t i = 0; i < before; i++) {
        if (old[i].key != NULL) {
            *find_place(x, old[i].key) = old[i];
        }
    }
    PyMem_Free(old);
    return 0;
}

static inline int is_own(const Instructions *x, const Node *n) {
    return kind_of(n) == RECORDED && memcmp(&n->slope[1], &x->session, sizeof x->session) == 0;
}

static inline int32_t index_of(const Node *n) {
    int64_t index;
    memcpy(&index, &n->slope[0], sizeof index);
    return (int32_t)index;
}

/* Input k has the index ~k. */
static inline int32_t own_position(const Instructions *x, const Node *n) {
    int32_t index = index_of(n);
    return index < 0 ? ~index : (int32_t)x->base + index;
}

/* A node becomes instruction `index`: its operands are in the arrays, so it needs none. */
static void become(const Instructions *x, Node *n, int64_t index) {
    uintptr_t noted = n->child[1] & NOTED;
    set_kind(n, RECORDED, NULL, NULL);
    n->child[1] |= noted;
    memcpy(&n->slope[0], &index, sizeof index);
    memcpy(&n->slope[1], &x->session, sizeof x->session);
}

/* What stands for an operand: its position, or -2 - k for foreign Value k; -1 in *failed: an error. */
static inline int32_t stands_for(Instructions *x, Node *n, int *failed) {
    if (LIKELY(is_own(x, n))) {
        return own_position(x, n);
    }
    Place *place = find_place(x, n);
    if (LIKELY(place->key != NULL && place->stands != -1)) {
        return place->stands;
    }
    Py_ssize_t known = PyList_Size(x->foreign);
    if (PyList_Append(x->foreign, (PyObject *)n) < 0 ||
        make_places(x, (size_t)(x->users + known + 1)) < 0) {
        *failed = -1;
        return -1;
    }
    int32_t stands = (int32_t)(-2 - known);
    *find_place(x, n) = (Place){n, stands};
    return stands;
}

/* ------------------------------------------------------------------------------ derivatives ---- */

/* Along the direction, of a node of one or two operands. */
static inline double carried(const Node *a, const Node *b, double s0, double s1) {
    return share(s0, a->grad) + (b ? share(s1, b->grad) : 0.0);
}

/* The same of a building block: the choice of max and min passes it on, what .data and comparisons give does
 * not. */
static double carried_by_rule(PyObject *rule, double y, Node *const *operands) {
    return is_extreme(rule) ? operands[y == operands[0]->data ? 0 : 1]->grad : 0.0;
}

/* Whether a derivative of 0 hides an operand here and not a little way off. A choice hides what it does not
 * choose there too. */
static inline int hides_operand(Kind kind, const Node *a, const Node *b, double s0, double s1) {
    if (LIKELY(s0 != 0.0 && (b == NULL || s1 != 0.0))) {
        return 0;
    }
    return kind != MAXIMUM && kind != MAXIMUM_NUMBER && (kind != RELU || a->data == 0.0);
}

/* ------------------------------------------------------------------------------ marks ---------- */

/* A Value that is neither an input nor an instruction has no mark. */
static inline uint64_t mark_in(Instructions *x, Node *n) {
    if (UNLIKELY(!is_own(x, n))) {
        x->unknown = x->unknown ? x->unknown : Py_NewRef((PyObject *)n);
        return 0;
    }
    return (uint64_t)index_of(n);
}

/* One more instruction, which is written nowhere. */
static inline int count_one(Instructions *x) {
    if (UNLIKELY((x->count & PROGRESS) == PROGRESS) && recorder != NULL && tell_progress() < 0) {
        return -1;
    }
    x->count++;
    return 0;
}

static Node *marked_node(Instructions *x, double y, int64_t mark, double slope) {
    Node *n = mark < 0 || count_one(x) < 0 ? NULL : bare_node(y);
    if (n != NULL) {
        n->child[1] = 0;
        become(x, n, mark);
        n->grad = slope;
    }
    return n;
}

/* The mark of an operation, which is kept if the operation may be undefined; -1: an error. */
static int64_t marked(Instructions *x, PyObject *rule, const uint64_t *operands, Py_ssize_t count) {
    uint64_t mark = mark_of_rule(&x->marks, rule, operands, count);
    return is_hashed(rule) && add_mark(&x->hashed, mark) < 0 ? -1 : (int64_t)mark;
}

static Node *marked_operation(Instructions *x, Kind kind, double y, Node *a, Node *b, double s0, double s1) {
    uint64_t marks[2] = {mark_in(x, a), b ? mark_in(x, b) : 0};
    int count = 1 + (b != NULL);
    if (has_number(kind) || kind == POW) {
        marks[count++] = mark_of_constant(&x->marks, kind == MUL_NUMBER ? s0 : s1);
    }
    return marked_node(x, y, marked(x, rows[kind], marks, count), carried(a, b, s0, s1));
}

static Node *marked_rule(Instructions *x, PyObject *rule, double y, Node **operands, Py_ssize_t count) {
    uint64_t marks[3];
    for (Py_ssize_t j = 0; j < count; j++) {
        marks[j] = mark_in(x, operands[j]);
    }
    return marked_node(x, y, marked(x, rule, marks, count), carried_by_rule(rule, y, operands));
}

/* ------------------------------------------------------------------------------ writing -------- */

static int make_room(Instructions *x, Py_ssize_t room) {
    if (x->base + room > INT32_MAX / 3) {
        PyErr_SetString(PyExc_OverflowError, "a recording has at most 2**31 operands");
        return -1;
    }
    for (int k = 0; k < ARRAYS; k++) {
        Py_ssize_t bytes = (x->base + room) * (Py_ssize_t)row_bytes(x, k);
        if (x->array[k] == NULL) {
            x->array[k] = PyByteArray_FromStringAndSize(NULL, bytes);
        } else if (PyByteArray_Resize(x->array[k], bytes) < 0) {
            return -1;
        }
        if (x->array[k] == NULL) {
            return -1;
        }
        x->row[k] = PyByteArray_AsString(x->array[k]);
    }
    x->room = room;
    return 0;
}

static void write_inputs(Instructions *x) {
    const Row row = {INPUT, {-1, -1, -1}, {0.0, 0.0}, 0, 0};
    const size_t constants = row_bytes(x, CONSTANTS);
    for (Py_ssize_t i = 0; i < x->base; i++) {
        ((int32_t *)x->row[CODES])[i] = row.code;
        memcpy(x->row[OPERANDS] + i * 3 * sizeof(int32_t), row.operand, sizeof row.operand);
        memcpy(x->row[CONSTANTS] + (size_t)i * constants, row.constant, constants);
        x->row[NUMBER][i] = row.number;
    }
}

/* The instructions differ from the other recording's from here on: write what was like it. */
static int part(Instructions *x) {
    if (x->array[0] != NULL) {
        return 0;
    }
    x->width = x->likes < 0 ? 1 : x->like_width;
    if (make_room(x, x->count + 1024) < 0) {
        for (int k = 0; k < ARRAYS; k++) {
            Py_CLEAR(x->array[k]);
        }
        return -1;
    }
    write_inputs(x);
    for (int k = 0; k < ARRAYS && x->likes >= 0; k++) {
        size_t begin = (size_t)x->base * row_bytes(x, k);
        memcpy(x->row[k] + begin, (char *)x->like[k].buf + begin, (size_t)x->count * row_bytes(x, k));
    }
    return 0;
}

/* The first operation with two static parameters: from here on each instruction has two constants. */
static int widen(Instructions *x) {
    Py_ssize_t rows = x->base + x->room, bytes = 2 * rows * (Py_ssize_t)sizeof(double);
    PyObject *wide = PyByteArray_FromStringAndSize(NULL, bytes);
    if (wide == NULL) {
        return -1;
    }
    double *to = (double *)PyByteArray_AsString(wide);
    const double *from = (const double *)x->row[CONSTANTS];
    for (Py_ssize_t i = 0; i < x->base + x->count; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = 0.0;
    }
    Py_DECREF(x->array[CONSTANTS]);
    x->array[CONSTANTS] = wide;
    x->row[CONSTANTS] = (char *)to;
    x->width = 2;
    return 0;
}

/* Whether instruction `i` of the other recording is this one, but for what foreign Values stand for. */
static inline int is_like(const Instructions *x, Py_ssize_t i, const Row *row) {
    const int32_t *operands = (const int32_t *)x->like[OPERANDS].buf + 3 * i;
    for (int j = 0; j < 3; j++) {
        if (row->operand[j] != operands[j] && (row->operand[j] >= -1 || operands[j] < 0)) {
            return 0;
        }
    }
    return row->code == ((const int32_t *)x->like[CODES].buf)[i] &&
           row->number == ((const char *)x->like[NUMBER].buf)[i] &&
           row->is_wide < x->like_width &&
           memcmp(row->constant, (const double *)x->like[CONSTANTS].buf + x->like_width * i,
                  (size_t)x->like_width * sizeof(double)) == 0;
}

/* One more instruction; a failure leaves no part of it. */
static int write_row(Instructions *x, const Row *row) {
    Py_ssize_t i = x->base + x->count;
    size_t before = x->uses.size;
    if (UNLIKELY((x->count & PROGRESS) == PROGRESS) && recorder != NULL && tell_progress() < 0) {
        return -1;
    }
    for (int j = 0; j < 3; j++) {
        Use use = {(int32_t)(3 * x->count + j), -2 - row->operand[j]};
        if (UNLIKELY(use.owner >= 0) && APPEND(x->uses, Use, use) < 0) {
            goto failed;
        }
    }
    if (x->array[0] == NULL) {
        if (i < x->likes && is_like(x, i, row)) {
            x->count++;
            return 0;
        }
        if (part(x) < 0) {
            goto failed;
        }
    }
    if (UNLIKELY(x->count == x->room) && make_room(x, x->room + x->room / 4 + 1024) < 0) {
        goto failed;
    }
    if (UNLIKELY(row->is_wide >= x->width) && widen(x) < 0) {
        goto failed;
    }
    ((int32_t *)x->row[CODES])[i] = row->code;
    memcpy(x->row[OPERANDS] + (size_t)i * sizeof row->operand, row->operand, sizeof row->operand);
    double *constant = (double *)x->row[CONSTANTS] + x->width * i;
    constant[0] = row->constant[0];
    if (x->width > 1) {
        constant[1] = row->constant[1];
    }
    x->row[NUMBER][i] = row->number;
    x->count++;
    return 0;
failed:
    x->uses.size = before;
    return -1;
}

/* The code of a rule, which is added if it is new; -1: an error. */
static int32_t code_of(Instructions *x, Kind kind, PyObject *rule) {
    if (kind != EXTENDED && x->position[kind] != 0) {
        return FIRST_RULE + x->position[kind] - 1;
    }
    Py_ssize_t count = PyList_Size(x->rules), at = 0;
    while (at < count && PyList_GetItem(x->rules, at) != rule) {
        at++;
    }
    if (at == count && PyList_Append(x->rules, rule) < 0) {
        return -1;
    }
    if (kind != EXTENDED) {
        x->position[kind] = (int)at + 1;
    }
    return (int32_t)(FIRST_RULE + at);
}

static inline Node *written_operation(Instructions *x, Kind kind, double y, Node *a, Node *b, double s0,
                                      double s1) {
    int failed = 0;
    Row row = {code_of(x, kind, rows[kind]), {-1, -1, -1}, {0.0, 0.0}, (char)has_number(kind), 0};
    settle(a);
    row.operand[0] = stands_for(x, a, &failed);
    if (b != NULL) {
        settle(b);
        row.operand[1] = stands_for(x, b, &failed);
    }
    row.constant[0] = kind == MUL_NUMBER ? s0 : row.number || kind == POW ? s1 : 0.0;
    Py_ssize_t index = x->count;
    Node *n = row.code < 0 || failed ? NULL : bare_node(y);
    if (n == NULL) {
        return NULL;
    }
    n->child[1] = 0;
    become(x, n, index);
    if (x->carries) {
        n->grad = carried(a, b, s0, s1);
    } else {
        x->hides |= hides_operand(kind, a, b, s0, s1);
    }
    if (write_row(x, &row) < 0) {
        Py_DECREF((PyObject *)n);
        return NULL;
    }
    return n;
}

PyObject *record_instruction(Kind kind, double y, Node *a, Node *b, double s0, double s1) {
    Instructions *x = instructions;
    Node *n = x->marks.on ? marked_operation(x, kind, y, a, b, s0, s1)
                          : written_operation(x, kind, y, a, b, s0, s1);
    if (n == NULL) {
        return NULL;
    }
    if (UNLIKELY(debug_on) && note_location(n) < 0) {
        Py_DECREF((PyObject *)n);
        return NULL;
    }
    if (LIKELY(!grad_off && !nonfinite_allowed)) {
        return (PyObject *)n;
    }
    PyObject *kept = ask_recorder(MADE, (PyObject *)n);
    Py_DECREF((PyObject *)n);
    return kept;
}

PyObject *record_rule(PyObject *rule, double y, Node **operands, Py_ssize_t count) {
    Instructions *x = instructions;
    int failed = 0;
    if (x->marks.on) {
        return (PyObject *)marked_rule(x, rule, y, operands, count);
    }
    Row row = {code_of(x, EXTENDED, rule), {-1, -1, -1}, {0.0, 0.0}, 0, 0};
    for (Py_ssize_t j = 0; j < count; j++) {
        settle(operands[j]);
        row.operand[j] = stands_for(x, operands[j], &failed);
    }
    Py_ssize_t index = x->count;
    Node *n = row.code < 0 || failed ? NULL : bare_node(y);
    if (n == NULL) {
        return NULL;
    }
    n->child[1] = 0;
    become(x, n, index);
    if (x->carries) {
        n->grad = carried_by_rule(rule, y, operands);
    }
    if (write_row(x, &row) < 0) {
        Py_DECREF((PyObject *)n);
        return NULL;
    }
    return (PyObject *)n;
}

/* Let go of the children of a node that is an instruction now. */
static void strip(const Instructions *x, Node *n, int64_t index) {
    Kind kind = kind_of(n);
    Extension *extension = kind == EXTENDED ? extension_of(n) : NULL;
    Node *first = extension ? NULL : child_of(n, 0), *second = extension ? NULL : child_of(n, 1);
    become(x, n, index);
    Py_XDECREF((PyObject *)first);
    Py_XDECREF((PyObject *)second);
    if (extension != NULL) {
        for (Py_ssize_t j = 0; j < extension->count; j++) {
            Py_DECREF((PyObject *)extension->children[j]);
        }
        Py_DECREF(extension->rule);
        Py_DECREF(extension->parameters);
        PyMem_Free(extension);
    }
}

/* The same where nodes have marks: the number of instructions before it. */
static Py_ssize_t mark_node(Instructions *x, Node *n) {
    Py_ssize_t index = x->count, count = 0;
    if (is_own(x, n)) {
        return index;
    }
    Kind kind = kind_of(n);
    Extension *extension = kind == EXTENDED ? extension_of(n) : NULL;
    uint64_t marks[5];
    int64_t mark = (int64_t)mark_of_constant(&x->marks, n->data);
    double slope = 0.0;
    if (extension != NULL && (extension->count > 3 || PyTuple_Size(extension->parameters) > 2 ||
                              PyUnicode_Check(extension->rule))) {
        x->unknown = x->unknown ? x->unknown : Py_NewRef((PyObject *)n);
    } else if (!is_leaf(kind)) {
        for (Node *child; count < 3 && (child = walk_child(n, count)) != NULL; count++) {
            slope += share(extension ? extension->slopes[count] : n->slope[count], child->grad);
            marks[count] = mark_in(x, child);
        }
        for (Py_ssize_t j = 0; extension && j < PyTuple_Size(extension->parameters); j++) {
            marks[count++] = mark_of_constant(&x->marks, PyFloat_AsDouble(PyTuple_GetItem(extension->parameters, j)));
        }
        if (has_number(kind) || kind == POW) {
            marks[count++] = mark_of_constant(&x->marks, kind == POW ? n->slope[1] : number_of(n, kind));
        }
        mark = marked(x, extension ? extension->rule : rows[kind], marks, count);
    }
    if (mark < 0 || count_one(x) < 0) {
        return -1;
    }
    strip(x, n, mark);
    n->grad = slope;
    return index;
}

/* A node that was built elsewhere: its index among the instructions, -1: an error. */
static Py_ssize_t add_node(Instructions *x, Node *n) {
    if (x->marks.on) {
        return mark_node(x, n);
    }
    if (is_own(x, n) && index_of(n) >= 0) {
        return index_of(n);
    }
    Kind kind = kind_of(n);
    Row row = {CONSTANT, {-1, -1, -1}, {0.0, 0.0}, (char)has_number(kind), 0};
    Extension *extension = kind == EXTENDED ? extension_of(n) : NULL;
    Py_ssize_t index = x->count;
    double along = 0.0;
    if (extension != NULL && (extension->count > 3 || PyTuple_Size(extension->parameters) > 2 ||
                              PyUnicode_Check(extension->rule))) {
        x->unknown = x->unknown ? x->unknown : Py_NewRef((PyObject *)n);
        return write_row(x, &row) < 0 ? -1 : index;
    }
    if (is_leaf(kind)) {
        row.constant[0] = n->data;
    } else {
        int failed = 0;
        row.code = code_of(x, kind, extension ? extension->rule : rows[kind]);
        for (Py_ssize_t j = 0; j < 3; j++) {
            Node *child = walk_child(n, j);
            row.operand[j] = child ? stands_for(x, child, &failed) : -1;
            if (child != NULL) {
                double slope = extension ? extension->slopes[j] : n->slope[j];
                along += share(slope, child->grad);
                x->hides |= slope == 0.0;
            }
        }
        for (Py_ssize_t j = 0; extension && j < PyTuple_Size(extension->parameters); j++) {
            row.constant[j] = PyFloat_AsDouble(PyTuple_GetItem(extension->parameters, j)); /* floats */
            row.is_wide = j > 0;
        }
        if (row.number || kind == POW) {
            row.constant[0] = kind == POW ? n->slope[1] : number_of(n, kind);
        }
        if (row.code < 0 || failed) {
            return -1;
        }
    }
    if (write_row(x, &row) < 0) {
        return -1;
    }
    strip(x, n, index);
    if (x->carries && !is_leaf(kind)) {
        n->grad = along;
    }
    return index;
}

int record_leaf(PyObject *leaf) {
    if (instructions != NULL) {
        return add_node(instructions, (Node *)leaf) < 0 ? -1 : 0;
    }
    return PyList_Append(recorded, leaf);
}

int asks_graph(const Node *n) {
    if (LIKELY(grad_off != TANGENTS && (instructions == NULL || !is_own(instructions, n)))) {
        return 0;
    }
    graph_asked = 1; /* in case the function swallows the error */
    PyObject *nothing = PyObject_CallMethod(errors_module, "needs_graph", NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* --------------------------------------------------------------------------------- the end ----- */

/* Where a Value is, negative if nowhere; `stands`: the positions of foreign Values, or negative. */
static int32_t position_in(const Instructions *x, const Node *n, const int32_t *stands) {
    if (is_own(x, n)) {
        return own_position(x, n);
    }
    const Place *place = find_place(x, n);
    if (place->key == NULL) {
        return -1;
    }
    return place->stands >= -1 ? place->stands : stands[-2 - place->stands];
}

/* Move all instructions behind so many inputs more than was thought. */
static int shift_rows(Instructions *x, Py_ssize_t shift) {
    Py_ssize_t base = x->base;
    if (part(x) < 0 || (shift > 0 && make_room(x, x->count + shift) < 0)) {
        return -1;
    }
    int32_t *operands = (int32_t *)x->row[OPERANDS] + 3 * base;
    for (Py_ssize_t k = 0; k < 3 * x->count; k++) {
        operands[k] += operands[k] >= base ? (int32_t)shift : 0;
    }
    for (int k = 0; k < ARRAYS; k++) {
        size_t bytes = row_bytes(x, k);
        memmove(x->row[k] + (size_t)(base + shift) * bytes, x->row[k] + (size_t)base * bytes, (size_t)x->count * bytes);
    }
    x->base += shift;
    x->room = x->count;
    write_inputs(x);
    return 0;
}

/* Whether the other recording has the same instructions, and reads the same numbers. */
static int repeats(const Instructions *x, const int32_t *stands) {
    if (x->array[0] != NULL || x->base + x->count != x->likes) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < COUNT(x->uses, Use); k++) {
        int32_t found = stands[ITEM(x->uses, Use, k).owner];
        Py_ssize_t at = 3 * x->base + ITEM(x->uses, Use, k).at;
        if (found >= 0 && ((const int32_t *)x->like[OPERANDS].buf)[at] != found) {
            return 0;
        }
    }
    return 1;
}

static int check_values(PyObject *list, const char *name) {
    for (Py_ssize_t k = 0; k < PyList_Size(list); k++) {
        if (!is_value(PyList_GetItem(list, k))) {
            PyErr_Format(PyExc_ValueError, "%s %zd is not a Value", name, k);
            return -1;
        }
    }
    return 0;
}

/* The position of each foreign Value that is a number, and which gather each of the others is. */
static int resolve(Instructions *x, PyObject *numbers, PyObject *gathers, Buffer *stands, Buffer *gather) {
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyList_Size(numbers); k++) {
        stands_for(x, (Node *)PyList_GetItem(numbers, k), &failed);
    }
    for (Py_ssize_t k = 0; k < PyList_Size(x->foreign) && !failed; k++) {
        failed = APPEND(*stands, int32_t, -1) < 0 || APPEND(*gather, int32_t, -1) < 0;
    }
    for (int which = 0; which < 2 && !failed; which++) {
        PyObject *list = which ? gathers : numbers;
        int32_t *found = (int32_t *)(which ? gather : stands)->bytes;
        for (Py_ssize_t k = 0; k < PyList_Size(list); k++) {
            const Place *place = find_place(x, (Node *)PyList_GetItem(list, k));
            if (place->key != NULL && place->stands < -1) {
                found[-2 - place->stands] = (int32_t)(which ? k : PyList_Size(x->inputs) + k);
            }
        }
    }
    return failed ? -1 : 0;
}

/* The operands for which gathers stand, and which gather that is. Those that are numbers are written. */
static int settle_operands(Instructions *x, const int32_t *stands, const int32_t *gather, Buffer *places,
                           Buffer *owners) {
    for (Py_ssize_t k = 0; k < COUNT(x->uses, Use); k++) {
        int32_t owner = ITEM(x->uses, Use, k).owner;
        int32_t place = (int32_t)(3 * x->base) + ITEM(x->uses, Use, k).at;
        if (stands[owner] >= 0) {
            if (x->array[0] != NULL) {
                ((int32_t *)x->row[OPERANDS])[place] = stands[owner];
            }
        } else if (gather[owner] >= 0 &&
                   (APPEND(*places, int32_t, place) < 0 || APPEND(*owners, int32_t, gather[owner]) < 0)) {
            return -1;
        }
    }
    return 0;
}

static PyObject *as_bytes(const Buffer *b) {
    return PyByteArray_FromStringAndSize(b->bytes ? b->bytes : "", (Py_ssize_t)b->size);
}

/* finish(numbers, gathers, wanted): (arrays, rules, places, owners, positions, unknown), as flatten() has
 * them; arrays is None where they would be the other recording's. The numbers are inputs too, the last. */
static PyObject *finish(PyObject *self, PyObject *args) {
    Instructions *x = (Instructions *)self;
    PyObject *numbers, *gathers, *wanted, *arrays = NULL, *positions = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!:finish", &PyList_Type, &numbers, &PyList_Type, &gathers, &PyList_Type,
                          &wanted) ||
        check_values(numbers, "number") < 0 || check_values(gathers, "gather") < 0 ||
        check_values(wanted, "wanted") < 0) {
        return NULL;
    }
    Buffer stands = {NULL, 0, 0}, gather = stands, places = stands, owners = stands;
    Py_ssize_t shift = PyList_Size(x->inputs) + PyList_Size(numbers) - x->base;
    PyObject *unknown = x->unknown;
    int32_t *found = new_array(&positions, PyList_Size(wanted), sizeof(int32_t));
    if (found == NULL || resolve(x, numbers, gathers, &stands, &gather) < 0) {
        goto done;
    }
    const int32_t *at = (const int32_t *)stands.bytes, *which = (const int32_t *)gather.bytes;
    if ((shift != 0 && shift_rows(x, shift) < 0) || (!repeats(x, at) && part(x) < 0) ||
        settle_operands(x, at, which, &places, &owners) < 0) {
        goto done;
    }
    for (Py_ssize_t k = 0; k < PyList_Size(x->foreign) && unknown == NULL; k++) {
        unknown = at[k] < 0 && which[k] < 0 ? PyList_GetItem(x->foreign, k) : NULL;
    }
    for (Py_ssize_t k = 0; k < PyList_Size(wanted) && unknown == NULL; k++) {
        PyObject *one = PyList_GetItem(wanted, k);
        found[k] = position_in(x, (Node *)one, at);
        unknown = found[k] < 0 ? one : NULL;
    }
    if (x->array[0] == NULL) {
        arrays = Py_NewRef(Py_None);
    } else if (make_room(x, x->count) == 0) {
        arrays = PyTuple_Pack(4, x->array[0], x->array[1], x->array[2], x->array[3]);
    }
    if (arrays != NULL) {
        result = Py_BuildValue("(OONNOO)", arrays, x->rules, as_bytes(&places), as_bytes(&owners), positions,
                               unknown ? unknown : Py_None);
    }
done:
    Py_XDECREF(arrays);
    Py_XDECREF(positions);
    PyMem_Free(stands.bytes);
    PyMem_Free(gather.bytes);
    PyMem_Free(places.bytes);
    PyMem_Free(owners.bytes);
    return result;
}

/* -------------------------------------------------------------------------------- the type ----- */

static void drop_parts(Instructions *x) {
    x->session = 0; /* which no node has */
    for (int k = 0; k < ARRAYS; k++) {
        Py_CLEAR(x->array[k]);
        if (x->likes >= 0) {
            PyBuffer_Release(&x->like[k]);
        }
    }
    x->likes = -1;
    x->room = x->count = 0;
    PyMem_Free(x->places);
    PyMem_Free(x->uses.bytes);
    PyMem_Free(x->hashed.slots);
    x->hashed = (MarkSet){NULL, 0, 0};
    x->places = NULL;
    x->capacity = 0;
    memset(&x->uses, 0, sizeof x->uses);
    Py_CLEAR(x->inputs);
    Py_CLEAR(x->foreign);
    Py_CLEAR(x->rules);
    Py_CLEAR(x->unknown);
}

/* Borrow the other recording's arrays; -1: an error. */
static int open_like(Instructions *x, PyObject *like) {
    PyObject *given[ARRAYS];
    if (!PyTuple_Check(like)) {
        PyErr_SetString(PyExc_TypeError, "another recording is given as a tuple of its parts");
        return -1;
    }
    if (!PyArg_ParseTuple(like, "nOOOO:Instructions", &x->base, &given[0], &given[1], &given[2], &given[3])) {
        return -1;
    }
    Py_ssize_t count = PyObject_Size(given[CODES]);
    int open = 0;
    for (; open < ARRAYS && count >= 0; open++) {
        Py_ssize_t items = open == OPERANDS ? 3 * count : count;
        if (get_buffer(given[open], &x->like[open], formats[open], items, 0) < 0) {
            break;
        }
    }
    if (open == ARRAYS && x->base >= 0 && x->base <= count) {
        x->likes = count;
        x->like_width = constants_each(&x->like[CONSTANTS], count);
        return 0;
    }
    while (open-- > 0) {
        PyBuffer_Release(&x->like[open]);
    }
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a recording has no more inputs than instructions");
    }
    return -1;
}

/* Input k is the user's own Value, found by its address, or one made for this recording. -1: an error. */
static int place_input(Instructions *x, Py_ssize_t k) {
    Node *n = (Node *)PyList_GetItem(x->inputs, k);
    Place *place = find_place(x, n);
    if (is_own(x, n) || (place->key != NULL && place->stands >= 0)) {
        PyErr_Format(PyExc_ValueError, "input %zd is there twice", k);
        return -1;
    }
    if (place->key != NULL) {
        place->stands = (int32_t)k;
    } else if (kind_of(n) <= LEAF) {
        become(x, n, x->marks.on ? (int64_t)mark_of_input(&x->marks, k) : ~(int64_t)k);
    } else {
        PyErr_Format(PyExc_ValueError, "input %zd is neither a leaf nor the user's", k);
        return -1;
    }
    return 0;
}

static int read_marks(PyObject *marks, unsigned long long *seed, unsigned long long *offset) {
    if (marks != Py_None && !PyTuple_Check(marks)) {
        PyErr_SetString(PyExc_TypeError, "marks begin with a seed and an offset");
        return -1;
    }
    return marks == Py_None || PyArg_ParseTuple(marks, "KK:Instructions", seed, offset) ? 0 : -1;
}

/* Instructions(inputs, users, like, marks, carries): users are those Values, maybe inputs, that are to stay as
 * they are; like is None or (inputs, codes, operands, constants, number), marks None or (seed, offset); carries:
 * the grad of a node is its derivative along the direction that the inputs have in theirs. */
static PyObject *instructions_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *inputs, *users, *like, *marks = Py_None;
    unsigned long long seed = 0, offset = 0;
    int carries = 0;
    if (!PyArg_ParseTuple(args, "O!O!O|Op:Instructions", &PyList_Type, &inputs, &PyList_Type, &users, &like,
                          &marks, &carries) ||
        read_marks(marks, &seed, &offset) < 0 ||
        check_values(inputs, "input") < 0 || check_values(users, "Value") < 0) {
        return NULL;
    }
    Instructions *x = (Instructions *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (x == NULL) {
        return NULL;
    }
    x->session = ++sessions;
    x->likes = -1;
    x->carries = carries;
    x->marks = (Marks){marks != Py_None, seed, offset};
    x->base = PyList_Size(inputs);
    if ((x->inputs = PyList_GetSlice(inputs, 0, x->base)) == NULL || (x->foreign = PyList_New(0)) == NULL ||
        (x->rules = PyList_New(0)) == NULL || (like != Py_None && open_like(x, like) < 0) ||
        make_places(x, (size_t)PyList_Size(users) + 1) < 0 || (like == Py_None && !x->marks.on && part(x) < 0)) {
        Py_DECREF((PyObject *)x);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < PyList_Size(users); k++) {
        Node *n = (Node *)PyList_GetItem(users, k);
        *find_place(x, n) = (Place){n, -1};
    }
    x->users = PyList_Size(users);
    for (Py_ssize_t k = 0; k < PyList_Size(x->inputs); k++) {
        if (place_input(x, k) < 0) {
            Py_DECREF((PyObject *)x);
            return NULL;
        }
    }
    return (PyObject *)x;
}

static void instructions_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    drop_parts((Instructions *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static int is_open(const Instructions *x) {
    if (x->inputs == NULL) {
        PyErr_SetString(PyExc_ValueError, "these instructions were cleared");
    }
    return x->inputs != NULL;
}

static int has_marks(const Instructions *x, int wanted) {
    if (is_open(x) && x->marks.on != wanted) {
        PyErr_SetString(PyExc_ValueError, wanted ? "these instructions have no marks"
                                                 : "these instructions are written nowhere");
    }
    return !PyErr_Occurred();
}

static PyObject *checked_finish(PyObject *self, PyObject *args) {
    return has_marks((Instructions *)self, 0) ? finish(self, args) : NULL;
}

/* candidates(items): the mark of all Values that integers choose from. */
static PyObject *instructions_candidates(PyObject *self, PyObject *items) {
    Instructions *x = (Instructions *)self;
    if (!has_marks(x, 1)) {
        return NULL;
    }
    if (!PyTuple_Check(items)) {
        PyErr_SetString(PyExc_TypeError, "candidates are a tuple of Values");
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(items);
    uint64_t sum = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *item = PyTuple_GetItem(items, k);
        if (!is_value(item)) {
            PyErr_Format(PyExc_TypeError, "candidate %zd is not a Value", k);
            return NULL;
        }
        sum += mark_of_candidate(&x->marks, k, mark_in(x, (Node *)item));
    }
    return PyLong_FromUnsignedLongLong(mark_of_candidates(sum, count));
}

/* choose(leaf, item, candidates, integers): a Value stands for one of several that integers chose. */
static PyObject *instructions_choose(PyObject *self, PyObject *args) {
    Instructions *x = (Instructions *)self;
    PyObject *leaf, *item;
    unsigned long long candidates, integers;
    if (!PyArg_ParseTuple(args, "OOKK:choose", &leaf, &item, &candidates, &integers) || !has_marks(x, 1)) {
        return NULL;
    }
    if (!is_value(leaf) || !is_value(item) || kind_of((Node *)leaf) > LEAF) {
        PyErr_SetString(PyExc_TypeError, "a leaf stands for another Value");
        return NULL;
    }
    become(x, (Node *)leaf, (int64_t)mark_of_choice(&x->marks, candidates, integers));
    ((Node *)leaf)->grad = ((Node *)item)->grad;
    return Py_NewRef(Py_None);
}

/* mark(value): (mark, derivative along the direction); None if anything has no mark. */
static PyObject *instructions_mark(PyObject *self, PyObject *value) {
    Instructions *x = (Instructions *)self;
    if (!has_marks(x, 1)) {
        return NULL;
    }
    if (!is_value(value) || !is_own(x, (Node *)value) || x->unknown != NULL) {
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("(Kd)", (unsigned long long)index_of((Node *)value), ((Node *)value)->grad);
}

/* carry(leaf, item): a Value stands for one of several that integers chose. */
static PyObject *instructions_carry(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *leaf, *item;
    if (!PyArg_ParseTuple(args, "O!O!:carry", ValueType, &leaf, ValueType, &item)) {
        return NULL;
    }
    ((Node *)leaf)->grad = ((Node *)item)->grad;
    return Py_NewRef(Py_None);
}

/* slope(value): its derivative along the direction. */
static PyObject *instructions_slope(PyObject *Py_UNUSED(self), PyObject *value) {
    if (!is_value(value)) {
        PyErr_SetString(PyExc_TypeError, "only a Value has a derivative");
        return NULL;
    }
    return PyFloat_FromDouble(((Node *)value)->grad);
}

/* hides(): whether a derivative that is 0 may have hidden an operand from the results. */
static PyObject *instructions_hides(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    return PyBool_FromLong(((Instructions *)self)->hides);
}

/* hashed(): the marks of operations other than sums, products and maxima, whatever reads them. */
static PyObject *instructions_hashed(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    return has_marks((Instructions *)self, 1) ? marks_in(&((Instructions *)self)->hashed) : NULL;
}

static PyObject *instructions_add(PyObject *self, PyObject *node) {
    if (!is_value(node)) {
        PyErr_SetString(PyExc_TypeError, "an instruction is made of a Value");
        return NULL;
    }
    Py_ssize_t index = is_open((Instructions *)self) ? add_node((Instructions *)self, (Node *)node) : -1;
    return index < 0 ? NULL : PyLong_FromSsize_t(index);
}

static int instructions_contains(PyObject *self, PyObject *node) {
    return is_value(node) && is_own((Instructions *)self, (Node *)node);
}

static Py_ssize_t instructions_length(PyObject *self) { return ((Instructions *)self)->count; }

static PyObject *instructions_clear(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    if (instructions == (Instructions *)self) {
        PyErr_SetString(PyExc_ValueError, "these instructions are being recorded");
        return NULL;
    }
    drop_parts((Instructions *)self);
    return Py_NewRef(Py_None);
}

int is_instructions(PyObject *o) { return Py_TYPE(o) == InstructionsType && is_open((Instructions *)o); }

static PyMethodDef instructions_methods[] = {
    {"add", instructions_add, METH_O, NULL},
    {"finish", checked_finish, METH_VARARGS, NULL},
    {"candidates", instructions_candidates, METH_O, NULL},
    {"choose", instructions_choose, METH_VARARGS, NULL},
    {"carry", instructions_carry, METH_VARARGS, NULL},
    {"slope", instructions_slope, METH_O, NULL},
    {"hides", instructions_hides, METH_NOARGS, NULL},
    {"mark", instructions_mark, METH_O, NULL},
    {"hashed", instructions_hashed, METH_NOARGS, NULL},
    {"clear", instructions_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot instructions_slots[] = {
    {Py_tp_new, instructions_new},
    {Py_tp_dealloc, instructions_dealloc},
    {Py_tp_methods, instructions_methods},
    {Py_sq_length, instructions_length},
    {Py_sq_contains, instructions_contains},
    {0, NULL},
};
PyType_Spec instructions_spec = {"chainrule._native.Instructions", sizeof(Instructions), 0,
                                 Py_TPFLAGS_DEFAULT, instructions_slots};
