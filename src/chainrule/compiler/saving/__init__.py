"""A compiled function as a file, and back: ``fast.save(...)`` and ``chainrule.load(...)``.

In: a ``Dispatch`` with its recordings. Out: a file (``writing``); of a file a ``SavedFunction``
(``reading``) and a ``LoadedDispatch`` (``loaded``) that answers its calls. docs/saved-functions.md
describes the format. ``reading`` verifies it; ``report(stage="recorded")`` prints what was loaded.
"""
