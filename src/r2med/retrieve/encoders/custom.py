"""Encoders people bring themselves: any object that turns texts into an array, known by its methods.

| contract | queries | documents |
|---|---|---|
| R2MED's `CustomModel`, BEIR | `encode_queries(list)` | `encode_corpus(list)`, of texts or of `{"text"}` |
| sentence-transformers | `encode_query(list)` | `encode_document(list)`: its prompts stay its own |
| MTEB's `EncoderProtocol` | `encode(batches, task_metadata=…, prompt_type=…)` | the same |
| anything else | `encode(list)`, or the object itself is called | the same |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import ModelError, Task, UsageError
from ...core.identity import Identity
from ...core.plugins import accepted, takes, wrap_errors
from ...core.queries import Side
from ..mteb_inputs import BATCH, SPLIT, SUBSET, loader, prompt_type, task_facts
from . import UNKNOWN_TOKENS, BaseEncoder, Batch, Float32, WorkOrder, check_vectors

Calling = Callable[[list[str], str], Any]
"""Texts and an instruction in, whatever the object returns out."""
METHODS: dict[Side, tuple[str, ...]] = {
    "query": ("encode_queries", "encode_query", "encode"),
    "document": ("encode_corpus", "encode_documents", "encode_document", "encode"),
}


class Passage(str):
    """A text that also answers as the dictionary `{"text", "title"}` that BEIR's models are given."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        return self.get(key) if isinstance(key, str) else super().__getitem__(key)

    def get(self, key: str, default: str = "") -> str:
        """The text; a title is part of it already."""
        return str(self) if key == "text" else default

    def __str__(self) -> str:
        return super().__str__()


def speaks_mteb(model: Any) -> bool:
    """Whether `encode` takes MTEB's batches instead of texts."""
    return takes(getattr(model, "encode", None), "task_metadata")


def encodes(model: Any) -> bool:
    """Whether an object has any of the methods above."""
    return any(callable(getattr(model, name, None)) for names in METHODS.values() for name in names)


def encode_adapter(model: Any, side: Side, name: str, about: Callable[[], Any]) -> Calling:
    """How an object is called for one side; `about` gives the facts of the task at hand to models that ask for them."""
    if speaks_mteb(model):
        return _mteb(model, side, about)
    for method in METHODS[side]:
        if callable(found := getattr(model, method, None)):
            return _plain(model, found, side, as_passages=method == "encode_corpus")
    if callable(model) and not inspect.isclass(model):
        return _plain(model, model, side)
    raise UsageError(f"{name} does not encode: it has none of {', '.join(METHODS[side])} and cannot be called")


def _plain(model: Any, call: Callable[..., Any], side: Side, *, as_passages: bool = False) -> Calling:
    quiet: dict[str, Any] = {"show_progress_bar": False} if takes(call, "show_progress_bar") else {}
    if takes(call, "side", "instruction"):  # our own protocol
        return lambda texts, instruction: call(texts, side=side, instruction=instruction, **quiet)
    prompts = getattr(model, "prompts", None)
    prompted = isinstance(prompts, dict) and bool(prompts.get(side))
    if prompted and getattr(call, "__name__", "") == "encode" and takes(call, "prompt_name"):
        quiet["prompt_name"] = side  # sentence-transformers before 5

    def go(texts: list[str], instruction: str) -> Any:
        extra = dict(quiet)
        if instruction and takes(call, "prompt"):
            extra.pop("prompt_name", None)
            extra["prompt"] = instruction
        elif instruction:
            texts = [instruction + text for text in texts]
        return call([Passage(text) for text in texts] if as_passages else texts, **extra)

    return go


def _mteb(model: Any, side: Side, about: Callable[[], Any]) -> Calling:
    def go(texts: Sequence[str], instruction: str) -> Any:
        given = {
            "task_metadata": about(),
            "hf_split": SPLIT,
            "hf_subset": SUBSET,
            "prompt_type": prompt_type(side),
            "batch_size": BATCH,
            "show_progress_bar": False,
        }
        return model.encode(loader([instruction + text for text in texts], side), **accepted(model.encode, given))

    return go


CHUNK = 1024
SHOWN = 60


class CustomEncoder(BaseEncoder):
    """Wraps an object that encodes, whichever contract it follows.

    Its vectors are cached under its `cache_key`, `revision` or `version` if it has one. Without, nothing is cached: not
    even weights that can be compared are worth keeping vectors for while somebody trains them.
    """

    def __init__(self, model: Any, name: str, identity: Identity) -> None:
        super().__init__()
        self.model, self.name, self.identity = model, name, identity
        self.task: Task | None = None
        # MTEB's encoders may prompt each task otherwise.
        self.cacheable = "revision" in identity.facts and not speaks_mteb(model)
        sides: tuple[Side, ...] = ("query", "document")
        self._calls = {side: encode_adapter(model, side, name, lambda: task_facts(self.task)) for side in sides}

    def describe(self, side: Side) -> dict[str, object]:
        """The wrapped model's identity."""
        return {
            "backend": "custom",
            "name": self.name,
            **self.identity.facts,
            **({"prompts": prompts} if (prompts := self._prompts()) else {}),
            "max_length": self.max_length(side),
            "dtype": "float32",
        }

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """Chunks in the order of the texts, as `stream` hands them over."""
        return WorkOrder(np.arange(len(texts)), CHUNK)

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
            with wrap_errors(self.name, what):
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
