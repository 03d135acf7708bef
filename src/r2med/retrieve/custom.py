"""Whatever people bring, as a retriever: a retriever of their own, a searcher, an encoder, a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core import DataError, Hit, ModelError, Query, Run, Task, UsageError, fingerprint
from ..core.identity import Identity, class_name, identify, name_of
from ..core.options import Options, declared_parameters
from ..core.plugins import Made, accepted, find_plugin, instantiate, load_address, wrap_errors
from ..core.queries import Queries
from ..core.registry import Registry
from ..core.spec import Spec
from .contract import Build, Index, Retriever, check_depth, retrievers
from .dense import DenseParameters, DenseRetriever, Similarity
from .encoders import Encoder
from .encoders.custom import CustomEncoder, encodes, to_numpy
from .mteb_inputs import BATCH, SPLIT, SUBSET, Columns, task_facts
from .sparse import TopK, top_k
from .vectors import Float32, Rows

BLOCK = 4096
UNKNOWN = "unknown"
COMPARING = {
    name: parameter
    for name, parameter in declared_parameters(DenseParameters).items()
    if name in ("similarity", "variant", "dimension", "oversample")
}
"""What may be said of somebody's encoder besides its constructor's arguments."""
Compare = Callable[[Any, Any], Any]


def object_spec(model: Any, identity: Identity, registry: Registry[Any]) -> Spec:
    """The spec of an object: the one it declares, or its name with its version or the hash of its state.

    What it declares counts if nothing of ours is called so: somebody's subclass of our BM25 is not our BM25.
    """
    declared = getattr(model, "spec", None)
    if isinstance(declared, Spec):
        if registry.find(declared.name) is None:
            return replace(declared, own=True)
        declared = class_name(model)
    name = declared if isinstance(declared, str) and declared else name_of(model)
    if "revision" in identity.facts:
        return Spec(name, parameters=(("version", str(identity.facts["revision"])),), own=True)
    return Spec(f"{name}~{identity.digest or UNKNOWN}", own=True)


def from_address(spec: Spec, build: Build) -> Retriever:
    """The retriever at `module:attr`, made with the arguments of the spec."""
    made = load_address(spec, COMPARING)
    return _named(made, spec, build, spec.name)


def from_plugin(spec: Spec, build: Build) -> Retriever:
    """The retriever that an installed package offers under the name of the spec."""
    plugin = find_plugin("retriever", spec.name)
    assert plugin is not None
    made = plugin.load(spec, COMPARING)
    try:
        return _named(made, spec, build, plugin.label)
    except UsageError as error:
        raise UsageError(f"{plugin.label}: {error}") from None


def _named(made: Made, spec: Spec, build: Build, label: str) -> Retriever:
    named = replace(spec, parameters=tuple(sorted({**made.arguments, **made.beside}.items())))
    how = DenseParameters(**made.beside) if made.beside else None
    found = as_retriever(made.value, spec=named, options=build.options.changed(spec.options), how=how)
    if made.beside and not isinstance(found, ObjectRetriever):
        raise UsageError(f"{label} has no parameter {next(iter(made.beside))!r}: it is no encoder")
    return found


class _Alone:
    """Makes retrievers outside any experiment."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def retriever(self, spec: str | Spec) -> Retriever:
        """A retriever that another stands on."""
        return get_retriever(spec, self.options)

    def chat(self, spec: Spec) -> Any:
        """No retriever of ours stands on a chat model."""
        raise UsageError(f"{spec} is a chat model, not a retriever")


def get_retriever(spec: str | Spec | Any, options: Options | None = None) -> Retriever:
    """The retriever of a spec, or an object as one."""
    if not isinstance(spec, str | Spec):
        return as_retriever(spec, options=options)
    return retrievers.make(retrievers.parse(spec), _Alone(options or Options()))


def as_retriever(
    model: Any, *, spec: Spec | None = None, options: Options | None = None, how: DenseParameters | None = None
) -> Retriever:
    """An object as a retriever; a class is constructed. `how` says how the vectors of an encoder are compared."""
    if is_ours(model, Retriever):
        return model  # type: ignore[no-any-return]
    model = instantiate(model, str(spec or name_of(model))).value
    if is_ours(model, Retriever):
        return model  # type: ignore[no-any-return]
    identity = identify(model)
    spec = spec or object_spec(model, identity, retrievers)
    if callable(getattr(model, "prepare", None)) or callable(getattr(model, "retrieve", None)):
        return ForeignRetriever(model, spec, identity)
    if is_searcher(model):
        return SearcherRetriever(model, spec, identity)
    if scores_pairs(model):
        raise UsageError(f"{spec} scores pairs of texts: it is a reranker, not a retriever")
    return ObjectRetriever(model, spec, identity, options or Options(), how or DenseParameters())


retrievers.from_address = from_address


def is_ours(model: Any, contract: type) -> bool:
    """Whether a class of ours does the work; somebody's subclass of it is theirs."""
    return isinstance(model, contract) and type(model).__module__.partition(".")[0] == __name__.partition(".")[0]


def is_searcher(model: Any) -> bool:
    """MTEB's `SearchProtocol`."""
    return callable(getattr(model, "index", None)) and callable(getattr(model, "search", None))


def scores_pairs(model: Any) -> bool:
    """Whether an object is a reranker and no retriever: it predicts, and neither encodes nor searches."""
    return callable(getattr(model, "predict", None)) and not (encodes(model) or is_searcher(model))


class ForeignRetriever(Retriever):
    """A retriever written against our contract, or with `retrieve(task, depth=…)`, by somebody else."""

    def __init__(self, model: Any, spec: Spec, identity: Identity) -> None:
        self.model, self.spec, self.identity = model, spec, identity
        self.kind = str(getattr(model, "kind", "custom"))  # type: ignore[misc]

    def describe(self) -> dict[str, object]:
        """What it says of itself, and its identity."""
        return {**described(self.model, self.name), "identity": self.identity.facts}

    def task_facts(self, task: Task) -> dict[str, object]:
        """What it says besides about one task."""
        with wrap_errors(self.name, f"describing {task.full_name}"):
            said: dict[str, object] = getattr(self.model, "task_facts", super().task_facts)(task)
        return said

    def prepare(self, task: Task) -> Index:
        """Its own index, or one that hands whole tasks over."""
        if not callable(getattr(self.model, "prepare", None)):
            return _TaskIndex(self, task, lambda queries, depth: self._retrieve(task, queries, depth))
        with wrap_errors(self.name, f"preparing {task.full_name}"):
            search = self.model.prepare(task).search
        return _TaskIndex(self, task, search)

    def _retrieve(self, task: Task, queries: Queries, depth: int) -> Any:
        texts = queries.single(self.name)
        asked = tuple(
            (task.query(query_id) or Query(query_id, ""))._replace(text=text)
            for query_id, text in zip(queries.ids, texts, strict=True)
        )
        return self.model.retrieve(replace(task, queries=asked), depth=depth)


class _TaskIndex:
    """Asks somebody's code, and checks the answer before anything is built on it."""

    def __init__(self, retriever: Retriever, task: Task, ask: Callable[[Queries, int], Any]) -> None:
        self._retriever, self._task, self._ask = retriever, task, ask

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query."""
        check_depth(depth)
        name, given = self._retriever.name, f"{len(queries)} queries of {self._task.full_name}"
        with wrap_errors(name, given):
            found = self._ask(queries, depth)
        return checked_run(found, self._task, queries, name, given).top(depth).renamed(name)


def described(model: Any, name: str) -> dict[str, object]:
    """The plain data that a thing describes itself by; nothing where it has no `describe`."""
    if not callable(getattr(model, "describe", None)):
        return {}
    with wrap_errors(name, "describing itself"):
        facts: Any = model.describe()
        fingerprint("check", facts)
    if not isinstance(facts, dict):
        raise ModelError(f"{name} describes itself by a {type(facts).__name__}, not a dict")
    return facts


def checked_run(found: Any, task: Task, queries: Queries, name: str, given: str) -> Run:
    """A run over the queries and documents of a task; a query that was left out has an empty row."""
    if not isinstance(found, Run):
        raise ModelError(f"{name} returned {type(found).__name__} for {given}, not a Run")
    if stray := next((query for query in found.query_ids if query not in queries.ids), None):
        raise ModelError(f"{name} returned results for query {stray!r}, which {task.full_name} does not hold")
    if np.isnan(found.scores).any():
        raise ModelError(f"{name} returned scores that are not numbers for {given}")
    try:
        run = found.on(task.documents.ids, query_ids=queries.ids)
        run.check_unique()
    except (DataError, IndexError) as error:
        raise ModelError(f"{name} returned results that cannot be used for {given} ({error})") from None
    return run


class SearcherRetriever(Retriever):
    """MTEB's `SearchProtocol`: an object that indexes a corpus and searches it itself."""

    def __init__(self, model: Any, spec: Spec, identity: Identity) -> None:
        self.model, self.spec, self.identity = model, spec, identity

    def describe(self) -> dict[str, object]:
        """Its identity."""
        return {"kind": self.kind, "backend": "custom", **self.identity.facts}

    def prepare(self, task: Task) -> Index:
        """Hand the corpus over when queries come: the object holds one index at a time."""
        return _TaskIndex(self, task, lambda queries, depth: self._search(task, queries, depth))

    def _search(self, task: Task, queries: Queries, depth: int) -> Run:
        shared = {
            "task_metadata": task_facts(task),
            "hf_split": SPLIT,
            "hf_subset": SUBSET,
            "encode_kwargs": {"batch_size": BATCH, "show_progress_bar": False},
            "num_proc": None,
        }
        titles = task.documents.titles or [""] * len(task.documents)
        corpus = _dataset({"id": list(task.documents.ids), "title": list(titles), "text": list(task.documents.texts)})
        asked = _dataset({"id": list(queries.ids), "text": list(queries.single(self.name))})
        with wrap_errors(self.name, f"indexing {len(task.documents)} documents of {task.full_name}"):
            self.model.index(corpus, **accepted(self.model.index, shared))
        found = self.model.search(asked, **accepted(self.model.search, shared | {"top_k": depth, "top_ranked": None}))
        return self._run(found, task, queries)

    def _run(self, found: Any, task: Task, queries: Queries) -> Run:
        if not isinstance(found, Mapping) or not all(isinstance(hits, Mapping) for hits in found.values()):
            raise ModelError(f"{self.name} did not return scores by query and document")
        if stray := next((q for q in found if q not in queries.ids), None):
            raise ModelError(f"{self.name} returned results for query {stray!r}, which {task.full_name} does not hold")
        try:
            rankings = {q: [Hit(str(d), float(s)) for d, s in found.get(q, {}).items()] for q in queries.ids}
            return Run.from_rankings(rankings, doc_ids=task.documents.ids, name=self.name)
        except (DataError, TypeError, ValueError) as error:
            raise ModelError(f"{self.name} returned results that cannot be used ({error})") from None


def _dataset(columns: dict[str, list[str]]) -> Any:
    """A `datasets.Dataset` where that library is installed, as MTEB's own searchers need; else its look-alike."""
    try:
        from datasets import Dataset
    except ImportError:
        return Columns(columns)
    return Dataset.from_dict(columns)


class ObjectRetriever(DenseRetriever):
    """Ranks by the vectors of somebody's encoder, compared as that encoder compares them.

    An object with a `similarity` of its own (sentence-transformers, MTEB) is tried on a few vectors: cosine and inner
    product go the exact way all dense retrieval goes here, anything else (Euclidean, say) is left to the object. One
    without is compared by cosine, whatever the length of its vectors.
    """

    def __init__(self, model: Any, spec: Spec, identity: Identity, options: Options, how: DenseParameters) -> None:
        ours = isinstance(model, Encoder)
        encoder: Encoder = model if ours else CustomEncoder(model, str(spec), identity)
        found = how.similarity or ("cosine" if ours else comparison(model))
        self.compare: Compare | None = found if callable(found) else None
        similarity: Similarity = "dot" if callable(found) else found
        super().__init__(encoder, spec, similarity=similarity, variant=how.held, options=options)
        if self.compare is not None and not self.variant.exact:
            raise UsageError(f"{self.name} compares vectors in a way of its own: there are no variants of it")
        self.identity = identity

    def about(self, task: Task) -> None:
        """An object that asks for the facts of the task gets them."""
        if isinstance(self._own_encoder, CustomEncoder):
            self._own_encoder.task = task

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return super().describe() | ({"similarity": "own"} if self.compare else {})

    def rank(self, queries: Float32, rows: Rows, task: Task, depth: int) -> TopK:
        """The best documents of query vectors."""
        if self.compare is None:
            return super().rank(queries, rows, task, depth)
        parts = []
        for begin in range(0, rows.shape[0], BLOCK):
            end = min(begin + BLOCK, rows.shape[0])
            with wrap_errors(self.name, f"comparing documents {begin}–{end - 1}"):
                scores = np.asarray(to_numpy(self.compare(queries, rows.read(begin, end))), dtype=np.float32)
            if scores.shape != (len(queries), end - begin) or not np.isfinite(scores).all():
                what = f"shape {scores.shape} or numbers that are not finite"
                raise ModelError(f"{self.name} compares documents {begin}–{end - 1} to {what}")
            parts.append(scores)
        return top_k(np.concatenate(parts, axis=1), task.documents.ids.tie_rank, min(depth, rows.shape[0]))


def comparison(model: Any) -> Similarity | Compare:
    """How an object compares vectors: tried on four small ones, since libraries differ in what they call it."""
    similarity = getattr(model, "similarity", None)
    if not callable(similarity):
        return "cosine"
    queries = np.array([[3.0, 4.0, 0.0, 1.0], [-1.0, 0.5, 2.0, 0.0]], dtype=np.float32)
    documents = np.array([[0.5, 0.0, 7.0, -2.0], [1.0, 1.0, 1.0, 1.0]], dtype=np.float32)
    compare = partial(_in_its_arrays, similarity)
    try:
        found = np.asarray(to_numpy(compare(queries, documents)), dtype=np.float32)
    except Exception:  # it may want another width than four
        return _named_similarity(model) or compare
    product = queries @ documents.T
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(documents, axis=1)
    if found.shape == product.shape:
        if np.allclose(found, product / lengths, atol=1e-5):
            return "cosine"
        if np.allclose(found, product, atol=1e-4):
            return "dot"
    return compare


def _in_its_arrays(similarity: Compare, queries: Float32, documents: Float32) -> Any:
    """What a similarity says; one that is written for torch, and cannot take our arrays, gets tensors."""
    try:
        return similarity(queries, documents)
    except (TypeError, AttributeError):
        if (torch := sys.modules.get("torch")) is None:
            raise
        return similarity(torch.tensor(queries), torch.tensor(documents))


def _named_similarity(model: Any) -> Similarity | None:
    for holder in (model, getattr(model, "mteb_model_meta", None)):
        said = getattr(holder, "similarity_fn_name", None)
        said = str(getattr(said, "value", said))
        if said in ("dot", "dot_product"):
            return "dot"
        if said == "cosine":
            return "cosine"
    return None
