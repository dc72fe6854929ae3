#!/usr/bin/env bash
# Builds the native engine with AddressSanitizer and UndefinedBehaviorSanitizer in a temporary
# environment and runs pytest there, under the sanitizers. The arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -e src/chainrule/_native.c ]]; then
    echo "sanitize: there is no src/chainrule/_native.c to check" >&2
    exit 1
fi

export CC=${CC:-gcc}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/venv"
CHAINRULE_REQUIRE_NATIVE=1 "$scratch/venv/bin/pip" install --quiet \
    -C cmake.define.CHAINRULE_SANITIZE=ON -C cmake.build-type=Debug -C install.strip=false ".[test]"

# Python itself is not instrumented, so the runtime has to be preloaded; libstdc++ comes along
# because libasan looks up the C++ exception functions when it starts.
# --capture=sys leaves the real stderr open: a report must survive the abort that follows it.
unset PYTHONPATH
export PYTHONMALLOC=malloc
export CHAINRULE_ENGINE=native
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
runtime="$($CC -print-file-name=libasan.so) $($CC -print-file-name=libstdc++.so)"

LD_PRELOAD=$runtime "$scratch/venv/bin/python" -c \
    'import chainrule, chainrule._native; assert chainrule.engine == "native", chainrule.engine'
LD_PRELOAD=$runtime "$scratch/venv/bin/pytest" -p no:cacheprovider --capture=sys "$@"
