"""Compiled derivatives beside JAX's: first order to 1e-12, second order to 1e-10."""

import itertools

import numpy as np
import pytest

import chainrule
from chainrule import exp, sin, sqrt, tanh

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


def scalar(x):
    total = 0.0
    for a, b in itertools.pairwise(x):
        total = total + 100 * (b - a**2) ** 2 + exp(-a) * sin(b) + sqrt(1 + a * a) * tanh(b)
    return total


def residuals(x):
    return [exp(a) * sin(b) - a / (1 + b * b) for a, b in itertools.pairwise(x)]


def jax_scalar(x):
    a, b = x[:-1], x[1:]
    terms = 100 * (b - a**2) ** 2 + jnp.exp(-a) * jnp.sin(b)
    return jnp.sum(terms + jnp.sqrt(1 + a * a) * jnp.tanh(b))


def jax_residuals(x):
    a, b = x[:-1], x[1:]
    return jnp.exp(a) * jnp.sin(b) - a / (1 + b * b)


@pytest.mark.parametrize("lift", [True, False])
def test_they_are_those_of_jax(lift):
    x = np.random.default_rng(0).normal(size=12)
    v = np.linspace(-1.0, 1.0, 12)
    one, several = (chainrule.compile(f, lift=lift) for f in (scalar, residuals))
    with jax.enable_x64(True):
        gradient, jacobian = jax.grad(jax_scalar)(x), jax.jacrev(jax_residuals)(x)
        hessian = np.asarray(jax.hessian(jax_scalar)(x))
        gradient, jacobian = np.asarray(gradient), np.asarray(jacobian)
    first = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(chainrule.grad(one)(x), gradient, **first)
    np.testing.assert_allclose(chainrule.jacobian(several)(x), jacobian, **first)
    np.testing.assert_allclose(chainrule.jvp(several, (x,), (v,))[1], jacobian @ v, **first)
    second = {"rtol": 1e-10, "atol": 1e-10 * np.abs(hessian).max()}
    found = chainrule.hessian(one)(x)
    np.testing.assert_allclose(found, hessian, **second)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(chainrule.hvp(one)(x, v), found @ v, **second)
