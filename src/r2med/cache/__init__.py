"""The content-addressed store on disk: vectors, pair scores and indexes."""

from .admin import Pruned, SetInfo, list_sets, prune
from .arrays import ArrayCache
from .scores import keeping, lookup
from .shards import LARGE, DamagedShard, Found, Keys, ShardSet, compact, open_shard, write_shard
from .vectors import (
    CachedRows,
    EmbeddingCache,
    Piece,
    ScoreCache,
    known_speed,
    pair_keys,
    remember_speed,
    text_keys,
    verify_sample,
)

__all__ = [
    "LARGE",
    "ArrayCache",
    "CachedRows",
    "DamagedShard",
    "EmbeddingCache",
    "Found",
    "Keys",
    "Piece",
    "Pruned",
    "ScoreCache",
    "SetInfo",
    "ShardSet",
    "compact",
    "keeping",
    "known_speed",
    "list_sets",
    "lookup",
    "open_shard",
    "pair_keys",
    "prune",
    "remember_speed",
    "text_keys",
    "verify_sample",
    "write_shard",
]
