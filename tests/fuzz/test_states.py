"""Functions that change or return what they are passed: the fuzzer finds nothing, and would."""

import pytest
from fuzz_states import difference

from chainrule.compiler.runtime import assembly


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_functions_of_a_state_do_what_eager_mode_does(first):
    for seed in range(first, first + 15):
        found, _ = difference(seed)
        assert found is None, found


def test_a_change_of_a_list_that_is_passed_twice_would_be_found(monkeypatch):
    right = assembly.Assembly.run

    def wrong(self, numbers, arguments, keywords, may_change):
        return right(self, numbers, arguments, keywords, lambda changed: True)

    monkeypatch.setattr(assembly.Assembly, "run", wrong)
    assert any(difference(seed)[0] is not None for seed in range(150))
