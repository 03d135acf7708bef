"""Encoders people bring themselves: any object that turns texts into an array."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import ModelError, UsageError
from .protocol import UNKNOWN_TOKENS, BaseEncoder, Batch, Side, check_vectors

CHUNK = 1024


class CustomEncoder(BaseEncoder):
    """Wraps an object with `encode_queries` and `encode_corpus` (or `encode_documents`), with `encode`, or a function.

    Its vectors are cached under its `cache_key`, `revision` or `version` if it has one. Without, nothing tells one
    state of it from the next, and nothing is cached unless the user names a cache.
    """

    def __init__(self, model: Any, *, name: str = "") -> None:
        super().__init__()
        self.model = model
        self.name = name or str(getattr(model, "name", "") or getattr(model, "__name__", "") or type(model).__name__)
        self._calls: dict[Side, Callable[..., Any]] = {
            "query": self._find("encode_queries", "encode_query", "encode"),
            "document": self._find("encode_corpus", "encode_documents", "encode_document", "encode"),
        }

    def _find(self, *names: str) -> Callable[..., Any]:
        for name in names:
            if callable(found := getattr(self.model, name, None)):
                return found  # type: ignore[no-any-return]
        if callable(self.model) and not inspect.isclass(self.model):
            return self.model  # type: ignore[no-any-return]
        raise UsageError(f"{self.name} does not encode: it has none of {', '.join(names)} and cannot be called")

    @property
    def revision(self) -> str:
        """What the object says of its own state."""
        marks = (getattr(self.model, mark, None) for mark in ("cache_key", "revision", "version"))
        return next((str(m() if callable(m) else m) for m in marks if m is not None), "")

    @property
    def cacheable(self) -> bool:
        """Whether a vector made now can be known to be valid later."""
        return bool(self.revision)

    def describe(self, side: Side) -> dict[str, object]:
        """What little is known."""
        kind = self.model if inspect.isroutine(self.model) else type(self.model)
        return {
            "backend": "custom",
            "name": self.name,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "revision": self.revision,
            "max_length": self.max_length(side),
            "dtype": "float32",
        }

    def max_length(self, side: Side) -> int | None:
        """What the object says of itself."""
        del side
        length = getattr(self.model, "max_seq_length", None) or getattr(self.model, "max_length", None)
        return length if isinstance(length, int) else None

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Hand over a thousand texts at a time; the object batches as it likes."""
        call = self._calls[side]
        extra = self._extra(call, side, instruction)
        for begin in range(0, len(texts), CHUNK):
            chunk = list(texts[begin : begin + CHUNK])
            rows = np.arange(begin, begin + len(chunk), dtype=np.int64)
            given = [instruction + t for t in chunk] if instruction and not extra else chunk
            try:
                made = np.asarray(to_numpy(call(given, **extra)))
                vectors = np.asarray(made, dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise ModelError(f"{self.name} did not return an array of numbers ({error})") from None
            tokens = np.full(len(chunk), UNKNOWN_TOKENS, dtype=np.int32)
            yield Batch(rows, check_vectors(vectors, rows, texts, self.name), tokens)

    def _extra(self, call: Callable[..., Any], side: Side, instruction: str) -> dict[str, object]:
        """Side and instruction by keyword, for objects that speak our own protocol."""
        try:
            parameters = inspect.signature(call).parameters
        except (TypeError, ValueError):
            return {}
        if {"side", "instruction"} <= set(parameters):
            return {"side": side, "instruction": instruction}
        return {"prompt": instruction} if instruction and "prompt" in parameters else {}


def resolve(address: str) -> object:
    """The object at `module:attr`; a class is made without arguments."""
    module, _, attribute = address.partition(":")
    if not attribute:
        raise UsageError(f"{address!r} is not an address: expected module:attr")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise UsageError(f"{address}: {error}") from None
    except AttributeError:
        raise UsageError(f"{address}: {module} has no {attribute}") from None
    return found() if inspect.isclass(found) else found


def to_numpy(made: Any) -> Any:
    """Arrays of torch and its kind come to the CPU in float32 first."""
    if hasattr(made, "detach"):
        return made.detach().float().cpu().numpy()
    if isinstance(made, (list, tuple)) and made and hasattr(made[0], "detach"):
        return np.stack([to_numpy(row) for row in made])
    return made
