#!/usr/bin/env bash
# Tests chainrule on every other supported Python that this machine has: one wheel, built with the
# headers of the oldest, on all of them; then one built with the newest headers on the oldest.
# Arguments are pytest's; without any, the parts that depend on the interpreter. $PYTHON is the oldest;
# if that is an environment with the test dependencies, nothing is installed in it.
#
#   tools/other_pythons.sh                 python3.12 and the like on PATH, and pyenv's
#   tools/other_pythons.sh --debian DIR    besides, as root on Debian: the newest from its unstable
#                                          release, in a folder of its own (some minutes, 1 GB)
set -euo pipefail
cd "$(dirname "$0")/.."

others=(3.12 3.13 3.14 3.15)
folder=
if [[ ${1:-} == --debian ]]; then
    folder=$2
    shift 2
fi
if [[ $# == 0 ]]; then
    set -- tests/test_tour.py tests/native/test_native_{equality,leaks,choice}.py tests/test_files.py \
        tests/compiler/capture/test_compile_{branches,hidden,library_types,integers,kept,lookups}.py
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# What looks like a Python may be a launcher for one that is not installed.
works() { [[ $("$1" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$2" ]]; }

find_python() { # version
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if works "$candidate" "$1"; then
            command -v "$candidate"
            return
        fi
    done
}

build_wheel() { # python, folder
    "$1" -m venv "$scratch/build-$2"
    CHAINRULE_REQUIRE_NATIVE=1 "$scratch/build-$2/bin/pip" wheel --quiet --no-deps \
        --wheel-dir "$scratch/$2" .
}

run_tests() { # python, wheel, tests ...
    local python=$1 wheel=$2
    shift 2
    if [[ $python == "${PYTHON:-}" ]] && "$python" -c 'import pytest' 2>/dev/null; then
        "$python" -m pip install --quiet --no-deps --target "$scratch/packages" "$wheel"
        PYTHONPATH=$scratch/packages "$python" -m pytest -q -p no:cacheprovider "$@"
        return
    fi
    rm -rf "$scratch/venv"
    "$python" -m venv "$scratch/venv"
    "$scratch/venv/bin/pip" install --quiet "chainrule[test] @ file://$wheel"
    "$scratch/venv/bin/python" -c \
        'import chainrule, sys; print("Python", sys.version.split()[0], "with", chainrule.engine)'
    "$scratch/venv/bin/pytest" -q -p no:cacheprovider "$@"
}

oldest=${PYTHON:-python3}
newest=
build_wheel "$oldest" oldest
wheel=$(echo "$scratch"/oldest/*.whl)
for version in "${others[@]}"; do
    python=$(find_python "$version")
    if [[ -z $python ]]; then
        echo "there is no Python $version here"
    else
        newest=$python
        run_tests "$python" "$wheel" "$@"
    fi
done
if [[ -n $newest ]]; then
    echo "a wheel built with the headers of $newest, on $oldest"
    build_wheel "$newest" newest
    run_tests "$oldest" "$(echo "$scratch"/newest/*.whl)" tests/test_tour.py tests/native/test_native_leaks.py
fi

if [[ -n $folder ]]; then
    if [[ ! -e $folder/usr/bin/python3.14 ]]; then
        packages=$(printf 'python%s,python%s-venv,python%s-dev,' 3.14{,,} 3.15{,,})
        debootstrap --variant=minbase --include="${packages}ca-certificates,gcc,libc6-dev" \
            sid "$folder" >"$folder.log" 2>&1 || { tail -n 20 "$folder.log" >&2; exit 1; }
    fi
    cp /etc/resolv.conf "$folder/etc/"
    rm -rf "$folder/src" && mkdir "$folder/src"
    git ls-files -z --cached --others --exclude-standard \
        | tar --create --null --files-from=- | tar --extract --directory="$folder/src"
    cp "$0" "$folder/src/tools/"
    mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
    trap 'umount "$folder/proc"; rm -rf "$scratch"' EXIT
    PYTHON=python3.14 chroot "$folder" bash -c 'cd src && tools/other_pythons.sh "$@"' tests "$@"
fi
