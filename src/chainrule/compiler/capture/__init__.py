"""A function and one call's arguments come in; a recording of what it did comes out.

``arguments`` flattens a call; ``walking`` finds the state a function captures and refuses what is
not known to be pure (``known``), ``captured`` compares that state at every call. ``tracing`` says
in which ways the function is run, ``running`` runs it: it sees stand-ins (``standins``, ``traced``,
``arrays``, ``masks``; what numpy does with them: ``numpy_calls``) and its reads are visible
(``rewriting``, ``hooks``, ``reading``); ``returned`` refuses results that others hold. Out comes a
``Recording`` (``recorder``) with its ``Selection``: an integer program (``integers``, and
``integer_code`` for C) that decides operands, numbers and whether the recording holds
(``selection``). Print both with ``report(stage="recorded")`` and ``report(stage="integers")``.
``Recording.verify`` and the comparison with eager mode (``runtime.verification``) check them; see
docs/soundness.md.
"""
