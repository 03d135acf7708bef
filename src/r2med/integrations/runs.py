"""Runs and judgments as dicts of dicts: what BEIR, pytrec_eval and many notebooks pass around.

Scores are float32 here, and a Python float holds every one of them exactly, so a run comes back as it went. Order is in
the scores: equal ones stand by document id, descending, as trec_eval has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import overload

from ..core import DataError, Hit, Judgment, Qrels, Run


@overload
def to_dict(values: Run) -> dict[str, dict[str, float]]: ...
@overload
def to_dict(values: Qrels) -> dict[str, dict[str, int]]: ...
def to_dict(values: Run | Qrels) -> dict[str, dict[str, float]] | dict[str, dict[str, int]]:
    """`{query: {document: score}}` of a run, `{query: {document: grade}}` of judgments."""
    if isinstance(values, Run):
        return {query_id: {hit.doc_id: hit.score for hit in hits} for query_id, hits in values}
    return {query_id: values.of(query_id) for query_id in values.query_ids}


def run_from_dict(rankings: Mapping[str, Mapping[str, float]], *, name: str = "run") -> Run:
    """A run from `{query: {document: score}}`."""
    rows = ((query_id, doc_id, score) for query_id, hits in rankings.items() for doc_id, score in hits.items())
    return run_from_rows(rows, name=name, query_ids=rankings)


def qrels_from_dict(judgments: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Judgments from `{query: {document: grade}}`."""
    return qrels_from_rows((q, d, grade) for q, of_query in judgments.items() for d, grade in of_query.items())


def run_from_rows(rows: Iterable[tuple[object, object, object]], *, name: str, query_ids: Iterable[str] = ()) -> Run:
    """A run from rows of query, document and score, in any order; `query_ids` keeps queries without any."""
    rankings: dict[str, list[Hit]] = {_text(query_id, "query"): [] for query_id in query_ids}
    for query_id, doc_id, score in rows:
        hit = Hit(_text(doc_id, "document"), _number(score, query_id))
        rankings.setdefault(_text(query_id, "query"), []).append(hit)
    if not rankings:
        raise DataError("the run holds no rankings")
    return Run.from_rankings(rankings, name=name)


def qrels_from_rows(rows: Iterable[tuple[object, object, object]]) -> Qrels:
    """Judgments from rows of query, document and grade."""

    def judgments() -> Iterator[Judgment]:
        for query_id, doc_id, grade in rows:
            value = _number(grade, query_id)
            if value != int(value):
                raise DataError(f"query {query_id!r} judges document {doc_id!r} as {grade!r}: grades are whole numbers")
            yield Judgment(_text(query_id, "query"), _text(doc_id, "document"), int(value))

    return Qrels.from_judgments(judgments())


def _text(identifier: object, kind: str) -> str:
    if not isinstance(identifier, str):
        raise DataError(
            f"{kind} id {identifier!r} is of type {type(identifier).__name__}: ids are text (read the column as str)"
        )
    return str(identifier)  # numpy's own str would not compare equal everywhere


def _number(value: object, query_id: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if math.isnan(number):
        raise DataError(f"query {query_id!r} has a score that is not a number ({value!r})")
    return number
