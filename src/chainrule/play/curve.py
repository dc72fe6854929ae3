"""A curve that never grows: losses come in, at most ``MOST`` of their means stay."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 400


class Curve:
    """The mean loss of every ``every`` steps; ``every`` doubles whenever there is no room left.

    >>> from chainrule.play.curve import Curve
    >>> curve = Curve(most=4)
    >>> curve.extend([8.0, 6.0, 4.0, 2.0, 1.0])
    >>> curve.every, curve.means
    (2, [7.0, 3.0])
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.every = 1
        self.means: list[float] = []
        self._sum, self._count = 0.0, 0  # of what does not make a mean yet

    def extend(self, losses: Iterable[float]) -> None:
        """Take the losses of some more steps."""
        for loss in losses:
            if len(self.means) == self.most:
                pairs = zip(self.means[::2], self.means[1::2], strict=True)
                self.means = [(a + b) / 2 for a, b in pairs]
                self.every *= 2
            self._sum += loss
            self._count += 1
            if self._count >= self.every:
                self.means.append(self._sum / self._count)
                self._sum, self._count = 0.0, 0

    def data(self) -> dict[str, object]:
        """The curve as plain data."""
        return {"every": self.every, "means": [float(f"{mean:.5g}") for mean in self.means]}
