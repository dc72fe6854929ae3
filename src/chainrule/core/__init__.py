"""The op table, ``Value`` and the engines that run it.

``ops`` is the table; ``value`` is the whole engine in plain Python, ``native`` finishes the same
class in C, ``backend`` chooses one of them; ``functions`` are the table's rows for users. Errors,
copying and what both engines share (``protocols``) are beside them.
"""
