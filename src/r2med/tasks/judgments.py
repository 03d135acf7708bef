"""Judgments as text: TREC, BEIR tsv, R2MED jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..core import DataError, Judgment, Qrels
from ..core.options import NUMBER
from ..core.stores import FileStore, Store, open_stream, refuse_mark
from .jsonl import has_field, read_records

MAX_GRADE = 2**31 - 1
HEADERS = ("query-id", "q_id", "qid", "query_id")


class R2MedJudgment(msgspec.Struct):
    """A line of R2MED's `qrels.jsonl`."""

    query_id: str = msgspec.field(name="q_id")
    doc_id: str = msgspec.field(name="p_id")
    score: float


class BeirJudgment(msgspec.Struct):
    """A line of a BEIR or MTEB `qrels` file in JSON lines."""

    query_id: str = msgspec.field(name="query-id")
    doc_id: str = msgspec.field(name="corpus-id")
    score: float = 1


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
    record: type[BeirJudgment | R2MedJudgment] = BeirJudgment if has_field(first, "query-id") else R2MedJudgment
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
            if not fields:  # spaces that only Unicode calls so
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
    return text.split("\t") if text.count("\t") >= 2 else text.split()


def whole_grade(value: str | float | None, label: str, line: int | None = None) -> int:
    """A grade as a number; `1.0` is one, `1.5` and `high` are errors."""
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        grade = math.nan
    else:
        grade = math.nan if value is None else float(value)
    if not grade.is_integer():
        raise DataError(f"grade {value!r} is not a whole number", path=label, line=line)
    if abs(grade) > MAX_GRADE:
        raise DataError(f"grade {value!r} is out of range", path=label, line=line)
    return int(grade)
