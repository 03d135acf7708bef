"""What is judged: the tops of unlike systems, a random sample, and copies joined into groups.

Each query's pool depends on that query alone: another query changes neither its passages nor its sample. A group is a
passage and the documents of the corpus that are its exact or near copies; the best-ranked of them stands for all, so
that every copy is compared with the very text that is judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from ..core import DataError, Documents, Qrels, Query, Run, Task, UsageError
from ..core.files import exists
from ..core.untrusted import file_name
from ..pipeline import SystemSpec
from ..pipeline.run import rank_systems
from ..pipeline.system import System as RankingSystem
from ..retrieve import DEPTH, retrievers
from ..retrieve.stored import check_result, load_candidates
from ..tasks.corpus import load_corpus
from ..text.duplicates import Pairs, find_copies, groups, jaccard, near_duplicates, shingle
from . import Pooled, Project, Settings, System, create_project
from .journal import now

KEPT = 100  # ranks of each system that the project keeps, or the pool's depth where that is more


class SystemShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a system brought into the pool."""

    name: str
    pairs: int
    alone: int  # pairs that no other system found


class PoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was pooled."""

    project: str
    name: str
    queries: int
    documents: int
    passages: int  # different texts to read
    pairs: int  # of a query and a passage: judgments that each judge gives
    sampled: int
    copies: int  # documents that get the grade of a passage
    known: int  # pairs that came with a judgment
    judgments_left_out: int  # that came with the data, of other queries or of documents that are not in the corpus
    empty_queries: list[str]  # for which there is nothing to judge
    systems: list[SystemShare]


class Copies:
    """Which documents of a corpus are exact or near copies of a document."""

    def __init__(self, documents: Documents, near: float) -> None:
        self._near, self._shingles = near, shingle(documents.contents)
        alike = near_duplicates(self._shingles, near)
        position = documents.ids.position
        self._first = {position(copy): position(first) for copy, first in find_copies(documents).items()}
        exact = np.array(list(self._first.items()), dtype=np.int64).reshape(-1, 2)
        pairs = Pairs(
            np.concatenate((alike.first, exact[:, 1])),
            np.concatenate((alike.second, exact[:, 0])),
            np.concatenate((alike.similarity, np.ones(len(exact)))),
        )
        self._groups = {member: group for group in groups(pairs, len(documents)) for member in group}
        self._found: dict[int, list[int]] = {}

    def of(self, document: int) -> list[int]:
        """The copies of a document, by position; two copies of it need not be copies of each other."""
        if document not in self._groups:
            return []
        if document not in self._found:
            others = np.array([other for other in self._groups[document] if other != document], dtype=np.int64)
            alike = jaccard(self._shingles, np.full(len(others), document), others) >= self._near
            first = self._first.get(document)
            self._found[document] = [
                other
                for other, near in zip(others.tolist(), alike.tolist(), strict=True)
                if near or (first is not None and self._first.get(other) == first)
            ]
        return self._found[document]


def build_pool(task: Task, runs: Mapping[str, Run], settings: Settings) -> list[Pooled]:
    """The pool of every query of a task; judgments of the task are kept as known."""
    copies = Copies(task.documents, settings.near)
    ranked = {name: run.on(task.documents.ids, query_ids=task.query_ids) for name, run in runs.items()}
    pool: list[Pooled] = []
    for row, query in enumerate(task.queries):
        tops = {name: run.docs[row, : settings.depth].tolist() for name, run in ranked.items()}
        of_query = _QueryPool(query, tops, task, copies)
        of_query.add(of_query.by_rank())
        if settings.pool_known:
            of_query.add(task.documents.ids.position(doc_id) for doc_id in of_query.known)
        if settings.sample:
            shuffled = _shuffled(len(task.documents), settings.seed, query.id)
            of_query.add(shuffled, most=settings.sample, sampled=True)
        pool += of_query.groups
    return pool


class _QueryPool:
    """The groups of one query: a document of the corpus is in one of them at most."""

    def __init__(self, query: Query, tops: Mapping[str, Sequence[int]], task: Task, copies: Copies) -> None:
        self.query, self.ids, self.copies, self.systems = query, task.documents.ids, copies, list(tops)
        self.known = task.qrels.of(query.id)
        self.ranks: dict[int, dict[str, int]] = {}
        for name, documents in tops.items():
            for rank, document in enumerate(documents, start=1):
                if document >= 0:
                    self.ranks.setdefault(document, {})[name] = rank
        self.groups: list[Pooled] = []
        self.taken: set[int] = set()

    def by_rank(self) -> list[int]:
        """What the systems found, by the best rank, then by how many found it."""
        return sorted(self.ranks, key=lambda d: (min(self.ranks[d].values()), -len(self.ranks[d]), d))

    def add(self, documents: Iterable[int], *, most: int | None = None, sampled: bool = False) -> None:
        """A group for each document that is in none yet, `most` of them; documents that are not there have no place."""
        free = (document for document in documents if document >= 0 and document not in self.taken)
        for document in islice(free, most):
            self.groups.append(self._group(document, sampled=sampled))

    def _group(self, document: int, *, sampled: bool) -> Pooled:
        alike = [other for other in self.copies.of(document) if other not in self.taken]
        members = [document, *alike]
        self.taken.update(members)
        best: dict[str, int] = {}
        for member in members:
            for name, rank in self.ranks.get(member, {}).items():
                best[name] = min(rank, best.get(name, rank))
        ids, known = self.ids, self.known
        grades = [known[ids[member]] for member in members if ids[member] in known]
        return Pooled(
            query_id=self.query.id,
            doc_id=ids[document],
            copies=tuple(ids[other] for other in alike),
            systems={name: best[name] for name in self.systems if name in best},
            sampled=sampled,
            known=known.get(ids[document], max(grades, default=None)),
        )


def _shuffled(documents: int, seed: int, query_id: str) -> list[int]:
    """All documents in an order that depends on the seed and this query only."""
    key = hashlib.blake2b(f"{seed}\0{query_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    order: list[int] = rng.permutation(documents).tolist()
    return order


def check_new(out: Path) -> None:
    """Refuse a folder that holds something, before any work is done for it."""
    if exists(out / "project.json"):
        raise UsageError(f"{out} is a judging project already; its pool stays as it is: pool into a new folder")
    if exists(out) and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists and is not an empty folder")


def check_ids(kind: str, ids: Iterable[str]) -> None:
    """Refuse ids that the files of a ranking cannot carry, before anything is ranked."""
    for identifier in ids:
        if not identifier or identifier.split() != [identifier]:
            raise DataError(f"{kind} id {identifier!r} is empty or holds white space, which TREC files cannot carry")


def corpus_with_queries(source: str, queries: Sequence[Query] | None) -> tuple[Task, Task]:
    """The corpus as it lies there, and the same with the queries that are asked.

    A judgment that came with the data counts only for the query it was given for: one of the same id and the same text.
    """
    corpus = load_corpus(source)
    asked = tuple(corpus.queries if queries is None else queries)
    if not asked:
        raise UsageError(f"{source} has no queries: name a file of them with --queries")
    same = {query.id for query in asked if (own := corpus.query(query.id)) is not None and own.text == query.text}
    if asked == corpus.queries:
        return corpus, corpus
    kept = Qrels.from_judgments(judgment for judgment in corpus.qrels if judgment.query_id in same)
    return corpus, replace(corpus, queries=asked, qrels=kept, candidates=None, published=None)


def stored_runs(paths: Iterable[Path], corpus: Task, task: Task) -> dict[str, Run]:
    """Rankings from files, under the names they have as systems; queries that are not asked are left out."""
    found: dict[str, Run] = {}
    for path in paths:
        if corpus.queries and len(corpus.qrels):
            check_result(path, corpus)
        run = load_candidates(path, task, other_queries="drop")
        if not run.lengths().any():
            raise DataError("holds nothing for any query of this project", path=path)
        found[str(SystemSpec((retrievers.parse(f"run:{path}"),)))] = run
    return found


def make_project(
    out: Path,
    settings: Settings,
    *,
    corpus: Task,
    task: Task,
    systems: Sequence[RankingSystem] = (),
    runs: Sequence[Path] = (),
    notify: Callable[[str], None] = lambda what: None,
) -> PoolReport:
    """Rank, pool and write a project; `settings` say what is asked, the rest of them is filled in here."""
    check_new(out)
    check_ids("query", task.query_ids)
    check_ids("document", task.documents.ids)
    if not systems and not runs:
        raise UsageError("a pool needs at least one system or run")
    ranked = stored_runs(runs, corpus, task)
    made = rank_systems(task, systems, depth=max(DEPTH, settings.depth), notify=notify)
    if twice := next((name for name in made if name in ranked), None):
        raise UsageError(f"{twice} is given twice")
    ranked |= made
    notify("looking for copies")
    settings = msgspec.structs.replace(
        settings,
        systems=tuple(System(name=name, run=f"{file_name(name)}.trec") for name in ranked),
        corpus_fingerprint=task.documents.fingerprint,
        documents=len(task.documents),
        created=now(),
    )
    pool = build_pool(task, ranked, settings)
    if not pool:
        raise UsageError("no system found anything for any query: there is nothing to judge")
    judged = {pooled.doc_id for pooled in pool}
    project = create_project(
        out,
        settings,
        queries=task.queries,
        passages=(document for document in task.documents if document.id in judged),
        pool=pool,
        runs={name: run.top(max(KEPT, settings.depth)) for name, run in ranked.items()},
    )
    known = sum(doc_id in task.documents.ids for _, doc_id, _ in task.qrels)
    return _report(project, pool, left_out=len(corpus.qrels) - known)


def _report(project: Project, pool: Sequence[Pooled], *, left_out: int) -> PoolReport:
    return PoolReport(
        project=str(project.folder),
        name=project.settings.name,
        queries=len(project.queries),
        documents=project.settings.documents,
        passages=len(project.passages),
        pairs=len(pool),
        sampled=sum(pooled.sampled for pooled in pool),
        copies=sum(len(pooled.copies) for pooled in pool),
        known=sum(pooled.known is not None for pooled in pool),
        judgments_left_out=left_out,
        empty_queries=[query_id for query_id, pooled in project.pool.items() if not pooled],
        systems=[
            SystemShare(
                name=system.name,
                pairs=sum(system.name in pooled.systems for pooled in pool),
                alone=sum(list(pooled.systems) == [system.name] for pooled in pool),
            )
            for system in project.settings.systems
        ],
    )
