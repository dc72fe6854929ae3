"""An array program as readable source that runs without chainrule.

In: a recorded call. Out: a ``Translated`` function: the text of a numpy, JAX or torch module with
one line for each formula, the formula in index notation above it, over the same nested arguments.
Print it: ``translated.source``. Verified by ``checking``: its value, and its gradient where the
dialect has one, are compared with eager's before it is handed out.
"""
