"""Everything that shows a graph to people.

``explanation`` is the backward pass as data; its text and HTML, ``drawing`` and ``page`` are made
from that. ``paths`` splits one gradient into its terms, ``debugging`` finds where a NaN came from,
``expressions`` reads what is typed on the command line, ``lessons`` are engines broken on purpose.
"""
