"""From a recording of scalar operations to an array program.

In: a ``capture.recordings.Recording`` and its operands that depend on integers. Out: a
``program.Program``, instructions over columns of addresses. ``loops`` finds loops in time,
``canonical`` builds a ``graph.Graph`` of sums and elementwise operations, ``grouping`` makes one
instruction of all nodes of one shape, that is of one signature (``stages``: before, in and after a
loop; ``ordering``: such that a shorter call is a prefix), ``strides`` turns columns of addresses
into loops. Where there are too many shapes, ``schedule`` makes a program that is done in steps, and
``commands`` turns these into rows of addresses.

Print a stage with ``str``. Verified by ``Loop.verify``, ``Graph.verify`` and ``Program.verify``;
``interpreter`` runs a program in numpy and is what machine code is compared with.
"""
