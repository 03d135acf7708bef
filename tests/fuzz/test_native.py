"""The C extensions, built with the address and undefined-behaviour sanitizers, under broken input."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.native_readers import BUILT, NATIVE
from tests.fuzz.test_readers import ROOT, fuzz

SOURCES = {
    "_fast": ("module.c", "analyze.c", "porter.c", "trec.c"),
    "_bert": ("bert.c", "bert_amx.c", "bert_vnni.c", "bert_avx2.c", "bert_plain.c"),
    "_sparse": ("sparse.c",),
    "_dots": ("dots.c",),
    "_maxsim": ("maxsim.c",),
}
FLAGS = (
    "-shared", "-fPIC", "-O1", "-g", "-std=c11", "-ffp-contract=off", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the instrumented extensions are used."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build the extensions with")
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("gcc comes without the address sanitizer")
    folder = tmp_path_factory.mktemp("sanitized")
    native = ROOT / "src" / "r2med" / "_native"
    include = f"-I{sysconfig.get_path('include')}"
    for name, sources in SOURCES.items():
        files = [str(native / source) for source in sources]
        subprocess.run([compiler, *FLAGS, include, *files, "-o", str(folder / f"{name}.so")], check=True)
    return {
        BUILT: str(folder),
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


@pytest.mark.parametrize(
    ("reader", "inputs"),
    [
        ("C BERT", 500),
        ("C term counts", 500),
        ("C inner products", 500),
        ("C late interaction", 500),
        *(pytest.param(name, 40_000, marks=pytest.mark.faults) for name in NATIVE),
    ],
)
def test_sanitized(
    reader: str, inputs: int, sanitized: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = fuzz(reader, inputs, inputs, tmp_path, **sanitized)
    record_property("count: inputs under the sanitizers", report["inputs"])
