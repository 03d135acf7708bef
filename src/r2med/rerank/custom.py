"""Rerankers people bring themselves: cross-encoders of sentence-transformers or MTEB, or any function of pairs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import ModelError, Run, Task, UsageError
from ..core.identity import Identity, identify, name_of
from ..core.options import Options, declared_parameters
from ..core.plugins import Made, accepted, find_plugin, instantiate, load_address, takes, wrap_errors
from ..core.queries import Queries
from ..core.spec import Spec
from ..retrieve import Build
from ..retrieve.custom import checked_run, described, is_ours, object_spec
from ..retrieve.encoders import WorkOrder
from ..retrieve.encoders.custom import to_numpy
from ..retrieve.mteb_inputs import BATCH, SPLIT, SUBSET, loader, task_facts
from .cards import CrossEncoderParameters
from .contract import DEPTH, Reranker, Rest, rerankers
from .pointwise import Pairs, PointwiseReranker, Scored, by_query, not_cut

CHUNK = 1024
READING = {"logit": declared_parameters(CrossEncoderParameters)["logit"]}
"""What may be said of somebody's scorer besides its constructor's arguments."""


def from_address(spec: Spec, build: Build) -> Reranker:
    """The reranker at `module:attr`, made with the arguments of the spec."""
    return _named(load_address(spec.without("rest"), READING), spec, build)


def from_plugin(spec: Spec, build: Build) -> Reranker:
    """The reranker that an installed package offers under the name of the spec."""
    plugin = find_plugin("reranker", spec.name)
    assert plugin is not None
    made = plugin.load(spec.without("rest"), READING)
    try:
        return _named(made, spec, build)
    except UsageError as error:
        raise UsageError(f"{plugin.label}: {error}") from None


def _named(made: Made, spec: Spec, build: Build) -> Reranker:
    rest = {key: value for key, value in spec.parameters if key == "rest"}
    named = replace(spec, parameters=tuple(sorted({**made.arguments, **made.beside, **rest}.items())))
    return as_reranker(
        made.value, spec=named, logit=made.beside.get("logit"), options=build.options.changed(spec.options)
    )


def as_reranker(
    model: Any, *, spec: Spec | None = None, logit: int | None = None, options: Options | None = None
) -> Reranker:
    """An object as reranker: one already, a cross-encoder of whichever library, a function of pairs."""
    if is_ours(model, Reranker):
        return model  # type: ignore[no-any-return]
    model = instantiate(model, str(spec or name_of(model))).value
    if is_ours(model, Reranker):
        return model  # type: ignore[no-any-return]
    identity = identify(model)
    spec = spec or object_spec(model, identity, rerankers).at(DEPTH)
    if callable(getattr(model, "rerank", None)):
        return ForeignReranker(model, spec, identity)
    return PointwiseReranker(CustomScorer(model, str(spec.at(None)), identity, logit=logit), spec, options)


rerankers.from_address = from_address


class ForeignReranker(Reranker):
    """A reranker written against our contract by somebody else; its answer is checked."""

    def __init__(self, model: Any, spec: Spec, identity: Identity) -> None:
        self.model, self.spec, self.identity = model, spec, identity
        self.kind = str(getattr(model, "kind", "custom"))  # type: ignore[misc]

    def describe(self) -> dict[str, object]:
        """What it says of itself, and its identity."""
        return {**described(self.model, self.name), "identity": self.identity.facts}

    def rerank(self, task: Task, candidates: Run, depth: int = DEPTH, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        given = f"the first {depth} candidates of {len(candidates)} queries of {task.full_name}"
        with wrap_errors(self.name, given):
            found = self.model.rerank(task, candidates, depth, rest=rest)
        return checked_run(found, task, Queries.of(task), self.name, given)


class CustomScorer:
    """Wraps an object with `predict`, or a function, that turns a list of (query, document) into scores.

    MTEB's `CrossEncoderProtocol` is known by its `predict`, which takes two lots of inputs and the facts of a task.
    Scores are cached only if it has a `cache_key`, `revision` or `version`: nothing else says when it changes.
    `logit` picks the score of an object that returns several numbers a pair.
    """

    kind = "custom"
    distributable = False

    def __init__(self, model: Any, name: str, identity: Identity, *, logit: int | None = None) -> None:
        self.model, self.name, self.identity, self.logit = model, name, identity, logit
        self.notes: Counter[str] = Counter()
        self._call = self._find()
        self.keeps_scores = "revision" in identity.facts

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """Never dealt out."""
        return by_query(pairs, CHUNK)

    def _find(self) -> Callable[[Sequence[tuple[str, str]]], Any]:
        if callable(found := getattr(self.model, "predict", None)):
            if takes(found, "task_metadata"):
                return self._mteb
            if takes(found, "show_progress_bar"):
                return lambda pairs: found(pairs, show_progress_bar=False)
            return found  # type: ignore[no-any-return]
        if callable(self.model) and not inspect.isclass(self.model):
            return self.model  # type: ignore[no-any-return]
        raise UsageError(f"{self.name} does not score pairs: it has no predict and cannot be called")

    def _mteb(self, pairs: Sequence[tuple[str, str]]) -> Any:
        given = {
            "task_metadata": task_facts(None),
            "hf_split": SPLIT,
            "hf_subset": SUBSET,
            "batch_size": BATCH,
            "show_progress_bar": False,
        }
        queries, documents = ([pair[i] for pair in pairs] for i in (0, 1))
        predict = self.model.predict
        return predict(loader(queries, "query"), loader(documents, "document"), **accepted(predict, given))

    def describe(self) -> dict[str, object]:
        """The wrapped model's identity."""
        return {"backend": "custom", "name": self.name, **self.identity.facts, "logit": self.logit}

    def max_length(self) -> int | None:
        """What the object says of itself."""
        for mark in ("max_seq_length", "max_length"):
            if isinstance(length := getattr(self.model, mark, None), int):
                return length
        return None

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Hand over a thousand pairs at a time, grouped by query; the object batches as it likes."""
        del names
        order = np.lexsort((pairs.document, pairs.query))
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            what = f"pairs {start}–{start + len(rows) - 1} of {len(order)}"
            texts = pairs.texts(rows)
            with wrap_errors(self.name, what):
                answer = self._call(texts)
            made = self._scores(answer, what)
            if made.shape != (len(rows),):
                raise ModelError(f"{self.name} returned an array of shape {made.shape} for {what}")
            bad = np.flatnonzero(~np.isfinite(made))
            if len(bad):
                query, document = (" ".join(text.split())[:40] for text in texts[int(bad[0])])
                where = f"{len(bad)} of {what}, the first being {query!r} with {document!r}"
                raise ModelError(f"{self.name} returned scores that are not finite for {where}")
            yield Scored(rows, made, not_cut(len(rows)))

    def _scores(self, answer: Any, what: str) -> Any:
        try:
            array = np.asarray(to_numpy(answer))
            if array.dtype.kind not in "fiub":
                raise TypeError(f"{type(answer).__name__} of {array.dtype}")  # noqa: TRY301
            with np.errstate(over="ignore"):
                made = array.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{self.name} did not return scores for {what} ({error})") from None
        return self._picked(made) if made.ndim == 2 else made

    def _picked(self, made: Any) -> Any:
        if made.shape[1] == 1:
            return made[:, 0]
        if self.logit is None or not 0 <= self.logit < made.shape[1]:
            raise UsageError(f"{self.name} returns {made.shape[1]} numbers a pair: say which with logit")
        return made[:, self.logit]
