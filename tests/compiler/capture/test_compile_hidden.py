"""What hides in objects, classes, containers, wrappers and modules: every change is seen."""

import builtins
import operator
import sys
from collections import Counter

import numpy as np
import pytest
from compile_twins import Box, all_replayed, graded, same

import chainrule
from chainrule import Value, vsum

SCALE = 2.0


def helper(x):
    return x * SCALE


def scaled(x):
    return x * SCALE


class Model:
    rate = 3.0

    def __init__(self, beta):
        self.beta = beta
        self.weight = Value(2.0)
        self.layers = [Value(1.0), Value(2.0)]

    def scale(self, x):
        return x * self.beta * self.rate

    def loss(self, x):
        return vsum([self.scale(x) * self.weight, *(w * x for w in self.layers)])


class Child(Model):
    pass


@pytest.mark.parametrize("kind", [Model, Child])
def test_attributes_of_self_changed_are_seen(kind):
    def script(compile):
        model = kind(2.0)
        fast = compile(model.loss)
        x = Value(1.5)
        yield graded(fast(x), x, model.weight)
        model.beta = 5.0
        yield graded(fast(x), x, model.weight)
        model.weight = Value(-1.0)
        yield graded(fast(x), x, model.weight)
        model.layers.pop()
        yield graded(fast(x), x, model.weight)
        model.rate = 10.0  # hides the attribute of the class
        yield graded(fast(x), x, model.weight)
        model.scale = lambda x: x * 100
        yield graded(fast(x), x, model.weight)

    same(script)


@pytest.mark.parametrize("kind", [Model, Child])
def test_attributes_of_classes_changed_are_seen(kind, monkeypatch):
    def script(compile):
        monkeypatch.setattr(Model, "rate", 3.0)
        model = kind(2.0)
        fast = compile(model.loss)
        x = Value(1.5)
        yield fast(x)
        monkeypatch.setattr(Model, "rate", 7.0)
        yield fast(x)
        with monkeypatch.context() as patch:
            patch.setattr(Model, "scale", lambda self, x: x * 50)
            yield fast(x)
        yield fast(x)
        if kind is Child:
            with monkeypatch.context() as patch:
                patch.setattr(Child, "rate", 11.0, raising=False)
                yield fast(x)

    same(script)


class Settings:
    beta = 2.0

    @property
    def doubled(self):
        return 2 * Settings.beta

    @staticmethod
    def tripled():
        return 3 * Settings.beta

    @classmethod
    def squared(cls):
        return cls.beta**2


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * Settings.beta,
        lambda x: x * Settings().doubled,
        lambda x: x * Settings.tripled(),
        lambda x: x * Settings.squared(),
        lambda x: x * getattr(Settings, "be" + "ta"),
    ],
)
def test_a_class_used_as_a_namespace_is_seen(f):
    def script(compile):
        Settings.beta = 2.0
        fast = compile(f)
        x = Value(3.0)
        for Settings.beta in (2.0, 5.0, 2.0):
            yield fast(x)

    same(script)


class BaseWithGlobal:
    def scale(self, x):
        return x * SCALE


class DerivedFromIt(BaseWithGlobal):
    def loss(self, x):
        return self.scale(x) + 1


class DerivedBySuper(BaseWithGlobal):
    def scale(self, x):
        return super().scale(x) * 2

    loss = scale


@pytest.mark.parametrize("kind", [DerivedFromIt, DerivedBySuper])
def test_globals_of_inherited_methods_are_seen(kind):
    def script(compile):
        global SCALE
        SCALE = 2.0
        fast = compile(kind().loss)
        x = Value(3.0)
        for SCALE in (2.0, 5.0, 3.0):  # noqa: B007
            yield fast(x)

    same(script)


class Slotted:
    __slots__ = ("beta", "weight")

    def __init__(self, beta, weight):
        self.beta, self.weight = beta, weight


def test_attributes_in_slots_are_seen():
    def script(compile):
        box = Slotted(2.0, Value(3.0))
        fast = compile(lambda x: x * box.beta * box.weight)
        x = Value(1.5)
        yield graded(fast(x), x, box.weight)
        box.beta = 5.0
        yield graded(fast(x), x, box.weight)
        box.weight = Value(-1.0)
        yield graded(fast(x), x, box.weight)
        box.weight.data = 4.0
        yield graded(fast(x), x, box.weight)

    same(script)


class SlottedChild(Slotted):
    __slots__ = ("gamma",)


def test_attributes_in_inherited_slots_are_seen():
    def script(compile):
        box = SlottedChild(2.0, 1.0)
        box.gamma = 3.0
        fast = compile(lambda x: x * box.beta * box.gamma)
        x = Value(1.5)
        yield fast(x)
        box.beta = 5.0
        yield fast(x)
        box.gamma = 7.0
        yield fast(x)

    same(script)


def opaque_containers():
    import array
    import collections
    import types as kinds

    hidden = [1.0, 2.0]
    table = {"a": 1.0, "b": 2.0}
    numbers = array.array("d", [1.0, 2.0])
    raw = bytearray([1, 2])
    named = kinds.SimpleNamespace(a=1.0)
    queue = collections.deque([1.0, 2.0])
    counted = Counter({"a": 1, "b": 2})
    ordered = collections.OrderedDict(a=1.0, b=2.0)
    default = collections.defaultdict(float, a=1.0)
    chain = collections.ChainMap({"a": 1.0}, {"b": 2.0})
    user = collections.UserList([1.0, 2.0])
    members = {1.0, 2.0}
    proxy = kinds.MappingProxyType(table)
    view = memoryview(numbers)
    values = table.values()
    return {
        "list": (lambda: hidden[0], lambda: hidden.__setitem__(0, 9.0)),
        "dict": (lambda: table["a"], lambda: table.__setitem__("a", 9.0)),
        "array.array": (lambda: numbers[0], lambda: numbers.__setitem__(0, 9.0)),
        "bytearray": (lambda: raw[0], lambda: raw.__setitem__(0, 9)),
        "SimpleNamespace": (lambda: named.a, lambda: setattr(named, "a", 9.0)),
        "deque": (lambda: queue[0], lambda: queue.appendleft(9.0)),
        "length of a deque": (lambda: float(len(queue)), lambda: queue.append(9.0)),
        "Counter": (lambda: counted["a"], lambda: counted.update("aaa")),
        "OrderedDict": (lambda: ordered["a"], lambda: ordered.update(a=9.0)),
        "order of an OrderedDict": (
            lambda: next(iter(ordered.values())),
            lambda: ordered.move_to_end("a"),
        ),
        "defaultdict": (lambda: default["a"], lambda: default.update(a=9.0)),
        "ChainMap": (lambda: chain["b"], lambda: chain.maps[1].update(b=9.0)),
        "UserList": (lambda: user[0], lambda: user.insert(0, 9.0)),
        "set": (lambda: float(sum(members)), lambda: members.add(9.0)),
        "membership in a set": (lambda: 1.0 if 7.0 in members else 2.0, lambda: members.add(7.0)),
        "mappingproxy": (lambda: proxy["a"], lambda: table.__setitem__("a", 9.0)),
        "memoryview": (lambda: view[0], lambda: numbers.__setitem__(0, 9.0)),
        "dict view": (lambda: max(values), lambda: table.__setitem__("b", 9.0)),
    }


@pytest.mark.parametrize("name", opaque_containers())
def test_a_container_of_any_kind_that_changes_is_seen(name):
    def script(compile):
        read, change = opaque_containers()[name]
        fast = compile(lambda x: x * read() + 1)
        x = Value(3.0)
        yield fast(x)
        yield fast(x)
        change()
        yield fast(x)
        yield fast(x)

    same(script)


def partials():
    import functools

    box = [2.0]
    weight = Value(3.0)
    return {
        "list in a partial": (functools.partial(lambda b, x: x * b[0], box), box),
        "keyword in a partial": (functools.partial(lambda x, b: x * b[0], b=box), box),
        "closure in a partial": (functools.partial(lambda x: x * box[0]), box),
        "value in a partial": (functools.partial(lambda w, x: x * w * box[0], weight), box),
        "lru_cache": (functools.lru_cache(lambda x: x * box[0]), None),
        "wraps": (functools.wraps(helper)(lambda x: x * box[0]), box),
        "bound builtin": ((lambda read=box.__getitem__: lambda x: x * read(0))(), box),
        "itemgetter": (lambda x, get=operator.itemgetter(0): x * get(box), box),
        "reduce": (lambda x: functools.reduce(operator.mul, box, x), box),
        "method of a list": (lambda x: x * box.copy()[-1], box),
    }


@pytest.mark.parametrize("name", partials())
@pytest.mark.parametrize("inside", [True, False])
def test_what_hides_in_wrapped_functions_is_seen(name, inside):
    def script(compile):
        f, box = partials()[name]
        fast = compile((lambda x: f(x) + 1) if inside else f)
        x = Value(1.5)
        yield graded(fast(x), x)
        x.data = 2.5
        yield graded(fast(x), x) if box else 0
        if box:
            box[0] = 9.0
            yield graded(fast(x), x)

    same(script)


def test_a_cached_helper_keeps_what_it_cached_as_in_eager():
    import functools

    def script(compile):
        @functools.lru_cache
        def embedded(token):
            return [1.0, 2.0, 3.0][token]

        @functools.lru_cache
        def squared(v):
            return v * v

        fast = compile(lambda x, t: x * embedded(t) + squared(x))
        x = Value(1.5)
        for t in (0, 1, 2, 0):
            yield graded(fast(x, t), x)

    same(script)


class ListOfOnesOwn(list):
    pass


class TupleOfOnesOwn(tuple):
    pass


class SetOfOnesOwn(set):
    pass


class DictOfOnesOwn(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


def subclassed_containers():
    import collections
    import ctypes
    import io

    class DequeOfOnesOwn(collections.deque):
        pass

    class ArrayOfOnesOwn(np.ndarray):
        pass

    items, members, queue = ListOfOnesOwn([1.0, 2.0]), SetOfOnesOwn([1.0]), DequeOfOnesOwn([1.0])
    mapping, array = DictOfOnesOwn(a=1.0), np.arange(3.0).view(ArrayOfOnesOwn)
    text = io.StringIO("12345")

    class Fields(ctypes.Structure):
        _fields_ = (("a", ctypes.c_double),)

    fields, raw = Fields(1.0), (ctypes.c_double * 2)(1.0, 2.0)
    keyed, tupled = Box(scale=1.0), TupleOfOnesOwn((1.0,))
    tupled.scale = 1.0
    by_object = {keyed: 1.0}
    error = ValueError(1.0)
    return {
        "list": (lambda: items[0], lambda: items.insert(0, 9.0)),
        "set": (lambda: sum(members), lambda: members.add(9.0)),
        "deque": (lambda: queue[0], lambda: queue.appendleft(9.0)),
        "dict": (lambda: mapping["a"], lambda: mapping.update(a=9.0)),
        "array": (lambda: float(array[0]), lambda: array.__setitem__(0, 9.0)),
        "text stream": (lambda: float(text.getvalue()), lambda: text.write("9")),
        "ctypes structure": (lambda: fields.a, lambda: setattr(fields, "a", 9.0)),
        "ctypes array": (lambda: raw[0], lambda: raw.__setitem__(0, 9.0)),
        "key of a dict": (
            lambda: next(iter(by_object)).scale,
            lambda: setattr(keyed, "scale", 9.0),
        ),
        "attribute of a tuple": (lambda: tupled.scale, lambda: setattr(tupled, "scale", 9.0)),
        "exception": (lambda: error.args[0], lambda: setattr(error, "args", (9.0,))),
    }


@pytest.mark.parametrize("name", subclassed_containers())
def test_a_container_of_ones_own_class_that_changes_is_seen(name):
    def script(compile):
        read, change = subclassed_containers()[name]
        fast = compile(lambda x: x * read() + 1)
        x = Value(3.0)
        yield fast(x)
        yield fast(x)
        change()
        yield fast(x)

    same(script)


def library_wrappers():
    import contextlib
    import functools

    @contextlib.contextmanager
    def scope():
        yield SCALE

    def within(x):
        with scope() as scale:
            return x * scale

    @functools.singledispatch
    def dispatched(x):
        return x * SCALE

    @dispatched.register
    def _(x: int):
        return x

    @functools.wraps(scaled)
    def wrapped(x):
        return scaled(x) * wrapped.factor

    wrapped.factor = 1.0
    vectorised = np.vectorize(lambda x: x * SCALE, otypes=[object])
    return {
        "contextmanager": within,
        "singledispatch": lambda x: dispatched(x) + 1,
        "wraps": wrapped,
        "vectorize": lambda x: vectorised(np.array([x], dtype=object))[0],
        "map": lambda x: vsum(map(scaled, [x, x])) + 1,
        "sorted key": lambda x: sorted([x, x * SCALE], key=lambda v: v.data * SCALE)[0] * 2,
        "reduce": lambda x: __import__("functools").reduce(lambda a, b: a * SCALE + b, [x, x]),
        "decorated": contextlib.ExitStack and (lambda x: scaled(x) * 2),
    }


@pytest.mark.parametrize("name", library_wrappers())
def test_globals_behind_wrappers_of_the_library_are_seen(name):
    def script(compile):
        global SCALE
        SCALE = 2.0
        f = library_wrappers()[name]
        fast = compile(f)
        x = Value(3.0)
        for SCALE in (2.0, 5.0, -1.0):  # noqa: B007
            yield fast(x)
        if name == "wraps":
            f.factor = 7.0
            yield fast(x)

    same(script)


class Meta(type):
    scale = 2.0

    def scaled(cls, x):
        return x * cls.scale


class WithMeta(metaclass=Meta):
    pass


def test_attributes_of_a_metaclass_are_seen():
    def script(compile):
        Meta.scale = 2.0
        fast = compile(lambda x: WithMeta.scaled(x) * WithMeta.scale)
        x = Value(3.0)
        for Meta.scale in (2.0, 5.0):
            yield fast(x)

    same(script)


class Parameter(Value):
    frozen = False

    def scaled(self):
        return self * 2


class Scaled(Parameter):
    def scaled(self):
        return self * 5


def test_the_class_and_the_attributes_of_a_captured_value_are_seen():
    def script(compile):
        p, x = Parameter(2.0), Value(3.0)
        fast = compile(lambda x: x * 3 if p.frozen else p.scaled() * x)
        yield graded(fast(x), p, x)
        p.frozen = True
        yield graded(fast(x), p, x)
        p.frozen = False
        p.__class__ = Scaled
        yield graded(fast(x), p, x)

    same(script)


class Rate(float):
    pass


RATE = Rate(1.0)


DOUBLED = np.frompyfunc(lambda v: v * SCALE, 1, 1)


def test_attributes_of_numbers_and_text_of_ones_own_class_are_seen():
    def script(compile):
        RATE.factor = 2.0
        fast = compile(lambda x: x * RATE.factor * RATE)
        x = Value(3.0)
        for RATE.factor in (2.0, 5.0):
            yield fast(x)

    same(script)


def test_a_ufunc_made_of_a_python_function_is_seen():
    def script(compile):
        global SCALE
        SCALE = 2.0
        fast = compile(lambda x: DOUBLED(x) + 1)
        x = Value(3.0)
        for SCALE in (2.0, 5.0):  # noqa: B007
            yield fast(x)

    same(script)


def test_modules_reached_by_computed_names_are_seen(monkeypatch):
    import importlib
    import types

    module = types.ModuleType("chainrule_trap_module")
    monkeypatch.setitem(sys.modules, "chainrule_trap_module", module)
    functions = [
        lambda x: x * getattr(module, "be" + "ta"),
        lambda x: x * importlib.import_module("chainrule_trap_module").beta,
        lambda x: x * sys.modules["chainrule_trap_module"].beta,
        lambda x: x * __import__("chainrule_trap_module").beta,
        lambda x: x * vars(module)["beta"],
        lambda x: x * module.__dict__["beta"],
        lambda x: x * operator.attrgetter("beta")(module),
    ]

    def script(compile):
        module.beta = 2.0
        fast = [compile(f) for f in functions]
        x = Value(3.0)
        for module.beta in (2.0, 5.0):
            yield [f(x) for f in fast]

    same(script)


def test_a_name_put_into_builtins_is_seen(monkeypatch):
    def script(compile):
        fast = compile(lambda x: x * CHAINRULE_TRAP)  # noqa: F821
        x = Value(3.0)
        for number in (2.0, 5.0):
            monkeypatch.setattr(builtins, "CHAINRULE_TRAP", number, raising=False)
            yield fast(x)

    same(script)


def everyday_classes():
    import abc
    import collections
    import dataclasses
    import enum
    import typing

    class Abstract(abc.ABC):
        factor = 2.0

        @abc.abstractmethod
        def scaled(self, x): ...

    class Concrete(Abstract):
        def scaled(self, x):
            return x * self.factor

    class Scaling(typing.Protocol):
        def scaled(self, x): ...

    class Conforming(Scaling):
        def __init__(self):
            self.factor = 2.0

        def scaled(self, x):
            return x * self.factor

    kind = typing.TypeVar("kind")

    class Parametrised(typing.Generic[kind]):
        def scaled(self, x: kind) -> kind:
            return x * 2

    class Named(typing.NamedTuple):
        first: float
        second: float

    pair = collections.namedtuple("pair", "first second")

    class Kind(enum.Enum):
        SMALL = 2.0
        LARGE = 3.0

    @dataclasses.dataclass
    class Data:
        factor: float = 2.0
        items: list = dataclasses.field(default_factory=list)

        def scaled(self, x):
            return x * self.factor

    @dataclasses.dataclass(slots=True, frozen=True, order=True)
    class Frozen:
        factor: float = 2.0

        def scaled(self, x):
            return x * self.factor

    class Evaluated:
        open = 3.0

        def eval(self):
            return 2.0

    concrete, conforming, parametrised, evaluated = (
        Concrete(),
        Conforming(),
        Parametrised(),
        Evaluated(),
    )
    network = chainrule.nn.MLP(2, [2, 1])
    return {
        "abstract class": lambda x: concrete.scaled(x),
        "protocol": lambda x: conforming.scaled(x),
        "generic": lambda x: parametrised.scaled(x),
        "NamedTuple": lambda x: x * Named(2.0, 3.0).second,
        "namedtuple": lambda x: x * pair(2.0, 3.0).second,
        "enumeration": lambda x: x * Kind.SMALL.value,
        "dataclass": lambda x: Data(3.0).scaled(x) + Data().scaled(x),
        "frozen dataclass": lambda x: Frozen(3.0).scaled(x) + Frozen().scaled(x),
        "names of builtins as attributes": lambda x: x * evaluated.eval() * evaluated.open,
        "network": lambda x: network([x, x * 2]) + vsum(network.parameters()),
        "local containers": lambda x: vsum(collections.deque([x, x * 2])) * Counter("ab")["a"],
        "typing": lambda x: typing.cast(float, x) * 2,
    }


@pytest.mark.parametrize("name", everyday_classes())
def test_everyday_classes_do_not_stand_in_the_way(name):
    f = everyday_classes()[name]

    def script(compile):
        fast = compile(f)
        x = Value(3.0)
        for x.data in (3.0, 4.0):
            yield fast(x)

    all_replayed(script)


def test_without_gradients_nobody_tells_how_a_value_was_made():
    def f(p, x):
        y = p[0] * x
        return y * (1 + len(y.op)) + len(y.children)

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        given = [Value(1.5), Value(2.0)]
        assert fast(given, 3.0).data == f(given, 3.0).data
        assert fast.value_and_grad([1.5, 2.0], 3.0)[0] == f(given, 3.0).data
        with chainrule.no_grad():
            assert fast(given, 3.0).data == f(given, 3.0).data == 4.5
