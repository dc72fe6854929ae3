"""Operations for the length of a test: a row of the op table, and all that follows from it."""

from contextlib import contextmanager

import chainrule
from chainrule.core import functions, ops, value
from chainrule.see import expressions


@contextmanager
def temporary_row(name, formula, forward, *partials, **fields):
    """The row, gone again after the block, and with it its function, method and word."""
    op = ops.row(name, formula, forward, *partials, **fields)
    try:
        yield op
    finally:
        del ops.TABLE[name], vars(functions)[name], expressions.FUNCTIONS[name]
        functions.__all__.remove(name)
        vars(chainrule).pop(name, None)
        for cls in {chainrule.Value, value.Value}:
            delattr(cls, name)
