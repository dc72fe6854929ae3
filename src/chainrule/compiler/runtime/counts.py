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
    checking_seconds: float = 0.0
    doing: str = ""  #: what takes long just now, in words, for another thread to show
