"""Rerankers people bring themselves: cross-encoders of sentence-transformers or MTEB, or any function of pairs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..core import ModelError, UsageError
from ..core.objects import accepted, answering, describe_object, name_of, revision_of, takes
from ..retrieve.encoders.custom import to_numpy
from .pairs import Pairs, Scored, not_cut

CHUNK = 1024


class CustomScorer:
    """Wraps an object with `predict`, or a function, that turns a list of (query, document) into scores.

    MTEB's `CrossEncoderProtocol` is known by its `predict`, which takes two lots of inputs and the facts of a task.

    Scores are cached only if it has a `cache_key`, `revision` or `version`: nothing else says when it changes.
    `logit` picks the score of an object that returns several numbers a pair.
    """

    kind = "custom"

    def __init__(self, model: Any, *, name: str = "", logit: int | None = None) -> None:
        self.model = model
        self.logit = logit
        self.notes: Counter[str] = Counter()
        self.name = name or name_of(model)
        self._call = self._find()
        self.keeps_scores = bool(revision_of(model))

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
        from ..retrieve.mteb_inputs import BATCH, SPLIT, SUBSET, loader, task_facts

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

    @cached_property
    def _object(self) -> dict[str, object]:
        return describe_object(self.model)

    def describe(self) -> dict[str, object]:
        """What little is known."""
        return {"backend": "custom", "name": self.name, **self._object, "logit": self.logit}

    def max_length(self) -> int | None:
        """What the object says of itself."""
        for mark in ("max_seq_length", "max_length"):
            if isinstance(length := getattr(self.model, mark, None), int):
                return length
        return None

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Hand over a thousand pairs at a time, grouped by query; the object batches as it likes."""
        del family
        order = np.lexsort((pairs.document, pairs.query))
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            what = f"pairs {start}–{start + len(rows) - 1} of {len(order)}"
            texts = pairs.texts(rows)
            with answering(self.name, what):
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
