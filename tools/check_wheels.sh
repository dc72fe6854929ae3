#!/usr/bin/env bash
# Builds the source archive and from it the wheels that users get: with a compiler, without one, and
# offline without CMake. Then installs each in a fresh environment and tries it, and checks that
# package indexes will take the files and show the README.
#
#   tools/check_wheels.sh [FOLDER]    with FOLDER, leaves the archive and the wheels there
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/build"
"$scratch/build/bin/pip" install --quiet abi3audit build "readme_renderer[md]" twine
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' src/chainrule/__init__.py)

build_wheel() { # folder; from the source archive, which proves that complete
    "$scratch/build/bin/python" -m build --outdir "$scratch/$1" . >"$scratch/log" 2>&1 \
        || { cat "$scratch/log" >&2; exit 1; }
}

check() { # folder, wheel tag, engine
    local wheels=("$scratch/$1"/chainrule-*-$2.whl)
    if [[ ! -e ${wheels[0]} ]]; then
        echo "check_wheels: expected a $2 wheel, found:" "$scratch/$1"/* >&2
        exit 1
    fi
    # For a release every wheel gets an environment of its own. Otherwise the dependencies, which are
    # the same for all of them, are installed once.
    if [[ -n $folder || ! -e $scratch/venv ]]; then
        rm -rf "$scratch/venv"
        python3 -m venv "$scratch/venv"
        "$scratch/venv/bin/pip" install --quiet "${wheels[0]}"
    else
        "$scratch/venv/bin/pip" install --quiet --no-deps --force-reinstall "${wheels[0]}"
    fi
    cp tools/try_install.py "$scratch"
    (cd "$scratch" && env -u PYTHONPATH -u CHAINRULE_ENGINE "$scratch/venv/bin/python" \
        try_install.py "$3" "$version")
}

if [[ -e src/native/module.c ]]; then
    CHAINRULE_REQUIRE_NATIVE=1 build_wheel native
    check native 'cp311-abi3-*' native
    "$scratch/build/bin/abi3audit" --strict "$scratch"/native/*.whl
fi
CHAINRULE_REQUIRE_NATIVE=0 CC=/bin/false build_wheel pure
check pure py3-none-any reference

# Offline, with the backend installed but no CMake anywhere: every program of the system but that.
mkdir "$scratch/bin"
for program in /usr/bin/*; do
    case $(basename "$program") in cmake* | ninja*) ;; *) ln -s "$program" "$scratch/bin/" ;; esac
done
"$scratch/build/bin/pip" install --quiet scikit-build-core
(unset CHAINRULE_REQUIRE_NATIVE && PATH="$scratch/build/bin:$scratch/bin" \
    "$scratch/build/bin/pip" wheel --quiet --no-index --no-deps --no-build-isolation \
    --wheel-dir "$scratch/offline" "$scratch"/pure/chainrule-*.tar.gz)
check offline py3-none-any reference

mkdir "$scratch/all"
cp "$scratch"/pure/* "$scratch/all"
if [[ -e $scratch/native ]]; then cp "$scratch"/native/*.whl "$scratch/all"; fi
"$scratch/build/bin/twine" check --strict "$scratch"/all/*
"$scratch/build/bin/python" tools/check_description.py "$scratch"/pure/*.whl
if [[ -n $folder ]]; then
    mkdir -p "$folder"
    cp "$scratch"/all/* "$folder"
fi
