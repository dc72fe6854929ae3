"""Derivatives of functions, and their check.

``transforms`` holds ``gradients`` of a graph, and ``grad``, ``value_and_grad``, ``jacobian``,
``hessian``, ``hvp`` of functions; ``checking`` compares them with ``finite_differences``.
"""
