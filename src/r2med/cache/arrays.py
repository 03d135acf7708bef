"""Arrays of numbers by the content they were made from: vectors of texts, scores of pairs, the arrays of an index.

    R2MED_HOME/embeddings/<fingerprint>/set.json        what the fingerprint stands for, and a name for people
    R2MED_HOME/embeddings/<fingerprint>/<max length>/   shards
    R2MED_HOME/rerank/…                                 the same for scores of pairs
    R2MED_HOME/indexes/<key>/index.json                 what the arrays are, and a checksum of each file
    R2MED_HOME/indexes/<key>/<name>.npy                 memory-mapped

The fingerprint covers model files or revision, side, instruction, pooling, normalisation, dimension and dtype; the
maximum length has a folder of its own, because a text that fits into both of two lengths has one vector for both.
Tasks that share passages share their vectors, whatever ids the passages have. The folder of an index appears under its
name only when it is whole, and is never changed afterwards.
"""

from __future__ import annotations

import hashlib
import mmap
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import DataError, ModelError, R2MedError, ResultError, TextColumn, fingerprint
from ..core.budget import Account, Reused
from ..core.columns import Int32, Int64
from ..core.files import atomic_folder, home, write_bytes
from ..core.plugins import first_line
from ..core.untrusted import component
from .shards import FileIdentity, Float32, Found, Int16, Keys, ShardSet, intact

KEY_BYTES = 16
UNLIMITED = "unlimited"
ABOUT = "set.json"
LABEL = "label"  # in `set.json`: the display name of the model
SPEED = "speed.json"
TELLING_SECONDS = 0.5  # encoding that took less was mostly loading, and says nothing about speed
TOLERANCE = {"float32": 1e-3, "model": 1e-3}
LOOSE = 5e-2  # half precision: vectors of one text move by a percent with the texts it shares a batch with
Indices = npt.NDArray[np.integer]
FLUSH_SECONDS = 10.0
Scored = TypeVar("Scored", bound=tuple[Int64, Float32, Int32])
"""Positions of some pairs, their scores (NaN: no opinion), and the tokens cut off document and query."""
Array = npt.NDArray[Any]
MANIFEST = "index.json"
VERSION = 3


def text_keys(texts: Sequence[str]) -> Keys:
    """One 128-bit hash per text."""
    if isinstance(texts, TextColumn):
        view, ends = texts.data.data if len(texts.data) else memoryview(b""), texts.offsets.tolist()
        return _keys(view[a:b] for a, b in pairwise(ends))
    return _keys(text.encode() for text in texts)


def pair_keys(queries: Sequence[str], documents: Sequence[str], query: Int32, document: Int32) -> Keys:
    """One 128-bit hash per pair of a query and a document, given by their positions, out of those of its texts."""
    used_queries, query_row = np.unique(query, return_inverse=True)
    used_documents, document_row = np.unique(document, return_inverse=True)
    left = text_keys([queries[i] for i in used_queries.tolist()])[query_row.reshape(-1)]
    right = text_keys([documents[i] for i in used_documents.tolist()])[document_row.reshape(-1)]
    both = np.ascontiguousarray(np.concatenate((left, right), axis=1)).tobytes()
    return _keys(both[i : i + 2 * KEY_BYTES] for i in range(0, len(both), 2 * KEY_BYTES))


def _keys(parts: Iterable[bytes | memoryview]) -> Keys:
    digests = b"".join(hashlib.blake2b(part, digest_size=KEY_BYTES).digest() for part in parts)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


class SetCache:
    """All sets under one folder."""

    place = ""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / self.place

    def open(self, identity: dict[str, object], max_length: int | None, *, label: str = "") -> ShardSet:
        """The set of this identity at this length, as used now.

        `label` is the display name of the model. It is stored but no part of the key: the same weights under another
        name have the same vectors.
        """
        shards = self.look(identity, max_length)
        about = shards.folder.parent / ABOUT
        if not about.exists():
            facts = msgspec.json.encode({LABEL: label, **identity}, order="deterministic")
            write_bytes(about, msgspec.json.format(facts) + b"\n")
        with suppress(OSError):
            about.touch()  # when it was last used, for pruning
        return shards

    def look(self, identity: dict[str, object], max_length: int | None) -> ShardSet:
        """The same without writing anything: for those who only count what is there."""
        folder = self.root / fingerprint("embeddings", identity)
        return ShardSet(folder / (UNLIMITED if max_length is None else str(max_length)))

    def siblings(self, shards: ShardSet) -> list[tuple[int, ShardSet]]:
        """The same model at other lengths, the longest first."""
        lengths = [int(p.name) for p in shards.folder.parent.glob("*") if p.name.isdigit() and p != shards.folder]
        return [(n, ShardSet(shards.folder.parent / str(n))) for n in sorted(lengths, reverse=True)]


class EmbeddingCache(SetCache):
    """Vectors of texts."""

    place = "embeddings"

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[EmbeddingCache]:
        """A cache that goes again."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield cls(Path(folder))


class ScoreCache(SetCache):
    """Scores of pairs: a row is the score and how many tokens of document and query were cut."""

    place = "rerank"


class Piece(NamedTuple):
    """Vectors as they lie in memory or in a file."""

    matrix: Float32
    places: Int64 | None  # rows of the matrix in rising order; None: all of them
    documents: Int64 | None  # which documents these are; None: the same numbers


class TokenPiece(NamedTuple):
    """Vectors of tokens as they lie in memory or in a file."""

    matrix: Int16
    starts: Int64  # first row of each document, in rising order
    sizes: Int64  # and how many it has
    documents: Int64 | None = None  # which documents these are; None: the same numbers

    @classmethod
    def of(cls, documents: Sequence[Int16]) -> TokenPiece:
        """Documents in memory."""
        sizes = np.array([len(vectors) for vectors in documents], dtype=np.int64)
        return cls(np.ascontiguousarray(np.concatenate(documents)), np.cumsum(sizes) - sizes, sizes)


def token_pieces(shards: ShardSet, found: Found) -> Iterator[TokenPiece]:
    """Vectors of the tokens of found texts, shard by shard, in the order of the file."""
    for number in found.shards:
        documents = np.flatnonzero(found.shard == number)
        documents = documents[np.argsort(found.row[documents], kind="stable")]
        starts, sizes = shards.shards[number].spans(found.row[documents])
        yield TokenPiece(shards.shards[number].vectors, starts, sizes, documents)


class CachedRows:
    """Rows read from the mapped shards as they are needed."""

    def __init__(self, shards: ShardSet, found: Found) -> None:
        self._shards, self._found = shards.shards, found
        self.shape = (len(found.row), shards.dimension)

    def read(self, begin: int, end: int) -> Float32:
        """A block of rows; no copy where they lie side by side."""
        shard, row = self._found.shard[begin:end], self._found.row[begin:end]
        if len(row) and (shard == shard[0]).all() and (np.diff(row) == 1).all():
            return np.asarray(self._shards[shard[0]].vectors[row[0] : row[-1] + 1])
        return self._gather(Found(shard, row))

    def take(self, indices: Indices) -> Float32:
        """Single rows."""
        return self._gather(Found(self._found.shard[indices], self._found.row[indices]))

    def pieces(self) -> Iterator[Piece]:
        """Shard by shard, in the order of the file."""
        return iter(self._pieces)

    @cached_property
    def _pieces(self) -> list[Piece]:
        """Made once: a search for one query takes little longer than putting rows in order."""
        made = []
        for number in self._found.shards:
            documents = np.flatnonzero(self._found.shard == number)
            documents = documents[np.argsort(self._found.row[documents], kind="stable")]
            places, vectors = self._found.row[documents], self._shards[number].vectors
            every = len(places) == len(vectors) and bool((np.diff(places) == 1).all())
            made.append(Piece(vectors, None if every else np.ascontiguousarray(places), documents))
        return made

    def _gather(self, found: Found) -> Float32:
        numbers = found.shards
        if len(numbers) == 1:
            return np.asarray(self._shards[numbers[0]].vectors[found.row])
        rows = np.empty((len(found.row), self.shape[1]), dtype=np.float32)
        order = np.argsort(found.shard, kind="stable")
        bounds = [*np.searchsorted(found.shard[order], numbers).tolist(), len(order)]
        for number, (begin, end) in zip(numbers, pairwise(bounds), strict=True):
            here = order[begin:end]
            rows[here] = self._shards[number].vectors[found.row[here]]
        return rows


def remember_speed(folder: Path, tokens: int, seconds: float) -> None:
    """Keep how fast a model was beside its vectors: it makes seconds out of a plan's tokens."""
    if seconds < TELLING_SECONDS:
        return
    facts = {"tokens": tokens, "seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}
    with suppress(ResultError):  # a plan without seconds is still a plan
        write_bytes(folder / SPEED, msgspec.json.encode(facts) + b"\n")


def known_speed(folder: Path) -> float | None:
    """Estimated tokens a second at which this set grew last; None where it was not measured."""
    try:
        facts = msgspec.json.decode((folder / SPEED).read_bytes(), type=dict[str, float])
        return facts["tokens_per_second"] or None
    except (OSError, msgspec.MsgspecError, KeyError):
        return None


def verify_sample(
    shards: ShardSet, texts: Sequence[str], encode: Callable[[list[str]], Float32], count: int, *, name: str, dtype: str
) -> dict[str, object]:
    """Encode `count` cached texts again and compare; raises ModelError when the cache holds something else."""
    found = shards.find(text_keys(texts))
    known = np.flatnonzero(found.row >= 0)
    sample = np.sort(np.random.default_rng(len(known)).choice(known, min(count, len(known)), replace=False))
    if not len(sample):
        return {"checked": 0, "largest_difference": 0.0}
    stored = CachedRows(shards, found).take(sample)
    fresh = encode([texts[int(i)] for i in sample])
    if fresh.shape != stored.shape:
        raise ModelError(f"the cache holds vectors of {stored.shape[1]} dimensions, {name} {fresh.shape[1]}")
    scale = np.maximum(np.linalg.norm(stored, axis=1), np.finfo(np.float32).tiny)
    difference = np.linalg.norm(fresh - stored, axis=1) / scale
    allowed = TOLERANCE.get(dtype, LOOSE)
    wrong = int((~(difference <= allowed)).sum())  # also where a vector is not of numbers
    if wrong:
        raise ModelError(
            f"{wrong} of {len(sample)} cached vectors of {name} are not what it returns now (up to "
            f"{difference.max():.2g} away, {allowed:g} allowed); remove {shards.folder} and encode again"
        )
    return {"checked": len(sample), "largest_difference": float(difference.max())}


class Laps:
    """Divides the time that work takes among the rows it makes, a group of rows after the other."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def lap(self, rows: int) -> Float32:
        """Seconds of each row of the next group: those since the last one, in equal shares."""
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        return np.full(rows, seconds / max(rows, 1), dtype=np.float32)

    def resume(self) -> None:
        """Leave out the time since the last group, in which others worked."""
        self._since = time.perf_counter()


def reused(shards: ShardSet, found: Found, new: Int64) -> Account:
    """What making the found rows took, each once; all but those at the positions `new` were there already."""
    place = (found.shard.astype(np.int64) << 40) + found.row
    order = np.argsort(place, kind="stable")  # not np.unique, which loads numpy's masked arrays for 60 ms
    first = order[np.diff(place[order], prepend=-1) != 0]
    seconds = shards.seconds(found).astype(np.float64)
    total, made = float(seconds[first].sum()), float(seconds[new].sum())
    known = not np.isnan(total)
    return {str(shards.folder): Reused(total if known else None, max(total - made, 0.0) if known else None)}


def find_scores(shards: ShardSet, keys: Keys) -> tuple[Float32, Int32, Int64]:
    """Scores and cut tokens of stored pairs, and the positions of pairs that are not stored."""
    found = shards.find(keys)
    known = np.flatnonzero(found.row >= 0)
    scores = np.full(len(keys), np.nan, dtype=np.float32)
    cut = np.full((len(keys), 2), -1, dtype=np.int32)
    if len(known):
        rows = CachedRows(shards, found).take(known)
        scores[known], cut[known] = rows[:, 0], rows[:, 1:].astype(np.int32)
    return scores, cut, np.flatnonzero(found.row < 0)


def store_scores(shards: ShardSet, keys: Keys, stream: Iterator[Scored]) -> Iterator[Scored]:
    """Pass scores on and store them every few seconds, also when the stream breaks; NaN (no opinion) is not stored."""
    group: list[Scored] = []
    took: list[Float32] = []
    since, clock = time.monotonic(), Laps()

    def flush() -> None:
        rows, scores, cut = (np.concatenate([scored[i] for scored in group]) for i in range(3))
        seconds = np.concatenate(took)
        group.clear()
        took.clear()
        kept = ~np.isnan(scores)
        if kept.any():
            values = np.column_stack((scores[kept], cut[kept])).astype(np.float32)
            shards.append(keys[rows[kept]], np.full(int(kept.sum()), -1, dtype=np.int32), values, seconds[kept])

    try:
        for scored in stream:
            group.append(scored)
            took.append(clock.lap(len(scored[0])))
            yield scored
            clock.resume()
            if time.monotonic() - since > FLUSH_SECONDS:
                flush()
                since = time.monotonic()
    finally:
        if group:
            flush()


class Manifest(msgspec.Struct, kw_only=True):
    """`index.json`."""

    version: int
    about: dict[str, Any] = {}  # what the arrays are, for people and for checks of whoever wrote them
    checksums: dict[str, int] = {}  # name of an array to the CRC-32 of its file


class ArrayCache:
    """All sets of arrays below one folder, by key."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / "indexes"

    def load(self, key: str) -> dict[str, Array] | None:
        """The arrays of a key, mapped and checked; None where there are none or a file of them is damaged."""
        folder = self._folder(key)
        try:
            arrays = read_arrays(folder)
        except DataError:
            return None
        with suppress(OSError):
            (folder / MANIFEST).touch()  # when it was last used, for pruning
        return arrays

    def save(self, key: str, arrays: Mapping[str, Array], about: Mapping[str, object]) -> None:
        """Keep arrays under a key; what another process has saved meanwhile stays, what is damaged is replaced."""
        folder = self._folder(key)
        if folder.exists():
            if self.load(key) is not None:
                return
            shutil.rmtree(folder, ignore_errors=True)
        try:
            write_arrays(folder, arrays, about)
        except R2MedError:
            if self.load(key) is None:
                raise

    def _folder(self, key: str) -> Path:
        return self.root / component(key, "the key of an index")


def write_arrays(folder: Path, arrays: Mapping[str, Array], about: Mapping[str, object]) -> None:
    """Write arrays as a new folder."""
    with atomic_folder(folder) as target:
        manifest = Manifest(version=VERSION, about=dict(about))
        for name, array in arrays.items():
            path = target / f"{component(name, 'the name of an array')}.npy"
            np.save(path, np.ascontiguousarray(array), allow_pickle=False)
            manifest.checksums[name] = _checksum(path)
        (target / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read_arrays(folder: Path) -> dict[str, Array]:
    """Map the arrays of a folder; each file is compared with its checksum, once per process."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"is not an index (it has no {MANIFEST})", path=folder) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"broken manifest ({error})", path=folder / MANIFEST) from None
    if manifest.version != VERSION:
        raise DataError(f"index version {manifest.version}, this r2med reads {VERSION}: build it again", path=folder)
    return {name: _map(folder, name, checksum) for name, checksum in manifest.checksums.items()}


def _map(folder: Path, name: str, checksum: int) -> Array:
    path = folder / f"{component(name, 'the name of an array', path=folder)}.npy"
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        identity = FileIdentity.of(path.stat())
    except Exception as error:  # numpy reads the header as Python: a broken one fails in any way Python's parser can
        raise DataError(f"cannot be mapped ({first_line(error)})", path=path) from None
    if not intact(identity, lambda: _checksum(path) == checksum):
        raise DataError("does not match its checksum", path=path)
    return array


def _checksum(path: Path) -> int:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return zlib.crc32(data)
