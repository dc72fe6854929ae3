"""Types of the native engine, whose C sources are in src/native.

``chainrule.core.native`` puts the rest of ``Value`` on the class. Most arguments of type ``Any``
are buffers of numbers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, final, overload

from typing_extensions import disjoint_base

from chainrule.core.ops import Op
from chainrule.core.protocols import Protocols

@final
class Modes:
    grad: bool
    allow_nonfinite: bool
    debug: bool
    tangents: bool
    graph_asked: bool
    recorder: Any
    nested: int
    @property
    def outermost(self) -> list[Value] | None: ...
    again: int
    internal: int

modes: Final[Modes]

@disjoint_base
class Value(Protocols):
    __signature__: Any
    def __new__(cls, *args: Any, **kwargs: Any) -> Value: ...
    def __init__(
        self,
        data: float,
        children: Iterable[Value] = ...,
        local_grads: Iterable[float] | str = ...,
        label: str = ...,
        *,
        op: str = ...,
        _children: Iterable[Value] = ...,
        _op: str = ...,
    ) -> None: ...
    @property
    def data(self) -> float: ...
    @data.setter
    def data(self, number: float) -> None: ...
    @property
    def grad(self) -> float: ...
    @grad.setter
    def grad(self, number: float) -> None: ...
    @property
    def label(self) -> str: ...
    @label.setter
    def label(self, text: str) -> None: ...
    @property
    def op(self) -> str: ...
    @property
    def children(self) -> tuple[Value, ...]: ...
    @property
    def local_grads(self) -> tuple[float, ...]: ...
    _rule: Op | str | None
    _parameters: tuple[float, ...]
    @property
    def _number(self) -> float: ...
    _inputs: tuple[Value, ...]
    _slopes: tuple[float, ...]
    @property
    def _location(self) -> str | None: ...
    def backward(self, gradient: float = 1.0) -> None: ...
    def zero_grad(self) -> None: ...
    def _order(self) -> list[Value]: ...
    def _gradients(self, xs: list[Value], up_to: bool, /) -> list[float]: ...
    def _locate(self, line: str, /) -> None: ...
    def _build(
        self,
        data: float,
        grad: float,
        label: str,
        rule: Op | str,
        parameters: tuple[float, ...],
        children: tuple[Value, ...],
        local_grads: tuple[float, ...],
        /,
    ) -> None: ...
    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value: ...
    def __add__(self, other: Value | float, /) -> Value: ...
    def __radd__(self, other: Value | float, /) -> Value: ...
    def __sub__(self, other: Value | float, /) -> Value: ...
    def __rsub__(self, other: Value | float, /) -> Value: ...
    def __mul__(self, other: Value | float, /) -> Value: ...
    def __rmul__(self, other: Value | float, /) -> Value: ...
    def __truediv__(self, other: Value | float, /) -> Value: ...
    def __rtruediv__(self, other: Value | float, /) -> Value: ...
    def __pow__(self, other: Value | float, modulo: None = None, /) -> Value: ...
    def __rpow__(self, other: Value | float, modulo: None = None, /) -> Value: ...
    def __neg__(self) -> Value: ...
    def __pos__(self) -> Value: ...
    def __abs__(self) -> Value: ...
    def __bool__(self) -> bool: ...
    def __lt__(self, other: Value | float, /) -> bool: ...
    def __le__(self, other: Value | float, /) -> bool: ...
    def __gt__(self, other: Value | float, /) -> bool: ...
    def __ge__(self, other: Value | float, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def topological_order(value: Value, /) -> list[Value]: ...
def vsum(values: Iterable[Value | float], /) -> Value: ...
def dot(a: Iterable[Value | float], b: Iterable[Value | float], /) -> Value: ...
def linear(x: Iterable[Value | float], w: Iterable[Iterable[Value | float]], /) -> list[Value]: ...
def allocation_counts() -> tuple[int, int, int]: ...
def flatten(
    inputs: list[Value],
    nodes: list[Value],
    gathers: list[Value] = ...,
    wanted: list[Value] = ...,
    /,
) -> tuple[
    bytearray,
    bytearray,
    bytearray,
    bytearray,
    list[Op],
    bytearray,
    bytearray,
    bytearray,
    Value | None,
]: ...
def canonicalise(
    inputs: int,
    codes: Any,
    operands: Any,
    constants: Any,
    number: Any,
    roles: Any,
    identities: Any,
    classes: Any,
    wanted: Any,
    places: Any,
    order: Any,
    first: Any,
    candidate_at: Any,
    candidates: Any,
    begins: Any,
    iterations: Any,
    tokens: Any,
    keep_dead: bool,
    /,
) -> tuple[bytearray, ...]: ...
def stand_in(kind: type[Any], float64: type[Any], floating: type[Any], /) -> None: ...
def stand_ins(recorder: Any, values: list[Value], kind: type[Any], /) -> list[Any]: ...
def exchange(names: dict[str, Any], places: tuple[tuple[str, Any, Any], ...], /) -> None: ...
def choose(items: list[Any], rule: Op, start: float, /) -> Any: ...
def set_arrays(array: type[Any], of_data: type[Any], iterator: type[Any], /) -> None: ...
def items(array: Any, /) -> Any: ...
def zip_items(*iterables: Any, strict: bool = False) -> zip[Any]: ...
def set_hooks(
    asked: Callable[[Any, str], Any],
    read: Callable[[Any, Any], Any],
    called: Callable[[Any], Any],
    changing: Callable[[Any], Any],
    names: frozenset[str],
    silent: frozenset[type[Any]],
    substitutes: dict[Any, Any],
    stand_in: type[Any],
    keyed: type[Any],
    cache: type[Any],
    /,
) -> None: ...
def asked(x: Any, name: str, /) -> Any: ...
def read(container: Any, key: Any, /) -> Any: ...
def called(function: Any, /) -> Any: ...
def iadd(a: Any, b: Any, /) -> Any: ...
def imul(a: Any, b: Any, /) -> Any: ...
def ior(a: Any, b: Any, /) -> Any: ...
def ixor(a: Any, b: Any, /) -> Any: ...
def record_row(op: Op, operands: tuple[Any, ...], /) -> Value | None: ...
def apply_row(op: Op, /, *operands: Any) -> Value: ...
def group_shapes(
    kinds: Any, signatures: Any, leaf: int, most: int, all: bool, /
) -> tuple[bytearray, bytearray, bytearray, bytearray | None] | None: ...
def gather(values: tuple[Value, ...], out: Any, /) -> None: ...
def swap_grads(values: list[Value], numbers: Any, /) -> None: ...
def compiled_node(y: float, name: str, children: tuple[Value, ...], slopes: Any, /) -> Value: ...

@final
class Arguments:
    def __new__(
        cls,
        array: type[Any],
        empty: Callable[..., Any],
        numbers: tuple[type[Any], ...],
        leaf: type[Any],
        field: Any,
        fill_values: Callable[..., Any],
        fill_numbers: Callable[..., Any],
        /,
    ) -> Arguments: ...
    def with_values(self, x: Any, /) -> tuple[Any, list[Value]] | None: ...
    def with_numbers(self, x: Any, numbers: list[Any], /) -> Any: ...

@final
class Derivation:
    @property
    def function(self) -> Callable[..., Any]: ...
    def __new__(
        cls,
        function: Callable[..., Any],
        arguments: Arguments,
        slow: Callable[..., Any],
        finish: Callable[..., Any],
        plain: Callable[..., Any],
        argnums: int | tuple[int, ...],
        aux: int,
        only_slopes: bool,
        /,
    ) -> Derivation: ...
    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...

@final
class Items:
    def __iter__(self) -> Items: ...
    def __next__(self) -> Any: ...

@disjoint_base
class Number:
    """Its operators call ``combined`` and ``opposite`` of the class where more is to be done."""

    @property
    def _recorder(self) -> Any: ...
    @property
    def _value(self) -> Value: ...
    @property
    def kind(self) -> type[Any]: ...
    @property
    def is_data(self) -> bool: ...
    def __new__(
        cls, recorder: Any, value: Value, is_data: bool = False, kind: type[Any] = ...
    ) -> Self: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...

@disjoint_base
class Watched:
    told: bool
    texts: bool
    either: dict[int, Value]
    watched: set[int]
    simple: set[type[Any]]
    known: set[int]
    _detached: dict[int, tuple[Value, Value]]
    true_sites: frozenset[str] | None

@final
class Instructions:
    def __new__(
        cls,
        inputs: list[Value],
        users: list[Value],
        like: tuple[int, Any, Any, Any, Any] | None,
        marks: tuple[int, int] | None = None,
        /,
    ) -> Instructions: ...
    def __len__(self) -> int: ...
    def __contains__(self, node: object, /) -> bool: ...
    def add(self, node: Value, /) -> int: ...
    def finish(
        self, numbers: list[Value], gathers: list[Value], wanted: list[Value], /
    ) -> tuple[
        tuple[bytearray, bytearray, bytearray, bytearray] | None,
        list[Op],
        bytearray,
        bytearray,
        bytearray,
        Value | None,
    ]: ...
    def clear(self) -> None: ...
    def candidates(self, items: tuple[Value, ...], /) -> int: ...
    def choose(self, leaf: Value, item: Value, candidates: int, integers: int, /) -> None: ...
    def mark(self, value: Value, /) -> tuple[int, float] | None: ...
    def hashed(self) -> bytearray: ...

@final
class Tape:
    def __new__(
        cls,
        inputs: int,
        codes: Any,
        operands: Any,
        constants: Any,
        number: Any,
        unflagged: Any,
        rules: Sequence[Op],
        guards: Any,
        expected: Any,
        /,
    ) -> Tape: ...
    def run(self, inputs: Any, /) -> tuple[int, int]: ...
    def sweep(self, root: int, seed: float, out: Any, /) -> None: ...
    def point(self, places: Any, positions: Any, /) -> None: ...
    def number(self, position: int, /) -> float: ...
    def numbers(self, positions: Any, out: Any, /) -> None: ...

@final
class Checks:
    def __new__(cls, checks: tuple[tuple[Any, ...], ...], /) -> Checks: ...
    def failed(self) -> int: ...

def same_bytes(array: Any, contents: bytes, /) -> bool: ...
def sample_numbers(
    samples: list[Any], array: type, number: type, floats: Any, integers: Any, /
) -> int: ...
def array_address(array: Any, /) -> int: ...
def holds_memory(things: list[Any], bounds: Any, array: type, /) -> bool | None: ...
def longest_sample(samples: list[Any], /) -> int: ...
def pack_samples(
    samples: list[Any],
    kinds: list[list[tuple[Decider, Any, Any, Any, int]]],
    used: int,
    which: Any,
    shapes: Any,
    open: Any,
    choice: Any,
    kept: Any,
    starts: Any,
    numbers: Any,
    own: Any,
    gathered: Any,
    fits: Any,
    rows: Any,
    /,
) -> int: ...
def sample_integers(samples: list[Any], which: Any, lengths: Any, /) -> bytearray: ...
@overload
def sample_shapes(samples: list[Any], which: Any, lists: int, /) -> tuple[list[int], list[int]]: ...
@overload
def sample_shapes(
    samples: list[Any], which: Any, lists: int, starts: Any, most: int, /
) -> tuple[list[int], list[int], bytearray]: ...

@final
class Decider:
    def __new__(
        cls,
        arguments: int,
        constants: Any,
        steps: Any,
        pool: Any,
        floats: Any,
        gathers: Any,
        candidates: Any,
        numbers: Any,
        /,
    ) -> Decider: ...
    def decide(self, integers: Sequence[int], selected: Any, numbers: Any, /) -> int: ...
    def decide_rows(self, integers: Any, selected: Any, numbers: Any, found: Any, /) -> None: ...

@final
class Passed:
    @property
    def signature(self) -> bytes: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    def come_once(self, containers: list[Any], /) -> bool: ...

def passed(
    arguments: tuple[Any, ...],
    array: type[Any],
    number: type[Any],
    differentiate: bool,
    opened: dict[type[Any], Any],
    shapes: bool = ...,
    /,
) -> Passed | None: ...

@final
class Plan:
    def __new__(
        cls,
        shapes: tuple[tuple[int, ...] | None, ...],
        first: int,
        template: Any,
        record: Any,
        make: Any,
        decider: Decider,
        owner: Any,
        forward: int,
        backward: int,
        arenas: tuple[Any, ...],
        root: Any,
        targets: Any = ...,
        fixed: Any = ...,
        only_finite: bool = ...,
        captured: tuple[Any, ...] = ...,
        extras: Any = ...,
        extra_at: Any = ...,
        begins: Any = ...,
        /,
    ) -> Plan: ...
    def run(self, call: Passed, out: Any = ..., /) -> Any: ...

@final
class CachedCall:
    def __new__(
        cls,
        plan: Plan,
        variant: Any,
        binding: Any,
        finish: Any,
        finite_data: bool,
        takes_call: bool = ...,
        /,
    ) -> CachedCall: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def variant(self) -> Any: ...
    @property
    def binding(self) -> Any: ...
    @property
    def finish(self) -> Any: ...
    otherwise: Any

@final
class Lock:
    def __new__(cls, *args: Any, **kwargs: Any) -> Lock: ...
    def acquire(self, blocking: bool = ...) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *args: Any) -> None: ...

@final
class Gate:
    def __new__(
        cls, lock: Lock, array: type[Any], number: type[Any], enter: Callable[[], Any], /
    ) -> Gate: ...
    busy: bool
    quick: int
    resting: int
    tried: int
    due: int
    failed: int
    path: Any
    derivation: Derivation | None
    @property
    def answered(self) -> Any: ...
    @property
    def is_due(self) -> bool: ...
    def answer(self, arguments: tuple[Any, ...], differentiate: bool, out: Any = ..., /) -> Any: ...
    def mean(self, params: Any, samples: list[Any], /) -> Any: ...
    def rows(self, params: Any, samples: list[Any], /) -> tuple[bytearray, bytearray] | None: ...
    def rest(self) -> bool: ...
    def take_rested(self) -> int: ...

@disjoint_base
class Entrance:
    _gate: Any
    _named: Any
    _wanted: int
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def value_and_grad(self, /, *arguments: Any, out: Any = None, **keywords: Any) -> Any: ...

@disjoint_base
class DerivedEntrance:
    _gate: Any
    _wanted: int
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@disjoint_base
class Bound:
    gate: Gate
    arguments: tuple[Any, ...]
    gradient: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def fill(to: Any, from_: Any, array: type[Any], /) -> bool: ...
def adam(
    values: Sequence[Value],
    m: Any,
    v: Any,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    bias1: float,
    bias2: float,
    decay: float,
    /,
) -> None: ...
def sgd(
    values: Sequence[Value], velocity: Any, lr: float, momentum: float, decay: float, /
) -> None: ...
def adam_array(
    p: Any,
    grad: Any,
    m: Any,
    v: Any,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    bias1: float,
    bias2: float,
    decay: float,
    /,
) -> None: ...
def sgd_array(
    p: Any, grad: Any, velocity: Any, lr: float, momentum: float, decay: float, /
) -> None: ...
