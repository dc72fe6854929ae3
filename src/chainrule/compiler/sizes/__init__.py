"""Array programs at sizes that were never recorded: ``compile(f, sizes=...)``.

In: recordings of one function at a few small sizes. Out: the ``Program`` that recording and lifting
would give at another size, made without running the function there. ``columns`` reads the formula
of every instruction's columns, ``unified`` explains what differs between the sizes, ``programs``
turns formulas back into columns, and ``calls`` chooses for a call. Print it:
``fast.report(stage="sizes")``. Verified against eager mode: ``checking``.
"""
