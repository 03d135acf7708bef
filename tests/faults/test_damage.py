"""Damaged stores: found by their checksums, done again, counted; never believed and never a crash."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest

from r2med.cache import ArrayCache, DamagedShard, EmbeddingCache, open_shard, write_shard
from r2med.cache.arrays import Array
from r2med.core import ResultError
from r2med.llm import Generation, GenerationStore, Message, Request, Sampling
from r2med.results import ResultStore
from r2med.results.store import read_result
from r2med.retrieve.embed import embed
from tests.faults.runs import ONE_TASK, Place, content, one_line, run, run_well
from tests.fuzz.store_readers import KEY
from tests.retrieve.encoders.hashing import HashEncoder

Count = Callable[[str, object], None]
HEADER = 128  # of a .npy file; the fuzzer breaks those
TEXTS = [f"text {i}" for i in range(10)]


def every_flip(data: bytes) -> Iterator[bytes]:
    """The data with each of its bits turned over, one at a time."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def spoiled(data: bytes) -> dict[str, bytes]:
    """What disks, copies and people do to a file."""
    return {
        "empty": b"",
        "cut in the header": data[:20],
        "cut in half": data[: len(data) // 2],
        "one byte short": data[:-1],
        "one byte more": data + b"\0",
        "wrong magic": b"X" + data[1:],
        "zeros": bytes(len(data)),
        "text": b"<html>not found</html>",
    }


def test_every_bit_of_a_shard(tmp_path: Path, count: Count) -> None:
    keys = np.arange(6, dtype="<u8").reshape(3, 2)
    path = write_shard(tmp_path, keys, np.arange(3, dtype=np.int32), np.ones((3, 4), dtype=np.float32))
    data, harmless = path.read_bytes(), 0
    for changed in every_flip(data):
        path.write_bytes(changed)
        try:
            shard = open_shard(path, check=True)
        except DamagedShard:
            continue
        harmless += 1
        assert (shard.keys == keys).all()
        assert (shard.vectors == 1).all()
        assert shard.tokens.tolist() == [0, 1, 2]
    assert harmless == 8 * (64 - 36)  # the empty end of the header, which nobody reads
    for name, changed in spoiled(data).items():
        path.write_bytes(changed)
        with pytest.raises(DamagedShard):
            open_shard(path, check=True)
        assert name
    count("bits of a shard flipped", 8 * len(data))


@pytest.mark.parametrize("kind", list(spoiled(bytes(100))))
def test_a_spoiled_cache_entry_is_encoded_again(tmp_path: Path, kind: str) -> None:
    cache, encoder = EmbeddingCache(tmp_path), HashEncoder(dimension=8)
    first = embed(encoder, TEXTS, "document", cache=cache).rows.read(0, len(TEXTS)).copy()
    (path,) = tmp_path.rglob("*.shard")
    data = spoiled(path.read_bytes())[kind]
    path.unlink()  # the old one may still be mapped
    path.write_bytes(data)
    again = embed(encoder, TEXTS, "document", cache=cache)
    assert (again.cached, again.encoded, again.damaged_shards) == (0, len(TEXTS), 1)
    assert (again.rows.read(0, len(TEXTS)) == first).all()


def damaged_notes(results: Path) -> int:
    """The largest count of damaged shards that any result speaks of."""

    def walk(value: object) -> int:
        if isinstance(value, dict):
            return max([int(value.get("damaged_shards", 0)), *map(walk, value.values())])
        return 0

    return max(walk(json.loads(p.read_bytes())["notes"]) for p in results.glob("*/*/*.json"))


@pytest.mark.parametrize("rounds", [pytest.param(25, marks=pytest.mark.faults)])
def test_runs_over_damaged_caches(place: Place, rounds: int, count: Count) -> None:
    """One bit of one shard, anywhere: the same scores, and a note."""
    run_well(place, tasks=ONE_TASK)
    expected, chance, damaged = content(place.results), random.Random(rounds), 0
    for number in range(rounds):
        here = Place(place.home.parent / f"copy{number}", place.results.parent / f"again{number}")
        shutil.copytree(place.home, here.home, symlinks=True)
        path = chance.choice(sorted(here.home.rglob("*.shard")))
        data = bytearray(path.read_bytes())
        at = chance.choice((chance.randrange(36), chance.randrange(64, len(data))))
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        run_well(here, tasks=ONE_TASK)
        assert content(here.results) == expected
        assert damaged_notes(here.results) == 1
        damaged += 1
    count("runs over a damaged shard, equal scores, counted", damaged)


def test_arrays_with_a_checksum(tmp_path: Path, count: Count) -> None:
    """Kept arrays, such as those of an index, are what was kept or nothing at all."""
    arrays: dict[str, Array] = {
        "term_ptr": np.array([0, 2, 4, 5], dtype=np.int64),
        "docs": np.array([0, 1, 1, 2, 0], dtype=np.int32),
        "impacts": np.array([0.5, 0.25, 1.0, 2.0, 0.125], dtype=np.float32),
    }
    cache, changes, refused = ArrayCache(tmp_path), 0, 0
    cache.save("index", arrays, {"documents": 3})
    for path in (tmp_path / "index").glob("*.npy"):
        data = path.read_bytes()
        flipped = [data[:HEADER] + changed for changed in islice(every_flip(data[HEADER:]), 0, None, 5)]
        for changed in [*flipped, *spoiled(data).values()]:
            path.unlink()  # the old one may still be mapped
            path.write_bytes(changed)
            changes += 1
            found = cache.load("index")
            refused += found is None
            assert found is None or all((found[name] == array).all() for name, array in arrays.items())
        path.write_bytes(data)
    assert refused == changes
    cache.save("index", {"docs": arrays["docs"]}, {})  # what is whole stays
    assert set(cache.load("index") or ()) == set(arrays)
    count("changes to kept arrays, all refused", changes)


def test_every_byte_of_a_generation_store(tmp_path: Path, count: Count) -> None:
    """An answer that was changed on disk is asked for again; the others stay."""
    request = Request((Message("user", "x"),), Sampling(max_tokens=64), "q1")
    with GenerationStore(KEY, tmp_path) as store:
        store.append([
            Generation(query_id=f"q{i}", prompt_hash=request.prompt_hash, status="ok", final=f"fever {i}", raw=f"f {i}")
            for i in range(3)
        ])  # fmt: skip
        path, whole = store.path, store.get(request)
    data = path.read_bytes()
    start, asked_again = data.index(b"\n") + 1, 0
    for place in range(start, len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with GenerationStore(KEY, tmp_path, read_only=True) as store:
            found = store.get(request)
            assert found in (None, whole), "a changed answer was believed"
            asked_again += found is None
            assert store.torn or len(store) == 3
    assert asked_again
    count("bytes of a generation store changed", len(data) - start)


@pytest.mark.parametrize(
    "kind", ["cut in half", *(pytest.param(k, marks=pytest.mark.faults) for k in ("empty", "zeros", "text"))]
)
def test_a_spoiled_result_is_refused_and_says_how_to_go_on(place: Place, kind: str) -> None:
    systems = ("--retriever", "bm25")
    run_well(place, tasks=ONE_TASK, systems=systems)
    expected = content(place.results)
    (path,) = place.results.glob("*/*/*.json")
    path.write_bytes(spoiled(path.read_bytes())[kind])
    (place.results / ".progress.json").write_bytes(b"\xff{")
    assert "remove it or use --overwrite" in one_line(run(place, tasks=ONE_TASK, systems=systems))
    run_well(place, "--overwrite", tasks=ONE_TASK, systems=systems)
    assert content(place.results) == expected


def test_a_flipped_score_is_not_believed(place: Place, count: Count) -> None:
    """Any changed byte of a stored result: refused, or the values are those that were written."""
    systems = ("--retriever", "bm25")
    run_well(place, tasks=ONE_TASK, systems=systems)
    store = ResultStore(place.results)
    (path,) = place.results.glob("*/*/*.json")
    data, good, refused = path.read_bytes(), next(iter(store)), 0
    for at in range(0, len(data), 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            found = read_result(path)
            assert msgspec.structs.replace(found, checksum=good.checksum) == good
        except ResultError:
            refused += 1
    assert refused > len(data) // 10
    count("bytes of a result changed", len(range(0, len(data), 5)))
