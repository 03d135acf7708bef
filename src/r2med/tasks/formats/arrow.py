"""Parquet files as tables of our own columns: missing, empty or mistyped ones are errors that name the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import DataError, MissingExtra, TextColumn
from ...core.plugins import first_line
from ...core.stores import Store, expansion_limit, open_stream, outgrown
from ...core.untrusted import component
from ..records import whole_grade

MOST_ROWS = 512  # of one batch
INDEX = "__index_level_"  # how the columns begin that pandas adds
NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")


class ArrowTable(NamedTuple):
    """The rows of one split, the file to name in messages, and the columns that were left aside."""

    table: Any
    label: str
    others: list[str]

    def has(self, column: str) -> bool:
        """Whether the optional column is there."""
        return column in self.table.column_names

    def texts(self, column: str, *, nulls: bool = False) -> TextColumn:
        """A column of texts, sharing Arrow's memory; missing ones are an error, or empty where `nulls` allows them."""
        pa, chunked = pyarrow(), self.table[column]
        is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
        if not any(check(chunked.type) for check in is_text):
            raise DataError(f"column {column!r} holds {chunked.type}, expected text", path=self.label)
        if chunked.null_count and not nulls:
            raise DataError(f"column {column!r} has {chunked.null_count} empty cells", path=self.label)
        if chunked.null_count:
            chunked = chunked.cast(pa.string()).fill_null("")
        chunks = chunked.cast(pa.large_string()).chunks or [pa.array([], pa.large_string())]
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise DataError(f"column {column!r} is not valid UTF-8", path=self.label) from None
        if not len(array):
            return TextColumn.from_texts(())
        _, offset_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offset_buffer, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
        return TextColumn(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def optional_texts(self, column: str) -> Iterator[str | None]:
        """A column of texts that may be missing, cell by cell or as a whole; an empty text counts as missing."""
        if not self.has(column):
            yield from [None] * self.table.num_rows
        else:
            yield from (text or None for text in self.texts(column, nulls=True))

    def grades(self, column: str) -> list[int]:
        """A column of whole numbers; 1 where there is none, nor any other that may hold them."""
        if not self.has(column):
            if self.others:
                raise DataError(
                    f"has no column {column!r}, but {self.others[0]!r}: rename or remove it", path=self.label
                )
            return [1] * self.table.num_rows
        kind, types = self.table[column].type, pyarrow().types
        if not (types.is_integer(kind) or types.is_floating(kind)):
            raise DataError(f"column {column!r} holds {kind}, expected whole numbers", path=self.label)
        return [whole_grade(value, self.label) for value in self.table[column].to_pylist()]

    def text_lists(self, column: str) -> Iterator[tuple[str, ...]]:
        """A column of texts or of lists of texts."""
        for row, value in enumerate(self.table[column].to_pylist(), start=1):
            texts = (value,) if isinstance(value, str) else value
            if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
                raise DataError(f"row {row}: column {column!r} holds no text", path=self.label)
            yield tuple(texts)


def read_parquet(
    store: Store, files: list[str], columns: tuple[str, ...], optional: tuple[str, ...] = ()
) -> ArrowTable:
    """One table from the shards of a split; a missing column is an error that lists what there is."""
    _check_all_there(store, files)
    tables, others = [], dict[str, None]()
    for name in files:
        label = store.label(name)
        with _reading(label):
            file = _open(store, name)
            have = file.schema_arrow.names
            if missing := [c for c in columns if c not in have]:
                raise DataError(f"has no column {missing[0]!r} (columns: {', '.join(have)})", path=label)
            wanted = [c for c in (*columns, *optional) if c in have]
            others |= dict.fromkeys(c for c in have if c not in wanted and not c.startswith(INDEX))
            tables.append(_read_bounded(file, wanted, store.raw_size(name), label))
    with _reading(label):
        return ArrowTable(pyarrow().concat_tables(tables, promote_options="permissive"), label, list(others))


def _check_all_there(store: Store, files: list[str]) -> None:
    """Refuse a split of which a file is missing, or that is there in two forms: rows would be lost, or added."""
    found = [(int(m[1]), int(m[2])) if (m := NUMBERED.search(name)) else (0, 1) for name in files]
    count = found[0][1]
    if len(set(found)) < len(found) or any(of != count or number >= count for number, of in found):
        raise DataError(f"and {files[0]} do not belong to one set of files: keep one set", path=store.label(files[-1]))
    if missing := sorted(set(range(count)) - {number for number, _ in found}):
        said = f"is one of {count} files, of which number {missing[0]:05} is missing"
        raise DataError(said, path=store.label(files[0]))


def column_names(store: Store, name: str) -> list[str]:
    """The columns of one file."""
    with _reading(store.label(name)):
        return list(_open(store, name).schema_arrow.names)


def _open(store: Store, name: str) -> Any:
    import pyarrow.parquet as pq

    with open_stream(store, name) as stream:
        return pq.ParquetFile(pyarrow().BufferReader(stream.read()))


@contextmanager
def _reading(label: str) -> Iterator[None]:
    """Turns what Arrow raises over a broken file into one line."""
    try:
        yield
    except (pyarrow().ArrowException, OSError, ValueError) as error:
        raise DataError(f"not a readable parquet file ({first_line(error)})", path=label) from None


def _read_bounded(file: Any, columns: list[str], size: int, label: str) -> Any:
    """The columns of a file, unless they outgrow it: pages may swell, and a dictionary may repeat one long text.

    What the file says of its own sizes is a first check only. It is read in small batches, and what came is counted.
    """
    limit = expansion_limit(size)
    # Of the row groups, not of their columns: Arrow ends the process over a column whose statistics are broken.
    total = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    rows = max(1, min(MOST_ROWS, limit // max(total, 1)))
    if total > limit:
        raise outgrown(limit, label)
    batches, total = [], 0
    for batch in file.iter_batches(batch_size=rows, columns=columns):
        batches.append(batch)
        total += batch.nbytes
        if total > limit:
            raise outgrown(limit, label)
    schema = pyarrow().schema([file.schema_arrow.field(name) for name in columns])
    return pyarrow().Table.from_batches(batches, schema=None if batches else schema)


def write_parquet(folder: Path, config: str, split: str, columns: dict[str, Any]) -> None:
    """Write one split of a config under the hub's file name for it."""
    pa = pyarrow()
    import pyarrow.parquet as pq

    place = folder / component(config, "config", path=folder)
    path = place / f"{component(split, 'split', path=folder)}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, compression="zstd")


def arrow_column(column: TextColumn) -> Any:
    """Our column as Arrow's, without a copy where 2 GiB of text do not stand in the way."""
    pa = pyarrow()
    array = pa.LargeStringArray.from_buffers(len(column), pa.py_buffer(column.offsets), pa.py_buffer(column.data))
    return array.cast(pa.string()) if column.nbytes < 2**31 - 1 else array


def pyarrow() -> Any:
    """The library, or the extra that brings it."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("reading and writing parquet", "parquet") from None
    return pyarrow
