"""The C extensions: how they borrow memory, and the C that other compilers than GCC and Clang get."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.retrieve.encoders.native_bert import parts
from tests.retrieve.encoders.tiny_onnx import tiny

_bert = pytest.importorskip("r2med._bert", reason="the C extensions are not built")
_dots = pytest.importorskip("r2med._dots")
_fast = pytest.importorskip("r2med._fast")
_maxsim = pytest.importorskip("r2med._maxsim")
_sparse = pytest.importorskip("r2med._sparse")

SOURCES = Path(__file__).parents[2] / "src" / "r2med" / "_native"
COMPILER = shutil.which("gcc")
# As for MSVC, which has neither vectors as types nor SSE2 and byte order under these names.
PORTABLE = ("-DR2_PORTABLE", "-U__SSE2__", "-U__BYTE_ORDER__", "-DPy_LIMITED_API=0x030A0000")
compiled = pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs GCC")


def some(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def dots(engine: Any, queries: Any, rows: Any, places: Any = None) -> Any:
    count = len(rows) if places is None else len(places)
    out = np.empty((len(queries), count), np.float32)
    engine.dots(queries, rows, places, out, rows.shape[1], count, 0, count, 0)
    return out


def pairs(engine: Any, queries: Any, rows: Any) -> Any:
    """The exact product of every query with every row."""
    query, place = (numbers.reshape(-1) for numbers in np.mgrid[: len(queries), : len(rows)])
    out = np.empty(len(query), np.float64)
    engine.pairs(queries.astype(np.float64), rows, query, place, out, rows.shape[1], 0, len(out))
    return out.reshape(len(queries), len(rows))


def maxsim(engine: Any, way: int, queries: Any, rows: Any) -> Any:
    """Two queries, the first of one token, with three documents."""
    ends, starts, sizes = np.array([1, len(queries)]), np.array([0, 1, 8]), np.array([1, 7, len(rows) - 8])
    out = np.empty((2, 3), np.float32)
    engine.scores(queries, ends, rows, starts, sizes, out, rows.shape[1], 3, 0, 3, 0, way)
    return out


@pytest.mark.parametrize("dimension", [1, 15, 16, 64, 101, 384])
def test_inner_products_of_every_width(dimension: int) -> None:
    queries, rows = some(6, dimension), some(50, dimension)
    np.testing.assert_allclose(dots(_dots, queries, rows), queries @ rows.T, rtol=1e-4, atol=1e-4)
    places = np.array([3, 3, 49, 0])
    np.testing.assert_array_equal(dots(_dots, queries, rows, places), dots(_dots, queries, rows)[:, places])


def test_memory_that_cannot_be_used_is_refused() -> None:
    rows, ranks = some(4, 8), np.arange(4, dtype=np.int32)
    docs, scores = np.empty((1, 2), np.int32), np.empty((1, 2), np.float32)
    frozen = scores.copy()
    frozen.flags.writeable = False
    with pytest.raises((TypeError, BufferError, ValueError), match=r"writ|read-only"):
        _sparse.topk(some(1, 4), ranks, docs, frozen)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        _sparse.topk(some(1, 8)[:, ::2], ranks, docs, scores)
    for wrong in (None, "text", 7, [1.0]):
        with pytest.raises(TypeError):
            _sparse.topk(wrong, ranks, docs, scores)
        with pytest.raises(TypeError):
            _fast.analyze(wrong)
        with pytest.raises(TypeError):
            _dots.dots(wrong, rows, None, scores, 8, 2, 0, 2, 0)


@pytest.mark.parametrize("fits", [True, False])
def test_memory_is_given_back(fits: bool) -> None:
    """A bytearray cannot be resized while somebody borrows it, and objects keep their counts."""
    text, offsets = bytearray(b"the fevers of children"), bytearray(np.array([0, 22 if fits else 99], np.int64))
    out, rows, ranks = bytearray(64), bytearray(some(4, 8)), np.array([1, 0, 3, 2, 4, 5, 6, 7], np.int32)
    none, one = np.array([0]), np.array([1])
    before = [sys.getrefcount(thing) for thing in (None, text, offsets, out, rows)]
    refused = 0
    for _ in range(500):
        calls: tuple[Callable[[], object], ...] = (
            lambda: _fast.analyze(text),
            lambda: _fast.count_terms(text, offsets, 0),
            lambda: _dots.dots(rows, rows, None, out, 8, 4 if fits else 5, 0, 4, 0),
            lambda: _dots.dots(rows, rows, None, out, 8, 4, 0, 4, 0 if fits else "offset"),
            lambda: _sparse.topk(rows, ranks, out, out if fits else b"read only"),
            lambda: _maxsim.scores(rows, one, rows, none, one, out, 64, 16, 0, 1, 0, 0 if fits else 9),
        )
        for call in calls:
            try:
                call()
            except (ValueError, TypeError, BufferError):
                refused += 1
    assert refused == (0 if fits else 5 * 500)
    after = [sys.getrefcount(thing) for thing in (None, text, offsets, out, rows)]
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 400  # other threads hold None, too; a call that forgot to give it back adds 500
    for memory in (text, offsets, out, rows):
        memory.extend(b"more")


def built_plain(name: str, folder: Path) -> Any:
    """An extension compiled as strictly as the standard allows, without what only GCC and Clang understand."""
    assert COMPILER is not None
    strict = ("-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-O2")
    include = f"-isystem{sysconfig.get_path('include')}"
    library = folder / f"_{name}.so"
    command = [COMPILER, "-shared", "-fPIC", *strict, "-ffp-contract=off", *PORTABLE, include]
    sources = [SOURCES / f"{name}.c", *sorted(SOURCES.glob(f"{name}_*.c"))]
    subprocess.run([*command, *map(str, sources), "-o", str(library)], check=True)
    loader = ExtensionFileLoader(f"r2med._{name}", str(library))
    spec = spec_from_file_location(f"r2med._{name}", library, loader=loader)
    assert spec is not None
    plain = module_from_spec(spec)
    loader.exec_module(plain)
    return plain


@compiled
def test_plain_c_gives_the_same(tmp_path: Path) -> None:
    plain = built_plain("dots", tmp_path)
    queries, rows = some(6, 101), some(50, 101)
    np.testing.assert_allclose(dots(plain, queries, rows), queries @ rows.T, rtol=1e-4, atol=1e-4)
    exact = pairs(plain, queries, rows)
    np.testing.assert_allclose(exact, queries.astype(np.float64) @ rows.T.astype(np.float64), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(exact, pairs(_dots, queries, rows))


@compiled
def test_plain_c_of_late_interaction_gives_the_same(tmp_path: Path) -> None:
    plain = built_plain("maxsim", tmp_path)
    assert plain.ways() == ["plain"]
    numbers = np.random.default_rng(3)
    queries, rows = (numbers.integers(-4000, 4000, (count, 64), np.int16) for count in (40, 30))
    wanted = maxsim(plain, 0, queries, rows)
    products = queries.astype(np.int64) @ rows.astype(np.int64).T
    best = np.maximum.reduceat(products, [0, 1, 8], axis=1)
    np.testing.assert_array_equal(wanted, (np.add.reduceat(best, [0, 1], axis=0) / 2**30).astype(np.float32))
    for way in range(len(_maxsim.ways())):
        np.testing.assert_array_equal(maxsim(_maxsim, way, queries, rows), wanted)


@compiled
def test_plain_c_of_bert_gives_the_same(tmp_path: Path) -> None:
    plain = built_plain("bert", tmp_path)
    assert plain.ways() == ["plain"]
    given, ids = parts(tiny(96, 2, 208, 2)), np.arange(37, dtype=np.int32)
    states = []
    for engine in (plain, _bert):
        states.append(np.empty((37, 96), np.float32))
        engine.states(engine.make(0, *given), ids, np.zeros_like(ids), states[-1])
    np.testing.assert_array_equal(states[0].view(np.int32), states[1].view(np.int32))


@compiled
@pytest.mark.parametrize("source", sorted(path.name for path in SOURCES.glob("*.c")))
def test_no_other_compiler_sees_extensions(source: str) -> None:
    """Extensions of GCC and Clang stand in compiler.h, or behind a question for what they need."""
    assert COMPILER is not None
    include = f"-I{sysconfig.get_path('include')}"
    done = subprocess.run(
        [COMPILER, "-E", "-fdirectives-only", "-std=c11", *PORTABLE, include, str(SOURCES / source)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = False
    for line in done.stdout.splitlines():
        if marker := re.match(r'# \d+ "([^"]+)"', line):
            ours = "_native" in marker[1]
        elif ours:
            assert not re.search(r"__(attribute__|builtin_\w+|asm__|typeof__)\s*\(|__int128", line), line
