"""The content-addressed store on disk: vectors, scores of pairs, generations and indexes."""

from .admin import PRUNED, Entry, entries, prune, verify
from .arrays import ArrayCache
from .shards import LARGE, DamagedShard, Found, Keys, ShardSet, compact, open_shard, write_shard
from .vectors import (
    CachedRows,
    EmbeddingCache,
    Laps,
    Piece,
    ScoreCache,
    find_scores,
    known_speed,
    pair_keys,
    remember_speed,
    reused,
    store_scores,
    text_keys,
    verify_sample,
)

__all__ = [
    "LARGE",
    "PRUNED",
    "ArrayCache",
    "CachedRows",
    "DamagedShard",
    "EmbeddingCache",
    "Entry",
    "Found",
    "Keys",
    "Laps",
    "Piece",
    "ScoreCache",
    "ShardSet",
    "compact",
    "entries",
    "find_scores",
    "known_speed",
    "open_shard",
    "pair_keys",
    "prune",
    "remember_speed",
    "reused",
    "store_scores",
    "text_keys",
    "verify",
    "verify_sample",
    "write_shard",
]
