"""What a compiled function counts, for ``report()``."""

from dataclasses import dataclass


@dataclass
class Counts:
    """How many calls took which path, and the processor time for recording and building."""

    calls: int = 0
    replayed: int = 0
    eager: int = 0
    traces: int = 0
    recording_seconds: float = 0.0
    lifting_seconds: float = 0.0
    checks: int = 0  #: times at which captured state was compared
    checking_seconds: float = 0.0
    finding_seconds: float = 0.0  #: for finding captured state, at first and after it changed
    doing: str = ""  #: what takes long just now, in words, for another thread to show
