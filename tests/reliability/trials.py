"""What the experiments share: the outcome of a trial, and what text for people may look like."""

import re
from dataclasses import dataclass

#: what no text for a terminal or a page may hold: controls, invisible marks, surrogates
BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff\U0010ffff]"
)


@dataclass(frozen=True)
class Outcome:
    """What became of a trial, or of several at once."""

    kind: str  #: in a few words, to be counted
    found: str = ""  #: what is wrong, with all that it takes to see it again; empty if nothing is
    number: int = 1  #: of trials; 0 for a comparison that is none
