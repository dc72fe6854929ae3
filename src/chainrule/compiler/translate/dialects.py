"""What differs between the languages that source is written in: numpy, JAX and torch.

In: names of operations as formulas have them. Out: the text of a call, and the few helper functions
that a source needs because a library lacks one, or differs from chainrule where a derivative is a
convention (the largest of equal numbers, a clipped number at its bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chainrule.compiler.translate import torch_names


@dataclass(frozen=True, eq=False)
class Dialect:
    """One language: ``functions`` by the name of an operation, ``helpers`` by their own name."""

    name: str
    module: str  # what arrays are made with
    imports: tuple[str, ...]
    functions: Mapping[str, str]
    helpers: Mapping[str, str]
    detach: str  # a template
    gradients: bool = True
    rsqrt: str | None = None
    scans: bool = False  # it has a loop of its own,
    unrolled: int = 8  # for more iterations than these
    clamps: bool = False  # it moves an index that is out of range into it
    constants: str = "np"  # what masks and tables are made with
    # Templates: {0} is what they are about, {1} an array of the arguments, for its type and device.
    truths: str = "{0}"  # a mask
    places: str = "{0}"  # a table of integers
    table: str = "{0}"  # a table of numbers
    floats: str = "np.array({0})"  # the numbers of a table, exactly
    integers: str = "np.array({0})"
    numbers: str = "1.0 * {0}"  # integers or truths as numbers
    number: str = "{0}"  # a number of Python's where an array is needed
    filled: str = ""  # so many times {2}
    kept: str = "kept({0}, {1})"  # a mask for a length; here {2} is the array of the arguments
    backwards: bool = True  # slices may have a negative step
    methods: Mapping[str, str] = field(default_factory=dict)  # of arrays, by numpy's name


_ALIKE = {
    **{name: name for name in "exp expm1 log log1p log2 log10 sqrt abs".split()},
    **{name: name for name in "sin cos tan sinh cosh tanh maximum minimum".split()},
    **{name: name for name in "floor ceil trunc round sign floor_divide mod".split()},
    **{f"a{name}": f"arc{name}" for name in "sin cos tan sinh cosh tanh".split()},
}

_EXPECT = '''
def expect(*pairs):
    """The arguments are like those of the example, or another program is needed."""
    for found, wanted in pairs:
        if found != wanted:
            raise ValueError(f"this source is for {wanted!r}, not {found!r}: translate it again")
'''

#: the helper of a source whose function may ask for types
TYPES = "container_types"

_TYPES = '''
def container_types(x):
    """Which lists and arrays an argument consists of: the function may ask for their types."""
    if not isinstance(x, (list, tuple)):
        return "array" if getattr(x, "ndim", 0) else "number"
    return f"{type(x).__name__} of {' or '.join(sorted({container_types(item) for item in x}))}"
'''

_INTEGERS = '''
def integers(x, *shape):
    """An argument as an array of integers of the shape that it has in the example."""
    x = {}.asarray(x)
    if x.shape != shape or (x.size and x.dtype.kind not in "iu"):
        raise ValueError(f"this source is for {{shape}} integers, not {{x.shape}} of {{x.dtype}}")
    return x
'''

_INSIDE = '''
def inside(index, count):
    """A list's index counted from its beginning; far beyond any list where it has no such item."""
    return {0}.where((index >= -count) & (index < count), index % count, 10**6)
'''

_KEPT = '''
def kept(length, least{1}):
    """1 for what a list of this length has, 0 for what it lacks."""
    return (length >= least).astype({2})
'''

_BY_LENGTH = '''
def by_length(rows, length):
    """What belongs to this length."""
    return rows[{0}.argmax(length == LENGTHS)]
'''

_KNOWN = '''
def known(x, length):
    """x, or nan where the source is not for this length."""
    return x * {0}.where({0}.any(length == LENGTHS), 1.0, {0}.nan)
'''

_WITHIN = '''
def within(x, length):
    """A padded list, with its first item in every place beyond its end."""
    inside = {0}.arange(len(x)) < length
    return {0}.where(inside.reshape(-1, *[1] * (x.ndim - 1)), x, x[:1])
'''

_RANDOM_BITS = '''
def random_bits(a, b, counter, stream=0.0):
    """24 bits that look random, of a key (a, b) and a counter: those of chainrule.random.

    All numbers on the way are whole and below 2**24: float32 has them exactly.
    """
{1}
    def halves(x):
        high = {0}.floor(x / 4096)
        return high, x - high * 4096

    key = [part - 4096 for word in (a, b) for part in reversed(halves({0}.floor(word)))]
    x, y = halves({0}.floor(counter))
    for r in range(12):
        t = x + key[r % 4]
        x, y = halves({0}.floor(t * t / 64) + (2531 + 1657 * stream) * (r + 1) + y)[1], x
    known = (a < 2**25) & (b >= 0) & (b < 2**25) & (counter >= 0) & (counter < 2**25)
    off = -1.0 if stream > 0 else {0}.nan  # a key that is off, and those made from it
    return {0}.where(a < 0, off, {0}.where(known, x * 4096 + y, {0}.nan))
'''

_NOT_NARROW = """\
    if min({0}).bits for x in (a, b, counter)) < 32:
        raise ValueError("random numbers need a key, and parameters, of float32 or float64")
"""

_RANDOM_KEEP = '''
def random_keep(a, b, counter, rate):
    """0 by the chance rate, else what makes the mean 1; 1 if the key is off."""
    bits = random_bits(a, b, counter)
    kept = {0}.where(bits >= rate * 2**24, {1}, 0.0)
    return {0}.where(a < 0, 1.0, {0}.where(bits >= 0, kept, {0}.nan))
'''

NEEDED = {"random_keep": "random_bits"}  # by another helper

_NUMPY_HELPERS = {
    "random_bits": _RANDOM_BITS.format("np", ""),
    "random_keep": _RANDOM_KEEP.format("np", "1.0 / (1.0 - rate)"),
    "inside": _INSIDE.format("np"),
    "kept": _KEPT.format("np", "", "float"),
    "by_length": _BY_LENGTH.format("np"),
    "within": _WITHIN.format("np"),
    "known": _KNOWN.format("np"),
    "integers": _INTEGERS.format("np"),
    "array": '''
def array(x, *shape):
    """An argument as an array of the shape that it has in the example."""
    x = np.asarray(x, float)
    if x.shape != shape:
        raise ValueError(f"this source is for shape {shape}, not {x.shape}: translate it again")
    return x
''',
    "expect": _EXPECT,
    TYPES: _TYPES,
    "relu": """
def relu(x):
    return np.where(x > 0, x, 0.0)
""",
    "leaky_relu": """
def leaky_relu(x, slope):
    return np.where(x > 0, x, slope * x)
""",
    "sigmoid": """
def sigmoid(x):
    e = np.exp(-np.abs(x))  # neither branch can overflow
    return np.where(x >= 0, 1.0, e) / (1.0 + e)
""",
    "softplus": """
def softplus(x):
    return np.logaddexp(x, 0.0)
""",
    "silu": """
def silu(x):
    e = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, e) / (1.0 + e)
""",
    "erf": """
erf = np.vectorize(math.erf, otypes=[float])
""",
    "erfc": """
erfc = np.vectorize(math.erfc, otypes=[float])
""",
    "lgamma": """
lgamma = np.vectorize(math.lgamma, otypes=[float])
""",
    "normal_pdf": """
def normal_pdf(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
""",
    "normal_cdf": """
def normal_cdf(x):
    return 0.5 * np.vectorize(math.erfc, otypes=[float])(-math.sqrt(0.5) * x)
""",
    "log1mexp": """
def log1mexp(x):
    return np.where(x < math.log(2.0), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))
""",
    "safe_sqrt": """
def safe_sqrt(x):
    return np.sqrt(np.where(x <= 0, 0.0, x))
""",
    "ramp": """
def ramp(x):
    return np.clip(x, 0.0, 1.0)
""",
    "gelu": """
def gelu(x):
    return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-math.sqrt(0.5) * x)
""",
    "gelu_tanh": """
def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))
""",
    "windows": '''
def windows(x, axis, count, width, start=0, step=1):
    """One axis as two: [i, j] is number start + step * i + j."""
    return np.take(x, start + step * np.arange(count)[:, None] + np.arange(width), axis)
''',
}

NUMPY = Dialect(
    "numpy",
    "np",
    ("import math", "import numpy as np"),
    {
        **{name: f"np.{function}" for name, function in _ALIKE.items()},
        "atan2": "np.arctan2",
        "hypot": "np.hypot",
        "clip": "np.clip",
        "larger": "np.maximum",
        "smaller": "np.minimum",
        "max": "np.max",
        "min": "np.min",
        **{
            name: name
            for name in (
                *("relu", "leaky_relu", "sigmoid", "softplus", "silu", "erf", "erfc", "gelu"),
                *(
                    "gelu_tanh",
                    "lgamma",
                    "normal_pdf",
                    "normal_cdf",
                    "log1mexp",
                    "safe_sqrt",
                    "ramp",
                    "random_bits",
                    "random_keep",
                ),
            )
        },
    },
    _NUMPY_HELPERS,
    "{}",
    gradients=False,
    filled="np.full({0}, {2})",
)

_USED_BY_NAME = (
    *("array", "integers", "inside", "expect", "take", "pick", "windows", "convolve"),
    *("kept", "by_length", "within", "known", "container_types"),
)

_JAX_HELPERS = {
    "random_bits": _RANDOM_BITS.format("jnp", _NOT_NARROW.format("jnp.finfo(jnp.result_type(x)")),
    "random_keep": _RANDOM_KEEP.format("jnp", "1.0 / (1.0 - rate)"),
    "inside": _INSIDE.format("jnp"),
    "kept": _KEPT.format("jnp", ", dtype", "dtype"),
    "by_length": _BY_LENGTH.format("jnp"),
    "within": _WITHIN.format("jnp"),
    "known": _KNOWN.format("jnp"),
    "integers": _INTEGERS.format("jnp"),
    "array": '''
def array(x, *shape):
    """An argument as an array of the shape that it has in the example."""
    x = jnp.asarray(x)
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
    if x.shape != shape:
        raise ValueError(f"this source is for shape {shape}, not {x.shape}: translate it again")
    return x
''',
    "expect": _EXPECT,
    TYPES: _TYPES,
    "absolute": '''
def absolute(x):
    """Its derivative at 0 is 0."""
    return x * jnp.sign(x)
''',
    "leaky_relu": """
def leaky_relu(x, slope):
    return jnp.where(x > 0, x, slope * x)
""",
    "polygamma": """
def polygamma(x, order):
    return jax.scipy.special.polygamma(int(order), x)
""",
    "log1mexp": """
def log1mexp(x):
    return jnp.where(x < jnp.log(2.0), jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))
""",
    "safe_sqrt": '''
def safe_sqrt(x):
    """Its derivative is 0 where x is not positive."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)
''',
    "ramp": '''
def ramp(x):
    """Its derivative is 1 at 0, and 0 at 1."""
    return jnp.where(x < 0, 0.0, jnp.where(x < 1, x, 1.0))
''',
    "gelu": """
def gelu(x):
    return jax.nn.gelu(x, approximate=False)
""",
    "clip": '''
def clip(x, low, high):
    """Its derivative at a bound is 1."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))
''',
    "hypot": '''
def hypot(a, b):
    """Its derivative at the origin is 0."""
    zero = (a == 0) & (b == 0)
    return jnp.where(zero, 0.0, jnp.hypot(jnp.where(zero, 1.0, a), b))
''',
    "atan2": '''
def atan2(a, b):
    """Its derivative at the origin is 0."""
    zero = (a == 0) & (b == 0)
    return jnp.arctan2(jnp.where(zero, 0.0 * lax.stop_gradient(a), a), jnp.where(zero, 1.0, b))
''',
    "larger": '''
def larger(a, b):
    """The first of equals: the derivative goes to it alone."""
    return jnp.where(b > a, b, a)
''',
    "smaller": '''
def smaller(a, b):
    """The first of equals: the derivative goes to it alone."""
    return jnp.where(b < a, b, a)
''',
    "first_max": '''
def first_max(x, axis):
    """The largest, the first of equals: the derivative goes to it alone."""
    at = jnp.expand_dims(jnp.argmax(x, axis), axis)
    return jnp.take_along_axis(x, at, axis).squeeze(axis)
''',
    "first_min": '''
def first_min(x, axis):
    """The smallest, the first of equals: the derivative goes to it alone."""
    at = jnp.expand_dims(jnp.argmin(x, axis), axis)
    return jnp.take_along_axis(x, at, axis).squeeze(axis)
''',
    "take": '''
def take(x, index, axis):
    """jnp.take; its derivative is added up in 32 bits at least: 16 are too few, and slow at it."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jnp.take(wide, index, axis).astype(x.dtype)
''',
    "pick": '''
def pick(x, *index):
    """x[index]; nan where an index is out of range, which JAX would move into it."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return wide.at[index].get(mode="fill", fill_value=jnp.nan).astype(x.dtype)
''',
    "convolve": '''
def convolve(image, kernel, *steps):
    """Sums over the windows of [sample, channel, ...], weighted by [filter, channel, ...]."""
    dtype = jnp.result_type(image, kernel)
    return lax.conv_general_dilated(image.astype(dtype), kernel.astype(dtype), steps, "VALID")
''',
    "windows": '''
def windows(x, axis, count, width, start=0, step=1):
    """One axis as two: [i, j] is number start + step * i + j."""
    end = start + step * (count - 1) + 1
    parts = [lax.slice_in_dim(x, start + j, end + j, step, axis) for j in range(width)]
    return jnp.stack(parts, axis + 1)
''',
}

JAX = Dialect(
    "jax",
    "jnp",
    (
        *("import math", "import jax", "import jax.numpy as jnp", "import numpy as np"),
        "from jax import lax",
    ),
    {
        **{name: f"jnp.{function}" for name, function in _ALIKE.items()},
        **{name: f"jax.nn.{name}" for name in ("relu", "sigmoid", "softplus", "silu")},
        "lgamma": "jax.scipy.special.gammaln",
        "digamma": "jax.scipy.special.digamma",
        "normal_pdf": "jax.scipy.stats.norm.pdf",
        "normal_cdf": "jax.scipy.stats.norm.cdf",
        "normal_quantile": "jax.scipy.special.ndtri",
        "erf": "jax.scipy.special.erf",
        "erfc": "jax.scipy.special.erfc",
        "gelu_tanh": "jax.nn.gelu",
        "max": "jnp.max",
        "min": "jnp.min",
        "abs": "absolute",
        **{name: name for name in _JAX_HELPERS if name not in _USED_BY_NAME},
    },
    _JAX_HELPERS,
    "lax.stop_gradient({})",
    rsqrt="lax.rsqrt",
    scans=True,
    clamps=True,
    table="jnp.asarray({0}, dtype)",
    filled="jnp.full({0}, {2})",
    kept="kept({0}, {1}, dtype)",
)

TORCH = Dialect(
    "torch",
    "torch",
    ("import math", "import torch"),
    {
        **{name: f"torch.{function}" for name, function in _ALIKE.items()},
        **{name: name for name in ("random_bits", "random_keep")},
        **torch_names.FUNCTIONS,
    },
    {
        "expect": _EXPECT,
        TYPES: _TYPES,
        "inside": _INSIDE.format("torch"),
        "random_bits": _RANDOM_BITS.format("torch", _NOT_NARROW.format("torch.finfo(x.dtype")),
        "random_keep": _RANDOM_KEEP.format("torch", "bits.new_tensor(1.0 / (1.0 - rate))"),
        **torch_names.HELPERS,
    },
    "torch.detach({})",
    rsqrt="torch.rsqrt",
    constants="torch",
    truths="{0}.to({1}.device)",
    places="{0}.to({1}.device)",
    table="{0}.to({1})",
    floats="torch.tensor({0}, dtype=torch.float64)",
    integers="torch.tensor({0})",
    numbers="{0}.to({1})",
    number="{1}.new_tensor({0})",
    filled="{1}.new_full(({0},), {2}{3})",
    kept="kept({0}, {1}, {2})",
    backwards=False,
    methods={"transpose": "permute"},
)

DIALECTS = {dialect.name: dialect for dialect in (NUMPY, JAX, TORCH)}
