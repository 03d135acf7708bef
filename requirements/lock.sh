#!/bin/sh
# Writes the lock files again, after a change of the dependencies in pyproject.toml: sh requirements/lock.sh
# Needs uv (pip install uv). With --upgrade everything moves to its newest version.
set -eu
cd "$(dirname "$0")/.."

lock() {
    out=requirements/$1
    shift
    uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --output-file "$out" "$@"
}

# Development first: the others take their versions from it.
lock build.txt requirements/build.in --universal --python-version 3.10 "$@"
lock dev.txt pyproject.toml requirements/torch.in --extra all --extra torch --extra ray --group test --group docs \
    --group lint --overrides requirements/without-torch.txt --universal --python-version 3.10 "$@"
lock run.txt pyproject.toml --extra onnx --constraints requirements/dev.txt --universal --python-version 3.10
# The site needs r2med's own dependencies and MkDocs, tests on every system pytest; a release builds and checks wheels.
lock docs.txt pyproject.toml --group docs --constraints requirements/dev.txt --universal --python-version 3.10
lock portable.txt pyproject.toml --group portable --constraints requirements/dev.txt --universal --python-version 3.10
lock release.txt --group release --universal --python-version 3.10 "$@"
image="--extra onnx --extra api --extra hub --extra parquet --extra zstd --extra plots --extra view"
# shellcheck disable=SC2086
lock cpu.txt pyproject.toml $image --constraints requirements/dev.txt --universal --python-version 3.13
# shellcheck disable=SC2086
lock cuda.txt pyproject.toml $image --extra torch --constraints requirements/dev.txt \
    --constraints requirements/tested-torch.txt --python-version 3.13 \
    --python-platform x86_64-manylinux_2_28
