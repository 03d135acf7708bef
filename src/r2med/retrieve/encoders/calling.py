"""How an object that encodes wants to be called: its contract is read from its methods, not from its class.

| contract | queries | documents |
|---|---|---|
| R2MED's `CustomModel`, BEIR | `encode_queries(list)` | `encode_corpus(list)`, of texts or of `{"text"}` |
| sentence-transformers | `encode_query(list)` | `encode_document(list)`: its prompts stay its own |
| MTEB's `EncoderProtocol` | `encode(batches, task_metadata=…, prompt_type=…)` | the same |
| anything else | `encode(list)`, or the object itself is called | the same |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...core import UsageError
from ...core.objects import accepted, takes
from .protocol import Side

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


def calling(model: Any, side: Side, name: str, about: Callable[[], Any]) -> Calling:
    """The call for one side; `about` gives the facts of the task at hand to models that ask for them."""
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
    from ..mteb_inputs import BATCH, SPLIT, SUBSET, loader, prompt_type

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
