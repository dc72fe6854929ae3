"""Derivatives of functions: a function in, another function or a report out.

``transforms`` are grad, value_and_grad, jacobian, hessian, hvp and gradients, to any order;
``checking`` compares gradients with ``finite_differences`` and names the operation to look at.
"""
