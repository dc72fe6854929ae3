"""Derivatives of recordings: a ``Recording`` comes in, one that computes its derivative goes out.

``symbols`` appends instructions to a recording, ``sweeps`` does forward and reverse mode with them,
``derivatives`` makes Jacobians, Hessians and products of these. What comes out is a recording like
any other: guards, the tape, lifting and machine code need to know nothing of it.
"""
