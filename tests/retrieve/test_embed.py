"""From texts to vectors, through the cache and without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from r2med.cache import DamagedShard, EmbeddingCache, Int16, compact, entries, open_shard, prune, verify
from r2med.core import ModelError
from r2med.core.options import Options
from r2med.core.queries import Side
from r2med.retrieve import embed as embedding
from r2med.retrieve.embed import EmbeddedTokens, embed, embed_tokens
from r2med.retrieve.encoders import Batch
from r2med.retrieve.maxsim import fixed_point
from tests.retrieve.encoders.hashing import HashEncoder, hashed


def test_large_shards_are_not_copied_again(tmp_path: Path) -> None:
    cache, encoder = EmbeddingCache(tmp_path), HashEncoder()
    for part in range(3):
        embed(encoder, [f"text {part} {i}" for i in range(5 + 20 * (part == 1))], "document", cache=cache)
    folder = next(tmp_path.glob("*/16"))
    before = {p.stat().st_size: p.name for p in folder.glob("*.shard")}
    assert compact(folder, large=25 * 8 * 4) == 3
    left = {p.name for p in folder.glob("*.shard")}
    assert len(left) == 2
    assert before[max(before)] in left
    again = embed(encoder, [f"text {part} {i}" for part in range(3) for i in range(5)], "document", cache=cache)
    assert (again.cached, again.encoded) == (15, 0)


def test_vectors_that_are_removed_while_others_are_made_are_missed(tmp_path: Path) -> None:
    """As by `r2med cache prune` in another process: the last vector of what was left stood for all that were gone."""
    cache = EmbeddingCache(tmp_path)
    known = [f"text {i}" for i in range(embedding.MANY_SHARDS)]
    for text in known:
        embed(HashEncoder(), [text], "document", cache=cache)

    class Pruned(HashEncoder):
        def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
            for shard in tmp_path.rglob("*.shard"):
                shard.unlink()
            yield from super().stream(texts, side, instruction)

    with pytest.raises(ModelError, match=f"vectors of {len(known)} texts are gone from"):
        embed(Pruned(), [*known, "one shard more, so that they are merged"], "document", cache=cache)


def test_vectors_without_a_cache_go_to_a_file_where_memory_is_short() -> None:
    texts = [f"text {i % 700}" for i in range(1000)]
    small = embed(HashEncoder(dimension=64), texts, "document", options=Options(memory=64 << 10))
    assert np.array_equal(
        small.rows.read(0, 1000), embed(HashEncoder(dimension=64), texts, "document").rows.read(0, 1000)
    )


WORDS = [" ".join(f"w{(i * j) % 23}" for j in range(1 + i % 7)) for i in range(60)]


def read(made: EmbeddedTokens) -> list[Int16]:
    """The vectors of each text."""
    found: dict[int, Int16] = {}
    for piece in made.pieces():
        assert piece.documents is not None
        for document, start, size in zip(piece.documents, piece.starts, piece.sizes, strict=True):
            found[int(document)] = piece.matrix[start : start + size]
    return [found[i] for i in range(len(found))]


def wanted(texts: list[str], limit: int = 16, dimension: int = 8) -> list[Int16]:
    return [fixed_point(np.stack([hashed(word, dimension) for word in [*text.split()[:limit], "."]])) for text in texts]


def same(made: EmbeddedTokens, texts: list[str], limit: int = 16) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(read(made), wanted(texts, limit), strict=True))


def test_vectors_of_tokens_are_made_once(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    texts = [*WORDS, WORDS[3], ""]
    first = embed_tokens(HashEncoder(), texts, "document", cache=cache)
    assert (first.cached, first.encoded) == (0, len(set(texts)))
    again = embed_tokens(HashEncoder(), texts[::-1], "document", cache=cache)
    assert (again.cached, again.encoded) == (len(set(texts)), 0)
    assert same(first, texts)
    assert same(again, texts[::-1])
    assert first.tokens.tolist() == [len(text.split()) for text in texts]


def test_vectors_of_tokens_are_never_taken_for_a_texts_own(tmp_path: Path) -> None:
    """The same encoder, side and instruction; and everything else that shapes a vector."""
    cache = EmbeddingCache(tmp_path)
    embed(HashEncoder(), WORDS, "document", cache=cache)
    assert embed_tokens(HashEncoder(), WORDS, "document", cache=cache).cached == 0
    assert embed(HashEncoder(), WORDS, "document", cache=cache).encoded == 0
    assert embed_tokens(HashEncoder(revision="2"), WORDS, "document", cache=cache).cached == 0
    assert embed_tokens(HashEncoder(), WORDS, "document", "other: ", cache=cache).cached == 0
    assert embed_tokens(HashEncoder(), WORDS, "query", cache=cache).cached == 0


def test_vectors_of_tokens_at_other_lengths_are_borrowed_where_nothing_is_cut(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    for limit, encoded in ((4, len(set(WORDS))), (6, len({w for w in WORDS if len(w.split()) > 4}))):
        made = embed_tokens(HashEncoder(limit=limit), WORDS, "document", cache=cache)
        assert made.encoded == encoded
        assert same(made, WORDS, limit)


def test_a_model_that_breaks_loses_no_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "FLUSH_BYTES", 0)
    cache, broken = EmbeddingCache(tmp_path), HashEncoder()
    broken.fail_after = 40
    distinct = list(dict.fromkeys(WORDS))
    with pytest.raises(RuntimeError):
        embed_tokens(broken, distinct, "document", cache=cache)
    assert len(list(tmp_path.glob("*/*/*.shard"))) == 4
    made = embed_tokens(HashEncoder(), distinct, "document", cache=cache)
    assert (made.cached, made.encoded) == (40, len(distinct) - 40)
    assert same(made, distinct)
    folder = next(tmp_path.glob("*/16"))
    assert compact(folder) > 4
    assert len(list(folder.glob("*.shard"))) == 1
    merged = embed_tokens(HashEncoder(), distinct, "document", cache=cache)
    assert merged.encoded == 0
    assert same(merged, distinct)


@pytest.mark.parametrize("change", ["cut", "sizes", "flip"])
def test_damaged_tokens_are_found_and_made_again(tmp_path: Path, change: str) -> None:
    cache = EmbeddingCache(tmp_path / "embeddings")
    embed_tokens(HashEncoder(), WORDS, "document", cache=cache)
    (path,) = tmp_path.glob("embeddings/*/*/*.shard")
    data, count = bytearray(path.read_bytes()), len(set(WORDS))
    if change == "cut":
        del data[-2:]
    else:
        data[-3 if change == "flip" else 64 + 20 * count] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedShard):
        open_shard(path, check=True)
    assert sum(len(found) for _, found in verify(tmp_path, ["vectors"])) == 1
    made = embed_tokens(HashEncoder(), WORDS, "document", cache=cache)
    assert (made.shards.damaged, made.encoded) == (1, count)
    assert same(made, WORDS)
    assert prune(tmp_path).damaged == 1
    (entry,) = entries(tmp_path)
    assert (entry.kind, entry.label, entry.detail, entry.files) == ("vectors", "hash", "document tokens", 1)


def test_nothing_is_kept_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = embed_tokens(HashEncoder(), WORDS, "document")
    assert not list(tmp_path.iterdir())
    assert same(made, WORDS)
