"""Searching a task for a typed text, with any system that runs on this machine alone.

What was prepared is kept within a bound on memory, so that the next text is answered at once. Nothing typed is kept:
vectors and scores of queries go into no cache, and no model is asked that needs a key, a server or a payment.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, get_args

from ..core import Query, R2MedError, Run, Task, UsageError
from ..core.options import Options, Parameter, show_size
from ..core.queries import Explanation, Queries, Ranked, Tried, Typed
from ..core.spec import Content, Spec
from ..expand import Expansion, Expansions, queries_for
from ..expand.contract import INSTEAD, JOINED
from ..fuse import fusions
from ..models import listing
from ..rerank import rerankers
from ..retrieve import DEPTH, Explains, Index, Retriever, get_retriever, retrievers
from ..text import get_analyzer
from .system import Builder, System, SystemSpec

MEMORY = 1 << 30
"""Bytes of texts and indexes that are kept."""
PER_TEXT = 4  # An index takes up to so many times the bytes of its texts, texts included.
ENCODED = 2_000
"""Documents that a model may still have to encode before the first answer: a few minutes on a laptop."""
EXPLAINED = 10
LONGEST_NAME = 300
LOOK_EVERY = 30.0  # Seconds.
RETRIEVERS = ("lexical", "dense", "sparse", "late-interaction")
ON_MODELS = ("maxsim", "neighbours")
"""Rerankers that stand on a model which they name."""
TYPED = "typed"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_DEPTH = re.compile(r"@\d+$")
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def names_here() -> dict[str, str]:
    """Models that run on this machine without a key, a server or a payment: name to kind."""
    return {row.name: row.kind for row in listing() if row.ready and (row.kind == "lexical" or row.path)}


def check_spec(text: str, here: Mapping[str, str]) -> SystemSpec:
    """The system of a text from a page; one that names a file, a module or a model that is not `here` is refused.

    Names are looked at before the text is parsed: parsing looks for files and folders of that name.
    """
    shown = ", ".join(name for name, kind in here.items() if kind in RETRIEVERS)
    if len(text) > LONGEST_NAME:
        raise UsageError(f"the name of a system has at most {LONGEST_NAME} characters")
    for segment in text.split("+"):
        head, _, rest = _DEPTH.sub("", segment.strip()).partition(":")
        name = _without_fusion(head, here)
        if not _NAME.fullmatch(name) or (here.get(name, "chat") == "chat" and name not in ON_MODELS):
            raise UsageError(
                f"{name!r} cannot be tried here: systems are made of models that run on this machine alone ({shown})"
            )
        if head == name:
            _check_parameters(name, rest, here)
    spec = SystemSpec.parse(text)
    if any(part is not None and part.options for part in (*spec.retrievers, spec.reranker)):
        raise UsageError("how a model is run (device, threads …) is not chosen from a page")
    return spec


def _without_fusion(head: str, here: Mapping[str, str]) -> str:
    """`bge-small` of `bge-small.rrf`."""
    name, _, last = head.rpartition(".")
    return name if head not in here and last in {entry.name for entry in fusions} else head


def _check_parameters(name: str, rest: str, here: Mapping[str, str]) -> None:
    """Refuse parameters that name a file, and models that are not here."""
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        declared = _declared(name, key)
        if not equals or not declared or any(map(_names_file, declared)):
            raise UsageError(f"{part!r} of {name} cannot be set from a page")
        if key == "model" and value not in here:
            raise UsageError(f"{value!r} cannot be tried here: it is not on this machine")


def _declared(name: str, key: str) -> list[Parameter]:
    """A parameter as a retriever and a reranker of this name declare it."""
    found = []
    for registry in (retrievers, rerankers):
        with suppress(UsageError):  # a cross-encoder is no retriever
            entry = registry.find(name)
            found += [entry.parameters[key]] if entry is not None and key in entry.parameters else []
    return found


def _names_file(parameter: Parameter) -> bool:
    kinds = {parameter.type, *get_args(parameter.type)}
    return Content in kinds | {inner for kind in kinds for inner in get_args(kind)}


@dataclass
class _Workspace:
    """A task with what was prepared on it."""

    task: Task
    indexes: dict[Spec, Index] = field(default_factory=dict)

    @cached_property
    def query_ids(self) -> dict[str, str]:
        """The ids of the task's own queries by their texts; of two with one text, the first."""
        return {_folded(query.text): query.id for query in reversed(self.task.queries)}

    @property
    def nbytes(self) -> int:
        return self.task.documents.nbytes + sum(getattr(index, "nbytes", 0) for index in self.indexes.values())


class TypedSearch:
    """Searches for typed texts. One thread at a time may search; any may ask which systems there are."""

    def __init__(self, *, memory: int = MEMORY, options: Options | None = None) -> None:
        self.memory = memory
        self.doing = ""  # what it is busy with, for people who wait
        private = {"keep_queries": False, "on_progress": self._progress}
        self._builder = Builder((options or Options()).changed(private))
        self._kept: OrderedDict[tuple[str, ...], _Workspace] = OrderedDict()
        self._preparing = ""
        self._looked: tuple[float, Mapping[str, str]] = (-LOOK_EVERY, {})
        self._systems: dict[str, System] = {}
        self._tryable: dict[str, bool] = {}

    def systems(self, names: Sequence[str] = ()) -> list[str]:
        """Those of some systems that can be tried here, then every retriever that is here."""
        here = self._here()
        found = [name for name in names if self._runs_here(name)]
        return list(dict.fromkeys([*found, *(name for name, kind in here.items() if kind in RETRIEVERS)]))

    def _here(self) -> Mapping[str, str]:
        """The models that are here, looked for again once in a while."""
        now = time.monotonic()
        if now - self._looked[0] > LOOK_EVERY:
            self._looked = (now, names_here())
            self._systems.clear()
            self._tryable.clear()
        return self._looked[1]

    def _runs_here(self, text: str) -> bool:
        found = self._tryable.get(text)
        if found is None:
            found = self._tryable[text] = _can_be_tried(text, self._here())
        return found

    def _system(self, text: str) -> System:
        here = self._here()
        found = self._systems.get(text)
        if found is None:
            found = self._systems[text] = self._builder.build(check_spec(text, here))
        return found

    @property
    def nbytes(self) -> int:
        """Memory that is kept."""
        return sum(workspace.nbytes for workspace in self._kept.values())

    def search(self, task: Task, systems: Sequence[str], typed: Typed) -> list[Tried]:
        """The rankings of a text by some systems, alone and with its expansion."""
        if not typed.text.strip():
            raise UsageError("the query is empty")
        made = [self._system(system) for system in systems]
        workspace = self._workspace(task)
        for system in made:
            for retriever in system.retrievers:
                self._prepare(workspace, retriever)
        self.doing = "searching"
        query = Query(workspace.query_ids.get(_folded(typed.text), TYPED), typed.text)
        one = replace(workspace.task, queries=(query,))
        known: dict[tuple[Spec, str], Run] = {}
        tried = [_Search(workspace, system, one, typed, known).tried() for system in made]
        self._let_go(workspace)
        self.doing = ""
        return tried

    def _workspace(self, task: Task) -> _Workspace:
        size = task.documents.nbytes * PER_TEXT
        if size > self.memory:
            wanted, room = show_size(size), show_size(self.memory)
            raise UsageError(f"{task.full_name} is too large to be searched here: about {wanted} of memory, not {room}")
        key = (task.fingerprint, task.full_name, task.family)  # instructions are by task and by family
        if key not in self._kept:
            # The texts are shared with whoever has them; what is made from them goes with the workspace.
            self._kept[key] = _Workspace(replace(task, documents=task.documents.apart()))
        self._kept.move_to_end(key)
        return self._kept[key]

    def _prepare(self, workspace: _Workspace, retriever: Retriever) -> None:
        if retriever.spec in workspace.indexes:
            return
        task = workspace.task
        work = retriever.estimate(task, "document")
        encodes = retriever.prepares == "encode documents"
        missing = work.missing if work is not None else len(task.documents) if encodes else 0
        if missing > ENCODED:
            raise UsageError(
                f"{retriever.name} would first have to encode {missing:,} documents of {task.full_name}: "
                f"r2med run --tasks {task.full_name} --retriever {retriever.name} does that once"
            )
        self.doing = self._preparing = f"{retriever.name} prepares {task.full_name}"
        workspace.indexes[retriever.spec] = retriever.prepare(task)

    def _progress(self, done: int, total: int) -> None:
        self.doing = f"{self._preparing}: {done:,} of {total:,} texts"

    def _let_go(self, workspace: _Workspace) -> None:
        """Drop what was used longest ago; a task that is too large with all its indexes starts anew next time."""
        while self.nbytes > self.memory and len(self._kept) > 1:
            self._kept.popitem(last=False)
        if workspace.nbytes > self.memory:
            self._kept.clear()


def _can_be_tried(system: str, here: Mapping[str, str]) -> bool:
    try:
        check_spec(system, here)
    except R2MedError:
        return False
    return True


def _folded(text: str) -> str:
    """A text by which it is known again, however it was broken into lines."""
    return " ".join(text.split())


@dataclass
class _Search:
    """One system on one query."""

    workspace: _Workspace
    system: System
    task: Task  # with the typed query as its only one
    typed: Typed
    known: dict[tuple[Spec, str], Run]
    """What retrievers found for this text already: systems share members."""

    def tried(self) -> Tried:
        """The ranking of the query alone, and with its expansion."""
        alone = self._ranked([Queries.of(self.task)] * len(self.system.retrievers))
        if not self.typed.expansion.strip():
            return Tried(self.system.name, alone)
        query = self.task.queries[0]
        made = Expansion(query_id=query.id, original=query.text, texts=(self.typed.expansion,))
        policies = INSTEAD if self.typed.instead else JOINED
        expansions = Expansions(TYPED, {}, {query.id: made}, policies=policies)
        pairs = [queries_for(retriever, self.task, expansions) for retriever in self.system.retrievers]
        names = {r.name: policy.name for r, (_, policy) in zip(self.system.retrievers, pairs, strict=True)}
        return Tried(self.system.name, alone, self._ranked([queries for queries, _ in pairs]), names)

    def _ranked(self, queries: list[Queries]) -> Ranked:
        system = self.system
        runs = [self._run(r, q) for r, q in zip(system.retrievers, queries, strict=True)]
        first = system.fusion.fuse(runs, self.task, DEPTH, system.spec.first_stage) if system.fusion else runs[0]
        run = first
        for reranking in system.rerankings:
            run = reranking.reranker.rerank(self.task, run, reranking.depth, rest=reranking.rest)
        documents = [int(document) for document in run.docs[0][:EXPLAINED] if document >= 0]
        if system.rerankings:
            explained = self._of_reranker(first, documents)
        elif system.fusion:
            explained = system.fusion.explain(runs, documents)
        else:
            explained = self._of_retriever(system.retrievers[0], queries[0], documents)
        ids = [run.doc_ids[document] for document in documents]
        return Ranked(run.renamed(system.name), dict(zip(ids, explained, strict=True)))

    def _run(self, retriever: Retriever, queries: Queries) -> Run:
        key = (retriever.spec, queries.fingerprint)
        if key not in self.known:
            self.known[key] = self.workspace.indexes[retriever.spec].search(queries, DEPTH)
        return self.known[key]

    def _of_retriever(self, retriever: Retriever, queries: Queries, documents: list[int]) -> list[Explanation]:
        index = self.workspace.indexes[retriever.spec]
        if isinstance(index, Explains):
            return index.explain(queries, documents)
        return [Explanation(f"{retriever.name} does not say what its scores are made of.")] * len(documents)

    def _of_reranker(self, first: Run, documents: list[int]) -> list[Explanation]:
        """What the last reranker says, and where a document stood before all of them."""
        last = self.system.rerankings[-1].reranker
        explain = getattr(last, "explain", None)
        note = f"The score of {last.name}, which does not say what it is made of."
        found = explain(self.task, documents) if explain else [Explanation(note)] * len(documents)
        before = {int(document): rank for rank, document in enumerate(first.docs[0].tolist(), 1)}
        return [
            Explanation(f"{one.note} Rank {before[document]} before reranking.", one.shares)
            for one, document in zip(found, documents, strict=True)
        ]


class Found(NamedTuple):
    """A passage, and where in it the query's terms stand."""

    rank: int
    doc_id: str
    score: float
    title: str
    text: str
    marks: list[tuple[int, int]]
    terms: list[str]


def search_text(
    task: Task, text: str, retriever: str | Spec | object, top: int, *, options: Options | None = None
) -> list[Found]:
    """The best passages for a text that is no query of the task."""
    if not text.strip():
        raise UsageError("the query is empty")
    analyze = get_analyzer("english")
    wanted = set(analyze(text))
    run = get_retriever(retriever, options).prepare(task).search(Queries.typed([text]), top)
    found = []
    for rank, hit in enumerate(run.row(0), start=1):
        document = task.documents.get(hit.doc_id)
        assert document is not None
        marks, terms = [], dict[str, None]()
        for word in _WORD.finditer(document.contents):
            if shared := wanted.intersection(analyze(word[0])):
                marks.append(word.span())
                terms.update(dict.fromkeys(sorted(shared)))
        found.append(Found(rank, hit.doc_id, hit.score, document.title, document.contents, marks, list(terms)))
    return found
