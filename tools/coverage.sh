#!/usr/bin/env bash
# Which lines and branches of the package the tests run, measured in the environment .venv and shown
# in the terminal. Arguments are pytest's; without any, all tests (about twice as long as without).
# The engine in plain Python has its turn at the end, with the tests of the core. Python 3.14 measures
# without a trace function, which functions and tests that trace by themselves would switch off; with
# JAX (".[test,jax]") what is translated and trained there counts too.
set -uo pipefail
cd "$(dirname "$0")/.."
# Where every allocation fails once, coverage's own do.
failed=0
.venv/bin/pytest -q -n auto --cov --cov-report= --ignore=tests/native/test_native_memory.py "$@" || failed=1
CHAINRULE_ENGINE=reference .venv/bin/pytest -q -n auto --cov --cov-append --cov-report=term \
    tests/core tests/test_tour.py tests/compiler/capture/test_compile_branches.py || failed=1
exit $failed
