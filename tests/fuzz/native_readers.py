"""The C extensions with arbitrary bytes: what they are handed is checked by them, not by luck."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, Maker

BUILT = "R2MED_FUZZ_NATIVE"
"""Names a folder of extensions built for this test, instead of the installed ones."""


def extension(name: str) -> Any:
    """`_bert`, `_fast`, `_sparse`, `_dots` or `_maxsim`: ours as installed, or the one built with sanitizers."""
    if folder := os.environ.get(BUILT):
        loader = ExtensionFileLoader(f"r2med.{name}", str(Path(folder) / f"{name}.so"))
        spec = spec_from_file_location(f"r2med.{name}", loader.path, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        return module
    return import_module(f"r2med.{name}")


def analyze(folder: Path) -> Case:
    fast = extension("_fast")
    seeds = [
        "The patients' fevers, 38.5 °C; U.S.A.".encode(),
        "𝔘𝔫𝔦 🧬🫀 can't".encode(),
        b"\xed\xa0\x80\xff",
        b"relational" * 60,
    ]
    return Case(seeds, fast.analyze)


def count_terms(folder: Path) -> Case:
    """Text and offsets both out of the input: a fifth of it is read as int64 offsets."""
    fast = extension("_fast")

    def read(data: bytes) -> object:
        size = len(data) // 40 * 8
        offsets, text = data[:size], data[size:]
        found = []
        for analyzer in (0, 1, 2):
            end = struct.pack("<qq", 0, len(text))
            found.append(fast.count_terms(text, end, analyzer))
            with suppress(ValueError):  # offsets that run backwards or out of the text
                found.append(fast.count_terms(text, offsets or end, analyzer))
        return found

    good = struct.pack("<4q", 0, 10, 20, 128) + b"fever and rash in children " * 5
    return Case([good, b"\0" * 64 + b"word " * 40], read)


def run_columns(folder: Path) -> Case:
    """Lines of a run; ids that are known already have numbers out of range, too."""
    fast = extension("_fast")
    seeds = [b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 -1e-3 tag\n\nq2 Q0 d1 1 inf tag", b"q\xff Q0 d 1 nan t\n" * 3]
    return Case(seeds, lambda data: fast.run_columns(data, {b"q1": 1 << 40, b"q2": 7}, {b"d1": -5}))


def sparse(folder: Path) -> Case:
    """Search over postings whose numbers come out of the input."""
    import numpy as np

    engine = extension("_sparse")
    base: dict[str, Any] = {
        "term_ptr": np.array([0, 2, 4, 5], dtype=np.int64),
        "docs": np.array([0, 1, 1, 2, 0], dtype=np.int32),
        "impacts": np.array([0.5, 0.25, 1.0, 2.0, 0.125], dtype=np.float32),
        "query_ptr": np.array([0, 2, 3], dtype=np.int64),
        "query_terms": np.array([0, 2, 1], dtype=np.int32),
        "weights": np.array([1.0, 0.5, 2.0], dtype=np.float64),
        "tie_rank": np.array([0, 1, 2], dtype=np.int32),
    }
    names, sizes = list(base), [base[n].nbytes for n in base]

    def read(data: bytes) -> object:
        arrays, at = [], 0
        for name, size in zip(names, sizes, strict=True):
            part = data[at : at + size].ljust(size, b"\0")
            arrays.append(np.frombuffer(part, dtype=base[name].dtype).copy())
            at += size
        docs, scores = np.empty((2, 2), dtype=np.int32), np.empty((2, 2), dtype=np.float32)
        try:
            engine.search(*arrays, docs, scores)
        except (ValueError, TypeError, OverflowError):  # refused, with a reason
            return None
        return docs, scores

    seed = b"".join(base[n].tobytes() for n in names)
    assert read(seed) is not None, "the untouched arrays must be searched, or nothing is tested"
    return Case([seed], read)


def topk(folder: Path) -> Case:
    """The best of each row of any scores, under any tie ranks."""
    import numpy as np

    engine = extension("_sparse")
    scores = np.array([[0.5, 0.25, 1.0, 0.25], [2.0, np.nan, -np.inf, np.inf]], dtype=np.float32)
    ranks = np.arange(4, dtype=np.int32)

    def read(data: bytes) -> object:
        given = np.frombuffer(data[:32].ljust(32, b"\0"), dtype=np.float32).copy()
        order = np.frombuffer(data[32:48].ljust(16, b"\0"), dtype=np.int32).copy()
        docs, best = np.empty((2, 3), dtype=np.int32), np.empty((2, 3), dtype=np.float32)
        try:
            engine.topk(given.reshape(2, 4), order, docs, best)
        except ValueError:  # ranks that are none
            return None
        return docs, best

    seed = scores.tobytes() + ranks.tobytes()
    assert read(seed) is not None
    return Case([seed], read)


def dots(folder: Path) -> Case:
    """Inner products whose sizes and places come out of the input."""
    import numpy as np

    engine = extension("_dots")
    queries, rows = np.ones((5, 67), dtype=np.float32), np.ones((4, 67), dtype=np.float32)

    def read(data: bytes) -> object:
        dimension, width, begin, end, offset = struct.unpack("<5q", data[:40].ljust(40, b"\0"))
        places = np.frombuffer(data[40:64].ljust(24, b"\0"), dtype=np.int64).copy()
        found = []
        for chosen in (None, places):
            out = np.zeros((5, 4), dtype=np.float32)
            with suppress(ValueError):  # sizes that do not fit
                engine.dots(queries, rows, chosen, out, dimension, width, begin, end, offset)
                found.append(out)
        return found

    seed = struct.pack("<8q", 67, 4, 0, 3, 1, 0, 2, 3)
    whole = read(seed)
    assert isinstance(whole, list)
    assert len(whole) == 2, "the untouched sizes must fit, or nothing is tested"
    assert all((out[:, 1:] == 67).all() for out in whole)
    return Case([seed, struct.pack("<8q", 1, 4, 0, 4, 0, 3, 3, 3)], read)


def pairs(folder: Path) -> Case:
    """Exact products of pairs whose sizes and numbers come out of the input."""
    import numpy as np

    engine = extension("_dots")
    queries, rows = np.ones((3, 19), dtype=np.float64), np.ones((4, 19), dtype=np.float32)

    def read(data: bytes) -> object:
        dimension, begin, end = struct.unpack("<3q", data[:24].ljust(24, b"\0"))
        query, place = np.frombuffer(data[24:56].ljust(32, b"\0"), dtype=np.int64).copy().reshape(2, 2)
        out = np.zeros(2, dtype=np.float64)
        with suppress(ValueError):  # sizes that do not fit
            engine.pairs(queries, rows, query.copy(), place.copy(), out, dimension, begin, end)
            return out
        return None

    seed = struct.pack("<7q", 19, 0, 2, 0, 2, 3, 1)
    whole = read(seed)
    assert isinstance(whole, np.ndarray), "the untouched sizes must fit, or nothing is tested"
    assert (whole == 19).all()
    return Case([seed], read)


def late(folder: Path) -> Case:
    """Late interaction whose sizes, bounds and numbers come out of the input, in every way of this processor."""
    import numpy as np

    engine = extension("_maxsim")
    ends, starts, sizes = [3, 21], [0, 2, 5], [2, 3, 4]

    def read(data: bytes) -> object:
        head = np.frombuffer(data[:104].ljust(104, b"\0"), dtype=np.int64)
        rows = np.frombuffer(data[104:212].ljust(108, b"\0"), dtype=np.int16).reshape(9, 6).copy()
        queries = np.resize(rows, (21, 6))
        bounds = [part.copy() for part in (head[:2], head[2:5], head[5:8])]
        found = []
        for way in range(len(engine.ways())):
            out = np.zeros((2, 3), dtype=np.float32)
            with suppress(ValueError):  # sizes that do not fit
                engine.scores(queries, bounds[0], rows, *bounds[1:], out, *head[8:].tolist(), way)
                found.append(out)
        return found

    seed = struct.pack("<13q", *ends, *starts, *sizes, 6, 3, 0, 3, 0)
    whole = read(seed + b"\1\0" * 54)
    assert isinstance(whole, list)
    assert len(whole) == len(engine.ways()), "the untouched sizes must fit, or nothing is tested"
    assert all((out == np.array([[18], [108]], dtype=np.float32) / 2**30).all() for out in whole)
    return Case([seed + b"\1\0" * 54, seed + b"\0\x80" * 54], read)


def bert(folder: Path) -> Case:
    """A small model whose sizes and numbers come out of the input, and a text whose tokens do, in every way."""
    import numpy as np

    engine = extension("_bert")
    hidden, wide, rows = 32, 48, 3 * 8
    weights = np.arange(4 * hidden * hidden + 2 * hidden * wide, dtype=np.int64).astype(np.int8)
    count = 2 + 6 + 2 * hidden + 2 * (4 * hidden + wide + hidden) + 4 * hidden
    tables = np.arange(rows * hidden, dtype=np.int64).astype(np.uint8)

    def read(data: bytes) -> object:
        sizes = np.frombuffer(data[:56].ljust(56, b"\0"), dtype=np.int64).copy()
        ids = np.frombuffer(data[56:76].ljust(20, b"\0"), dtype=np.int32).copy()
        numbers = np.resize(np.frombuffer(data[76:140].ljust(64, b"\0"), dtype=np.float32), count)
        found = []
        for way in range(len(engine.ways())):
            with suppress(ValueError):  # sizes that do not fit, tokens that are not known
                model = engine.make(way, sizes, weights, numbers, tables)
                out = np.zeros((len(ids), hidden), dtype=np.float32)
                engine.states(model, ids, np.zeros_like(ids), out)
                found.append(out.tobytes())
        return found

    seed = struct.pack("<7q5i", hidden, 2, wide, 1, 8, 8, 8, 0, 7, 3, 3, 1)
    whole = read(seed + struct.pack("<16f", *(0.01 * i for i in range(1, 17))))
    assert isinstance(whole, list)
    assert len(whole) == len(engine.ways()), "the untouched sizes must fit, or nothing is tested"
    assert len(set(whole)) == 1
    return Case([seed + struct.pack("<16f", *(0.01 * i for i in range(1, 17))), seed + b"\xff\x7f" * 32], read)


NATIVE: dict[str, Maker] = {
    "C analyzer": analyze,
    "C BERT": bert,
    "C run columns": run_columns,
    "C term counts": count_terms,
    "C sparse search": sparse,
    "C top-k": topk,
    "C inner products": dots,
    "C exact products": pairs,
    "C late interaction": late,
}
