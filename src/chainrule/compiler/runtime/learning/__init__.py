"""What integers select, learnt from recordings with other integers.

In: a function, a call and its ``Trace``. Out: ``Integers`` (for which integers a recording holds,
and which operands they select) and ``Family`` (the same for all lengths of a call's lists, on the
machine code of the longest). A ``Learner`` makes the recordings that show it. Everything outside
this folder goes through these three; ``report()`` prints what was learnt.
"""

from chainrule.compiler.runtime.learning.families import Choices, Family
from chainrule.compiler.runtime.learning.integers import LEARNT, NUMBERS, Integers
from chainrule.compiler.runtime.learning.learner import Learner

__all__ = ["LEARNT", "NUMBERS", "Choices", "Family", "Integers", "Learner"]
