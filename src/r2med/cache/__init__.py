"""The content-addressed store on disk: vectors, pair scores and indexes."""

from .admin import Pruned, SetInfo, list_sets, prune
from .arrays import ArrayCache
from .compact import LARGE, compact
from .pairs import ScoreCache, keeping, lookup, pair_keys
from .shards import DamagedShard, Keys, open_shard, write_shard
from .speed import known_speed, remember_speed
from .vectors import CachedRows, EmbeddingCache, Found, Piece, ShardSet, text_keys
from .verify import verify_sample

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
