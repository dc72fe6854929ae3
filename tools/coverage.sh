#!/usr/bin/env bash
# Which lines and branches of the package the tests run, measured in the environment .venv and shown
# in the terminal. Arguments are pytest's; without any, all tests (about twice as long as without).
# The engine in plain Python has its turn at the end, with the tests of the core.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pytest -q -n auto --cov --cov-report= "$@"
CHAINRULE_ENGINE=reference .venv/bin/pytest -q -n auto --cov --cov-append --cov-report=term \
    tests/core tests/test_tour.py tests/compiler/capture/test_compile_branches.py
