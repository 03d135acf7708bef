"""Leaks from outside: training data and few-shot examples that hold queries of a task or their positives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import DataError, TextColumn
from ...core.stores import open_path
from ...text.duplicates import THRESHOLD, overlaps
from ...text.shingles import Shingles, shingle
from ..load import from_path
from .findings import FlagList
from .leaks import ShingledTask, inside

LEAST_WORDS = 3
"""Ids and labels are no texts."""


@dataclass(frozen=True, eq=False)
class OutsideTexts:
    """Texts and where each stands."""

    name: str
    texts: TextColumn
    places: list[str]
    _made: dict[int, Shingles] = field(default_factory=dict, repr=False)

    def shingles(self, width: int) -> Shingles:
        """Their shingles, made once however many tasks they are compared with."""
        if width not in self._made:
            self._made[width] = shingle(self.texts, width)
        return self._made[width]


def read_outside(path: Path) -> OutsideTexts:
    """Every text in a file of JSON lines (any fields, nested or not), tab-separated or plain lines, or in a task."""
    is_task = path.is_dir() or path.suffix == ".zip"
    found = list(_texts_of_tasks(path) if is_task else _texts_of(path))
    if not found:
        raise DataError(f"holds no text of {LEAST_WORDS} words or more", path=path)
    return OutsideTexts(path.name, TextColumn.from_texts(text for _, text in found), [place for place, _ in found])


def _texts_of_tasks(path: Path) -> Iterator[tuple[str, str]]:
    for ref in from_path(path):
        task = ref.load()
        yield from ((f"query {q.id}", q.text) for q in task.queries)
        yield from ((f"document {d.id}", d.contents) for d in task.documents)


def _texts_of(path: Path) -> Iterator[tuple[str, str]]:
    plain = path.name.removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(".parquet"):
        raise DataError("parquet is not read here; write the training data as JSON lines", path=path)
    as_json = plain.endswith((".jsonl", ".json", ".ndjson"))
    with open_path(path) as stream:
        if plain.endswith(".json"):
            yield from _texts_in("record", _decode(stream.read(), path, None))
            return
        for number, line in enumerate(stream, start=1):
            if line.isspace():
                continue
            if as_json:
                yield from _texts_in(f"line {number}", _decode(line, path, number))
                continue
            try:
                cells = line.decode("utf-8").rstrip("\r\n").split("\t")
            except UnicodeDecodeError:
                raise DataError("is not valid UTF-8", path=path, line=number) from None
            yield from ((f"line {number}", cell) for cell in cells if _is_text(cell))


def _decode(data: bytes, path: Path, line: int | None) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise DataError("broken JSON", path=path, line=line) from None


def _texts_in(place: str, value: Any) -> Iterator[tuple[str, str]]:
    """Texts at any depth; a lone surrogate is replaced, for it can match nothing."""
    if isinstance(value, str):
        if _is_text(value):
            yield place, value.encode("utf-8", "replace").decode()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts_in(f"{place}, {key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(place, inner)


def _is_text(value: str) -> bool:
    return len(value.split(maxsplit=LEAST_WORDS)) >= LEAST_WORDS


class Match(NamedTuple):
    """An outside text (by number) that meets a query or one of its positives."""

    text: int
    query: str
    share: float
    evidence: str


def query_matches(shingled: ShingledTask, outside: OutsideTexts) -> Iterator[Match]:
    """Queries that stand, whole or nearly so, in an outside text, or that contain one."""
    found = overlaps(shingled.queries, outside.shingles(shingled.queries.width))
    left, right = inside(found, shingled.queries.width)
    for i in np.flatnonzero(left | right).tolist():
        share = float(max(found.left_inside[i], found.right_inside[i]))
        query_id = shingled.task.queries[int(found.left[i])].id
        yield Match(int(found.right[i]), query_id, share, f"{share:.0%} of the shorter text's word runs stand in both")


def positive_matches(shingled: ShingledTask, outside: OutsideTexts) -> Iterator[Match]:
    """Queries one of whose positive passages stands in an outside text, or holds one: smaller pieces leak too."""
    positives = shingled.positives()
    rows = np.array(sorted(positives), dtype=np.int64)
    found = overlaps(shingled.documents.take(rows), outside.shingles(shingled.documents.width))
    left, right = inside(found, shingled.documents.width)
    for i in np.flatnonzero(left | right | (found.similarity >= THRESHOLD)).tolist():
        share, row = float(max(found.left_inside[i], found.right_inside[i])), int(rows[found.left[i]])
        positive = repr(shingled.task.documents.ids[row])
        whole = found.left_inside[i] >= found.right_inside[i]
        said = f"{share:.0%} of the word runs of " + (
            f"positive {positive} stand there" if whole else f"this text stand in positive {positive}"
        )
        yield from (Match(int(found.right[i]), query_id, share, said) for query_id in positives[row])


def flag_outside(
    shingled: ShingledTask, outside: OutsideTexts, flags: FlagList, *, queries_as: str, positives_as: str = ""
) -> None:
    """Flag queries that meet an outside text and, under another kind, those whose positives do."""
    found = [(queries_as, match) for match in query_matches(shingled, outside)]
    found += [(positives_as, match) for match in positive_matches(shingled, outside) if positives_as]
    for kind, match in found:
        place = f"{outside.name}, {outside.places[match.text]}"
        flags.add(match.query, kind, match.evidence, place, round(match.share, 4))
