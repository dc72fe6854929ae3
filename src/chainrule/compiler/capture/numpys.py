"""What may be done with an array of data while it is recorded: lists of numpy's own names.

A replay repeats arithmetic; it writes into no array. So what numpy offers is listed here by kind,
and what is not listed, as a function of a later numpy, ends the recording: the call runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.operators import UNARY
from chainrule.core.backend import modes


def _functions(module: Any, names: str) -> frozenset[Any]:
    """The functions of these names; those that this version of numpy lacks are left out."""
    return frozenset(getattr(module, name) for name in names.split() if hasattr(module, name))


#: types of items
BOOL, INT64, FLOAT64 = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64)
OBJECT = np.dtype(object)
#: arithmetic of the items, which is recorded; the result is a new array or a number
RECORDED = _functions(
    np,
    "sum prod mean var std dot inner outer vdot max min amax amin argmax argmin where clip cumsum "
    "diff trace concatenate concat stack vstack hstack any all roll take tile repeat einsum copy",
)
#: the same items in another shape: a write into the result is one into the array, where numpy's is
VIEWS = _functions(
    np,
    "transpose permute_dims matrix_transpose reshape ravel squeeze expand_dims atleast_1d "
    "atleast_2d atleast_3d flip flipud fliplr rot90 moveaxis rollaxis swapaxes diagonal diag split "
    "array_split hsplit vsplit dsplit broadcast_to real unstack",
)
#: these look at the shape and the type alone
SHAPES = _functions(
    np,
    "shape ndim size zeros_like ones_like empty_like iscomplexobj isrealobj result_type can_cast "
    "common_type diag_indices_from tril_indices_from triu_indices_from",
)
#: these read the numbers, which become static, and give new arrays
STATIC = (
    _functions(
        np,
        "allclose append argpartition argsort argwhere around array_equal array_equiv average "
        "bincount column_stack compress convolve corrcoef correlate count_nonzero cov cross "
        "cumprod cumulative_prod cumulative_sum delete diagflat digitize "
        "dstack ediff1d extract fix flatnonzero full_like geomspace gradient histogram histogram2d "
        "histogram_bin_edges histogramdd i0 insert interp intersect1d isclose isin isneginf "
        "isposinf isreal kron lexsort linspace logspace median nan_to_num nanargmax nanargmin "
        "nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile "
        "nanstd nansum nanvar nonzero packbits pad partition percentile poly polyadd polyder "
        "polydiv polyfit polyint polymul polysub polyval ptp quantile ravel_multi_index resize "
        "roots round searchsorted select setdiff1d setxor1d sinc sort take_along_axis "
        "tensordot trapezoid tril triu union1d unique unpackbits unravel_index unwrap vander",
    )
    | _functions(
        np.linalg,
        "norm vector_norm matrix_norm det slogdet inv pinv solve lstsq eig eigh eigvals eigvalsh "
        "svd svdvals qr cholesky matrix_rank matrix_power cond multi_dot",
    )
    | _functions(np.fft, "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 hfft ihfft")
)
#: with Values beside the data: the function works on the items, as in eager mode
BESIDE_VALUES = RECORDED | _functions(np, "tensordot kron cross convolve correlate")

#: methods of arrays too, where these have narrow integers or truths
METHODS = frozenset((np.sum, np.mean))

#: attributes of an array that are recorded: arithmetic by functions that ask ``__array_ufunc__``,
#: items, and what ``DataArray`` has of its own
RECORDED_ATTRIBUTES = frozenset(
    "__abs__ __add__ __and__ __divmod__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __iand__ "
    "__ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __invert__ __ior__ __ipow__ "
    "__irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ "
    "__mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdivmod__ __rfloordiv__ "
    "__rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ "
    "__rtruediv__ __rxor__ __sub__ __truediv__ __xor__ __bool__ __complex__ __contains__ __float__ "
    "__index__ __int__ __iter__ __len__ __setitem__ __copy__ __deepcopy__ all any argmax argmin "
    "astype clip copy cumsum dot fill flatten item max mean min prod repeat std sum take tolist "
    "trace var".split()
)
#: the same memory, by another shape
VIEW_ATTRIBUTES = frozenset(
    "T mT __getitem__ diagonal ravel real reshape squeeze swapaxes transpose view".split()
)
#: what reads the numbers, which become static
STATIC_ATTRIBUTES = frozenset(
    "argpartition argsort choose compress cumprod dumps nonzero round searchsorted tobytes".split()
)
#: what looks at no number
SHAPE_ATTRIBUTES = frozenset(
    "shape size ndim dtype itemsize nbytes __class__ __array_function__ __array_ufunc__ "
    "__array_finalize__ __array_priority__ __array_wrap__ __class_getitem__ __delattr__ "
    "__delitem__ __dir__ __doc__ __getattribute__ __hash__ __init__ __init_subclass__ __new__ "
    "__setattr__ __subclasshook__".split()
)
LISTED_ATTRIBUTES = RECORDED_ATTRIBUTES | VIEW_ATTRIBUTES | STATIC_ATTRIBUTES | SHAPE_ATTRIBUTES
#: all of an array's attributes that end the recording
REFUSED_ATTRIBUTES = frozenset(dir(np.ndarray)) - LISTED_ATTRIBUTES

# --- functions of numbers ---------------------------------------------------------------------

#: what stand-ins compute with
EXACT = frozenset((np.dtype(np.float64), np.dtype(np.int64)))
COMPARISONS = frozenset(
    (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal)
)
INTEGRAL = frozenset((np.floor_divide, np.remainder))
ARITHMETIC = frozenset(
    (
        *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive, np.absolute),
        *(np.power, np.square, np.matmul),
        *(getattr(np, name) for name in UNARY if hasattr(np, name)),
    )
)


def larger(a: Any, b: Any) -> Any:
    """``np.maximum`` of two numbers: what is not a number stays."""
    if a >= b:
        return a
    return b if b >= a or a == a else a


def smaller(a: Any, b: Any) -> Any:
    """``np.minimum`` of two numbers."""
    if a <= b:
        return a
    return b if b <= a or a == a else a


def _merging(function: Callable[[Any, Any], Any], is_max: bool) -> Any:
    """One of two numbers; where both sides of branches are computed, what stands for it."""

    def extreme(a: Any, b: Any) -> Any:
        recorder = modes.recorder
        if recorder is None or not recorder.both or recorder.forks:
            return function(a, b)
        test = a >= b if is_max else a <= b
        if not is_open(test):
            return function(a, b)
        try:
            same = a == a  # what is not a number stays
            other = one_of(same, b, a) if is_open(same) else b if same else a
            return one_of(test, a, other)
        except CannotMerge:
            return function(a, b)

    return np.frompyfunc(extreme, 2, 1)


EXTREMES: dict[Any, Any] = {
    np.maximum: _merging(larger, True),
    np.minimum: _merging(smaller, False),
}


def _of_objects(is_max: bool) -> Any:
    """The same of objects, as Python compares them."""

    def extreme(a: Any, b: Any) -> Any:
        test = a is b or (a >= b if is_max else a <= b)
        try:
            return one_of(test, a, b) if is_open(test) else a if test else b
        except CannotMerge:
            return a if test else b

    return np.frompyfunc(extreme, 2, 1)


#: for arrays of Values, where both sides of branches are computed
OF_OBJECTS: dict[Any, Any] = {np.maximum: _of_objects(True), np.minimum: _of_objects(False)}
