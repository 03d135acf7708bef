"""Training data with hard negatives that shares nothing with what it will be judged on.

Hard negatives are passages that look like the query's and lead elsewhere. Candidates of several retrievers are taken in
turn; a passage is left out where it may be relevant after all: it is judged so, nearly a copy of a positive, from the
article of a positive, or it names the query's answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Query, Run, Task, TextColumn, UsageError
from ..core.files import atomic_folder, write_bytes
from ..retrieve import Retriever
from ..tasks import TaskRef, entries
from ..tasks.audit import (
    Match,
    OutsideTexts,
    ShingledTask,
    article,
    positive_matches,
    query_matches,
    read_outside,
)
from ..tasks.catalogue import locate
from ..tasks.nano import take
from ..tasks.records import encode_lines
from ..text.duplicates import WIDTH, overlaps, shingle

SCHEMA = 1


class Passage(NamedTuple):
    """A passage of the training data; negatives say who found them and where."""

    id: str
    text: str
    by: str = ""
    rank: int = 0


class Example(NamedTuple):
    """One query with all its positives and its negatives."""

    query_id: str
    query: str
    positives: list[Passage]
    negatives: list[Passage]


@dataclass(frozen=True)
class MiningSettings:
    """How negatives are chosen."""

    negatives: int = 7
    depth: int = 100
    skip: int = 0
    similarity: float = 0.6

    def __post_init__(self) -> None:
        if self.negatives < 1 or self.depth < 1 or self.skip < 0:
            raise UsageError("negatives and depth must be 1 or more, skip 0 or more")
        if not 0 < self.similarity <= 1:
            raise UsageError(f"similarity must lie between 0 and 1, not {self.similarity:g}")


class Protected(NamedTuple):
    """An evaluation task: its queries and the passages that answer them."""

    name: str
    fingerprint: str
    shingled: ShingledTask


class TrainingReport(msgspec.Struct):
    """What was written and what was kept out."""

    schema: int
    source: str
    fingerprint: str
    examples: int
    positives: int
    negatives: int
    rows: int
    examples_without_all_negatives: int
    mined_with: list[str]
    left_out: dict[str, int]
    overlap_dropped: dict[str, int]
    protected: dict[str, str]
    not_compared: list[str]
    audit: dict[str, int]


def protected(refs: Iterable[TaskRef]) -> list[Protected]:
    """Load evaluation tasks, each once, down to what training data must not hold."""
    found = []
    for ref in {ref.full_name: ref for ref in refs}.values():
        task = ref.load()
        rows = sorted({p for _, d, g in task.qrels if g > 0 and (p := task.documents.ids.position(d)) >= 0})
        small = Task(task.name, task.queries, take(task.documents, rows), task.qrels, collection=task.collection)
        found.append(Protected(task.full_name, task.fingerprint, ShingledTask.of(small, WIDTH)))
    return found


def evaluation_refs() -> list[TaskRef]:
    """Every catalogue task on this machine."""
    return [TaskRef(e.name, e.collection, e, path, e.split) for e in entries() if (path := locate(e))]


def export_training(
    task: Task,
    out: Path,
    retrievers: Sequence[Retriever],
    kept_out: Sequence[Protected],
    settings: MiningSettings,
    *,
    drop_overlap: bool = False,
    notify: Callable[[str], None] = lambda what: None,
) -> TrainingReport:
    """Mine, check, write, and audit what was written; the folder appears only if the audit finds nothing."""
    if task.collection in {e.collection for e in entries()}:
        raise UsageError(f"{task.full_name} is an evaluation task; training data cannot be made from it")
    notify("mining negatives")
    examples, left_out = mine(task, retrievers, settings)
    notify("looking for overlap with evaluation tasks")
    examples, dropped = _without_overlap(examples, kept_out, drop=drop_overlap)
    if not examples:
        raise DataError(f"{task.full_name}: no query is left to train on")
    notify("writing")
    complete = [e for e in examples if len(e.negatives) >= settings.negatives]
    report = TrainingReport(
        schema=SCHEMA,
        source=task.full_name,
        fingerprint=task.fingerprint,
        examples=len(examples),
        positives=sum(len(e.positives) for e in examples),
        negatives=sum(len(e.negatives) for e in examples),
        rows=sum(len(e.positives) for e in complete),
        examples_without_all_negatives=len(examples) - len(complete),
        mined_with=[r.name for r in retrievers],
        left_out=left_out,
        overlap_dropped=dropped,
        protected={p.name: p.fingerprint for p in kept_out},
        not_compared=[e.full_name for e in entries() if e.full_name not in {p.name for p in kept_out}],
        audit={},
    )
    with atomic_folder(out) as folder:
        files = _write(folder, examples, complete, settings.negatives)
        report.audit = _audit_written(files, kept_out)
        write_bytes(folder / "report.json", msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return report


def _without_overlap(
    examples: list[Example], kept_out: Sequence[Protected], *, drop: bool
) -> tuple[list[Example], dict[str, int]]:
    """Examples that share no text with an evaluation; without `drop`, a single shared text is an error."""
    texts, places = [], list[tuple[int, str, int]]()
    for number, example in enumerate(examples):
        parts = (("query", [example.query]), ("positive", [p.text for p in example.positives]))
        for kind, of_kind in (*parts, ("negative", [n.text for n in example.negatives])):
            texts += of_kind
            places += [(number, kind, i) for i in range(len(of_kind))]
    outside = OutsideTexts("training data", TextColumn.from_texts(texts), [""] * len(texts))
    bad: dict[int, tuple[str, Match]] = {}
    for one in kept_out:
        for match in matches(one, outside):
            bad.setdefault(match.text, (one.name, match))
    if bad and not drop:
        text, (name, match) = next(iter(sorted(bad.items())))
        number, kind, _ = places[text]
        raise DataError(
            f"{len(bad)} texts overlap evaluation tasks, first the {kind} of {examples[number].query_id!r} "
            f"({name}, query {match.query!r}: {match.evidence}); --drop-overlap leaves them out"
        )
    hit = {places[text] for text in bad}
    kept = []
    for number, example in enumerate(examples):
        positives = [p for i, p in enumerate(example.positives) if (number, "positive", i) not in hit]
        negatives = [n for i, n in enumerate(example.negatives) if (number, "negative", i) not in hit]
        if (number, "query", 0) not in hit and positives:
            kept.append(example._replace(positives=positives, negatives=negatives))
    return kept, dict(Counter(kind for _, kind, _ in hit))


def matches(one: Protected, outside: OutsideTexts) -> list[Match]:
    """Outside texts that meet a protected query or positive."""
    return [*query_matches(one.shingled, outside), *positive_matches(one.shingled, outside)]


def _write(folder: Path, examples: list[Example], complete: list[Example], negatives: int) -> list[Path]:
    """`train.jsonl`: a line a query; `sentence-transformers/train.jsonl`: a line a positive, with equal columns."""
    whole = (
        {
            "query_id": e.query_id,
            "query": e.query,
            "positive_ids": [p.id for p in e.positives],
            "positives": [p.text for p in e.positives],
            "negative_ids": [n.id for n in e.negatives],
            "negatives": [n.text for n in e.negatives],
            "mined": [f"{n.by}@{n.rank}" for n in e.negatives],
        }
        for e in examples
    )
    rows = (
        {"anchor": e.query, "positive": p.text}
        | {f"negative_{i}": n.text for i, n in enumerate(e.negatives[:negatives], start=1)}
        for e in complete
        for p in e.positives
    )
    files = [folder / "train.jsonl", folder / "sentence-transformers" / "train.jsonl"]
    for path, records in zip(files, (whole, rows), strict=True):
        write_bytes(path, b"".join(encode_lines(records)))
    return files


def _audit_written(files: list[Path], kept_out: Sequence[Protected]) -> dict[str, int]:
    """Read the files back and look again; anything found is an error of ours, and nothing is left on disk."""
    found = {}
    for path in files:
        if path.stat().st_size:
            outside = read_outside(path)
            for one in kept_out:
                if met := matches(one, outside):
                    raise DataError(f"what was to be written overlaps {one.name}: query {met[0].query!r}")
            found[path.relative_to(files[0].parent).as_posix()] = len(outside.texts)
    return found


def mine(task: Task, retrievers: Sequence[Retriever], settings: MiningSettings) -> tuple[list[Example], dict[str, int]]:
    """Examples of a task, and how many candidates were left out for each reason."""
    if not retrievers:
        raise UsageError("negatives need at least one retriever")
    runs = [r.retrieve(task, depth=settings.skip + settings.depth) for r in retrievers]
    positives = {query.id: task.positives(query.id) for query in task.queries}
    alike = _alike(task, positives, runs, settings.similarity)
    reasons: Counter[str] = Counter()
    examples = []
    for row, query in enumerate(task.queries):
        if not positives[query.id]:
            reasons["query without positive"] += 1
            continue
        against = _rule(task, query, positives[query.id], alike)
        chosen = list[Passage]()
        for doc, by, rank in _in_turn(runs, row, settings.skip):
            if len(chosen) == settings.negatives:
                break
            if reason := against(doc):
                reasons[reason] += 1
            else:
                chosen.append(Passage(task.documents.ids[doc], task.documents.contents[doc], by, rank))
        found = [Passage(task.documents.ids[d], task.documents.contents[d]) for d in positives[query.id]]
        examples.append(Example(query.id, query.text, found, chosen))
    return examples, dict(reasons)


def _rule(task: Task, query: Query, positives: list[int], alike: set[tuple[int, int]]) -> Callable[[int], str]:
    """What speaks against a document as a negative of one query; empty where nothing does."""
    ids, contents = task.documents.ids, task.documents.contents
    articles = {article(ids[p]) for p in positives if article(ids[p]) != ids[p]}
    answer = " ".join((query.answer or "").split())
    long_enough = len(answer) >= 3 and len(answer.split()) <= 8
    named = re.compile(rf"\b{re.escape(answer)}\b", re.IGNORECASE) if long_enough else None

    def against(doc: int) -> str:
        if doc in positives:
            return "positive"
        if any((p, doc) in alike for p in positives):
            return "nearly a positive"
        if article(ids[doc]) in articles:
            return "article of a positive"
        return "names the answer" if named is not None and named.search(contents[doc]) else ""

    return against


def _in_turn(runs: Sequence[Run], row: int, skip: int) -> Iterator[tuple[int, str, int]]:
    """Candidates of all runs by rank, each document once."""
    seen = set[int]()
    for rank in range(skip, max(run.depth for run in runs)):
        for run in runs:
            if rank < run.depth and (doc := int(run.docs[row, rank])) >= 0 and doc not in seen:
                seen.add(doc)
                yield doc, run.name, rank + 1


def _alike(task: Task, positives: dict[str, list[int]], runs: Sequence[Run], similarity: float) -> set[tuple[int, int]]:
    """(positive, candidate) pairs of which one text stands in the other to the share `similarity`."""
    left = np.array(sorted({p for of_query in positives.values() for p in of_query}), dtype=np.int64)
    right = np.unique(np.concatenate([run.docs.ravel() for run in runs])).astype(np.int64)
    right = right[right >= 0]
    contents = task.documents.contents
    found = overlaps(shingle(contents.take(left.tolist())), shingle(contents.take(right.tolist())), least=similarity)
    return set(zip(left[found.left].tolist(), right[found.right].tolist(), strict=True))
