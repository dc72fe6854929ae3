/* Marks of constants and operations; see marks.h. */
#include "marks.h"

#include "tape.h"

#define PRIME UINT64_C(0x7FFFFFFF)
enum { OF_CONSTANT = 1, OF_INPUT, OF_MAX, OF_MIN, OF_CHOICE, OF_CANDIDATE = 9 };

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

uint64_t mark_of_rule(const Marks *m, PyObject *rule, const uint64_t *operands, Py_ssize_t count) {
    if (count == 2 && rule == rows[ADD]) {
        return (operands[0] + operands[1]) % PRIME;
    }
    if (count == 2 && rule == rows[MUL]) {
        return operands[0] * operands[1] % PRIME;
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
