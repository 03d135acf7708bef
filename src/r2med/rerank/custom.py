"""Rerankers people bring themselves: sentence-transformers' CrossEncoder, or any function of pairs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core import ModelError, UsageError
from ..retrieve.encoders.custom import to_numpy
from .pairs import Pairs, Scored, not_cut

CHUNK = 1024


class CustomScorer:
    """Wraps an object with `predict`, or a function, that turns a list of (query, document) into scores.

    Scores are cached only if it has a `cache_key`, `revision` or `version`: nothing else says when it changes.
    `logit` picks the score of an object that returns several numbers a pair.
    """

    kind = "custom"

    def __init__(self, model: Any, *, name: str = "", logit: int | None = None) -> None:
        self.model = model
        self.logit = logit
        self.notes: Counter[str] = Counter()
        self.name = name or str(getattr(model, "name", "") or getattr(model, "__name__", "") or type(model).__name__)
        self._call = self._find()
        marks = (getattr(model, mark, None) for mark in ("cache_key", "revision", "version", "__version__"))
        self._revision = next((str(m() if callable(m) else m) for m in marks if m is not None), "")
        self.keeps_scores = bool(self._revision)

    def _find(self) -> Callable[[Sequence[tuple[str, str]]], Any]:
        if callable(found := getattr(self.model, "predict", None)):
            if "show_progress_bar" in inspect.signature(found).parameters:
                return lambda pairs: found(pairs, show_progress_bar=False)
            return found  # type: ignore[no-any-return]
        if callable(self.model) and not inspect.isclass(self.model):
            return self.model  # type: ignore[no-any-return]
        raise UsageError(f"{self.name} does not score pairs: it has no predict and cannot be called")

    def describe(self) -> dict[str, object]:
        """What little is known."""
        kind = self.model if inspect.isroutine(self.model) else type(self.model)
        return {
            "backend": "custom",
            "name": self.name,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "revision": self._revision,
            "logit": self.logit,
        }

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
            try:
                made = np.asarray(to_numpy(self._call(pairs.texts(rows))), dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise ModelError(f"{self.name} did not return scores of pairs ({error})") from None
            if made.ndim == 2:
                made = self._picked(made)
            if made.shape != (len(rows),):
                raise ModelError(f"{self.name} returned an array of shape {made.shape} for {len(rows)} pairs")
            if not np.isfinite(made).all():
                raise ModelError(f"{self.name} returned scores that are not finite")
            yield Scored(rows, made, not_cut(len(rows)))

    def _picked(self, made: Any) -> Any:
        if made.shape[1] == 1:
            return made[:, 0]
        if self.logit is None or not 0 <= self.logit < made.shape[1]:
            raise UsageError(f"{self.name} returns {made.shape[1]} numbers a pair: say which with logit")
        return made[:, self.logit]
