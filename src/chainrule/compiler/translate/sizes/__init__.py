"""One source for arrays of any size.

In: calls of one function with arguments of different sizes, each recorded. Out: a source in which
what differs between the recordings is computed from the shapes of the arguments. ``laws`` explains
a number by sizes, ``numbers`` does so in formulas and ``unifying`` in text; ``calls`` chooses what
is recorded and what is held out, and ``translating`` is where to begin. Print it:
``fast.to_numpy(sizes=...).source``. Verified by ``checking``, at sizes that were not recorded.
"""
