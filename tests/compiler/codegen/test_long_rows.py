"""Programs in steps whose rows are longer than a vector: every number of a row is computed."""

import numpy as np
import pytest
from compile_view import View

import chainrule

pytest.importorskip("llvmlite")
ROWS, COLUMNS = 12, 30


def best_path(p):
    """A table filled cell by cell; its diagonals are steps."""
    table = [[p["edge"]] * (COLUMNS + 1) for _ in range(ROWS + 1)]
    for i in range(ROWS):
        for j in range(COLUMNS):
            table[i + 1][j + 1] = max(table[i][j + 1], table[i + 1][j]) * 0.9 + p["cells"][i][j]
    return max(table[1][COLUMNS], table[ROWS][COLUMNS])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_first_call_whose_other_numbers_do_not_matter_tells_nothing_of_later_ones(dtype):
    fast = chainrule.compile(best_path, lift=True, dtype=dtype, on_fallback="raise")
    first = {"edge": 0.1, "cells": np.full((ROWS, COLUMNS), -0.8)}
    first["cells"][0] = 2.0  # the best path stays in the first row
    fast.value_and_grad(first)
    (variant,) = View(fast).variants
    assert variant.machine is not None
    assert variant.machine.program.steps is not None
    for seed in range(12):
        cells = np.random.default_rng(seed).uniform(-1, 3, (ROWS, COLUMNS))
        call = {"edge": 0.1, "cells": cells}
        value, gradient = fast.value_and_grad(call)
        wanted, slopes = chainrule.value_and_grad(best_path)(call)
        limit = 1e-12 if dtype == "float64" else 1e-4
        assert abs(value - wanted) <= limit * abs(wanted)
        assert np.abs(gradient["cells"] - slopes["cells"]).max() <= limit
