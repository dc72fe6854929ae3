#!/usr/bin/env bash
# Which lines and branches of the package the tests run, measured in the environment .venv and shown
# in the terminal. Arguments are pytest's; without any, all tests (about twice as long as without).
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pytest -q -n auto --cov --cov-report=term "$@"
