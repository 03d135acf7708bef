"""From texts to vectors, or to vectors of their tokens, through the cache: what is known is read, the rest encoded."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..cache import (
    LARGE,
    CachedRows,
    EmbeddingCache,
    Found,
    Int16,
    Keys,
    Laps,
    ShardSet,
    TokenPiece,
    compact,
    known_speed,
    remember_speed,
    reused,
    text_keys,
    token_pieces,
    verify_sample,
)
from ..core import ModelError, TextColumn
from ..core.budget import Account
from ..core.columns import Int32, Int64
from ..core.options import Options
from ..core.queries import Side
from .contract import Work
from .encoders import Encoder, TokenEncoder
from .encoders.batching import estimated_tokens
from .maxsim import STORED, fixed_point
from .rows import ArrayRows, TakenRows
from .vectors import Float32, Rows

FLUSH_SECONDS = 10.0
FLUSH_BYTES = 64 << 20
MANY_SHARDS = 8


class Embedded(NamedTuple):
    """Vectors of texts, with an account of where they came from."""

    rows: Rows
    tokens: Int32
    """Length of each text in tokens before it was cut; -1 if unknown."""
    cached: int
    """Distinct texts whose vector was in the cache."""
    encoded: int
    """Distinct texts that went through the model."""
    damaged_shards: int
    seconds: float = 0.0
    """What finding and encoding took."""
    repaired: Mapping[str, int] = MappingProxyType({})
    """What went wrong in the encoder and was put right, counted."""
    reused: Account = MappingProxyType({})
    """What making the vectors took, and what of that the cache saved."""


class EmbeddedTokens(NamedTuple):
    """A vector for each token of some texts, on disk, with an account of where they came from."""

    shards: ShardSet
    found: Found
    tokens: Int32
    """Length of each text in tokens before it was cut."""
    cached: int
    encoded: int
    reused: Account
    seconds: float = 0.0
    repaired: Mapping[str, int] = MappingProxyType({})

    def pieces(self) -> Iterator[TokenPiece]:
        """All vectors, file by file."""
        return token_pieces(self.shards, self.found)

    def of(self, text: int) -> Int16:
        """The vectors of one text."""
        shard = self.shards.shards[self.found.shard[text]]
        made: Int16 = shard.vectors[shard.rows_of(self.found.row[[text]])]
        return made


class Made(NamedTuple):
    """Rows of some texts, ready to be kept."""

    texts: Int64
    vectors: Float32 | Int16
    tokens: Int32
    sizes: Int32 | None = None
    """Rows of each text; None: one."""


class Kept(NamedTuple):
    """Where the rows of all texts lie, and how many texts had some before and how many had none."""

    shards: ShardSet
    found: Found
    cached: int
    encoded: int
    reused: Account


Make = Callable[[Sequence[str]], Iterator[Made]]


def identity(encoder: Encoder | TokenEncoder, side: Side, instruction: str) -> dict[str, object]:
    """All that shapes a vector besides its text and the maximum length."""
    facts = {**encoder.describe(side), "side": side, "instruction": instruction}
    facts.pop("max_length", None)
    return facts


def token_identity(encoder: TokenEncoder, side: Side, instruction: str) -> dict[str, object]:
    """The same for vectors of tokens, which no text's own vector may be taken for."""
    return {**identity(encoder, side, instruction), "of": "tokens", "stored": STORED}


def verify_cache(
    encoder: Encoder, texts: Sequence[str], side: Side, instruction: str, cache: EmbeddingCache, count: int
) -> dict[str, object]:
    """Encode `count` cached texts again and compare; raises ModelError when the cache holds something else."""
    shards = cache.open(identity(encoder, side, instruction), encoder.max_length(side), label=encoder.name)
    dtype = str(encoder.describe(side).get("dtype"))

    def encode(sample: list[str]) -> Float32:
        return encoder.encode(sample, side, instruction)

    return verify_sample(shards, texts, encode, count, name=encoder.name, dtype=dtype)


def remaining_work(
    encoder: Encoder | TokenEncoder,
    texts: Sequence[str],
    side: Side,
    instruction: str,
    cache: EmbeddingCache | None,
    facts: dict[str, object] | None = None,
) -> Work:
    """The texts of a side that would go through the model, counted without encoding."""
    keys = text_keys(texts)
    _, first = np.unique(keys, axis=0, return_index=True)
    distinct, speed = len(first), None
    if cache is not None:
        shards = cache.look(facts or identity(encoder, side, instruction), encoder.max_length(side))
        first = first[shards.find(keys[first]).row < 0]
        speed = known_speed(shards.folder.parent)
    tokens = int(estimated_tokens(texts, first, instruction, encoder.max_length(side)).sum())
    seconds = 0.0 if not tokens else tokens / speed if speed else None
    return Work(len(texts), len(first), tokens, distinct, seconds)


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    side: Side,
    instruction: str = "",
    *,
    cache: EmbeddingCache | None = None,
    options: Options | None = None,
) -> Embedded:
    """Vectors of all texts; equal texts are encoded once.

    Without a cache they are kept in memory or, where they would take more than a quarter of the memory that the
    options allow, in a temporary file.
    """
    begin, before = time.perf_counter(), Counter(encoder.notes)
    made = _embed(encoder, texts, side, instruction, cache, options or Options())
    return made._replace(seconds=time.perf_counter() - begin, repaired=dict(encoder.notes - before))


def _embed(
    encoder: Encoder,
    texts: Sequence[str],
    side: Side,
    instruction: str,
    cache: EmbeddingCache | None,
    options: Options,
) -> Embedded:
    if cache is None:
        return _without_cache(encoder, texts, text_keys(texts), side, instruction, options)

    def make(missing: Sequence[str]) -> Iterator[Made]:
        return (Made(*batch) for batch in encoder.stream(missing, side, instruction))

    limit = encoder.max_length(side)
    shards = cache.open(identity(encoder, side, instruction), limit, label=encoder.name)
    kept = _keep(make, texts, shards, cache, instruction, limit, options)
    rows, tokens = CachedRows(kept.shards, kept.found), kept.shards.tokens(kept.found)
    return Embedded(rows, tokens, kept.cached, kept.encoded, kept.shards.damaged, reused=kept.reused)


def embed_tokens(
    encoder: TokenEncoder,
    texts: Sequence[str],
    side: Side,
    instruction: str = "",
    *,
    cache: EmbeddingCache | None = None,
    options: Options | None = None,
) -> EmbeddedTokens:
    """Vectors of the tokens of all texts; equal texts are encoded once.

    They lie on disk, without a cache in a temporary folder: those of a passage take as much room as two hundred
    passages' own.
    """
    if cache is None:
        with EmbeddingCache.temporary() as lent:  # what is mapped outlives its folder
            return embed_tokens(encoder, texts, side, instruction, cache=lent, options=options)
    begin, before = time.perf_counter(), Counter(encoder.notes)

    def make(missing: Sequence[str]) -> Iterator[Made]:
        for rows, states, tokens in encoder.stream_states(missing, side, instruction):
            sizes = np.array([len(vectors) for vectors in states], dtype=np.int32)
            yield Made(rows, np.concatenate([fixed_point(vectors) for vectors in states]), tokens, sizes)

    limit = encoder.max_length(side)
    shards = cache.open(token_identity(encoder, side, instruction), limit, label=encoder.name)
    kept = _keep(make, texts, shards, cache, instruction, limit, options or Options())
    seconds, repaired = time.perf_counter() - begin, dict(encoder.notes - before)
    tokens = kept.shards.tokens(kept.found)
    return EmbeddedTokens(kept.shards, kept.found, tokens, kept.cached, kept.encoded, kept.reused, seconds, repaired)


def _keep(
    make: Make,
    texts: Sequence[str],
    shards: ShardSet,
    cache: EmbeddingCache,
    instruction: str,
    limit: int | None,
    options: Options,
) -> Kept:
    """Keep rows of all texts, and make those that are missing."""
    keys = text_keys(texts)
    found = shards.find(keys)
    missing = _first_of_each(keys, np.flatnonzero(found.row < 0))
    distinct = _distinct(keys)
    if len(missing):
        missing = _borrow(cache, shards, limit, keys, missing)
        begin = time.perf_counter()
        _make_missing(make, texts, keys, missing, shards, options)
        if len(missing):
            tokens = int(estimated_tokens(texts, missing, instruction, limit).sum())
            remember_speed(shards.folder.parent, tokens, time.perf_counter() - begin)
        if sum(shard.vectors.nbytes < LARGE for shard in shards.shards) > MANY_SHARDS:
            compact(shards.folder)
            shards = ShardSet(shards.folder)
        found = shards.find(keys)
        if lost := int((found.row < 0).sum()):
            # Rows that are not there would be read as those of another text.
            raise ModelError(f"vectors of {lost} texts are gone from {shards.folder}: were they removed? Run it again")
    return Kept(shards, found, distinct - len(missing), len(missing), reused(shards, found, missing))


def _first_of_each(keys: Keys, positions: Int64) -> Int64:
    """One position for each distinct text, in order."""
    _, first = np.unique(keys[positions], axis=0, return_index=True)
    return np.sort(positions[first])


def _distinct(keys: Keys) -> int:
    """How many different texts there are; `np.unique` would load numpy's masked arrays first, for 60 ms."""
    ordered = np.sort(keys[:, 0])
    return int((ordered[1:] != ordered[:-1]).sum()) + 1 if len(keys) else 0


def _borrow(cache: EmbeddingCache, shards: ShardSet, limit: int | None, keys: Keys, missing: Int64) -> Int64:
    """Take over rows made at another maximum length of texts that neither length cuts."""
    for length, sibling in cache.siblings(shards) if limit is not None else ():
        found = sibling.find(keys[missing])
        tokens = sibling.tokens(found)
        whole = (found.row >= 0) & (tokens >= 0) & (tokens <= min(length, limit or 0))
        for number in found.take(whole).shards:
            shard = sibling.shards[number]
            here = np.flatnonzero(whole & (found.shard == number))
            texts = found.row[here]
            sizes = None if shard.sizes is None else shard.sizes[texts]
            vectors = shard.vectors[shard.rows_of(texts)]
            shards.append(keys[missing[here]], tokens[here], vectors, shard.seconds[texts], sizes)
        missing = missing[~whole]
    return missing


def _subset(texts: Sequence[str], positions: Int64) -> Sequence[str]:
    if isinstance(texts, TextColumn):
        return texts if len(positions) == len(texts) else texts.take(positions.tolist())
    return [texts[i] for i in positions.tolist()]


def _make_missing(
    make: Make, texts: Sequence[str], keys: Keys, missing: Int64, shards: ShardSet, options: Options
) -> None:
    """Encode and keep in groups, so that a kill costs the last seconds only."""
    if not len(missing):
        return
    group: list[Made] = []
    took: list[Float32] = []
    done, size, since, clock = 0, 0, time.monotonic(), Laps()

    def flush() -> None:
        rows = np.concatenate([made.texts for made in group])
        tokens, vectors = (np.concatenate([made[i] for made in group]) for i in (2, 1))
        several = [made.sizes for made in group if made.sizes is not None]
        sizes = np.concatenate(several) if several else None
        shards.append(keys[missing[rows]], tokens, vectors, np.concatenate(took), sizes)
        group.clear()
        took.clear()

    try:
        for made in make(_subset(texts, missing)):
            group.append(made)
            took.append(clock.lap(len(made.texts)))
            size += made.vectors.nbytes
            done += len(made.texts)
            options.progress(done, len(missing))
            if size > FLUSH_BYTES or time.monotonic() - since > FLUSH_SECONDS:
                flush()
                size, since = 0, time.monotonic()
    finally:
        # Also when the model fails or the user interrupts: what is finished is kept.
        if group:
            flush()


def _without_cache(
    encoder: Encoder,
    texts: Sequence[str],
    keys: Keys,
    side: Side,
    instruction: str,
    options: Options,
) -> Embedded:
    first = _first_of_each(keys, np.arange(len(keys)))
    vectors = np.empty((0, 0), dtype=np.float32)
    tokens = np.full(len(first), -1, dtype=np.int32)
    done = 0
    for batch in encoder.stream(_subset(texts, first), side, instruction) if len(first) else ():
        if not done:
            vectors = _matrix(len(first), batch.vectors.shape[1], options.memory)
        vectors[batch.rows], tokens[batch.rows] = batch.vectors, batch.tokens
        done += len(batch.rows)
        options.progress(done, len(first))
    if len(first) < len(keys):
        _, inverse = np.unique(keys, axis=0, return_inverse=True)
        place = np.empty(len(first), dtype=np.int64)
        place[inverse.reshape(-1)[first]] = np.arange(len(first))
        back = place[inverse.reshape(-1)]
        return Embedded(TakenRows(ArrayRows(vectors), back), tokens[back], 0, len(first), 0)
    return Embedded(ArrayRows(vectors), tokens, 0, len(first), 0)


def _matrix(count: int, dimension: int, memory: int | None) -> Float32:
    """A matrix to be filled: in memory, or in a file that goes when nobody uses it."""
    if memory is None or 4 * count * dimension <= memory // 4:
        return np.empty((count, dimension), dtype=np.float32)
    with tempfile.TemporaryFile() as stream:
        return np.memmap(stream, dtype=np.float32, mode="w+", shape=(count, dimension))
