"""The engine: numbers in, a graph of Values out, and its gradients.

``ops`` is the table of operations, one row each; ``value`` is the reference engine, to be read
first; ``native`` is the same Value in C; ``backend`` chooses one of them. ``functions`` are the
operations as functions of floats, Values and arrays; ``errors`` is what is said when something is
wrong; ``copying`` copies and pickles whole graphs; ``graph`` and ``interrupts`` help those above.
Nothing here imports from any other folder.
"""
