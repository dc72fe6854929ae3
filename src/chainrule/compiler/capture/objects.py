"""Which objects among the arguments of a call are looked into: records, items of enums, instances.

In: an object, or its class. Out: whether what it holds is all there is to it. That is so of a
record without methods. An instance of an ordinary class has its attributes, and beside them its
class, with methods, properties and constants: this is walked and compared as captured state is.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import reprlib
import types
import typing
from types import CodeType
from typing import Any

import numpy as np

from chainrule.compiler.capture import known
from chainrule.trees import Leaf, field_names

#: the files of functions that dataclasses and named tuples have from the standard library
_GENERATING = frozenset(x.__file__ for x in (dataclasses, collections, typing, reprlib))
#: what Python puts into classes; the rest are fields, or generated functions
_PYTHONS_OWN = frozenset(
    (
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__slots__"),
        "__slotnames__",  # which copying leaves behind
        "__classdictcell__",  # left in named tuples from 3.14 on
        *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
        *("__firstlineno__", "__static_attributes__", "__type_params__", "__parameters__"),
        *("__orig_bases__", "__match_args__", "__hash__", "__new__", "__getnewargs__"),
        *("__dataclass_fields__", "__dataclass_params__"),
        *("_fields", "_field_defaults", "_make", "_asdict", "_replace", "__replace__"),
    )
)
_BASES = (object, tuple, typing.Generic)
_OF_ANNOTATIONS = ("__annotate__", "__annotate_func__")  # functions, from Python 3.14 on
_CREATED = "__create_fn__.<locals>."  # where the text that dataclasses write has its functions
_OF_ITEMS = frozenset(("_value_", "_name_", "__objclass__", "_sort_order_", "_unhashable_values_"))
_CONSTANT = frozenset(
    (
        *(bool, int, float, complex, str, bytes, type(None), type(...), fractions.Fraction),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal),
    )
)
_ATOMS = (bool, int, float, str, bytes, type(None))
#: with one of these, attributes are not what they seem, or a copy that goes is noticed
_TAKING_OVER = (
    *("__getattr__", "__getattribute__", "__setattr__", "__delattr__"),
    *("__del__", "__class__", "__dict__", "__weakref__"),
)


def has_identity(kind: Any) -> bool:
    """Whether objects of a class are told from others by their address, as by ``==``."""
    return kind.__hash__ is object.__hash__ or kind.__eq__ is object.__eq__


def is_constant(x: Any) -> bool:
    """Whether it is a number, text or date, of which nothing can change.

    A class derived from str may have nothing of its own.
    """
    kind = type(x)
    if kind in _CONSTANT or (isinstance(x, np.generic) and kind.__module__ == "numpy"):
        return True
    if not isinstance(x, str) or getattr(x, "__dict__", None):
        return False
    return all(_PYTHONS_OWN.issuperset(vars(c)) for c in kind.__mro__ if c not in (str, object))


def is_itself(x: Any) -> bool:
    """Whether it is a function, which holds nothing that a call could pass."""
    if isinstance(x, types.BuiltinFunctionType):
        return isinstance(x.__self__, (types.ModuleType, type(None)))
    return type(x) is types.FunctionType or type(x) is np.ufunc


def is_plain_record(x: Any) -> bool:
    """Whether a named tuple or dataclass has its fields and nothing else to be asked for."""
    kind = type(x)
    is_tuple = isinstance(x, tuple)
    names = set(kind._fields if is_tuple else field_names(kind))
    attributes = getattr(x, "__dict__", {}).keys()
    if attributes - (() if is_tuple else names):
        return False
    if not is_tuple and any(field.metadata for field in dataclasses.fields(kind)):
        return False  # which its class keeps
    for cls in kind.__mro__:
        for name, item in () if cls in _BASES else vars(cls).items():
            code = getattr(item, "__code__", None)
            if code is None and not (name in names or name in _PYTHONS_OWN):
                return False
            if code is not None and not _is_generated(name, code):
                return False
    if is_tuple:
        return True  # of a dataclass its class may have what an instance was not given
    in_slots = {name for name in names if is_slot(kind, name) and hasattr(x, name)}
    return names == in_slots | attributes


def is_record_with_methods(x: Any) -> bool:
    """Whether a dataclass of an ordinary class has its fields, and no other attributes."""
    kind = type(x)
    names = field_names(kind)
    if not is_ordinary(kind) or isinstance(x, Leaf):
        return False
    return vars(x).keys() == set(names) and not any(_is_computed(kind, name) for name in names)


def has_only_fields(x: Any) -> bool:
    """Whether a named tuple or dataclass, which may have methods, is what it has in its fields."""
    kind, attributes = type(x), getattr(x, "__dict__", {})
    if isinstance(x, tuple):  # a class derived from one may make them in its own way
        return not attributes and {tuple, typing.Generic}.issuperset(kind.__bases__)
    in_slots = [n for n in field_names(kind) if is_slot(kind, n)]
    if [*attributes] != [n for n in field_names(kind) if n not in in_slots]:
        return False
    if any(_is_computed(kind, n) for n in attributes):
        return False
    return is_plain_record(x) or is_ordinary(kind)


def is_slot(kind: Any, name: str) -> bool:
    """Whether instances of a class keep an attribute in a slot."""
    return isinstance(getattr(kind, name, None), types.MemberDescriptorType)


def _is_computed(kind: type, name: str) -> bool:
    """Whether a class answers for an attribute of its instances, as by a property."""
    found = next((vars(cls)[name] for cls in kind.__mro__ if name in vars(cls)), None)
    return hasattr(type(found), "__set__") or hasattr(type(found), "__get__")


def is_ordinary(kind: type) -> bool:
    """Whether instances of a class are their attributes and what their class, in Python, says.

    Classes of libraries that are taken as they are, not walked, are not among these.
    """
    if type(kind) not in (type, abc.ABCMeta) or not kind.__dictoffset__:
        return False
    return all(_is_ordinary(cls) for cls in kind.__mro__ if cls not in (object, typing.Generic))


def _is_ordinary(cls: type) -> bool:
    if cls is abc.ABC:
        return True
    if vars(cls).get("__slots__") or known.is_pure_class(cls) or not known.is_python_class(cls):
        return False
    for name in _TAKING_OVER:
        item = vars(cls).get(name)
        code = getattr(item, "__code__", None)
        pythons = isinstance(item, types.GetSetDescriptorType) or item is None
        if not pythons and (code is None or not _is_generated(name, code)):
            return False
    return True


def _is_generated(name: str, code: CodeType) -> bool:
    """Whether a function of a record is not the user's: ``python -c`` has ``<string>`` too."""
    made = code.co_filename == "<string>" and code.co_qualname == _CREATED + name
    return made or name in _OF_ANNOTATIONS or code.co_filename in _GENERATING


def is_plain_item(x: enum.Enum) -> bool:
    """Whether an item of an enum is a name and a number or text, without methods or attributes."""
    kind = type(x)
    if issubclass(kind, enum.Flag) or type(x.value) not in _ATOMS or vars(x).keys() - _OF_ITEMS:
        return False
    for cls in kind.__mro__:
        if cls.__module__ in ("builtins", "enum"):
            continue
        for name, item in vars(cls).items():
            code = getattr(item, "__code__", None)
            pythons = name.startswith("_") and name.endswith("_") and code is None
            of_enum = isinstance(item, enum.Enum) or type(item).__module__ == "enum"
            generated = code is not None and code.co_filename == enum.__file__
            if not (pythons or of_enum or generated):
                return False
    return True
