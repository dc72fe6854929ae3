"""What answers a compiled call that is known again, in C: checks, integers, plans."""

import ctypes
import gc
import itertools
import sys
import threading
import types
import weakref

import numpy as np
import pytest
from programs import count

pytest.importorskip("chainrule._native")

from chainrule import _native

# --- checks --------------------------------------------------------------------------------------


def failed(*checks):
    return _native.Checks(checks).failed()


def test_checks_find_the_first_list_that_changed():
    a, b = object(), object()
    first, second = [a, b], [b]
    checks = _native.Checks(((first, (a, b)), (second, (b,))))
    assert checks.failed() == -1
    second.append(a)
    assert checks.failed() == 1
    first[0] = b
    assert checks.failed() == 0
    first[:], second[:] = [a, b], [b]
    assert checks.failed() == -1
    first.pop()
    assert checks.failed() == 0
    assert failed() == -1


def test_checks_look_at_dicts_names_and_attributes():
    class Space:
        present = object()

    a, b, space = object(), object(), Space()
    names = {"x": a}
    parts = (
        (names, ("x", a)),
        (names, "x", a),
        (names, "y", None, None),
        (space, "present", Space.present),
        (space, "absent", None, None),
    )
    checks = _native.Checks(parts)
    assert checks.failed() == -1
    space.absent = b
    assert checks.failed() == 4
    space.present = b
    assert checks.failed() == 3
    names["y"] = b
    assert checks.failed() == 0
    assert failed(*parts[1:]) == 1
    names["x"] = b
    assert failed(*parts[1:]) == 0


def test_checks_see_the_order_and_the_keys_of_a_dict():
    one, two = "one" * 1, "".join(["o", "ne"])
    names = {one: 1, "b": 2}
    checks = _native.Checks(((names, (one, 1, "b", 2)),))
    assert checks.failed() == -1
    del names[one]
    names[one] = 1
    assert checks.failed() == 0
    names.clear()
    names.update({two: 1, "b": 2})
    assert (two == one, checks.failed()) == (True, 0), "another object is another key"


def test_an_attribute_that_raises_is_none_but_what_says_nothing_goes_on():
    class Space:
        @property
        def fails(self):
            raise failure

    space = Space()
    failure = RuntimeError("no attribute then")
    assert failed((space, "fails", None, None)) == -1
    assert failed((space, "fails", object())) == 0
    for failure in (KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(failure)):
            failed((space, "fails", None, None))


def test_checks_see_all_of_a_function_and_its_cells():
    held = 1.0

    def f(x=1.0, *, y=2.0):
        return held

    (cell,) = f.__closure__
    names = ("__code__", "__defaults__", "__kwdefaults__", "__dict__", "__name__", "__qualname__")
    parts = [(f, name, getattr(f, name)) for name in names]
    checks = _native.Checks((*parts, (cell, "cell_contents", held)))
    assert checks.failed() == -1
    held = 2.0
    assert checks.failed() == 6
    del held
    assert checks.failed() == 6
    assert failed((cell, "cell_contents", None, None)) == -1
    f.__qualname__ = "other"
    assert checks.failed() == 5
    f.__dict__ = {}
    assert checks.failed() == 3
    f.__kwdefaults__ = None
    assert checks.failed() == 2
    f.__defaults__ = None
    assert checks.failed() == 1
    f.__code__ = (lambda: cell).__code__
    assert checks.failed() == 0


class Overridden(types.SimpleNamespace):
    def __getattribute__(self, name):
        return 7 if name == "__dict__" else super().__getattribute__(name)


def test_a_class_of_the_users_may_compute_any_attribute():
    x = Overridden(a=1)
    assert failed((x, "__dict__", 7)) == -1
    assert failed((x, "a", 1)) == -1
    assert failed((1.5, "real", 1.5)) in (-1, 0), "whatever float gives"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [([], ())],
        (1,),
        ((),),
        (([],),),
        (([], []),),
        ((None, ()),),
        (([], None),),
        (({}, [], None),),
        (({}, 1, None),),
        ((int, "real", None, None, None),),
    ],
)
def test_what_is_no_check_is_refused(wrong):
    with pytest.raises(TypeError):
        _native.Checks(wrong)


def test_checks_in_a_cycle_are_collected():
    class Holder:
        pass

    holder = Holder()
    holder.checks = _native.Checks(((holder.__dict__, ()), (holder, "checks", None, None)))
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


# --- integers ------------------------------------------------------------------------------------


class Odd(int):
    pass


def test_integers_of_lists():
    big = 10**30
    assert _native.integers(("anything", [1, -2, big], [0])) == ((3, 1), (1, -2, big, 0))
    assert _native.integers((None,)) == ((), ())


@pytest.mark.parametrize(
    "other", [[], [True], [1, 2.0], [Odd(3)], [np.int64(3)], (1, 2), 1, None, "12", np.arange(2)]
)
def test_integers_of_anything_else_are_none(other):
    assert _native.integers((None, other)) is None
    assert _native.integers((None, [1], other)) is None


def test_a_list_twice_is_not_two_lists():
    ids = [1, 2]
    assert _native.integers((None, ids, ids)) is None
    assert _native.integers((ids, ids)) is None
    assert _native.integers((None, ids, list(ids))) == ((2, 2), (1, 2, 1, 2))


def test_integers_takes_arguments():
    for wrong in (None, [], (), [1]):
        with pytest.raises(TypeError):
            _native.integers(wrong)


# --- plans ---------------------------------------------------------------------------------------


class Machine:
    """A Plan whose machine code is Python: the sum of the parameters times a selected one."""

    def __init__(self, arrays, template, dtype="float64", extra=1):
        self.real = ctypes.c_double if dtype == "float64" else ctypes.c_float
        self.size = sum(a.size for a in arrays)
        self.shared, self.to_shared = (np.zeros(self.size + extra, dtype) for _ in range(2))
        self.own, self.to_own = np.zeros(2, dtype), np.zeros(2, dtype)
        self.seeds = np.ones(1, dtype)
        self.gathers, self.counts = np.zeros(3, np.int64), np.zeros(1, np.int64)
        self.places = np.array([1], np.int64)
        self.flags = [0.0, 0.0]
        self.calls = 0
        self.pause = None
        pointers = [ctypes.POINTER(self.real)] * 2
        tail = [ctypes.POINTER(ctypes.c_int64)] * 2
        self._forward = ctypes.CFUNCTYPE(self.real, *pointers, *tail)(self.forward)
        self._backward = ctypes.CFUNCTYPE(self.real, *pointers, *pointers, pointers[0], *tail)(
            self.backward
        )
        self.seen = []
        self.asked = []
        self.answers = {(k,): np.array([k], np.int64) for k in range(self.size)}
        names = [(f"f{k}", np.float64, a.shape) for k, a in enumerate(arrays)]
        arenas = (self.shared, self.own, self.to_shared, self.to_own, self.seeds)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (self._forward, self._backward)]
        self.parts = [
            tuple(arrays),
            template,
            np.dtype(names),
            np.ndarray,
            self.choose,
            self.seen,
            self,
            *addresses,
            (*arenas, self.gathers, self.counts, self.places),
            len(self.shared),
        ]
        self.plan = _native.Plan(*self.parts)

    def choose(self, ids):
        self.asked.append(ids)
        return self.answers.get(ids)

    def forward(self, shared, own, gathers, counts):
        self.calls += 1
        if self.pause is not None:
            self.pause()
        own[0] = sum(shared[: self.size]) * shared[gathers[1]]
        return self.flags[0]

    def backward(self, shared, own, to_shared, to_own, seeds, gathers, counts):
        for k in range(self.size):
            to_shared[k] = shared[gathers[1]] * seeds[0]
        to_shared[gathers[1]] += sum(shared[: self.size])
        return self.flags[1]

    def without(self, place, part):
        """The parts with another in some place."""
        return [*self.parts[:place], part, *self.parts[place + 1 :]]

    def with_arena(self, place, arena):
        arenas = [*self.parts[9]]
        arenas[place] = arena
        return self.without(9, tuple(arenas))


def example(dtype="float64", extra=1):
    arrays = [np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), np.array(0.5), np.full((1, 1, 2), 0.25)]
    template = {"w": "f0", 3: ["f1", ("f2", [])]}
    return arrays, Machine(arrays, template, dtype, extra)


def check(answer, arrays, chosen):
    """Against numpy."""
    value, gradient = answer
    row = np.concatenate([a.ravel() for a in arrays])
    wanted = np.full(len(row), row[chosen])
    wanted[chosen] += row.sum()
    assert type(value) is float
    assert value == row.sum() * row[chosen]
    assert list(gradient) == ["w", 3]
    assert type(gradient[3][1]) is tuple
    assert gradient[3][1][1] == []
    found = [gradient["w"], gradient[3][0], gradient[3][1][0]]
    for a, b in zip(found, arrays, strict=True):
        assert type(a) is np.ndarray
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.dtype is np.dtype(np.float64)
        assert a.flags.writeable
        assert a.flags.aligned
        assert a.flags.c_contiguous
    np.testing.assert_array_equal(np.concatenate([a.ravel() for a in found]), wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("extra", [0, 1, 100])
def test_a_plan_gives_value_and_gradient_in_the_structure_of_the_arrays(dtype, extra):
    arrays, machine = example(dtype, extra)
    kept = []
    for chosen in (0, 5, 7, 5):
        arrays[1][...] = chosen / 2
        answer = machine.plan.run((chosen,))
        check(answer, arrays, chosen)
        kept.append((answer, [a.copy() for a in arrays], chosen))
    for old in kept:
        check(*old)  # each call's gradient is its own


def test_what_integers_select_is_asked_once_and_again_when_more_is_known():
    arrays, machine = example()
    for _ in range(3):
        check(machine.plan.run((2,)), arrays, 2)
        assert machine.plan.run((99,)) is None
    assert machine.asked == [(2,), (99,)]
    machine.seen.append("more")
    machine.answers[99,] = np.array([3], np.int64)
    check(machine.plan.run((99,)), arrays, 3)
    check(machine.plan.run((2,)), arrays, 2)
    assert machine.asked == [(2,), (99,), (99,), (2,)]


def test_choices_are_not_kept_for_ever():
    _, machine = example()
    before = sys.getrefcount(None)
    for k in range(25_000):
        assert machine.plan.run((k + 100,)) is None
    assert sys.getrefcount(None) - before < 12_000
    assert machine.calls == 0


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("flag", [np.nan, np.inf, -np.inf])
def test_a_flag_that_is_not_finite_is_none(which, flag):
    arrays, machine = example()
    machine.flags[which] = flag
    assert machine.plan.run((1,)) is None
    machine.flags[which] = 1e308
    check(machine.plan.run((1,)), arrays, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_of_another_shape_is_none_until_it_is_as_it_was():
    arrays, machine = example()
    for shape in [(3, 2), (6,), (1, 2, 3)]:
        arrays[0].shape = shape
        assert machine.plan.run((1,)) is None
    arrays[0].shape = (2, 3)
    check(machine.plan.run((1,)), arrays, 1)
    arrays[1].shape = (1,)
    assert machine.plan.run((1,)) is None
    arrays[1].shape = ()
    arrays[0].resize((2, 2), refcheck=False)
    assert machine.plan.run((1,)) is None
    arrays[0].resize((2, 3), refcheck=False)
    check(machine.plan.run((1,)), arrays, 1)
    assert machine.calls == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", [np.int64, ">f8", "m8[s]", "V8", np.uint64])
def test_an_array_of_another_type_is_none(dtype):
    arrays, machine = example()
    arrays[0].dtype = dtype
    assert machine.plan.run((1,)) is None
    arrays[0].dtype = np.float64
    check(machine.plan.run((1,)), arrays, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_that_is_not_in_one_piece_any_more_is_none():
    arrays, machine = example()
    try:
        arrays[0].strides = (8, 16)
    except (AttributeError, TypeError):
        pytest.skip("this numpy does not let strides be set")
    assert machine.plan.run((1,)) is None
    arrays[0].strides = (24, 8)
    check(machine.plan.run((1,)), arrays, 1)


def test_numbers_beyond_float32_are_infinite_there():
    arrays, machine = example("float32")
    arrays[0][0, 0] = 1e300
    machine.plan.run((1,))
    assert machine.shared[0] == np.inf


def test_a_plan_takes_addresses_that_are_within_the_arenas():
    arrays, machine = example()
    machine.answers = {
        (0,): np.array([-1]),
        (1,): np.array([len(machine.shared) + len(machine.own)]),
        (2,): np.array([0, 0]),
        (3,): np.array([0], np.int32),
        (4,): np.array([0.0]),
        (5,): "text",
        (6,): np.zeros(0, np.int64),
        (7,): np.array([len(machine.shared) + len(machine.own) - 1]),
    }
    for k in range(7):
        with pytest.raises((TypeError, ValueError)):
            machine.plan.run((k,))
    assert machine.calls == 0
    machine.answers[8,] = np.array([1])
    check(machine.plan.run((8,)), arrays, 1)


def test_errors_of_choosing_go_on():
    _, machine = example()
    machine.answers = None
    with pytest.raises(AttributeError):
        machine.plan.run((1,))
    with pytest.raises(TypeError):
        machine.plan.run([])  # unhashable


@pytest.mark.parametrize("place", range(11))
@pytest.mark.parametrize("wrong", [None, (), "text", -1, 2.5])
def test_a_plan_of_wrong_parts_is_refused_or_raises_when_it_runs(place, wrong):
    _, machine = example()
    if place == 6 or (place in (7, 8) and wrong == -1) or (place == 1 and wrong == ()):
        return  # anything may own machine code, where that is cannot be told; () is a template
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, AttributeError)):
        _native.Plan(*machine.without(place, wrong)).run((1,))
    check(machine.plan.run((1,)), machine.parts[0], 1)


def test_a_plan_is_given_all_its_parts():
    _, machine = example()
    for n in range(11):
        with pytest.raises(TypeError):
            _native.Plan(*machine.parts[:n])
    for place in (7, 8):
        with pytest.raises(ValueError, match="address 0"):
            _native.Plan(*machine.without(place, 0))
        with pytest.raises(OverflowError):
            _native.Plan(*machine.without(place, 2**70))


def test_arenas_fit_the_arrays_and_each_other():
    arrays, machine = example()
    short, half = np.zeros(machine.size - 1), np.zeros(machine.size + 1, np.float32)
    read_only = np.zeros(machine.size + 1)
    read_only.flags.writeable = False
    wrong = [
        machine.with_arena(0, short),
        machine.with_arena(2, short),
        machine.with_arena(0, half),
        machine.with_arena(2, half),
        machine.with_arena(2, read_only),
        machine.with_arena(0, np.zeros((machine.size + 1, 2))[:, 0]),
        machine.with_arena(1, np.zeros(3)),
        machine.with_arena(4, np.zeros(0)),
        machine.with_arena(5, np.zeros(3, np.int32)),
        machine.with_arena(5, np.zeros(1, np.int64)),
        machine.with_arena(7, np.array([3])),
        machine.with_arena(7, np.array([-1])),
        machine.without(9, machine.parts[9][:-1]),
        machine.without(10, -1),
        machine.without(10, len(machine.shared) + len(machine.own)),
        machine.without(0, (arrays[0].astype(np.float32), *arrays[1:])),
        machine.without(0, (arrays[0].T, *arrays[1:])),
        machine.without(0, (arrays[0], None)),
        machine.without(0, arrays),
        machine.without(0, (np.zeros(100),)),
    ]
    for parts in wrong:
        with pytest.raises((TypeError, ValueError, BufferError)):
            _native.Plan(*parts)


def test_templates_are_nests_of_names():
    _, machine = example()
    loop = []
    loop.append(loop)
    for template, error in [
        (loop, RecursionError),
        ({"a": "missing"}, (ValueError, KeyError)),
        ({"a": {1, 2}}, TypeError),
        ([b"f0"], TypeError),
        (types.MappingProxyType({}), TypeError),
    ]:
        with pytest.raises(error):
            _native.Plan(*machine.without(1, template)).run((1,))
    for template in ({}, [], (), "f0"):
        _native.Plan(*machine.without(1, template)).run((1,))


class Key:
    """A key that does something whenever a dict looks at it."""

    act = None

    def __hash__(self):
        if Key.act is not None:
            Key.act()
        return 1

    def __eq__(self, other):
        return self is other


def test_keys_that_run_python_code_change_nothing():
    arrays, machine = example()
    key, items = Key(), ["f1"]
    template = {key: items, "w": "f0"}
    plan = _native.Plan(*machine.without(1, template))
    hits = []

    def act():
        hits.append(1)
        Key.act = None
        items.clear()
        template.clear()
        check(machine.plan.run((3,)), arrays, 3)
        arrays[0][...] = 0.0

    Key.act = act
    try:
        value, _ = plan.run((5,))
    finally:
        Key.act = None
    assert (hits, value) == ([1], 5.0 * 16.0)


def test_the_gil_is_free_while_machine_code_runs():
    arrays, machine = example()
    inside, go = threading.Event(), threading.Event()

    def pause():
        inside.set()
        assert go.wait(20)

    machine.pause = pause
    found = []
    thread = threading.Thread(target=lambda: found.append(machine.plan.run((4,))))
    thread.start()
    assert inside.wait(20)
    wanted = [a.copy() for a in arrays]
    for a in arrays:
        a[...] = 77.0  # too late for that call
    go.set()
    thread.join(20)
    check(found[0], wanted, 4)


def test_a_plan_may_go_while_it_runs():
    arrays, machine = example()
    parts = machine.parts
    plans = [_native.Plan(*parts)]
    machine.pause = plans.clear
    check(plans[0].run((4,)), arrays, 4)
    assert plans == []


def test_plans_in_a_cycle_are_collected():
    arrays, machine = example()
    array = weakref.ref(arrays[0])
    gone = weakref.ref(machine)
    answer = machine.plan.run((1,))
    machine.answers.clear()
    machine.forward = machine.backward = None
    machine._forward = machine._backward = None
    del arrays, machine
    gc.collect()
    assert (gone(), array()) == (None, None)
    assert answer[1]["w"].tolist() == [[1.0, 17.0, 1.0], [1.0, 1.0, 1.0]]


def test_a_gradient_outlives_its_plan_and_each_part_the_others():
    _, machine = example()
    gradient = machine.plan.run((1,))[1]
    part = gradient[3][0]
    del gradient, machine
    gc.collect()
    assert part == 1.0
    part += 1.0
    assert part == 2.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_stays_behind():
    arrays, machine = example(extra=20)
    failing = _native.Plan(*machine.without(1, ["f0", "missing"]))
    checks = _native.Checks(
        (({"a": arrays}, ("a", arrays)), (test_nothing_stays_behind, "__code__", None))
    )
    quick = machine.plan
    shapes = itertools.cycle([(2, 3), (3, 2)])

    def step():
        quick.run((1,))
        quick.run((99,))
        arrays[0].shape = next(shapes)
        quick.run((2,))
        arrays[0].shape = (2, 3)
        with pytest.raises((ValueError, KeyError)):
            failing.run((1,))
        checks.failed()
        _native.integers((1, [1, 2, 3000], [4]))
        _native.integers((1, [1, 2, 3000], [None]))
        _native.Plan(*machine.parts)
        for wrong in (machine.without(10, -1), machine.with_arena(5, None)):
            with pytest.raises((TypeError, ValueError)):
                _native.Plan(*wrong)
        with pytest.raises(TypeError):
            _native.Checks((([], ()), (1,)))

    watched = [machine, *arrays, machine.shared, machine.gathers, checks, None]
    for _ in range(200):
        step()
    gc.collect()
    counts, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    steps = count(ci=500, soak=20_000)
    for _ in range(steps):
        step()
    gc.collect()
    grown = [sys.getrefcount(x) - n for x, n in zip(watched, counts, strict=True)]
    assert max(map(abs, grown)) < steps / 10, grown
    assert sys.getallocatedblocks() - blocks < steps / 10
