"""Everything kept in the home: shown, verified and pruned, without following a link."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from r2med.cache import ArrayCache, EmbeddingCache, ScoreCache, entries, prune, text_keys, verify
from r2med.core import UnknownName, UsageError
from r2med.llm import Choice, GenerationStore, Message, Replay, Reply, Request, Sampling, StoreKey, read_reply

REQUEST = Request((Message("user", "Fever?"),), Sampling(max_tokens=64), "q1")
OLD = (1, 1)


def fill(home: Path) -> None:
    """One entry of every kind."""
    for cache, label in ((EmbeddingCache(home / "embeddings"), "bge-small"), (ScoreCache(home / "rerank"), "monobert")):
        shards = cache.open({"backend": "test", "side": "document"}, 512, label=label)
        shards.append(text_keys(["a", "b"]), np.ones(2, np.int32), np.ones((2, 3), np.float32))
    ArrayCache(home / "indexes").save("00ff", {"terms": np.arange(50)}, {"name": "bm25", "task": "mini@1/Biology"})
    with GenerationStore(key(), home / "generations") as store:
        store.append(read_reply(REQUEST, Reply(key="q1", choices=(Choice("Measles."),))))


def key() -> StoreKey:
    return StoreKey.of("hyde", Replay({}, "test"), "t", Sampling(max_tokens=64), "task")


def files(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}


def use_long_ago(home: Path) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            os.utime(path, OLD)


def test_every_kind_is_shown(tmp_path: Path) -> None:
    fill(tmp_path)
    shown = {entry.kind: entry for entry in entries(tmp_path)}
    assert {kind: (e.label, e.detail, e.files) for kind, e in shown.items()} == {
        "vectors": ("bge-small", "document", 1),
        "scores": ("monobert", "document", 1),
        "indexes": ("bm25", "mini@1/Biology", 1),
        "generations": ("replay:test", "hyde", 1),
    }
    assert all(entry.bytes > 0 and entry.last_used > 1 for entry in shown.values())
    assert shown["generations"].about["model"] == Replay({}, "test").describe()
    assert [e.kind for e in entries(tmp_path, ["scores"])] == ["scores"]
    with pytest.raises(UsageError, match="nothing of kind 'vector' is kept"):
        entries(tmp_path, ["vector"])
    assert entries(tmp_path / "none") == []


def test_verifying_finds_damage_of_every_kind(tmp_path: Path) -> None:
    fill(tmp_path)
    assert not [damage for _, found in verify(tmp_path) for damage in found]
    for pattern in ("embeddings/*/*/*.shard", "rerank/*/*/*.shard", "indexes/*/*.npy", "generations/*/*/*.jsonl"):
        (path,) = tmp_path.glob(pattern)
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)
    damaged = {damage.kind: damage for _, found in verify(tmp_path) for damage in found}
    assert {kind: damage.lost for kind, damage in damaged.items()} == {
        "vectors": True, "scores": True, "indexes": True, "generations": False,
    }  # fmt: skip
    assert "checksum" in damaged["vectors"].reason
    assert "1 lines cannot be read" in damaged["generations"].reason
    done = prune(tmp_path)
    assert (done.damaged, done.entries) == (3, 0)
    assert not [d for _, found in verify(tmp_path) for d in found if d.lost]
    assert list(tmp_path.glob("generations/*/*/*.jsonl"))


def test_pruning_takes_the_oldest_and_leaves_generations(tmp_path: Path) -> None:
    fill(tmp_path)
    use_long_ago(tmp_path)
    EmbeddingCache(tmp_path / "embeddings").open({"backend": "test", "side": "document"}, 512)
    assert prune(tmp_path, unused_days=1).entries == 2
    assert sorted(e.kind for e in entries(tmp_path)) == ["generations", "vectors"]
    assert prune(tmp_path, max_bytes=0).entries == 1
    assert [e.kind for e in entries(tmp_path)] == ["generations"]
    assert prune(tmp_path, unused_days=0).entries == 0
    done = prune(tmp_path, ["generations"], unused_days=1)
    assert (done.entries, done.bytes > 0) == (1, True)
    assert entries(tmp_path) == []
    assert not list(tmp_path.glob("generations/*/*/*"))


def test_pruning_until_it_fits(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "embeddings")
    for revision in ("old", "new"):
        shards = cache.open({"revision": revision}, 16)
        shards.append(text_keys(["a"]), np.ones(1, np.int32), np.ones((1, 64), np.float32))
        if revision == "old":
            use_long_ago(tmp_path)
    new, old = entries(tmp_path)
    assert (new.about["revision"], old.about["revision"]) == ("new", "old")
    assert prune(tmp_path, max_bytes=new.bytes + old.bytes).entries == 0
    assert prune(tmp_path, max_bytes=new.bytes).entries == 1
    assert [e.about["revision"] for e in entries(tmp_path)] == ["new"]


def test_what_killed_processes_left_goes_after_a_day(tmp_path: Path) -> None:
    fill(tmp_path)
    (folder,) = tmp_path.glob("embeddings/*/512")
    fresh, stale = folder / ".a.shard.x.tmp", folder / ".b.shard.y.tmp"
    index = tmp_path / "indexes" / ".00aa.z.tmp"
    index.mkdir()
    (index / "terms.npy").write_bytes(b"half")
    for path in (fresh, stale):
        path.write_bytes(b"half")
    for path in (stale, index):
        os.utime(path, OLD)
    assert prune(tmp_path).temporary == 2
    assert fresh.exists()
    assert not stale.exists()
    assert not index.exists()
    assert len(entries(tmp_path)) == 4


def test_links_are_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    fill(home)
    fill(outside)
    for path in outside.rglob("*.shard"):
        path.write_bytes(b"damaged")
    (outside / "embeddings" / ".x.tmp").write_bytes(b"left")
    use_long_ago(outside)
    before = files(outside)
    (inner,) = (outside / "embeddings").glob("*/")
    (home / "embeddings" / "linked").symlink_to(inner)
    (home / "embeddings" / "away").symlink_to(outside)
    (home / "generations" / "linked").symlink_to(outside / "generations")
    (next((home / "embeddings").glob("*/512")) / "linked.shard").symlink_to(next(inner.glob("*/*.shard")))
    (home / "indexes").rename(tmp_path / "moved")
    (home / "indexes").symlink_to(outside / "indexes")
    done = prune(home, ["vectors", "scores", "generations", "indexes"], unused_days=0.5, max_bytes=0)
    assert files(outside) == before
    assert (done.damaged, done.temporary, done.entries) == (0, 0, 3)
    assert (home / "embeddings" / "linked").is_symlink()


def test_an_unknown_kind_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown kind of cache entry 'vector'; did you mean vectors"):
        prune(tmp_path, ["vector"])
