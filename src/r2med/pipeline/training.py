"""Training data with hard negatives that shares nothing with what it will be judged on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import DataError, Task, TextColumn, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..retrieve import Retriever
from ..tasks import TaskRef, entries
from ..tasks.audit import OutsideTexts, read_outside
from ..tasks.audit.outside import Match, positive_matches, query_matches
from ..tasks.audit.texts import Material
from ..tasks.jsonl import encode_lines
from ..tasks.nano.pool import take
from ..tasks.places import locate
from ..text.shingles import WIDTH
from .training_negatives import Example, MiningSettings, mine

SCHEMA = 1


class Protected(NamedTuple):
    """An evaluation task: its queries and the passages that answer them."""

    name: str
    fingerprint: str
    material: Material


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


def protect(refs: Iterable[TaskRef]) -> list[Protected]:
    """Load evaluation tasks down to what training data must not hold."""
    found = []
    for ref in refs:
        task = ref.load()
        rows = sorted({p for _, d, g in task.qrels if g > 0 and (p := task.documents.ids.position(d)) >= 0})
        small = Task(task.name, task.queries, take(task.documents, rows), task.qrels, collection=task.collection)
        found.append(Protected(task.full_name, task.fingerprint, Material.of(small, WIDTH)))
    return found


def evaluation_refs() -> list[TaskRef]:
    """Every catalogue task on this machine: nobody should train on what everybody is measured with."""
    return [TaskRef(e.name, e.collection, e, path, e.split) for e in entries() if (path := locate(e))]


def export_training(
    task: Task,
    out: Path,
    retrievers: Sequence[Retriever],
    protected: Sequence[Protected],
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
    examples, dropped = _without_overlap(examples, protected, drop=drop_overlap)
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
        protected={p.name: p.fingerprint for p in protected},
        not_compared=_not_compared({p.name for p in protected}),
        audit={},
    )
    with atomic_folder(out) as folder:
        files = _write(folder, examples, complete, settings.negatives)
        report.audit = _audit_written(files, protected)
        write_bytes(folder / "report.json", msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return report


def _not_compared(names: set[str]) -> list[str]:
    """Catalogue tasks that the training data may still overlap, for nobody looked."""
    return [e.full_name for e in entries() if e.full_name not in names]


def _without_overlap(
    examples: list[Example], protected: Sequence[Protected], *, drop: bool
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
    for one in protected:
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
    return [*query_matches(one.material, outside), *positive_matches(one.material, outside)]


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


def _audit_written(files: list[Path], protected: Sequence[Protected]) -> dict[str, int]:
    """Read the files back and look again; anything found is an error of ours, and nothing is left on disk."""
    found = {}
    for path in files:
        if path.stat().st_size:
            outside = read_outside(path)
            for one in protected:
                if met := matches(one, outside):
                    raise DataError(f"what was to be written overlaps {one.name}: query {met[0].query!r}")
            found[path.relative_to(files[0].parent).as_posix()] = len(outside.texts)
    return found
