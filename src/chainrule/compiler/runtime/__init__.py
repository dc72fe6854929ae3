"""Which path answers a call: machine code, the tape, or the function itself, eagerly.

In: the arguments of a call (``calls``). ``dispatch`` finds the variant that serves them and returns
a ``Run``; where there is none, ``pipeline`` makes one: trace → build → run. ``building``
makes machine code, ``machine`` and ``tape`` run it and the recording, ``fast_path`` answers calls
like earlier ones. Out: values and gradients in the user's own structure (``results``).
To print it: ``fast.report()``, or ``fast.report("recorded")`` and ``fast.report("lifted")``.
``verification`` compares each variant's first result with eager, and machine code's with the tape.
"""
