"""Documents, queries and judgments as lines of text: JSON lines, TREC and tab-separated files.

Errors name the file and the line.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from ..core import DataError, Documents, IdTable, Judgment, Qrels, Query, TextColumnBuilder
from ..core.options import NUMBER
from ..core.stores import MARKED, FileStore, Store, open_stream, refuse_mark

T = TypeVar("T")

BLOCK = 1 << 18  # bytes of lines decoded together: fits the cache, hides the cost of a call
MAX_GRADE = 2**31 - 1
HEADERS = ("query-id", "q_id", "qid", "query_id")

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


class R2MedJudgment(msgspec.Struct):
    """A line of R2MED's `qrels.jsonl`."""

    query_id: str = msgspec.field(name="q_id")
    doc_id: str = msgspec.field(name="p_id")
    score: float


class BeirJudgment(msgspec.Struct):
    """A line of a BEIR or MTEB `qrels` file in JSON lines."""

    query_id: str = msgspec.field(name="query-id")
    doc_id: str = msgspec.field(name="corpus-id")
    score: float


class BareJudgment(msgspec.Struct, forbid_unknown_fields=True):
    """A line of such a file without grades: two ids and nothing else, or a grade of another name would be lost."""

    score: ClassVar[float] = 1
    query_id: str = msgspec.field(name="query-id")
    doc_id: str = msgspec.field(name="corpus-id")


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


def read_queries(store: Store, name: str) -> tuple[Query, ...]:
    """The queries of a file of JSON lines, in either spelling of their ids."""
    record = BeirQuery if uses_underscore_id(store, name) else PlainQuery
    records = (record for _, record in read_records(store, name, record))
    return tuple(Query(q.id, q.text, q.answer or None, q.body_system or None) for q in records)


def read_qrels(path: str | Path) -> Qrels:
    """Judgments from a file of any supported layout, told apart by its first line."""
    return qrels_from_store(FileStore(Path(path)), Path(path).name)


def qrels_from_store(store: Store, name: str) -> Qrels:
    """Judgments from one file of a store."""
    label = store.label(name)
    with open_stream(store, name) as stream:
        first = next((line for line in stream if not line.isspace()), b"").lstrip()
    if not first:
        raise DataError("holds no judgments", path=label)
    refuse_mark(first, label)
    is_json = first.startswith(b"{") and not _ends_in_number(first.split())
    judgments = _json_judgments(store, name, first) if is_json else _text_judgments(store, name)
    try:
        qrels = Qrels.from_judgments(judgments)
    except DataError as error:
        raise error if error.path else DataError(error.message, path=label) from None
    if not len(qrels):
        raise DataError("holds no judgments", path=label)
    return qrels


def _json_judgments(store: Store, name: str, first: bytes) -> Iterator[Judgment]:
    record: type[BeirJudgment | BareJudgment | R2MedJudgment] = R2MedJudgment
    if has_field(first, "query-id"):
        record = BeirJudgment if has_field(first, "score") else BareJudgment
    label = store.label(name)
    for number, judged in read_records(store, name, record):
        yield Judgment(judged.query_id, judged.doc_id, whole_grade(judged.score, label, number))


def _text_judgments(store: Store, name: str) -> Iterator[Judgment]:
    """TREC's four columns or three columns with an optional header; tabs keep spaces inside ids."""
    label = store.label(name)
    with open_stream(store, name) as stream:
        for number, line in enumerate(stream, start=1):
            if line.isspace():
                continue
            fields = _columns(line, label, number)
            if not fields:
                continue
            if number == 1 and fields[0] in HEADERS and not _ends_in_number(fields):
                continue
            if len(fields) not in (3, 4):
                raise DataError(f"expected 3 or 4 columns, got {len(fields)}", path=label, line=number)
            yield Judgment(fields[0], fields[-2], whole_grade(fields[-1], label, number))


def _ends_in_number(fields: Sequence[str | bytes]) -> bool:
    """Whether a line is a judgment: an id may look like a header or like JSON, a grade cannot."""
    try:
        float(fields[-1])
    except ValueError:
        return False
    return True


def _columns(line: bytes, label: str, number: int) -> list[str]:
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError("is not valid UTF-8", path=label, line=number) from None
    if "\0" in text:
        raise DataError("holds a NUL character", path=label, line=number)
    if text.isspace():  # spaces that only Unicode calls so
        return []
    # By the spaces of ASCII, as in runs and in trec_eval: any other is part of an id.
    return text.split("\t") if text.count("\t") >= 2 else [field.decode() for field in line.split()]


def whole_grade(value: str | float | None, label: str, line: int | None = None) -> int:
    """A grade as a number; `1.0` is one, `1.5` and `high` are errors."""
    if isinstance(value, str):
        grade = float(value) if NUMBER.fullmatch(value.strip(" \t\r\n")) else math.nan
    else:
        grade = math.nan if value is None else float(value)
    if not grade.is_integer():
        raise DataError(f"grade {value!r} is not a whole number", path=label, line=line)
    if abs(grade) > MAX_GRADE:
        raise DataError(f"grade {value!r} is out of range", path=label, line=line)
    return int(grade)


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
        return "byte-order-mark", MARKED
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
    if match := re.match(r"Object contains unknown field `(.+?)`", message):
        return "unknown-field", f"field {match[1]!r} is not known, and there is no 'score'"
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
