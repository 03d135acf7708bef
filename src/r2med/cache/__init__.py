"""The content-addressed store on disk: vectors, scores of pairs, generations and indexes."""

from .admin import PRUNED, Entry, entries, prune, verify
from .arrays import ArrayCache
from .shards import LARGE, DamagedShard, Found, Int16, Keys, ShardSet, compact, open_shard, write_shard
from .vectors import (
    CachedRows,
    EmbeddingCache,
    Piece,
    ScoreCache,
    TokenPiece,
    find_scores,
    known_speed,
    pair_keys,
    remember_speed,
    store_scores,
    text_keys,
    token_pieces,
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
    "Int16",
    "Keys",
    "Piece",
    "ScoreCache",
    "ShardSet",
    "TokenPiece",
    "compact",
    "entries",
    "find_scores",
    "known_speed",
    "open_shard",
    "pair_keys",
    "prune",
    "remember_speed",
    "store_scores",
    "text_keys",
    "token_pieces",
    "verify",
    "verify_sample",
    "write_shard",
]
