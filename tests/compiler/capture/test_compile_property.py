"""Random programs, compiled and eager: no stale result, whatever changes between the calls."""

import random
from dataclasses import dataclass

import numpy as np
import pytest
from compile_programs import (
    TAME,
    WILD,
    call_with_arrays,
    call_with_values,
    change,
    random_arguments,
    random_integer_source,
    random_source,
    run_source,
    state,
)
from compile_twins import Eager, outcome, plain
from programs import count

import chainrule
from chainrule import no_grad, nonfinite

CALLS = 12
NATIVE = chainrule.engine == "native"


@dataclass
class Tally:
    """What a run of many programs came to."""

    calls: int = 0
    exact: int = 0
    raised: int = 0
    replayed: int = 0

    def __str__(self):
        return (
            f"{self.calls} calls: {self.replayed} replayed, {self.exact} equal to the last bit, "
            f"{self.raised} raised as eager did"
        )


def agree(found, wanted):
    """None if two results differ by more than rounding, else whether they are equal bit for bit."""
    if plain(found) == plain(wanted):
        return True
    if type(found) is not type(wanted) or type(found) is not tuple or len(found) != 2:
        return None
    (a, grads), (b, gradients) = found, wanted
    a, b = (x[0] if isinstance(x, tuple) else x for x in (a, b))
    if isinstance(a, str) or not isinstance(gradients, np.ndarray):
        return None  # an error: type and message are equal or they are not
    scale = max(1.0, float(np.max(np.abs(gradients), initial=0.0)))
    close = np.allclose(a, b, rtol=1e-12, equal_nan=True) and np.allclose(
        grads, gradients, rtol=0.0, atol=1e-12 * scale, equal_nan=True
    )
    return False if close else None


def run_program(seed, weights, tally):
    rng = random.Random(seed)
    source = random_source(rng, weights)
    eager, compiled = run_source(source, "eager_world"), run_source(source, "compiled_world")
    eager["f"] = Eager(eager["f"])
    fast = compiled["f"] = chainrule.compile(compiled["f"], on_fallback="eager", lift=False)
    story = []
    for _ in range(CALLS):
        story.append(change(rng, eager, compiled))
        arguments = random_arguments(rng)
        call = rng.choice((call_with_arrays, call_with_values))
        without_grad = rng.random() < 0.1 and call is call_with_values
        rule = "allow" if rng.random() < 0.1 else "raise"
        seed_of_call = rng.random()
        results = []
        for world in (eager, compiled):
            random.seed(seed_of_call)
            with no_grad() if without_grad else nonfinite(rule):
                results.append(call(world, arguments))
        exact = agree(results[1], results[0])
        text = f"seed {seed!r}\n{source}\n{story}\n{call.__name__}{arguments}\n"
        assert exact is not None, (
            f"{text}compiled: {results[1]}\neager:    {results[0]}\n{fast.report()}"
        )
        assert state(compiled) == state(eager), (
            f"{text}another state is left behind\n{fast.report()}"
        )
        tally.calls += 1
        tally.exact += exact
        tally.raised += isinstance(results[0], tuple) and isinstance(results[0][0], str)
    tally.replayed += int(fast.report().split(" replayed")[0].rsplit(" ", 1)[1])


@pytest.mark.parametrize("shard", range(4))
@pytest.mark.parametrize(("family", "weights"), [("tame", TAME), ("wild", WILD)])
def test_random_programs_never_give_a_stale_result(family, weights, shard, record_property):
    tally = Tally()
    for i in range(count(ci=8 if NATIVE else 3, soak=300)):
        run_program(f"{family} {shard} {i}", weights, tally)
    record_property("tally", str(tally))
    assert tally.calls
    assert tally.exact > 0.97 * tally.calls, tally
    assert tally.replayed > (0.6 if family == "tame" else 0.1) * tally.calls, tally


@pytest.mark.parametrize("shard", range(2))
def test_random_integers_never_give_a_stale_result(shard, record_property):
    tally = Tally()
    for i in range(count(ci=12 if NATIVE else 6, soak=300)):
        rng = random.Random(f"integers {shard} {i}")
        source = random_integer_source(rng)
        eager = Eager(run_source(source, "eager_world")["f"])
        f = run_source(source, "compiled_world")["f"]
        fast = chainrule.compile(f, on_fallback="eager", lift=False)
        for _ in range(40):
            p = np.array([rng.uniform(-1, 1) for _ in range(4)])
            ids = [rng.randrange(4) for _ in range(3)]
            wanted = outcome(eager.value_and_grad, p, *ids)
            found = outcome(fast.value_and_grad, p, *ids)
            exact = agree(found, wanted)
            assert exact is not None, f"{source}\n{ids}\n{found}\n{wanted}\n{fast.report()}"
            tally.calls += 1
            tally.exact += exact
            tally.raised += isinstance(wanted[0], str)
        tally.replayed += int(fast.report().split(" replayed")[0].rsplit(" ", 1)[1])
    record_property("tally", str(tally))
    assert tally.exact > 0.97 * tally.calls, tally
    assert tally.replayed > 0.8 * tally.calls, tally
