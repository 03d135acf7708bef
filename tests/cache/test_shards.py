"""The embedding cache: round trips, kills, races and damage."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.cache import (
    CachedRows,
    DamagedShard,
    EmbeddingCache,
    compact,
    entries,
    open_shard,
    prune,
    shards,
    text_keys,
    verify_sample,
    write_shard,
)
from r2med.core import ModelError, TextColumn
from r2med.core.budget import Reused
from r2med.retrieve import embed as embedding
from r2med.retrieve.embed import embed, verify_cache
from tests.builders import TEXTS
from tests.retrieve.encoders.hashing import HashEncoder

MANY = [f"text {i}" for i in range(95)]


def shard_files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*/*.shard"))


@given(st.lists(TEXTS, max_size=60), st.integers(1, 20))
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, texts: list[str], dimension: int) -> None:
    cache = EmbeddingCache(tmp_path_factory.mktemp("cache"))
    encoder = HashEncoder(dimension=dimension)
    expected = encoder.encode(texts, "document")
    first = embed(encoder, texts, "document", cache=cache)
    encoder.asked.clear()
    for column in (texts, TextColumn.from_texts(texts)):
        again = embed(encoder, column, "document", cache=cache)
        assert (again.cached, again.encoded) == (len(set(texts)), 0)
        if texts:
            assert np.array_equal(again.rows.read(0, len(texts)), expected)
            assert np.array_equal(again.rows.take(np.arange(len(texts))[::-1]), expected[::-1])
        assert again.tokens.tolist() == [len(t.split()) for t in texts]
    assert (first.cached, first.encoded) == (0, len(set(texts)))
    assert not encoder.asked


def test_without_a_cache_equal_texts_are_encoded_once() -> None:
    encoder = HashEncoder()
    texts = ["b", "a", "b", "c", "a"]
    made = embed(encoder, texts, "query")
    assert encoder.asked == ["b", "a", "c"]
    assert np.array_equal(made.rows.read(0, 5), HashEncoder().encode(texts, "query"))
    assert made.tokens.tolist() == [1] * 5


def test_everything_that_shapes_a_vector_is_in_the_key(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    embed(HashEncoder(), MANY, "document", cache=cache)
    for encoder, instruction in ((HashEncoder(revision="2"), ""), (HashEncoder(), "other: ")):
        assert embed(encoder, MANY, "document", instruction, cache=cache).cached == 0
    assert embed(HashEncoder(), MANY, "query", cache=cache).cached == 0
    assert embed(HashEncoder(), MANY[::-1], "document", cache=cache).cached == len(MANY)


def test_a_text_that_no_length_cuts_is_encoded_for_one_only(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    texts = ["one", "one two three", "one two three four five"]
    embed(HashEncoder(limit=4), texts, "document", cache=cache)
    for limit, encoded in ((8, 1), (2, 2)):
        encoder = HashEncoder(limit=limit)
        made = embed(encoder, texts, "document", cache=cache)
        assert made.encoded == encoded
        assert np.array_equal(made.rows.read(0, 3), HashEncoder(limit=limit).encode(texts, "document"))


def test_a_model_that_breaks_loses_nothing(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    broken = HashEncoder()
    broken.fail_after = 40
    with pytest.raises(RuntimeError):
        embed(broken, MANY, "document", cache=cache)
    assert embed(HashEncoder(), MANY, "document", cache=cache).cached == 40


@pytest.mark.parametrize("change", ["cut", "flip", "empty", "header"])
def test_damage_is_found_ignored_counted_and_repaired(tmp_path: Path, change: str) -> None:
    cache = EmbeddingCache(tmp_path / "embeddings")
    expected = embed(HashEncoder(), MANY, "document", cache=cache).rows.read(0, len(MANY)).copy()
    (path,) = shard_files(tmp_path / "embeddings")
    data = bytearray(path.read_bytes())
    if change == "flip":
        data[-5] ^= 1
    elif change == "header":
        data[20] ^= 1
    size = {"cut": len(data) // 2, "empty": 0}.get(change, len(data))
    path.write_bytes(data[:size])
    made = embed(HashEncoder(), MANY, "document", cache=cache)
    assert (made.damaged_shards, made.cached, made.encoded) == (1, 0, len(MANY))
    assert np.array_equal(made.rows.read(0, len(MANY)), expected)
    assert prune(tmp_path).damaged == 1
    assert embed(HashEncoder(), MANY, "document", cache=cache).damaged_shards == 0


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    path = write_shard(tmp_path, text_keys(["a", "b"]), np.array([1, 2], np.int32), np.ones((2, 3), np.float32))
    data = path.read_bytes()
    for place in range(len(data)):
        if 16 + 20 <= place < 64:
            continue  # filling
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(DamagedShard):
            open_shard(path, check=True)


def write_untimed(path: Path, keys: Any, tokens: Any, vectors: Any) -> None:
    """A shard as it was written before rows had seconds."""
    body = keys.astype("<u8").tobytes() + tokens.astype("<i4").tobytes() + bytes(-20 * len(keys) % 64)
    body += vectors.astype("<f4").tobytes()
    head = b"r2med vectors 1\n" + struct.pack("<QII", *vectors.shape, zlib.crc32(body))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((head + struct.pack("<I", zlib.crc32(head))).ljust(64, b"\0") + body)


def test_the_time_that_encoding_took_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = EmbeddingCache(tmp_path)
    monkeypatch.setenv("PAUSE", "0.01")
    first = embed(HashEncoder(), MANY, "document", cache=cache)
    ((seconds, saved),) = first.reused.values()
    assert saved == 0
    assert seconds is not None
    assert 0.1 <= seconds <= first.seconds
    again = embed(HashEncoder(), MANY[:50] * 2, "document", cache=cache)
    (half,) = again.reused.values()
    assert half.seconds == half.saved
    assert 0.05 <= (half.saved or 0.0) <= seconds - 0.04  # each text once, and only those that are asked for
    more = embed(HashEncoder(), [*MANY, "a new text"], "document", cache=cache)
    ((whole, there),) = more.reused.values()
    assert there == pytest.approx(seconds)
    assert whole is not None
    assert whole >= seconds + 0.01
    compact(shard_files(tmp_path)[0].parent)
    assert len(shard_files(tmp_path)) == 1
    (merged,) = embed(HashEncoder(), MANY, "document", cache=cache).reused.values()
    assert merged == pytest.approx((seconds, seconds))
    shorter = embed(HashEncoder(limit=8), MANY, "document", cache=cache)  # no text is longer: nothing is encoded
    assert shorter.encoded == 0
    assert next(iter(shorter.reused.values())) == pytest.approx((seconds, seconds))


def test_vectors_of_an_older_cache_are_used_and_their_time_is_unknown(tmp_path: Path) -> None:
    cache, encoder = EmbeddingCache(tmp_path), HashEncoder()
    folder = cache.open(embedding.identity(encoder, "document", ""), encoder.limit).folder
    expected = encoder.encode(MANY, "document")
    tokens = np.array([2] * 60, dtype=np.int32)
    write_untimed(folder / "0001-1-a.shard", text_keys(MANY[:60]), tokens, expected[:60])
    made = embed(HashEncoder(), MANY, "document", cache=cache)
    assert (made.cached, made.encoded, made.damaged_shards) == (60, 35, 0)
    assert np.array_equal(made.rows.read(0, len(MANY)), expected)
    assert list(made.reused.values()) == [Reused(None, None)]
    ((seconds, saved),) = embed(HashEncoder(), MANY[60:], "document", cache=cache).reused.values()
    assert seconds == saved
    assert seconds is not None
    compact(folder)
    assert list(embed(HashEncoder(), MANY, "document", cache=cache).reused.values()) == [Reused(None, None)]
    assert embed(HashEncoder(), MANY, "document", cache=cache).damaged_shards == 0


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all bodies that are read to be checked from now on."""
    reads: list[int] = []
    real = zlib.crc32

    def counted(data: bytes, start: int = 0) -> int:
        if len(data) > 64:
            reads.append(len(data))
        return real(data, start)

    monkeypatch.setattr("r2med.cache.shards.zlib.crc32", counted)
    monkeypatch.setattr(shards, "SETTLED_SECONDS", -1.0)
    return reads


def test_only_shards_that_are_used_are_checked_and_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a model's vectors for a small task does not read those of all other tasks."""
    cache = EmbeddingCache(tmp_path)
    for name in ("one", "two", "three"):
        embed(HashEncoder(), [f"{name} {i}" for i in range(40)], "document", cache=cache)
    monkeypatch.setattr("r2med.cache.shards._intact", set())
    reads = count_reads(monkeypatch)
    for _ in range(5):
        made = embed(HashEncoder(), [f"two {i}" for i in range(40)], "document", cache=cache)
        assert made.cached == 40
    assert len(reads) == 1
    embed(HashEncoder(), ["new"], "document", cache=cache).rows.read(0, 1)
    assert sum(size > 1000 for size in reads) == 1


def test_damage_after_a_check_is_still_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SETTLED_SECONDS", -1.0)
    cache = EmbeddingCache(tmp_path)
    embed(HashEncoder(), MANY, "document", cache=cache)
    (path,) = shard_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()  # the first is still mapped
    path.write_bytes(data)
    os.utime(path, (1, 1))
    assert embed(HashEncoder(), MANY, "document", cache=cache).damaged_shards == 1


def test_a_damaged_shard_that_no_text_needs_is_not_counted_and_not_used(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "embeddings")
    embed(HashEncoder(), MANY, "document", cache=cache)
    (path,) = shard_files(tmp_path / "embeddings")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    made = embed(HashEncoder(), ["another text"], "document", cache=cache)
    assert (made.encoded, made.damaged_shards) == (1, 0)
    assert prune(tmp_path).damaged == 1


def test_another_dimension_is_refused(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    embed(HashEncoder(dimension=8), MANY, "document", cache=cache)
    with pytest.raises(ModelError, match="12 dimensions, but the cache holds 8"):
        embed(HashEncoder(dimension=12), [*MANY, "new"], "document", cache=cache)


WORKER = """
import sys
from pathlib import Path
from r2med.retrieve import embed as embedding
from r2med.cache import EmbeddingCache
from tests.retrieve.encoders.hashing import HashEncoder
embedding.FLUSH_SECONDS = 0.05
first, last, root = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
texts = [f"text {i}" for i in range(first, last)]
print("begin", flush=True)
made = embedding.embed(HashEncoder(), texts, "document", cache=EmbeddingCache(root))
print(made.cached, made.encoded)
"""


def worker(first: int, last: int, root: Path, pause: str) -> subprocess.Popen[str]:
    repository = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(first), str(last), str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PAUSE": pause},
        cwd=repository,
    )


def test_encoding_goes_on_after_a_kill(tmp_path: Path) -> None:
    with worker(0, 2000, tmp_path, "0.02") as running:
        deadline = time.monotonic() + 30
        while len(shard_files(tmp_path)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
    kept = sum(len(open_shard(path).keys) for path in shard_files(tmp_path))
    assert 0 < kept < 2000
    texts = [f"text {i}" for i in range(2000)]
    made = embed(HashEncoder(), texts, "document", cache=EmbeddingCache(tmp_path))
    assert (made.cached, made.encoded, made.damaged_shards) == (kept, 2000 - kept, 0)
    assert np.array_equal(made.rows.read(0, 2000), HashEncoder().encode(texts, "document"))


def test_two_processes_at_once(tmp_path: Path) -> None:
    running = [worker(0, 300, tmp_path, "0.005"), worker(200, 500, tmp_path, "0.005")]
    for process in running:
        process.communicate(timeout=300)
        assert process.returncode == 0
    texts = [f"text {i}" for i in range(500)]
    made = embed(HashEncoder(), texts, "document", cache=EmbeddingCache(tmp_path))
    assert (made.cached, made.encoded, made.damaged_shards) == (500, 0, 0)
    assert np.array_equal(made.rows.read(0, 500), HashEncoder().encode(texts, "document"))


def test_a_set_has_a_name_for_people_that_is_no_part_of_its_key(tmp_path: Path) -> None:
    cache, encoder = EmbeddingCache(tmp_path / "embeddings"), HashEncoder()
    embed(encoder, MANY, "document", cache=cache)
    encoder.name = "renamed"
    assert embed(encoder, MANY, "document", cache=cache).encoded == 0
    (entry,) = entries(tmp_path)
    assert entry.label == "hash"
    assert "label" not in entry.about


def test_compacting_keeps_every_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(embedding, "MANY_SHARDS", 1000)
    cache = EmbeddingCache(tmp_path)
    made = embed(HashEncoder(), MANY, "document", cache=cache)
    folder = shard_files(tmp_path)[0].parent
    assert compact(folder) == 10
    assert len(shard_files(tmp_path)) == 1
    again = embed(HashEncoder(), MANY, "document", cache=cache)
    assert again.encoded == 0
    for rows in (made.rows, again.rows):  # many shards, one shard: no row, one row, some rows
        for places in ([], [7], [94, 3, 3, 50]):
            expected = HashEncoder().encode([MANY[i] for i in places], "document").reshape(len(places), 8)
            assert np.array_equal(rows.take(np.array(places, dtype=np.int64)), expected)
    assert np.array_equal(again.rows.read(0, 95), made.rows.read(0, 95))


def test_a_shard_that_another_process_merges_as_soon_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merged(folder: Path, *rest: Any) -> Path:
        written = write_shard(folder, *rest)
        compact(folder)
        return written

    mine, keys = shards.ShardSet(tmp_path), text_keys(["a", "b", "c"])
    rows, tokens = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(3, dtype=np.int32)
    mine.append(keys[:1], tokens[:1], rows[:1])
    before = mine.find(keys[:1])
    monkeypatch.setattr(shards, "write_shard", merged)
    mine.append(keys[1:], tokens[1:], rows[1:])
    assert CachedRows(mine, mine.find(keys)).take(np.arange(3)).tolist() == rows.tolist()
    assert CachedRows(mine, before).take(np.arange(1)).tolist() == rows[:1].tolist(), "what was found keeps its place"


def test_many_shards_become_one_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "FLUSH_SECONDS", 0.0)
    made = embed(HashEncoder(), MANY, "document", cache=EmbeddingCache(tmp_path))
    assert len(shard_files(tmp_path)) == 1
    assert np.array_equal(made.rows.read(0, 95), HashEncoder().encode(MANY, "document"))


def test_verifying_finds_a_lie(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    embed(HashEncoder(), MANY, "document", cache=cache)
    assert verify_cache(HashEncoder(), MANY, "document", "", cache, 20) == {"checked": 20, "largest_difference": 0.0}
    shards = cache.open(embedding.identity(HashEncoder(), "document", ""), 16)
    keys = text_keys(MANY)
    for path in shard_files(tmp_path):
        path.unlink()
    write_shard(shards.folder, keys, np.ones(95, np.int32), np.ones((95, 8), np.float32))
    with pytest.raises(ModelError, match="20 of 20 cached vectors of hash are not what it returns now"):
        verify_cache(HashEncoder(), MANY, "document", "", cache, 20)


def test_verifying_finds_what_is_no_number(tmp_path: Path) -> None:
    """A model that returns NaN now, as one in half precision may, is not what the cache holds."""
    cache = EmbeddingCache(tmp_path)
    stored = cache.open({"model": "m"}, None)
    stored.append(text_keys(MANY), np.full(len(MANY), -1, dtype=np.int32), np.ones((len(MANY), 3), dtype=np.float32))

    def encode(texts: list[str]) -> Any:
        return np.full((len(texts), 3), np.nan, dtype=np.float32)

    with pytest.raises(ModelError, match="5 of 5 cached vectors of m are not what it returns now"):
        verify_sample(cache.open({"model": "m"}, None), MANY, encode, 5, name="m", dtype="float32")
