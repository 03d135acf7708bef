"""The artefact audit: whether documents can be told relevant without reading the query.

A benchmark whose positives differ from its negatives in style, length or layout rewards systems for register instead
of retrieval. This audit measures how far that goes, and gives a verdict on each check against a stated threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..core import DataError, IdTable, Run, Task, TextColumn
from ..core.options import Options
from ..core.queries import Queries
from ..retrieve import Retriever, get_retriever
from ..retrieve.contract import Index
from ..scoring import MAIN, score
from ..scoring.compare import compare
from ..scoring.evaluation import ScoreSet, TaskScores, Weights
from ..scoring.intervals import Bootstrap, Estimate, Settings
from ..scoring.measures import Float64
from ..tasks.audit.style import WORDS, lengths_of
from ..text.duplicates import THRESHOLD, WIDTH
from .artefact_checks import (
    FOLDS,
    PENALTY,
    TWIN_COSINE,
    Classified,
    Negatives,
    Place,
    TwinPair,
    classify,
    find_twins,
    order_followed,
    quoting,
)
from .artefact_report import (
    CHANCE,
    FEWEST_QUERIES,
    MOST_AUC,
    SYSTEM_THRESHOLDS,
    THRESHOLDS,
    AnswerCeiling,
    ArtefactReport,
    Check,
    Finding,
    QuotingRates,
    Separation,
    Sorting,
    TaskArtefacts,
    decide,
)
from .calibration import calibrate

DEPTH = 20
"""Of BM25's list: what a reader meets, and what a reranker is given."""
RETRIEVER = "bm25"
POOLED = 0.9
"""Share of BM25's list that is judged from which its documents need no check of their own: judged ones are those."""
RESAMPLES = 2_000
LISTED = 100
"""Twins that a report spells out."""
By = Literal["word length", "length"]
_SORTINGS: tuple[tuple[By, Literal["longest", "shortest"]], ...] = (
    ("word length", "longest"),
    ("word length", "shortest"),
    ("length", "longest"),
    ("length", "shortest"),
)


def artefacts(tasks: Sequence[Task], *, seed: int = 0, options: Options | None = None) -> ArtefactReport:
    """Audit tasks for artefacts; one seed gives the same figures."""
    if not tasks:
        raise DataError("there is no task to audit")
    bm25, settings = get_retriever(RETRIEVER, options), Settings(resamples=RESAMPLES, seed=seed)
    looked_at = [_look_at(task, bm25, seed) for task in tasks]
    found = _Findings(len(tasks))
    separations = _separations(looked_at, found, settings)
    sortings = _sortings(looked_at, found, settings)
    answers = _answers(looked_at, found, settings)
    quoted = _quoting(looked_at, found, settings)
    twins = find_twins(tasks)
    calibration = calibrate(tasks, seed=seed)
    _add_twins(tasks, twins, found)
    _add_order(tasks, found)
    return ArtefactReport(
        schema=1,
        settings={
            "seed": seed, "level": settings.level, "resamples": RESAMPLES, "retriever": RETRIEVER, "depth": DEPTH,
            "folds": FOLDS, "words": WORDS, "penalty": PENALTY, "near_copy": THRESHOLD, "run_width": WIDTH,
            "twin_cosine": TWIN_COSINE, "fewest_queries": FEWEST_QUERIES,
        },
        thresholds=THRESHOLDS | SYSTEM_THRESHOLDS if calibration else dict(THRESHOLDS),
        tasks=[
            TaskArtefacts(
                task=task.full_name,
                fingerprint=task.fingerprint,
                queries=len(task.queries),
                documents=len(task.documents),
                bm25_ndcg_at_10=float(looked_at[i].scores[0].mean()),
                separations=separations[i],
                sortings=sortings[i],
                answers=answers.get(i),
                quoting=quoted.get(i),
                twins=[pair.twins for pair in twins if pair.first.task == pair.second.task == i][:LISTED],
                findings=found.of_task[i],
            )
            for i, task in enumerate(tasks)
        ],
        overall=found.overall,
        twins_across=[pair.twins for pair in twins if pair.first.task != pair.second.task][:LISTED],
        calibration=calibration,
    )  # fmt: skip


class _Looked(NamedTuple):
    """What was measured on one task, before intervals and verdicts."""

    scores: Float64  # nDCG@10 of BM25 and of its sorted lists: a row each, a column a judged query
    classified: dict[Negatives, Classified | int]  # or the number of queries, where they cannot be divided
    answered: Float64 | None  # nDCG@10 with the question and with the answer, of queries that have one
    quoted: Float64 | None  # rates and shares of positives and of negatives, of queries that have both


def _look_at(task: Task, bm25: Retriever, seed: int) -> _Looked:
    if not task.qrels.positives:
        raise DataError(f"{task.full_name} has no positive judgment: there is nothing to tell apart")
    index = bm25.prepare(task)
    run = index.search(Queries.of(task), DEPTH)
    positives = [task.positives(query.id) for query in task.queries]
    judged = [_judged_negatives(task, query.id) for query in task.queries]
    # Both classes from one list: positives that BM25 does not find would show what BM25 prefers.
    listed = list(zip(run.docs.tolist(), map(set, positives), strict=True))
    found = [[at for at in row if at in of_query] for row, of_query in listed]
    others = [[at for at in row if at >= 0 and at not in of_query] for row, of_query in listed]
    classified: dict[Negatives, Classified | int] = {}
    kinds: dict[Negatives, tuple[list[list[int]], list[list[int]]]] = {"judged": (positives, judged)}
    known = sum(len(set(of_query) & set(negative)) for of_query, negative in zip(others, judged, strict=True))
    if known < POOLED * sum(map(len, others)):
        kinds["bm25"] = (found, others)
    for kind, (relevant, negatives) in kinds.items():
        usable = sum(bool(p and n) for p, n in zip(relevant, negatives, strict=True))
        if usable:
            classified[kind] = classify(task, kind, relevant, negatives, seed=seed) or usable
    scores = [_ndcg(run, task), *(_ndcg(ordered, task) for ordered in _sorted_runs(task, run))]
    answered = _with_answers(task, index, scores[0])
    return _Looked(np.stack(scores), classified, answered, _quoted(task, positives, judged))


def _judged_negatives(task: Task, query_id: str) -> list[int]:
    position = task.documents.ids.position
    return [at for doc_id, grade in task.qrels.of(query_id).items() if grade <= 0 and (at := position(doc_id)) >= 0]


def _ndcg(run: Run, task: Task) -> Float64:
    """nDCG@10 of every judged query."""
    return score(run, task, [MAIN]).per_query[MAIN]


def _sorted_runs(task: Task, run: Run) -> list[Run]:
    """BM25's first documents by mean word length and by length, either way; equal ones stay in BM25's order."""
    used = np.unique(run.docs[run.docs >= 0])
    words, word_length = lengths_of(task.documents.contents.take(used.tolist()))
    values = {"length": words, "word length": word_length}
    runs = []
    for by, first in _SORTINGS:
        key = np.zeros(len(task.documents))
        key[used] = values[by] if first == "longest" else -values[by]
        order = np.argsort(np.where(run.docs >= 0, -key[run.docs], np.inf), axis=1, kind="stable")
        docs = np.take_along_axis(run.docs, order, axis=1)
        falling = np.where(docs >= 0, np.arange(docs.shape[1], 0, -1), -np.inf).astype(np.float32)
        runs.append(Run(run.query_ids, run.doc_ids, docs, falling, name=f"{run.name} by {by}, {first} first"))
    return runs


def _with_answers(task: Task, index: Index, asked: Float64) -> Float64 | None:
    """nDCG@10 with the question and with the answer, of the judged queries that have an answer."""
    answers = {query.id: query.answer for query in task.queries if query.answer}
    kept = np.array([query_id in answers for query_id in task.qrels.query_ids], dtype=bool)
    if not kept.any():
        return None
    run = index.search(Queries(IdTable(answers), TextColumn.from_texts(answers.values())), DEPTH)
    return np.stack((asked, _ndcg(run, task)))[:, kept]


def _quoted(task: Task, positives: list[list[int]], judged: list[list[int]]) -> Float64 | None:
    """Rates and shares of word runs that documents share with their query, where it has judged negatives."""
    both = [bool(p and n) for p, n in zip(positives, judged, strict=True)]
    if not any(both):
        return None
    found = [quoting(task, [of if keep else [] for of, keep in zip(s, both, strict=True)]) for s in (positives, judged)]
    return np.stack([found[0].rate, found[1].rate, found[0].share, found[1].share])


class _Findings:
    """Collects the findings of tasks and those over all of them."""

    def __init__(self, tasks: int) -> None:
        self.of_task: list[list[Finding]] = [[] for _ in range(tasks)]
        self.overall: list[Finding] = []

    def add(
        self, check: Check, of_task: Mapping[int, Estimate], overall: Estimate, *, chance: float | None = None,
        gain: bool = False, bounded: bool = True,
    ) -> None:  # fmt: skip
        """Judge a figure of tasks, and the same over all tasks where there are several."""
        for number, estimate in of_task.items():
            self.of_task[number].append(_finding(check, estimate, chance, gain, bounded))
        if len(self.of_task) > 1 and of_task:
            self.overall.append(_finding(check, overall, chance, gain, bounded))


def _finding(check: Check, of: Estimate, chance: float | None, gain: bool, bounded: bool) -> Finding:
    most = THRESHOLDS[check].most
    assert most is not None, "what is measured on tasks has an upper limit"
    decision = decide(of, most, queries=of.n, chance=chance, gain=gain)
    return Finding(
        check=check,
        verdict=decision.verdict,
        value=of.value,
        low=of.low if bounded else None,
        high=of.high if bounded else None,
        queries=of.n,
        threshold=most,
        why=decision.why,
    )


def _estimates(matrices: Sequence[Float64], queries: int, settings: Settings) -> list[Estimate]:
    """Means over tasks of each row, with intervals over the columns of each task."""
    bounds = Bootstrap(matrices, settings).scores(Weights.of(matrices).macro)
    rows = zip(*(column.tolist() for column in bounds), strict=True)
    return [Estimate(value, max(low, 0.0), min(high, 1.0), queries) for value, low, high in rows]


class _Gains(NamedTuple):
    """What rows of scores gain over the first row: an entry a row, for each task and over all."""

    of_task: list[list[Estimate]]
    overall: list[Estimate]


def _gains(matrices: Sequence[Float64], settings: Settings) -> _Gains:
    """Paired differences as `r2med compare` computes them."""
    systems = tuple(map(str, range(len(matrices[0]))))
    tasks = [TaskScores(str(i), tuple(map(str, range(m.shape[1]))), m) for i, m in enumerate(matrices)]
    compared = compare(ScoreSet(systems, tuple(tasks), len(tasks)), settings)
    with_first = compared.pairs[: len(systems) - 1]
    of_task = [[pair.tasks[task.name] for pair in with_first] for task in tasks]
    return _Gains(
        [[Estimate(d.difference, d.low, d.high, d.n) for d in found] for found in of_task],
        [Estimate(p.macro.difference, p.macro.low, p.macro.high, p.macro.n) for p in with_first],
    )


def _separations(looked_at: list[_Looked], found: _Findings, settings: Settings) -> list[list[Separation]]:
    """The classifiers of every task, judged."""
    out: list[list[Separation]] = [[] for _ in looked_at]
    for kind, check in _CLASSIFIERS.items():
        made: dict[int, Classified] = {}
        for number, looked in enumerate(looked_at):
            classified = looked.classified.get(kind)
            if isinstance(classified, Classified):
                made[number] = classified
                out[number].append(_separation(classified, settings))
            elif classified is not None:
                found.of_task[number].append(_undivided(check, classified))
        if made:
            whole = [classified.values[:1] for classified in made.values()]
            (overall,) = _estimates(whole, sum(c.queries for c in made.values()), settings)
            of_task = {number: out[number][-1].auc for number in made}
            found.add(check, of_task, overall, chance=CHANCE)
    return out


_CLASSIFIERS: dict[Negatives, Check] = {"judged": "classifier-judged", "bm25": "classifier-bm25"}


def _separation(made: Classified, settings: Settings) -> Separation:
    auc, *parts = _estimates([made.values], made.queries, settings)
    return Separation(
        negatives_are=made.negatives_are,
        queries=made.queries,
        groups=made.groups,
        folds=made.folds,
        positives=made.positives,
        negatives=made.negatives,
        auc=auc,
        pooled=Estimate(*made.pooled, made.queries),
        parts=dict(zip(made.parts[1:], parts, strict=True)),
        words_of_relevant=made.words_of_relevant,
        words_of_others=made.words_of_others,
    )


def _undivided(check: Check, queries: int) -> Finding:
    return Finding(
        check=check,
        verdict="cannot be told",
        value=None,
        low=None,
        high=None,
        queries=queries,
        threshold=MOST_AUC,
        why=f"{queries} queries that cannot be divided into a part to train on and a part to test",
    )


def _sortings(looked_at: list[_Looked], found: _Findings, settings: Settings) -> list[list[Sorting]]:
    """BM25's lists in orders that do not read the query; of two directions, the better one is judged."""
    gains = _gains([looked.scores for looked in looked_at], settings)
    checks: dict[By, Check] = {"word length": "sort-by-word-length", "length": "sort-by-length"}
    for by, check in checks.items():
        rows = [row for row, (name, _) in enumerate(_SORTINGS) if name == by]

        def better(of: list[Estimate], rows: list[int] = rows) -> Estimate:
            return max((of[row] for row in rows), key=lambda gain: (gain.low, gain.value))

        of_task = {number: better(of) for number, of in enumerate(gains.of_task)}
        found.add(check, of_task, better(gains.overall), gain=True)
    return [
        [
            Sorting(by=by, first=first, ndcg_at_10=float(looked.scores[row + 1].mean()), gain=of[row])
            for row, (by, first) in enumerate(_SORTINGS)
        ]
        for looked, of in zip(looked_at, gains.of_task, strict=True)
    ]


def _answers(looked_at: list[_Looked], found: _Findings, settings: Settings) -> dict[int, AnswerCeiling]:
    """The ceiling of naming the answer, where tasks have answers."""
    values = {number: looked.answered for number, looked in enumerate(looked_at) if looked.answered is not None}
    if not values:
        return {}
    out = {}
    for number, (asked, answered) in values.items():
        (ceiling,) = _estimates([answered[None]], len(answered), settings)
        out[number] = AnswerCeiling(ndcg_at_10=ceiling, with_question=float(asked.mean()))
    matrices = [both[1:] for both in values.values()]
    (overall,) = _estimates(matrices, sum(m.shape[1] for m in matrices), settings)
    found.add("answer-as-query", {number: of.ndcg_at_10 for number, of in out.items()}, overall)
    return out


def _quoting(looked_at: list[_Looked], found: _Findings, settings: Settings) -> dict[int, QuotingRates]:
    """How much more often judged negatives quote their query than positives do."""
    values = {number: looked.quoted for number, looked in enumerate(looked_at) if looked.quoted is not None}
    if not values:
        return {}
    gains = _gains([of[:2] for of in values.values()], settings)
    of_task = {number: of[0] for number, of in zip(values, gains.of_task, strict=True)}
    found.add("quoting", of_task, gains.overall[0], gain=True)
    out = {}
    for number, of in values.items():
        positives_rate, negatives_rate, positives_share, negatives_share = of.mean(axis=1).tolist()
        out[number] = QuotingRates(
            width=WIDTH,
            positives_rate=positives_rate,
            negatives_rate=negatives_rate,
            positives_share=positives_share,
            negatives_share=negatives_share,
            difference=of_task[number],
        )
    return out


def _add_twins(tasks: Sequence[Task], twins: list[TwinPair], found: _Findings) -> None:
    """The share of queries that have a twin in their task, and anywhere."""
    within: list[set[Place]] = [set() for _ in tasks]
    for first, second, _ in twins:
        if first.task == second.task:
            within[first.task] |= {first, second}
    anywhere = {place for first, second, _ in twins for place in (first, second)}
    sizes = [len(task.queries) for task in tasks]
    of_task = {i: _share(len(of), size) for i, (of, size) in enumerate(zip(within, sizes, strict=True))}
    found.add("twins", of_task, _share(len(anywhere), sum(sizes)), bounded=False)


def _add_order(tasks: Sequence[Task], found: _Findings) -> None:
    """Whether relevant documents lie in the order of their queries."""
    of_task = {number: order for number, task in enumerate(tasks) if (order := order_followed([task])) is not None}
    if of_task and (overall := order_followed([tasks[number] for number in of_task])) is not None:
        found.add("order", of_task, overall, chance=0.0)


def _share(count: int, queries: int) -> Estimate:
    """A share that is counted, not estimated."""
    return Estimate(count / queries, count / queries, count / queries, queries)
