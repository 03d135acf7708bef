"""Auditing tasks for leaks and copies: what a score may owe to something else than retrieval.

Looked for are queries in documents, copies, ids that name the query or its article, texts that two tasks share, and
texts from outside: training data and few-shot examples leak where they hold queries of a task or their positives.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import DataError, Task, TextColumn
from ...core.columns import Int64, grouped
from ...core.stores import open_path
from ...text.duplicates import (
    THRESHOLD,
    WIDTH,
    Overlaps,
    Pairs,
    Shingles,
    concatenate,
    groups,
    near_duplicates,
    overlaps,
    shingle,
)
from ..load import every_part
from .findings import EXAMPLES, AuditReport, CopyCount, FlagList, SharedTexts, TaskAudit

INSIDE = 0.8  # the share of a text's word runs that must stand in another for it to be inside it
LEAST_WORDS = 8  # shorter texts stand inside others without having been copied
FEWEST_WORDS = 3  # of a text from outside: ids and labels are no texts
SLUG_SHARE = 0.6
BRIGHT_NOTE = (
    "bright-biology: queries and judgments of R2MED's Biology come from BRIGHT's biology split; "
    "a model trained, tuned or prompted on BRIGHT has seen them"
)
_PMC = re.compile(r"PMC[_-]?(\d{3,})", re.IGNORECASE)
_PART = re.compile(r"(.+?)[_\-:#.](?:sec|p|part|chunk|passage|psg)?\d+", re.IGNORECASE)
_BRIGHT = re.compile(r"[^/]+/.+_\d+\.txt")
_WORDS = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class AuditSettings:
    """What counts as a copy."""

    threshold: float = THRESHOLD
    width: int = WIDTH


def audit(
    tasks: Sequence[Task],
    *,
    against: Sequence[OutsideTexts] = (),
    few_shot: Sequence[OutsideTexts] = (),
    settings: AuditSettings | None = None,
) -> AuditReport:
    """Look for leakage within tasks, between them, and from texts outside."""
    if not tasks:
        raise DataError("there is no task to audit")
    settings = settings or AuditSettings()
    shingled = [ShingledTask.of(task, settings.width) for task in tasks]
    # The documents of all tasks are compared at once; a pair belongs to the two tasks it comes from.
    pairs = near_duplicates(concatenate([m.documents for m in shingled]), settings.threshold)
    starts = np.concatenate(([0], np.cumsum([len(t.documents) for t in tasks])))
    owner = np.searchsorted(starts, pairs.first, side="right") - 1
    other = np.searchsorted(starts, pairs.second, side="right") - 1

    def between(a: int, b: int) -> Pairs:
        rows = (owner == a) & (other == b)
        return Pairs(pairs.first[rows] - starts[a], pairs.second[rows] - starts[b], pairs.similarity[rows])

    numbers = range(len(tasks))
    shared = [_shared(shingled[a], shingled[b], between(a, b), settings) for a in numbers for b in numbers[a + 1 :]]
    shown: dict[str, float | int | str] = {
        **asdict(settings),
        "inside": INSIDE,
        "least_words": LEAST_WORDS,
        "against": ", ".join(o.name for o in against),
        "few_shot": ", ".join(o.name for o in few_shot),
    }
    audits = [_audit_one(m, between(i, i), against, few_shot, settings) for i, m in enumerate(shingled)]
    return AuditReport(shown, audits, [one for one in shared if one is not None])


def _audit_one(
    shingled: ShingledTask,
    near: Pairs,
    against: Sequence[OutsideTexts],
    few_shot: Sequence[OutsideTexts],
    settings: AuditSettings,
) -> TaskAudit:
    task, flags = shingled.task, FlagList()
    flag_documents_of_queries(shingled, flags)
    flag_duplicate_queries(shingled, flags, settings.threshold)
    flag_unjudged_copies(shingled, near, flags)
    flag_ids(task, flags)
    training = {"queries_as": "query-in-training", "positives_as": "positive-in-training"}
    for outside in against:
        flag_outside(shingled, outside, flags, settings.threshold, **training)
    for outside in few_shot:
        flag_outside(shingled, outside, flags, settings.threshold, queries_as="few-shot")
    found = flags.all({q.id: i for i, q in enumerate(task.queries)})
    return TaskAudit(
        task=task.full_name,
        fingerprint=task.fingerprint,
        queries=len(task.queries),
        documents=len(task.documents),
        positives=task.qrels.positives,
        flagged_queries=len({f.query for f in found}),
        by_kind=dict(Counter(f.kind for f in found)),
        flags=found,
        exact_copies=count_copies(task, exact_groups(task.documents.contents)),
        near_copies=count_copies(task, groups(near, len(task.documents))),
        notes=[BRIGHT_NOTE] if is_bright(task) else [],
    )


def _shared(left: ShingledTask, right: ShingledTask, near: Pairs, settings: AuditSettings) -> SharedTexts | None:
    """Texts that two tasks share; exact are pairs with the same word runs."""
    found = overlaps(left.queries, right.queries)
    same: Int64 = np.flatnonzero(found.similarity >= settings.threshold) if len(found.left) else np.empty(0, np.int64)
    if not len(near) and not len(same):
        return None
    examples = [
        f"query {left.task.queries[int(found.left[i])].id} = {right.task.queries[int(found.right[i])].id}"
        for i in same[:EXAMPLES]
    ]
    examples += [
        f"document {left.task.documents.ids[int(near.first[i])]} = {right.task.documents.ids[int(near.second[i])]}"
        for i in range(min(len(near), EXAMPLES))
    ]
    exact = int((near.similarity == 1.0).sum())
    names = (left.task.full_name, right.task.full_name)
    return SharedTexts(names, exact, len(near) - exact, len(same), examples)


class ShingledTask(NamedTuple):
    """A task with the shingles of its texts."""

    task: Task
    documents: Shingles
    queries: Shingles

    @classmethod
    def of(cls, task: Task, width: int) -> ShingledTask:
        """Shingle a task."""
        return cls(task, shingle(task.documents.contents, width), shingle(task.query_texts, width))

    def positives(self) -> dict[int, list[str]]:
        """For each positive document (by position) the queries it is relevant to."""
        return grouped((at, query.id) for query in self.task.queries for at in self.task.positives(query.id))


def inside(found: Overlaps, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs have the left text inside the right one, and which the right inside the left."""
    least = LEAST_WORDS - width + 1  # shingles of a text with so many words
    left = (found.left_inside >= INSIDE) & (found.left_size >= least)
    right = (found.right_inside >= INSIDE) & (found.right_size >= least)
    same = found.similarity == 1.0
    return left | same, right | same


def flag_documents_of_queries(shingled: ShingledTask, flags: FlagList) -> None:
    """Queries that stand in a document, and documents that stand in a query."""
    task, width = shingled.task, shingled.documents.width
    found = overlaps(shingled.queries, shingled.documents)
    left, right = inside(found, width)
    for i in np.flatnonzero(left | right).tolist():
        query_id, doc_id = task.queries[int(found.left[i])].id, task.documents.ids[int(found.right[i])]
        judged = _role(task.qrels.of(query_id).get(doc_id, 0) > 0)
        kind = "query-in-document" if left[i] else "document-in-query"
        share = float((found.left_inside if left[i] else found.right_inside)[i])
        whose = "query's" if left[i] else "document's"
        flags.add(
            query_id, kind, f"{share:.0%} of the {whose} word runs stand in both; {judged}", doc_id, round(share, 4)
        )


def flag_duplicate_queries(shingled: ShingledTask, flags: FlagList, threshold: float) -> None:
    """Queries that say the same."""
    ids = shingled.task.query_ids
    pairs = near_duplicates(shingled.queries, threshold)
    for first, second, similarity in zip(*(c.tolist() for c in pairs), strict=True):
        for one, other in ((first, second), (second, first)):
            said = f"similarity {similarity:.2f} with query {ids[other]!r}"
            flags.add(ids[one], "duplicate-query", said, ids[other], round(similarity, 4))


def flag_unjudged_copies(shingled: ShingledTask, pairs: Pairs, flags: FlagList) -> None:
    """Positives of which the corpus holds a copy that counts as wrong."""
    task, positives = shingled.task, shingled.positives()
    ids = task.documents.ids
    for first, second, similarity in zip(*(c.tolist() for c in pairs), strict=True):
        for one, other in ((first, second), (second, first)):
            for query_id in positives.get(one, ()):
                if query_id not in positives.get(other, ()):
                    said = f"copy (similarity {similarity:.2f}) of positive {ids[one]!r} is not judged relevant"
                    flags.add(query_id, "unjudged-copy", said, ids[other], round(similarity, 4))


def exact_groups(contents: TextColumn) -> list[list[int]]:
    """Documents with byte-identical contents."""
    same = grouped((digest, i) for i, digest in enumerate(contents.digests()))
    return [group for group in same.values() if len(group) > 1]


def count_copies(task: Task, found: list[list[int]]) -> CopyCount:
    """Groups as counts, with the first few spelled out."""
    examples = [[task.documents.ids[i] for i in group[:EXAMPLES]] for group in found[:EXAMPLES]]
    return CopyCount(len(found), sum(map(len, found)), examples)


def article(identifier: str) -> str:
    """The article, record or page that a passage's id names: `PMC101395_3` → `PMC101395`, `mb0_1` → `mb0`."""
    if match := _PMC.search(identifier):
        return f"PMC{match[1]}"
    match = _PART.fullmatch(identifier)
    return match[1] if match else identifier


def flag_ids(task: Task, flags: FlagList) -> None:
    """Same id, same article, and slugs of the question in the ids of its passages."""
    ids = task.documents.ids
    by_article = grouped((article(doc_id), doc_id) for doc_id in ids)
    by_slug = grouped((doc_id.partition("/")[0], doc_id) for doc_id in ids if "/" in doc_id)
    for query in task.queries:
        positives = {d for d, grade in task.qrels.of(query.id).items() if grade > 0}
        matched = [query.id] if query.id in ids else []
        matched += [d for d in by_article.get(query.id, ()) if d != query.id]
        for doc_id in matched:
            # Two numberings that both count from 1 meet by chance; names do not.
            if query.id.isdigit() and doc_id not in positives:
                continue
            flags.add(query.id, "same-id", f"the id of {_role(doc_id in positives)} is made of the query's", doc_id)
        for name in sorted({f"PMC{number}" for number in _PMC.findall(f"{query.id} {query.text}")}):
            for doc_id in by_article.get(name, ()):
                said = f"{_role(doc_id in positives)} comes from {name}, which the query names as its own"
                flags.add(query.id, "same-article", said, doc_id)
        if by_slug:
            _flag_slugs(query.id, query.text, positives, by_slug, flags)


def _role(positive: bool) -> str:
    return "a positive" if positive else "a document not judged relevant"


def _flag_slugs(query_id: str, text: str, positives: set[str], by_slug: dict[str, list[str]], flags: FlagList) -> None:
    asked = set(_WORDS.findall(text.lower()))
    for slug in sorted({d.partition("/")[0] for d in positives if "/" in d}):
        words = set(_WORDS.findall(slug.lower().replace("_", " ")))
        share = len(words & asked) / len(words) if words else 0.0
        if len(words) >= 2 and share >= SLUG_SHARE:
            same = by_slug.get(slug, [])
            found = sum(d in positives for d in same)
            said = f"{len(same)} ids begin with {slug!r}, words of the query; {found} of these documents are positives"
            flags.add(query_id, "slug", said, slug, round(share, 4))


def is_bright(task: Task) -> bool:
    """Whether a task is R2MED's Biology or has the ids of BRIGHT's biology corpus."""
    if task.name == "Biology" and task.collection in ("r2med", "nano"):
        return True
    sample = task.documents.ids[:200]
    return bool(sample) and sum(bool(_BRIGHT.fullmatch(i)) for i in sample) > len(sample) // 2


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
    """Every text in a file of JSON lines (any fields, nested or not), tab-separated or plain lines, or in a task.

    Of a task these are the queries of all its splits: those of training are not the ones that loading it takes.
    """
    if path.is_dir() or path.suffix == ".zip":
        tasks = [ref.load() for ref in every_part(path)]
        told = [(f"query {q.id}", q.text) for task in tasks for q in task.queries]
        told += [(f"document {d.id}", d.contents) for task in tasks for d in task.documents]
        found = list(dict.fromkeys(told))
    else:
        found = list(_texts_of(path))
    if not found:
        raise DataError(f"holds no text of {FEWEST_WORDS} words or more", path=path)
    return OutsideTexts(path.name, TextColumn.from_texts(text for _, text in found), [place for place, _ in found])


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
    return len(value.split(maxsplit=FEWEST_WORDS)) >= FEWEST_WORDS


class Match(NamedTuple):
    """An outside text (by number) that meets a query or one of its positives."""

    text: int
    query: str
    share: float
    evidence: str


def _meeting(found: Overlaps, width: int, threshold: float) -> list[int]:
    """The pairs of which one text stands in the other, or that are near copies."""
    left, right = inside(found, width)
    return np.flatnonzero(left | right | (found.similarity >= threshold)).tolist()


def query_matches(shingled: ShingledTask, outside: OutsideTexts, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Queries that stand, whole or nearly so, in an outside text, that contain one, or that one nearly copies."""
    found = overlaps(shingled.queries, outside.shingles(shingled.queries.width))
    for i in _meeting(found, shingled.queries.width, threshold):
        share = float(max(found.left_inside[i], found.right_inside[i]))
        query_id = shingled.task.queries[int(found.left[i])].id
        yield Match(int(found.right[i]), query_id, share, f"{share:.0%} of the shorter text's word runs stand in both")


def positive_matches(shingled: ShingledTask, outside: OutsideTexts, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Queries one of whose positive passages stands in an outside text, or holds one: smaller pieces leak too."""
    positives = shingled.positives()
    rows = np.array(sorted(positives), dtype=np.int64)
    found = overlaps(shingled.documents.take(rows), outside.shingles(shingled.documents.width))
    for i in _meeting(found, shingled.documents.width, threshold):
        share, row = float(max(found.left_inside[i], found.right_inside[i])), int(rows[found.left[i]])
        positive = repr(shingled.task.documents.ids[row])
        whole = found.left_inside[i] >= found.right_inside[i]
        said = f"{share:.0%} of the word runs of " + (
            f"positive {positive} stand there" if whole else f"this text stand in positive {positive}"
        )
        yield from (Match(int(found.right[i]), query_id, share, said) for query_id in positives[row])


def flag_outside(
    shingled: ShingledTask,
    outside: OutsideTexts,
    flags: FlagList,
    threshold: float,
    *,
    queries_as: str,
    positives_as: str = "",
) -> None:
    """Flag queries that meet an outside text and, under another kind, those whose positives do."""
    found = [(queries_as, match) for match in query_matches(shingled, outside, threshold)]
    if positives_as:
        found += [(positives_as, match) for match in positive_matches(shingled, outside, threshold)]
    for kind, match in found:
        place = f"{outside.name}, {outside.places[match.text]}"
        flags.add(match.query, kind, match.evidence, place, round(match.share, 4))
