"""What the tests of training share."""

import pytest

from chainrule.compiler.training.machine_loop import MachineLoop


@pytest.fixture
def native(monkeypatch):
    """How many steps were taken in machine code."""
    pytest.importorskip("llvmlite")
    taken = [0]
    run = MachineLoop.run

    def counted(self, first_step, count, ahead=0):
        losses = run(self, first_step, count, ahead)
        taken[0] += len(losses)
        return losses

    monkeypatch.setattr(MachineLoop, "run", counted)
    return taken
