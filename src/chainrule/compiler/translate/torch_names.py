"""The names of operations in torch, and what torch lacks.

Data of the dialect in ``dialects``: ``FUNCTIONS`` by the name of an operation, and the text of each
helper function by its own name. Derivatives that are a convention are chainrule's: the first of
equal numbers gets all of it, and at the bound of a clipped number it is 1.
"""

HELPERS = {
    "kept": '''
def kept(length, least, like):
    """1 for what a list of this length has, 0 for what it lacks."""
    return (length >= least).to(like)
''',
    "by_length": '''
def by_length(rows, length):
    """What belongs to this length."""
    return rows[torch.argmax((length == LENGTHS.to(rows.device)).long())]
''',
    "known": '''
def known(x, length):
    """x, or nan where the source is not for this length."""
    return x * torch.where(torch.any(length == LENGTHS.to(x.device)), 1.0, torch.nan)
''',
    "within": '''
def within(x, length):
    """A padded list, with its first item in every place beyond its end."""
    inside = torch.arange(len(x), device=x.device) < length
    return torch.where(inside.reshape(-1, *[1] * (x.ndim - 1)), x, x[:1])
''',
    "integers": '''
def integers(x, *shape):
    """An argument as a tensor of integers of the shape that it has in the example."""
    x = torch.as_tensor(x)
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
    if x.shape != shape or (x.numel() and not whole):
        raise ValueError(f"this source is for {shape} integers, not {(*x.shape,)} of {x.dtype}")
    return x.long()
''',
    "array": '''
def array(x, *shape):
    """An argument as a tensor of the shape that it has in the example."""
    if isinstance(x, (list, tuple)) and not all(isinstance(item, (int, float)) for item in x):
        x = torch.stack([array(item, *shape[1:]) for item in x])  # which keeps gradients
    x = torch.as_tensor(x)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    if x.shape != shape:
        raise ValueError(f"this source is for shape {shape}, not {(*x.shape,)}: translate it again")
    return x
''',
    "leaky_relu": """
def leaky_relu(x, slope):
    return torch.where(x > 0, x, slope * x)
""",
    "softplus": """
def softplus(x):
    return -torch.nn.functional.logsigmoid(-x)
""",
    "polygamma": """
def polygamma(x, order):
    return torch.polygamma(int(order), x)
""",
    "normal_pdf": """
def normal_pdf(x):
    return torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
""",
    "log1mexp": """
def log1mexp(x):
    small = x < math.log(2.0)
    a, b = torch.where(small, x, 1.0), torch.where(small, 1.0, x)
    return torch.where(small, torch.log(-torch.expm1(-a)), torch.log1p(-torch.exp(-b)))
""",
    "safe_sqrt": '''
def safe_sqrt(x):
    """Its derivative is 0 where x is not positive."""
    return torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, 1.0)), 0.0)
''',
    "ramp": '''
def ramp(x):
    """Its derivative is 1 at 0, and 0 at 1."""
    return torch.where(x < 0, 0.0, torch.where(x < 1, x, 1.0))
''',
    "gelu_tanh": """
def gelu_tanh(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
""",
    "clip": '''
def clip(x, low, high):
    """Its derivative at a bound is 1."""
    return torch.where(x < low, low, torch.where(x > high, high, x))
''',
    "hypot": '''
def hypot(a, b):
    """Its derivative at the origin is 0."""
    zero = (a == 0) & (b == 0)
    return torch.where(zero, 0.0, torch.hypot(torch.where(zero, 1.0, a), b))
''',
    "atan2": '''
def atan2(a, b):
    """Its derivative at the origin is 0."""
    zero = (a == 0) & (b == 0)
    return torch.atan2(torch.where(zero, 0.0 * a.detach(), a), torch.where(zero, 1.0, b))
''',
    "floor_divide": """
def floor_divide(a, b):
    return torch.div(a, b, rounding_mode="floor")
""",
    "larger": '''
def larger(a, b):
    """The first of equals: the derivative goes to it alone."""
    return torch.where(b > a, b, a)
''',
    "smaller": '''
def smaller(a, b):
    """The first of equals: the derivative goes to it alone."""
    return torch.where(b < a, b, a)
''',
    "first_max": '''
def first_max(x, axis):
    """The largest, the first of equals: the derivative goes to it alone."""
    at = torch.argmax(x, axis, keepdim=True)
    return torch.take_along_dim(x, at, axis).squeeze(axis)
''',
    "first_min": '''
def first_min(x, axis):
    """The smallest, the first of equals: the derivative goes to it alone."""
    at = torch.argmin(x, axis, keepdim=True)
    return torch.take_along_dim(x, at, axis).squeeze(axis)
''',
    "convolve": '''
def convolve(image, kernel, *steps):
    """Sums over the windows of [sample, channel, ...], weighted by [filter, channel, ...]."""
    functional = torch.nn.functional
    function = {2: functional.conv2d, 3: functional.conv3d}[len(steps)]
    return function(image, kernel, stride=steps)
''',
    "windows": '''
def windows(x, axis, count, width, start=0, step=1):
    """One axis as two: [i, j] is number start + step * i + j."""
    part = x.narrow(axis, start, step * (count - 1) + width)
    return part.unfold(axis, width, step).movedim(-1, axis + 1)
''',
}

_BY_NAME = "array integers windows convolve kept by_length within known".split()

FUNCTIONS = {
    "mod": "torch.remainder",
    "max": "torch.amax",
    "min": "torch.amin",
    **{name: f"torch.{name}" for name in "relu sigmoid erf erfc lgamma digamma".split()},
    **{name: f"torch.nn.functional.{name}" for name in ("silu", "gelu")},
    "normal_cdf": "torch.special.ndtr",
    "normal_quantile": "torch.special.ndtri",
    **{name: name for name in HELPERS if name not in _BY_NAME},
}
