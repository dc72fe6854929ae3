#!/usr/bin/env bash
# Builds the native engine with AddressSanitizer and UndefinedBehaviorSanitizer and runs pytest on it,
# under the sanitizers. The arguments are pytest's or, after --run, a Python script and its own. The
# environment is a temporary one, or that of $PYTHON, which then needs the test dependencies; nothing
# is installed there.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -e src/native/module.c ]]; then
    echo "sanitize: there is no src/native/module.c to check" >&2
    exit 1
fi

export CC=${CC:-gcc}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset PYTHONPATH

sanitized=(-C cmake.define.CHAINRULE_SANITIZE=ON -C cmake.build-type=Debug -C install.strip=false)
if [[ -n ${PYTHON:-} ]]; then
    CHAINRULE_REQUIRE_NATIVE=1 "$PYTHON" -m pip install --quiet --no-deps \
        --target "$scratch/packages" "${sanitized[@]}" .
    export PYTHONPATH=$scratch/packages
else
    python3 -m venv "$scratch/venv"
    PYTHON=$scratch/venv/bin/python
    CHAINRULE_REQUIRE_NATIVE=1 "$PYTHON" -m pip install --quiet "${sanitized[@]}" ".[test]"
fi

# Python itself is not instrumented, so the runtime has to be preloaded; libstdc++ comes along
# because libasan looks up the C++ exception functions when it starts.
# --capture=sys leaves the real stderr open: a report must survive the abort that follows it.
# The quarantine of freed memory is small: tests of growth must find it full when they begin.
export PYTHONMALLOC=malloc
export CHAINRULE_ENGINE=native
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32
export UBSAN_OPTIONS=print_stacktrace=1
runtime="$($CC -print-file-name=libasan.so) $($CC -print-file-name=libstdc++.so)"

LD_PRELOAD=$runtime "$PYTHON" -c "
import chainrule, chainrule._native
assert chainrule.engine == 'native', chainrule.engine
assert chainrule._native.__file__.startswith('$scratch'), chainrule._native.__file__
chainrule.Value(1.0)
assert chainrule._native.allocation_counts()[1] == 0, 'not the sanitizers\' build: it has slabs'"
if [[ ${1:-} == --run ]]; then
    shift
    LD_PRELOAD=$runtime "$PYTHON" "$@"
else
    LD_PRELOAD=$runtime "$PYTHON" -m pytest -p no:cacheprovider --capture=sys "$@"
fi
