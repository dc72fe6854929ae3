"""Bit equality with the seeds' recursive algorithm, as transcribed in literal.py."""

import math
from random import Random

import literal
import pytest
from hypothesis import given
from number_systems import METHODS
from programs import SEED_OPS, Program, count, programs, random_program, run
from tiny_gpt import train

import chainrule
from chainrule import Value, dot, linear, topological_order, vsum

pytestmark = pytest.mark.usefixtures("deep_recursion")


def bits(number):
    assert type(number) is float
    return number.hex()


def assert_identical(ours, theirs):
    """Two graphs after backward: order, edges, local gradients, data, gradients, to the bit."""
    our_order, their_order = list(topological_order(ours)), literal.topological_order(theirs)
    assert len(our_order) == len(their_order)
    our_index = {v: i for i, v in enumerate(our_order)}
    their_index = {v: i for i, v in enumerate(their_order)}
    for v, w in zip(our_order, their_order, strict=True):
        assert [our_index[c] for c in v.children] == [their_index[c] for c in w._children]
        assert list(v.local_grads) == list(w._local_grads)
        assert bits(v.data) == bits(w.data)
        assert bits(v.grad) == bits(w.grad)


def compare(program: Program) -> int:
    ours = run(program, map(Value, program.inputs), METHODS)
    theirs = run(program, map(literal.Value, program.inputs), METHODS)
    ours[-1].backward()
    theirs[-1].backward()
    assert math.isfinite(sum(v.grad for v in theirs)), "the generator keeps programs finite"
    assert_identical(ours[-1], theirs[-1])
    for v, w in zip(ours, theirs, strict=True):  # also what the output does not depend on
        assert (bits(v.data), bits(v.grad)) == (bits(w.data), bits(w.grad))
    return len(theirs)


@given(programs(SEED_OPS))
def test_random_programs_are_the_seeds_to_the_last_bit(program):
    assert compare(program) > len(program.inputs)


@pytest.mark.parametrize("block", range(8))
def test_seeded_programs_are_the_seeds_to_the_last_bit(block):
    number = count(ci=250, soak=2_500)
    sizes = [
        compare(random_program(Random(f"bits {block} {i}"), SEED_OPS, instructions=60))
        for i in range(number)
    ]
    assert sum(sizes) / number > 15, "the programs must not be trivial"


def test_seeded_programs_use_every_seed_operation_reflected_ones_included():
    seen = set()
    for i in range(250):
        for instruction in random_program(Random(f"bits 0 {i}"), SEED_OPS).instructions:
            places = [type(o).__name__ for o in instruction.operands]
            seen.add((instruction.op, places.index("Const") if "Const" in places else None))
    assert {op for op, _ in seen} == set(SEED_OPS.rules)
    assert {(op, place) for op in "+-*/" for place in (0, 1, None)} <= seen


def test_tiny_gpt_trains_to_the_same_bits():
    losses, parameters = train(Value)
    expected_losses, expected_parameters = train(literal.Value)
    assert [bits(x) for x in losses] == [bits(x) for x in expected_losses]
    assert [bits(x) for x in parameters] == [bits(x) for x in expected_parameters]
    assert len(losses) == 5
    assert losses[-1] != losses[0]


def test_pow_is_libms_for_every_static_exponent_of_the_seeds():
    rng = Random("pow")
    for _ in range(2_000):
        x = rng.uniform(0.05, 30.0)
        for p in (-1, -0.5, 0.5, 2, 3, -2):
            ours, theirs = Value(x) ** p, literal.Value(x) ** p
            assert bits(ours.data) == bits(theirs.data)
            assert ours.local_grads == theirs._local_grads


# --- vsum, dot and linear build what the loops of microgpt build --------------------------------


def graph(root):
    """A graph without identity: per node, in order, its children's places and its numbers."""
    order = list(topological_order(root))
    index = {v: i for i, v in enumerate(order)}
    return [
        (v.op, [index[c] for c in v.children], list(v.local_grads), bits(v.data), bits(v.grad))
        for v in order
    ]


def leaves(rng, n):
    return [Value(rng.uniform(-2, 2)) for _ in range(n)]


def assert_same_build(build, reference, *arguments):
    ours, theirs = build(*arguments), reference(*arguments)
    ours, theirs = (o if isinstance(o, list) else [o] for o in (ours, theirs))
    assert len(ours) == len(theirs)
    for mine, yours in zip(ours, theirs, strict=True):
        expected = []
        for root in (yours, mine):
            root.zero_grad()
            root.backward()
            expected.append(graph(root))
        assert expected[0] == expected[1]


@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_vsum_builds_the_nodes_of_builtin_sum(n):
    xs = leaves(Random(n), n)
    assert_same_build(vsum, sum, xs)
    assert_same_build(vsum, sum, xs + xs)


@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_dot_builds_the_nodes_of_a_sum_of_products(n):
    rng = Random(n)

    def by_loop(xs, ys):
        return sum(x * y for x, y in zip(xs, ys, strict=True))

    a, b = leaves(rng, n), leaves(rng, n)
    assert_same_build(dot, by_loop, a, b)
    assert_same_build(dot, by_loop, a, a)


def test_linear_builds_the_nodes_of_microgpts_linear():
    rng = Random(5)

    def by_loop(x, w):
        return [sum(wi * xi for wi, xi in zip(wo, x, strict=True)) for wo in w]

    x = leaves(rng, 5)
    w = [leaves(rng, 5) for _ in range(3)]
    assert_same_build(lambda x, w: list(linear(x, w)), by_loop, x, w)


def test_vsum_and_dot_of_nothing_are_the_value_zero():
    for empty in (vsum([]), dot([], [])):
        assert type(empty) is chainrule.Value
        assert (empty.data, empty.children) == (0.0, ())


def test_dot_and_linear_of_unequal_lengths_raise():
    a, b = [Value(1.0)] * 2, [Value(2.0)] * 3
    with pytest.raises(ValueError, match=r"2.*3"):
        dot(a, b)
    with pytest.raises(ValueError, match=r"[23]"):
        linear(a, [b])
