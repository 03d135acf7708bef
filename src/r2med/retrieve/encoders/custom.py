"""Encoders people bring themselves: any object that turns texts into an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...core import ModelError, Task
from ...core.addresses import resolve
from ...core.objects import answering, describe_object, name_of, revision_of
from .calling import calling, speaks_mteb
from .protocol import UNKNOWN_TOKENS, BaseEncoder, Batch, Float32, Side, check_vectors

__all__ = ["CHUNK", "CustomEncoder", "resolve", "to_numpy"]

CHUNK = 1024
SHOWN = 60


class CustomEncoder(BaseEncoder):
    """Wraps an object that encodes, whichever contract it follows (`calling.py` has the table).

    Its vectors are cached under its `cache_key`, `revision` or `version` if it has one. Without, nothing is cached: not
    even weights that can be compared are worth keeping vectors for while somebody trains them.
    """

    def __init__(self, model: Any, *, name: str = "") -> None:
        super().__init__()
        self.model = model
        self.name = name or name_of(model)
        self.task: Task | None = None
        sides: tuple[Side, ...] = ("query", "document")
        self._calls = {side: calling(model, side, self.name, self._facts) for side in sides}

    def _facts(self) -> Any:
        from ..mteb_inputs import task_facts

        return task_facts(self.task)

    @property
    def revision(self) -> str:
        """What the object says of its own state."""
        return revision_of(self.model)

    @property
    def cacheable(self) -> bool:
        """Whether a vector made now can be known to be valid later; MTEB's encoders may prompt each task otherwise."""
        return bool(self.revision) and not speaks_mteb(self.model)

    @cached_property
    def _object(self) -> dict[str, object]:
        return describe_object(self.model)

    def describe(self, side: Side) -> dict[str, object]:
        """What little is known."""
        return {
            "backend": "custom",
            "name": self.name,
            **self._object,
            **({"prompts": prompts} if (prompts := self._prompts()) else {}),
            "max_length": self.max_length(side),
            "dtype": "float32",
        }

    def _prompts(self) -> dict[str, str]:
        prompts = getattr(self.model, "prompts", None)
        return {str(k): str(v) for k, v in sorted(prompts.items()) if v} if isinstance(prompts, dict) else {}

    def max_length(self, side: Side) -> int | None:
        """What the object says of itself."""
        del side
        length = getattr(self.model, "max_seq_length", None) or getattr(self.model, "max_length", None)
        return length if isinstance(length, int) else None

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Hand over a thousand texts at a time; the object batches as it likes."""
        width = 0
        for begin in range(0, len(texts), CHUNK):
            chunk = list(texts[begin : begin + CHUNK])
            rows = np.arange(begin, begin + len(chunk), dtype=np.int64)
            what = _batch(side, chunk, begin, len(texts))
            with answering(self.name, what):
                made = self._calls[side](chunk, instruction)
            vectors = check_vectors(self._array(made, what), rows, texts, self.name, what)
            if width and vectors.shape[1] != width:
                raise ModelError(f"{self.name} returned {vectors.shape[1]} dimensions for {what}, {width} before")
            width = vectors.shape[1]
            yield Batch(rows, vectors, np.full(len(chunk), UNKNOWN_TOKENS, dtype=np.int32))

    def _array(self, made: Any, what: str) -> Float32:
        try:
            array = np.asarray(to_numpy(made))
            if array.dtype.kind not in "fiub":
                raise TypeError(f"{type(made).__name__} of {array.dtype}")  # noqa: TRY301
            with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as that
                return np.asarray(array, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{self.name} did not return an array of numbers for {what} ({error})") from None


def _batch(side: Side, chunk: Sequence[str], begin: int, count: int) -> str:
    kind = "queries" if side == "query" else "documents"
    start = " ".join(chunk[0].split())[:SHOWN]
    return f"{kind} {begin}–{begin + len(chunk) - 1} of {count} (from {start!r})"


def to_numpy(made: Any) -> Any:
    """Arrays of torch and its kind come to the CPU in float32 first; sparse ones are filled up."""
    if hasattr(made, "detach"):
        dense = made.to_dense() if getattr(made, "is_sparse", False) or getattr(made, "is_sparse_csr", False) else made
        return dense.detach().float().cpu().numpy()
    if hasattr(made, "toarray"):  # scipy
        return made.toarray()
    if isinstance(made, (list, tuple)) and made and hasattr(made[0], "detach"):
        return np.stack([to_numpy(row) for row in made])
    return made
