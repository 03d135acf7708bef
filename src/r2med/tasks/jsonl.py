"""JSON lines in and out, with errors that name the file and the line."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from ..core import DataError, Documents, IdTable, TextColumnBuilder
from ..core.stores import Store, open_stream

T = TypeVar("T")

BLOCK = 1 << 18  # bytes of lines decoded together: fits the cache, hides the cost of a call

_SURROGATE = re.compile("[\ud800-\udfff]")
_TYPE_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "array": "a list", "object": "an object"}


class PlainRecord(msgspec.Struct, gc=False):
    """A passage as R2MED writes it."""

    id: str
    text: str
    title: str | None = None


class BeirRecord(PlainRecord, gc=False):
    """A passage as BEIR and MTEB write it."""

    id: str = msgspec.field(name="_id")


class PlainQuery(msgspec.Struct, gc=False):
    """A query as R2MED writes it."""

    id: str
    text: str
    answer: str | None = None
    body_system: str | None = None


class BeirQuery(PlainQuery, gc=False):
    """A query as BEIR and MTEB write it."""

    id: str = msgspec.field(name="_id")


def read_records(store: Store, name: str, record: type[T]) -> Iterator[tuple[int, T]]:
    """Decode each line as `record`; yields line numbers from 1. Blank lines are passed over."""
    decode, read = msgspec.json.Decoder(record).decode, 0
    with open_stream(store, name) as stream:
        while lines := stream.readlines(BLOCK):
            try:
                block = list(map(decode, lines))
            except (ValueError, RecursionError):
                yield from _decode_each(lines, decode, store.label(name), read + 1)
            else:
                yield from enumerate(block, start=read + 1)
            read += len(lines)


def _decode_each(
    lines: Iterable[bytes], decode: Callable[[bytes], T], label: str, first: int
) -> Iterator[tuple[int, T]]:
    for number, line in enumerate(lines, start=first):
        try:
            yield number, decode(line)
        except (ValueError, RecursionError) as error:  # msgspec's errors, bad UTF-8, nesting without end
            if not line.isspace():
                raise DataError(explain(line, error)[1], path=label, line=number) from None


def read_documents(store: Store, name: str) -> Documents:
    """The corpus, in columns. The hot path of every run: lines are taken in blocks, each block in few calls."""
    decode = msgspec.json.Decoder(BeirRecord if uses_underscore_id(store, name) else PlainRecord).decode
    label, ids, read = store.label(name), list[str](), 0
    texts, titles = TextColumnBuilder(store.raw_size(name)), TextColumnBuilder()
    with open_stream(store, name) as stream:
        while lines := stream.readlines(BLOCK):
            try:
                block = list(map(decode, lines))
            except (ValueError, RecursionError):
                block = [item for _, item in _decode_each(lines, decode, label, read + 1)]
            read += len(lines)
            ids += [d.id for d in block]
            texts.extend([d.text.encode() for d in block])
            titles.extend([d.title.encode() if d.title else b"" for d in block])
    return Documents(IdTable(ids), texts.build(), titles.build())


def line_of(store: Store, name: str, identifier: str, *, occurrence: int = 1) -> int | None:
    """The line on which an id stands for the n-th time: a second pass, for a message."""
    record = BeirQuery if uses_underscore_id(store, name) else PlainQuery
    for number, item in read_records(store, name, record):
        occurrence -= item.id == identifier
        if not occurrence:
            return number
    return None


def uses_underscore_id(store: Store, name: str) -> bool:
    """Whether the file's records name their id `_id` (BEIR) rather than `id` (R2MED)."""
    with open_stream(store, name) as stream:
        first = next((line for line in stream if not line.isspace()), b"{}")
    return has_field(first, "_id")


def has_field(line: bytes, name: str) -> bool:
    """Whether a line is a JSON object with this field."""
    try:
        return name in msgspec.json.decode(line, type=dict[str, Any])
    except (ValueError, RecursionError):
        return False  # the full read will say what is wrong


def explain(line: bytes, error: Exception) -> tuple[str, str]:
    """What is wrong with a line: a code for reports, and a sentence."""
    if isinstance(error, msgspec.ValidationError):
        return _explain_field(str(error))
    if isinstance(error, UnicodeDecodeError):
        return "bad-utf8", "is not valid UTF-8"
    if line.startswith(BOM_UTF8):
        return "byte-order-mark", "begins with a byte-order mark: save the file as UTF-8 without it"
    if b"\0" in line:
        return "nul", "holds a NUL character"
    if _has_lone_surrogate(line):
        return "lone-surrogate", "holds a lone surrogate (half of a character escape)"
    known = {"Input data was truncated": "the line ends too early"}
    reason = str(error).removeprefix("JSON is malformed: ")
    reason = "nested too deeply" if isinstance(error, RecursionError) else known.get(reason, reason)
    return "broken-json", f"broken JSON: {reason}"


def _explain_field(message: str) -> tuple[str, str]:
    if match := re.match(r"Object missing required field `(.+?)`", message):
        return "missing-field", f"field {match[1]!r} is missing"
    if match := re.match(r"Expected `([\w |]+)`, got `(\w+)`(?: - at `\$\.?(.*)`)?", message):
        expected, got, field = match.groups()
        where = f"field {field!r}: " if field else ""
        wanted = expected.removesuffix(" | null")
        return "wrong-type", f"{where}expected {_TYPE_WORDS.get(wanted, wanted)}, got {_TYPE_WORDS.get(got, got)}"
    return "wrong-type", message


def _has_lone_surrogate(line: bytes) -> bool:
    try:
        return bool(_SURROGATE.search(json.dumps(json.loads(line), ensure_ascii=False)))
    except (ValueError, RecursionError):
        return False


def encode_lines(records: Iterable[object]) -> Iterator[bytes]:
    """One JSON document per line."""
    encode = msgspec.json.Encoder().encode
    for record in records:
        yield encode(record) + b"\n"
