"""Runs, judgments, measures and tasks as other evaluation tools pass them around, and back.

Scores are float32 here, and a Python float holds every one of them exactly, so a run comes back as it was. Its order
is that of the scores: equal ones stand by document id, descending, as trec_eval has it. Each function needs only the
package that it converts for.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, overload

from ..core import DataError, Document, Documents, Hit, Judgment, MissingExtra, Qrels, Query, Run, Task, UsageError
from ..scoring import Measure
from ..scoring.evaluation import import_pandas
from ..scoring.measures import SPELLINGS
from ..tasks.records import MAX_GRADE

GRADES = f"grades are whole numbers of at most {MAX_GRADE:,}"


@overload
def to_dict(values: Run) -> dict[str, dict[str, float]]: ...
@overload
def to_dict(values: Qrels) -> dict[str, dict[str, int]]: ...
def to_dict(values: Run | Qrels) -> dict[str, dict[str, float]] | dict[str, dict[str, int]]:
    """For BEIR, pytrec_eval and many notebooks: `{query: {document: score}}` of a run, or of judgments with grades."""
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


def to_ir_measures(values: Run | Qrels | Measure) -> Any:
    """A list of `ScoredDoc`s in rank order of a run, of `Qrel`s of judgments; for a measure, its measure."""
    package = _interop("ir_measures")
    if isinstance(values, Run):
        return [package.ScoredDoc(query_id, hit.doc_id, hit.score) for query_id, hits in values for hit in hits]
    if isinstance(values, Qrels):
        return [package.Qrel(j.query_id, j.doc_id, j.grade) for j in values]
    theirs = {ours: spelling for spelling, ours in SPELLINGS.items()}
    parameters = {name: theirs.get(str(value), value) for name, value in values.parameters}
    name = {"hit": "Success", "judged": "Judged", "bpref": "Bpref"}.get(values.family, values.definition.name)
    if values.cutoff is None:
        return getattr(package, "SetR" if name == "R" else name)(**parameters)
    return getattr(package, name)(cutoff=values.cutoff, **parameters)


def from_ir_measures(values: Any, *, name: str = "run") -> Run | Qrels | Measure:
    """Our run from `ScoredDoc`s, our judgments from `Qrel`s, our measure from a measure.

    Any records with the same fields will do.
    """
    if not isinstance(values, Iterable):
        return Measure.parse(str(values).replace("SetR", "R"))
    rows = list(values)
    if not rows:
        raise UsageError("there is nothing to read: neither ScoredDoc nor Qrel")
    if hasattr(rows[0], "relevance"):
        return qrels_from_rows((r.query_id, r.doc_id, r.relevance) for r in rows)
    if not hasattr(rows[0], "score"):
        raise UsageError(f"expected ScoredDoc or Qrel of ir_measures, got {type(rows[0]).__name__}")
    return run_from_rows(((r.query_id, r.doc_id, r.score) for r in rows), name=name)


def to_ranx(values: Run | Qrels) -> Any:
    """A `ranx.Run` or a `ranx.Qrels`; queries without documents are left out, as ranx has no empty rows."""
    ranx = _interop("ranx")
    if isinstance(values, Run):
        return ranx.Run({q: hits for q, hits in to_dict(values).items() if hits}, name=values.name)
    return ranx.Qrels({q: grades for q, grades in to_dict(values).items() if grades})


def from_ranx(values: Any) -> Run | Qrels:
    """Our run from a `ranx.Run`, our judgments from a `ranx.Qrels`."""
    if isinstance(values, _interop("ranx").Qrels):
        return qrels_from_dict(values.to_dict())
    return run_from_dict(values.to_dict(), name=values.name or "run")


def to_pyterrier(values: Run | Qrels | Task) -> Any:
    """A frame: `qid, docno, rank, score` of a run, `qid, docno, label` of judgments, `qid, query` of a task's queries.

    Ranks begin at 0, as PyTerrier counts. Neither PyTerrier nor Java is needed.
    """
    pandas = import_pandas()
    if isinstance(values, Run):
        ranked = [(q, h.doc_id, rank, h.score) for q, hits in values for rank, h in enumerate(hits)]
        return pandas.DataFrame(ranked, columns=["qid", "docno", "rank", "score"])
    if isinstance(values, Qrels):
        return pandas.DataFrame([tuple(j) for j in values], columns=["qid", "docno", "label"])
    return pandas.DataFrame([(q.id, q.text) for q in values.queries], columns=["qid", "query"])


def from_pyterrier(frame: Any, *, name: str = "run") -> Run | Qrels:
    """Our judgments from a frame with `label`, our run from one with `score`.

    Order follows the scores; a `rank` column is not looked at.
    """
    columns = set(getattr(frame, "columns", ()))
    value = "label" if "label" in columns else "score"
    if missing := [c for c in ("qid", "docno", value) if c not in columns]:
        raise UsageError(f"a PyTerrier frame needs the columns qid, docno and score or label; missing: {missing[0]}")
    rows = zip(frame["qid"], frame["docno"], frame[value], strict=True)
    return qrels_from_rows(rows) if value == "label" else run_from_rows(rows, name=name)


class BeirTask(NamedTuple):
    """What BEIR's `GenericDataLoader.load` returns."""

    corpus: dict[str, dict[str, str]]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def to_beir(task: Task) -> BeirTask:
    """Corpus, queries and judgments as BEIR's loader gives them.

    BEIR drops a document whose id is the query's own unless told otherwise, and rounds its scores to five digits.
    """
    return BeirTask(
        {d.id: {"title": d.title, "text": d.text} for d in task.documents},
        {q.id: q.text for q in task.queries},
        to_dict(task.qrels),
    )


def from_beir(
    corpus: Mapping[str, Mapping[str, str]],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    name: str = "beir",
) -> Task:
    """A task from what BEIR's loader gives; everything that takes a task takes it."""
    for kind, found in (("corpus", corpus), ("queries", queries), ("judgments", qrels)):
        if not found:
            raise UsageError(f"{name}: the {kind} dict is empty")
    return Task(
        name=name,
        queries=tuple(Query(query_id, text) for query_id, text in queries.items()),
        documents=Documents.of(Document(i, d.get("text", ""), d.get("title") or "") for i, d in corpus.items()),
        qrels=qrels_from_dict(qrels),
        source="beir",
    )


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
            if not value.is_integer() or abs(value) > MAX_GRADE:
                raise DataError(f"query {query_id!r} judges document {doc_id!r} as {grade!r}: {GRADES}")
            yield Judgment(_text(query_id, "query"), _text(doc_id, "document"), int(value))

    return Qrels.from_judgments(judgments())


def _text(identifier: object, kind: str) -> str:
    if not isinstance(identifier, str):
        raise DataError(
            f"{kind} id {identifier!r} is of type {type(identifier).__name__}: ids are text (read the column as str)"
        )
    return str(identifier)  # numpy's own str would not compare equal everywhere


def _number(value: object, query_id: object) -> float:
    strange = isinstance(value, str) and ("_" in value or not value.isascii())  # Python reads `1_0` as ten
    try:
        number = float("nan" if strange else value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if math.isnan(number):
        raise DataError(f"query {query_id!r} has a score that is not a number ({value!r})")
    return number


def _interop(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtra(f"converting for {package}", "interop") from None
