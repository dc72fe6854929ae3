#!/usr/bin/env bash
# Tests chainrule with the lowest version of every dependency that pyproject.toml allows, in a fresh
# environment. Arguments are pytest's; without any, the parts that use the dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"

"$scratch/venv/bin/python" - >"$scratch/lowest" <<'END'
import re, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
for requirement in project["dependencies"]:
    name, lowest = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
    print(f"{name}=={lowest}")
END
cat "$scratch/lowest"
"$scratch/venv/bin/pip" install --quiet --constraint "$scratch/lowest" ".[test]"

if [[ $# == 0 ]]; then
    set -- tests/test_tour.py tests/cli tests/gpt/test_checkpoints.py tests/see/test_drawing.py \
        tests/see/test_explanation.py tests/compiler/test_meaning.py tests/compiler/codegen \
        tests/compiler/capture/test_compile_integers.py tests/compiler/lift/test_compile_lifted.py
fi
"$scratch/venv/bin/pytest" -q -p no:cacheprovider "$@"
