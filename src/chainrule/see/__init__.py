"""To see what a backward pass does: graphs in, words, tables, pictures and pages out.

``explanation`` lists the steps of the pass; ``drawing`` and ``page`` show the graph as a picture
and as a page to step through; ``debugging`` finds where a NaN or an infinity came from;
``lessons`` are engines broken on purpose. They share ``names`` (what nodes and numbers are called),
``words`` (formulas as text, from the op table), ``tables`` (text and HTML) and ``expressions``
(text to graph, for the command line). Nothing here changes a ``.grad``.
"""
