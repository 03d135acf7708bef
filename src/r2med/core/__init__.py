"""The few values that every room of r2med speaks."""

from .columns import Hasher, IdTable, TextColumn, TextColumnBuilder, fingerprint
from .errors import (
    DataError,
    HostileData,
    MissingExtra,
    ModelError,
    R2MedError,
    ResultError,
    Unavailable,
    UnknownName,
    UsageError,
)
from .run import NO_DOCUMENT, Hit, Run
from .task import Document, Documents, Judgment, Qrels, Query, Task

__all__ = [
    "NO_DOCUMENT",
    "DataError",
    "Document",
    "Documents",
    "Hasher",
    "Hit",
    "HostileData",
    "IdTable",
    "Judgment",
    "MissingExtra",
    "ModelError",
    "Qrels",
    "Query",
    "R2MedError",
    "ResultError",
    "Run",
    "Task",
    "TextColumn",
    "TextColumnBuilder",
    "Unavailable",
    "UnknownName",
    "UsageError",
    "fingerprint",
]
