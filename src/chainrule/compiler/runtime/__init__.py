"""Which path answers a call: machine code, the tape, or the function itself, eagerly.

In: the arguments of a call (``calls``). ``dispatch`` finds the variant (``variants``) that serves
them and returns a ``Run``; where there is none, ``pipeline`` makes one: trace → build → run. What
calls wait for that run eagerly meanwhile is said by ``waiting``; ``ledger`` counts what they cost.
``building`` decides what becomes machine code, and ``families`` which lengths of calls share it;
``machine`` runs machine code, ``tape`` the recording itself, and ``fast_path`` answers calls like
earlier ones. Out: values and gradients in the user's own structure (``results``).
To print it: ``fast.report()`` (``report``).
``verification`` compares each variant's first result with eager, and machine code's with the tape.
"""
