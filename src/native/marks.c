/* Marks of constants and operations; see marks.h. */
#include "marks.h"

#include "tape.h"

#define PRIME UINT64_C(0x7FFFFFFF)
enum { OF_CONSTANT = 1, OF_INPUT, OF_MAX, OF_MIN, OF_CHOICE, OF_CANDIDATE = 9, OF_ZERO };

static inline uint64_t mix(uint64_t h, uint64_t x) {
    uint64_t z = h * UINT64_C(0x9E3779B97F4A7C15) + x;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* max and min in any order: (r + a)(r + b) - r. */
static inline uint64_t extreme(uint64_t r, uint64_t a, uint64_t b) {
    return ((r + a) % PRIME * ((r + b) % PRIME) + PRIME - r) % PRIME;
}

uint64_t mark_of_input(const Marks *m, Py_ssize_t k) {
    return mix(mix(m->seed, OF_INPUT), (uint64_t)k) % PRIME;
}

/* Numbers that differ by rounding are one constant; an infinity is what max or min begins with. */
uint64_t mark_of_constant(const Marks *m, double x) {
    uint64_t bits;
    if (x == 0.0) {
        return 0;
    }
    if (isinf(x)) {
        return (PRIME + 1 - mix(m->seed, x < 0.0 ? OF_MAX : OF_MIN) % PRIME) % PRIME;
    }
    memcpy(&bits, &x, sizeof bits);
    return mix(mix(m->seed, OF_CONSTANT), (bits + m->offset) >> 20) % PRIME;
}

uint64_t mark_of_candidate(const Marks *m, Py_ssize_t k, uint64_t item) {
    return mix(mix(mix(m->seed, OF_CANDIDATE), (uint64_t)k), item);
}

uint64_t mark_of_candidates(uint64_t sum, Py_ssize_t count) { return mix(sum, (uint64_t)count) % PRIME; }

uint64_t mark_of_choice(const Marks *m, uint64_t candidates, uint64_t integers) {
    return mix(mix(mix(m->seed, OF_CHOICE), candidates), integers) % PRIME;
}

int is_extreme(PyObject *rule) { return rule == block_names[T_FIRST_MAX] || rule == block_names[T_FIRST_MIN]; }

int is_hashed(PyObject *rule) { return rule != rows[ADD] && rule != rows[MUL] && !is_extreme(rule); }

/* A factor of 0 hides nothing: it counts like another number. */
static inline uint64_t factor(const Marks *m, uint64_t x) {
    return LIKELY(x != 0) ? x : mix(m->seed, OF_ZERO) % PRIME;
}

uint64_t mark_of_rule(const Marks *m, PyObject *rule, const uint64_t *operands, Py_ssize_t count) {
    if (count == 2 && rule == rows[ADD]) {
        return (operands[0] + operands[1]) % PRIME;
    }
    if (count == 2 && rule == rows[MUL]) {
        return factor(m, operands[0]) * factor(m, operands[1]) % PRIME;
    }
    if (count == 2 && is_extreme(rule)) {
        int which = rule == block_names[T_FIRST_MAX] ? OF_MAX : OF_MIN;
        return extreme(mix(m->seed, (uint64_t)which) % PRIME, operands[0], operands[1]);
    }
    uint64_t h = mix(m->seed, (uint64_t)(uintptr_t)rule);
    for (Py_ssize_t k = 0; k < count; k++) {
        h = mix(h, operands[k]);
    }
    return h % PRIME;
}

static size_t slot_of(const MarkSet *set, uint32_t entry) {
    size_t i = entry & (set->capacity - 1);
    while (set->slots[i] != 0 && set->slots[i] != entry) {
        i = (i + 1) & (set->capacity - 1);
    }
    return i;
}

static int grow_set(MarkSet *set) {
    MarkSet larger = {NULL, set->capacity ? 2 * set->capacity : 64, set->count};
    if ((larger.slots = PyMem_Calloc(larger.capacity, sizeof *larger.slots)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slots[i] != 0) {
            larger.slots[slot_of(&larger, set->slots[i])] = set->slots[i];
        }
    }
    PyMem_Free(set->slots);
    *set = larger;
    return 0;
}

int add_mark(MarkSet *set, uint64_t mark) {
    if (2 * set->count >= set->capacity && grow_set(set) < 0) {
        return -1;
    }
    uint32_t entry = (uint32_t)mark + 1;
    size_t i = slot_of(set, entry);
    set->count += set->slots[i] == 0;
    set->slots[i] = entry;
    return 0;
}

PyObject *marks_in(const MarkSet *set) {
    PyObject *found = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(set->count * sizeof(uint32_t)));
    char *at = found == NULL ? NULL : PyByteArray_AsString(found);
    for (size_t i = 0; at != NULL && i < set->capacity; i++) {
        if (set->slots[i] != 0) {
            uint32_t mark = set->slots[i] - 1;
            memcpy(at, &mark, sizeof mark);
            at += sizeof mark;
        }
    }
    return found;
}
