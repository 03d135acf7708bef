"""The few values that every room of r2med speaks."""

from .columns import IdTable, TextColumn, TextColumnBuilder
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
from .fingerprint import Hasher, fingerprint
from .qrels import Judgment, Qrels
from .run import NO_DOCUMENT, Hit, Run
from .task import Document, Documents, Query, Task

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
