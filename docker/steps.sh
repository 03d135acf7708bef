#!/bin/sh
# The steps by which the images are built. The Dockerfiles call them, and so do the tests, without a container engine.
#
#   steps.sh wheel OUT               build the wheel of the sources here, C extensions included, into OUT
#   steps.sh install PREFIX OUT LOCK a fresh environment in PREFIX with that wheel and the packages of a lock file
#   steps.sh check PREFIX            the environment works: version, a real run, nothing broken
#   steps.sh check-cuda PREFIX       and its PyTorch was built for CUDA
set -eu

PYTHON=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

fail() {
    echo "steps.sh: $*" >&2
    exit 1
}

the_wheel() {
    set -- "$1"/r2med-*.whl
    [ -f "$1" ] || fail "there is no wheel of r2med in ${1%/*}"
    echo "$1"
}

# Every package at a locked version, compared with its hash.
locked() {
    "$1/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$2"
}

wheel() {
    tools=$(mktemp -d)
    "$PYTHON" -m venv "$tools"
    locked "$tools" requirements/build.txt
    "$tools/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$1" .
    rm -rf "$tools"
    # An image is worth its bytes only with the fast code in it: a missing compiler must not pass unnoticed.
    case $("$PYTHON" -m zipfile -l "$(the_wheel "$1")") in
        *r2med/_sparse*.so*) ;;
        *) fail "the wheel has no C extension" ;;
    esac
}

install() {
    file=$(the_wheel "$2")
    "$PYTHON" -m venv "$1"
    locked "$1" "$3"
    "$1/bin/python" -m pip install --quiet --no-deps --no-index "$file"
    "$1/bin/python" -m compileall -q "$1/lib" || true
}

check() {
    work=$(mktemp -d)
    (
        cd "$work"
        R2MED_HOME=${R2MED_HOME:-$work/home} && export R2MED_HOME
        "$1/bin/r2med" --version
        "$1/bin/r2med" run --tasks mini/MedQA-Diag --retriever bm25
        "$1/bin/r2med" doctor
    )
    rm -rf "$work"
}

check_cuda() {
    "$1/bin/python" -c 'import sys, torch; sys.exit(0 if torch.version.cuda else "PyTorch was not built for CUDA")'
}

usage() {
    fail "usage: steps.sh wheel OUT | install PREFIX OUT LOCK | check PREFIX | check-cuda PREFIX"
}

# No `… && step || fail` here: inside such a list the shell would not stop at a failing command.
case "${1:-} $#" in
    "wheel 2") wheel "$2" ;;
    "install 4") install "$2" "$3" "$4" ;;
    "check 2") check "$2" ;;
    "check-cuda 2") check_cuda "$2" ;;
    *) usage ;;
esac
