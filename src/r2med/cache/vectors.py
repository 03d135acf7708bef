"""The embedding cache: vectors by the content of their text, in sets named by everything else that shapes them.

    R2MED_HOME/embeddings/<fingerprint>/set.json        what the fingerprint stands for, and a name for people
    R2MED_HOME/embeddings/<fingerprint>/<max length>/   shards

The fingerprint covers model files or revision, side, instruction, pooling, normalisation, dimension and dtype; the
maximum length has a folder of its own, because a text that fits into both of two lengths has one vector for both.
Tasks that share passages share their vectors, whatever ids the passages have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import ModelError, TextColumn, fingerprint
from ..core.atomic import write_bytes
from ..core.columns import Int32, Int64
from ..core.places import home
from .shards import SUFFIX, DamagedShard, Float32, Keys, Shard, open_shard, write_shard

KEY_BYTES = 16
UNLIMITED = "unlimited"
Indices = npt.NDArray[np.integer]
LABEL = "label"
"""In `set.json`: what people call the model."""


def text_keys(texts: Sequence[str]) -> Keys:
    """One 128-bit hash per text."""
    if isinstance(texts, TextColumn):
        view, ends = texts.data.data if len(texts.data) else memoryview(b""), texts.offsets.tolist()
        parts: Iterable[bytes | memoryview] = (view[a:b] for a, b in pairwise(ends))
    else:
        parts = (text.encode() for text in texts)
    digests = b"".join(hashlib.blake2b(part, digest_size=KEY_BYTES).digest() for part in parts)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


class Found(NamedTuple):
    """Where vectors lie: shard and row of each key, -1 where there is none."""

    shard: Int32
    row: Int64


class ShardSet:
    """All shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: list[Shard] = []
        self.damaged = 0
        self.names: list[str] = []
        """Of the shards, in their order, without suffix."""
        while not self._open_all():
            # Another process merged shards between the listing and here: what it wrote is there now.
            self.shards, self.names, self.damaged = [], [], 0

    def _open_all(self) -> bool:
        """Open every shard of the folder; False if one had gone before it could be opened."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                self._add(path, open_shard(path))
            except DamagedShard:
                self.damaged += 1
            except FileNotFoundError:
                return False
        return True

    def _add(self, path: Path, shard: Shard) -> None:
        if self.shards and shard.vectors.shape[1] != self.dimension:
            raise ModelError(
                f"the embedding cache holds vectors of {self.dimension} and of {shard.vectors.shape[1]} dimensions "
                f"for one model ({self.folder}); remove that folder, or give the model another name or revision"
            )
        self.shards.append(shard)
        self.names.append(path.stem)
        self.__dict__.pop("_index", None)

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 while there are none."""
        return int(self.shards[0].vectors.shape[1]) if self.shards else 0

    def __len__(self) -> int:
        return sum(len(shard.keys) for shard in self.shards)

    @cached_property
    def _index(self) -> tuple[Keys, Int32, Int64]:
        """Keys in order, with shard and row of each."""
        keys = np.concatenate([shard.keys for shard in self.shards])
        order = np.argsort(keys[:, 0], kind="stable")
        sizes = [len(shard.keys) for shard in self.shards]
        shard = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        row = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
        return keys[order], shard[order], row[order]

    def find(self, keys: Keys) -> Found:
        """Where each key's vector lies."""
        if not self.shards:
            return Found(np.full(len(keys), -1, np.int32), np.full(len(keys), -1, np.int64))
        known, shard, row = self._index
        at = np.minimum(np.searchsorted(known[:, 0], keys[:, 0]), len(known) - 1)
        hit = (known[at] == keys).all(axis=1)
        return Found(np.where(hit, shard[at], np.int32(-1)), np.where(hit, row[at], np.int64(-1)))

    def append(self, keys: Keys, tokens: Int32, vectors: Float32) -> None:
        """Keep vectors on disk from now on."""
        if self.shards and vectors.shape[1] != self.dimension:
            raise ModelError(
                f"the model returned vectors of {vectors.shape[1]} dimensions, but the embedding cache holds "
                f"{self.dimension} for it ({self.folder})"
            )
        path = write_shard(self.folder, keys, tokens, vectors)
        self._add(path, open_shard(path))

    def tokens(self, found: Found) -> Int32:
        """Token counts of found texts."""
        counts = np.full(len(found.row), -1, dtype=np.int32)
        for number in _numbers(found.shard[found.shard >= 0]):
            here = found.shard == number
            counts[here] = self.shards[number].tokens[found.row[here]]
        return counts


def _numbers(shard: Int32) -> list[int]:
    """The shards that occur."""
    return np.flatnonzero(np.bincount(shard)).tolist()


class Piece(NamedTuple):
    """Vectors as they lie in memory or in a file."""

    matrix: Float32
    places: Int64 | None
    """Rows of the matrix in rising order; None: all of them."""
    documents: Int64 | None
    """Which documents these are; None: the same numbers."""


class CachedRows:
    """Vectors read from the mapped shards as they are needed."""

    def __init__(self, shards: ShardSet, found: Found) -> None:
        self._shards, self._found = shards.shards, found
        self.shape = (len(found.row), shards.dimension)

    def read(self, begin: int, end: int) -> Float32:
        """A block of rows; no copy where they lie side by side."""
        shard, row = self._found.shard[begin:end], self._found.row[begin:end]
        if len(row) and (shard == shard[0]).all() and (np.diff(row) == 1).all():
            return np.asarray(self._shards[shard[0]].vectors[row[0] : row[-1] + 1])
        return self._gather(shard, row)

    def take(self, indices: Indices) -> Float32:
        """Single rows."""
        return self._gather(self._found.shard[indices], self._found.row[indices])

    def pieces(self) -> Iterator[Piece]:
        """Shard by shard, in the order of the file."""
        for number in _numbers(self._found.shard):
            documents = np.flatnonzero(self._found.shard == number)
            documents = documents[np.argsort(self._found.row[documents], kind="stable")]
            places, vectors = self._found.row[documents], self._shards[number].vectors
            whole = len(places) == len(vectors) and bool((np.diff(places) == 1).all())
            yield Piece(vectors, None if whole else np.ascontiguousarray(places), documents)

    def _gather(self, shard: Int32, row: Int64) -> Float32:
        numbers = _numbers(shard)
        if len(numbers) == 1:
            return np.asarray(self._shards[numbers[0]].vectors[row])
        rows = np.empty((len(row), self.shape[1]), dtype=np.float32)
        order = np.argsort(shard, kind="stable")
        bounds = [*np.searchsorted(shard[order], numbers).tolist(), len(order)]
        for number, (begin, end) in zip(numbers, pairwise(bounds), strict=True):
            here = order[begin:end]
            rows[here] = self._shards[number].vectors[row[here]]
        return rows


class EmbeddingCache:
    """All sets under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / "embeddings"

    def open(self, identity: dict[str, object], max_length: int | None, *, label: str = "") -> ShardSet:
        """The set of vectors of this identity at this length, as used now.

        `label` is what people call the model. It is kept beside the facts and is none of them: the same weights under
        another name have the same vectors.
        """
        shards = self.look(identity, max_length)
        about = shards.folder.parent / "set.json"
        if not about.exists():
            facts = msgspec.json.encode({LABEL: label, **identity}, order="deterministic")
            write_bytes(about, msgspec.json.format(facts) + b"\n")
        with suppress(OSError):
            about.touch()  # when it was last used, for pruning
        return shards

    def look(self, identity: dict[str, object], max_length: int | None) -> ShardSet:
        """The same without a trace: for those who only count what is there."""
        folder = self.root / fingerprint("embeddings", identity)
        return ShardSet(folder / (UNLIMITED if max_length is None else str(max_length)))

    def siblings(self, shards: ShardSet) -> list[tuple[int, ShardSet]]:
        """The same model at other lengths, the longest first."""
        lengths = [int(p.name) for p in shards.folder.parent.glob("*") if p.name.isdigit() and p != shards.folder]
        return [(n, ShardSet(shards.folder.parent / str(n))) for n in sorted(lengths, reverse=True)]
