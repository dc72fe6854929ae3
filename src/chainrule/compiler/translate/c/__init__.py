"""A function of Values as C: value, gradient and Jacobian in one file that needs only math.h.

In: a recorded call. Out: a ``CSource``. ``function`` is where to begin: ``units`` are the loops,
``bodies`` the two passes, ``expressions`` the formulas in them and their derivatives, ``rows`` the
op table in C, ``module`` the files. Print it: ``fast.to_c(...).source``. Verified by ``checking``:
the same loops in Python (``mirror``), against eager mode.
"""
