"""One compiled function over many samples: in lanes of machine code, and on all cores.

In: arguments stacked along an axis, or a batch of samples (``stacks``). Out: values and gradients,
a row for each sample or added up (``calls``). ``hoisting`` computes once what all samples share.
``lane_code`` is a variant's machine code for the rest, for as many samples as a vector has lanes,
``loop_code`` takes stacked samples through it without Python,
``blocks`` does that block by block in several threads, always with the same bits, and ``rounds``
finds a variant for every sample. A sample that no such code serves is a call of its own. A map
like an earlier one is ``prepared`` already.
To print what became of the function: ``fast.report()``.
``checking`` compares lanes with the tape before they are used; tests compare with single calls.
"""
