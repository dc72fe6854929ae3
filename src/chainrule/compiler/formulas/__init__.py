"""An array program in index notation: the form that people read.

In: a ``lift.program.Program``, names for its inputs (``input_names``) and what its integers select.
Out: formulas such as ``a[t,i] = Σ_j W[i,j]·x[t,j]``: ``decoding`` finds the arrays and indices that
addresses stand for, ``translation`` builds an expression of ``notation`` for each instruction, and
``reading`` joins short ones and prints them. Print it: ``reading.read``.

There is no separate verifier: ``decoding`` checks every index against every address and leaves out
the formula where one differs; tests evaluate the formulas and compare them with the interpreter.
"""
