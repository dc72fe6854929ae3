"""Batches and whole training steps of a compiled function.

In: a function's ``Dispatch``, arrays of parameters, samples, an optimiser. Out: the mean and its
gradient (``batches``), or the losses of steps taken in place (``driver``). ``packing`` lays samples
out for machine code, ``lanes`` decides which of them go through it together, ``mixed`` lets their
lengths differ, ``machine_loop`` takes steps by the code of ``step_code`` in a ``memory``, by a
``crew`` of threads, ``means`` has the same code add up batches. What these cannot do, ``driver``
does one step at a time in Python. A step is taken whole or not at all.
To print what the samples run on: ``fast.report()``. Tests compare each way with plain Python steps.
"""
