"""One schema per config: the `datasets` library refuses a config whose splits have different columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..formats.arrow import pyarrow

# What a split gets in a column that only others have: nothing that changes its content when it is read again.
FILLING: dict[str, Any] = {"title": "", "score": 1, "answer": None, "body_system": None}


def harmonise(folder: Path) -> None:
    """Give every split of `corpus`, `queries` and `qrels` the columns that any of them has."""
    for config in ("corpus", "queries", "qrels"):
        _harmonise(sorted((folder / config).glob("*.parquet")))


def _harmonise(files: list[Path]) -> None:
    pa = pyarrow()
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(path) for path in files]
    fields = {field.name: field for schema in schemas for field in schema}
    for path, schema in zip(files, schemas, strict=True):
        missing = [name for name in fields if name not in schema.names]
        table = pq.read_table(path) if missing or schema.names != list(fields) else None
        if table is None:
            continue
        for name in missing:
            column = pa.array([FILLING[name]] * table.num_rows, fields[name].type)
            table = table.append_column(fields[name], column)
        pq.write_table(table.select(list(fields)), path, compression="zstd")
