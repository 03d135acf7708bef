"""Rerankers by name: what a user types becomes a thing that reranks.

maxsim                        late interaction over bge-small's token vectors: the default
maxsim:model=NAME             the same over another model
msmarco-minilm, bge-reranker  a cross-encoder; any Hugging Face id or folder of a sequence classifier
bge-small                     a dense model as reranker
rankgpt:gpt4                  an LLM: listwise; also reasoning:LLM, setwise:LLM, yesno:LLM
rankgpt:gpt4,window=20,step=10,hints=yes
package.module:attr           anything that scores pairs or reranks
name-of-a-plug-in             what an installed package offers under `r2med.rerankers`
NAME@100                      any of them over the first 100 candidates
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..core import UnknownName, UsageError
from ..core.addresses import made, resolve
from ..core.objects import name_of
from ..core.plugins import Plugin, find_plugin, plugins
from ..models import Card, card_names, find_card, locate
from ..retrieve.encoders.load import Options, make_options, model_folder
from ..retrieve.guarded import is_ours
from .guarded import GuardedReranker
from .pairs import PairScorer
from .pointwise import PointwiseReranker
from .protocol import Reranker

DEFAULT = "maxsim"
"""The best of those that run without a download by hand on the real sets: docs/rerank.md has the table."""
MAXSIM_MODEL = "bge-small"
DEPTH = 100
LLM_METHODS = ("rankgpt", "reasoning", "setwise", "yesno")
_DEPTH = re.compile(r"(.+)@(\d+)")
_SCORER_OPTIONS: dict[str, type] = {
    "max_length": int,
    "batch_tokens": int,
    "threads": int,
    "dtype": str,
    "device": str,
    "model": str,
    "logit": int,
}
_RERANKER_ONLY = ("cache", "on_progress")


class Asked(NamedTuple):
    """`NAME@DEPTH`, apart."""

    spec: str
    depth: int


def split_depth(spec: str, default: int = DEPTH) -> Asked:
    """The reranker and how deep it goes; a revision behind @ is not a number."""
    match = _DEPTH.fullmatch(spec)
    if match is None:
        return Asked(spec, default)
    if int(match[2]) < 1:
        raise UsageError(f"{spec!r}: the depth of a reranker must be 1 or more")
    return Asked(match[1], int(match[2]))


def get_reranker(spec: str | object = DEFAULT, **options: Any) -> Reranker:
    """The reranker that `spec` names (without a depth), or an object as one.

    `options` go to the backend: `device`, `dtype`, `max_length`, `threads`, `trust_remote_code`, `cache`,
    `on_progress`; for LLM rerankers also `llm` (a model or its name) and `llm_options`.
    """
    if not isinstance(spec, str):
        return as_reranker(spec, **{k: v for k, v in options.items() if k in _RERANKER_ONLY})
    name, colon, rest = spec.partition(":")
    if name in LLM_METHODS:
        from .llm.load import llm_reranker

        return llm_reranker(name, rest, **options)
    given = {k: v for k, v in options.items() if k not in ("llm", "llm_options")}
    if colon and "=" not in rest:
        return _custom(spec, given)
    parameters = _parameters(rest, spec) if colon else {}
    shown = f"{name},{rest}" if parameters else name
    given |= parameters
    model = given.pop("model", None)
    if _is_free(name) and (plugin := find_plugin("reranker", name)):
        if other := sorted({*parameters} - {"logit"}):
            raise UsageError(f"{plugin.label} has no parameter {other[0]!r}")
        return _plugged(plugin, shown, given)
    if name == "maxsim":
        return _maxsim(_card(str(model or MAXSIM_MODEL)), shown, given)
    if model is not None:
        raise UsageError(f"{name} has no parameter 'model'")
    return from_card(_card(name), name=shown, **given)


def _parameters(rest: str, spec: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for part in rest.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UsageError(f"cannot read {part!r} in {spec!r}: parameters look like name:max_length=256")
        if key not in _SCORER_OPTIONS:
            raise UsageError(f"a reranker has no parameter {key!r}; there are {', '.join(_SCORER_OPTIONS)}")
        try:
            parameters[key] = _SCORER_OPTIONS[key](value)
        except ValueError:
            raise UsageError(f"{key} in {spec!r} must be a number, not {value!r}") from None
    return parameters


def _card(name: str) -> Card:
    try:
        return find_card(name)
    except UnknownName:
        known = ["maxsim", *LLM_METHODS, *card_names(), *(p.name for p in plugins("reranker"))]
        raise UnknownName("reranker", name, known, hint="(r2med models lists models)") from None


def from_card(card: Card, *, name: str = "", folder: Path | None = None, **given: Any) -> Reranker:
    """The reranker of a model card: cross-encoders, dense and late-interaction models."""
    name = name or card.name
    own = {k: given.pop(k) for k in _RERANKER_ONLY if k in given}
    if card.kind == "late-interaction":
        return _maxsim(card, name, given | own, folder)
    scorer: PairScorer
    if card.kind == "dense":
        scorer = _dense(card, given, folder)
    elif card.kind == "cross-encoder":
        logit = given.pop("logit", None)
        card = card if logit is None else card.replace(logit=logit)
        scorer = cross_encoder(card, make_options(**given), folder, chosen=logit is not None)
    else:
        raise UsageError(f"{card.name} is a {card.kind} model and cannot rerank")
    return PointwiseReranker(scorer, name=name, **own)


def cross_encoder(
    card: Card, options: Options, folder: Path | None = None, base: Path | None = None, *, chosen: bool = False
) -> PairScorer:
    """The cross-encoder of a card from the folder its files lie in; nothing is loaded yet.

    Which output is the score a named model's card says, or whoever has `chosen` it; a folder's own configuration tells
    no more than how many there are.
    """
    if options.max_length is not None:
        card = card.replace(query_length=options.max_length, document_length=options.max_length)
    folder = model_folder(card, folder or locate(card))
    if not (chosen or card.logit or card.name in card_names()):
        card = card.replace(logit=relevant_class(folder, card.name))
    if card.backend == "onnx":
        from .onnx_cross_encoder import OnnxCrossEncoder

        return OnnxCrossEncoder(
            folder,
            name=card.name,
            limit=card.document_length,
            logit=card.logit,
            query_prefix=card.prefix("query", ""),
            document_prefix=card.prefix("document", ""),
            options=options,
        )
    from .torch_cross_encoder import TorchCrossEncoder

    if card.base_source:
        base = model_folder(card, base or locate(card, "base"), "base")
    return TorchCrossEncoder(card, folder, options, base=base)


def relevant_class(folder: Path, name: str) -> int:
    """The score's place among a classifier's outputs: the only one, or the second of irrelevant and relevant."""
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return 0
    labels = config.get("id2label")
    classes = len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)  # transformers' own default
    if isinstance(classes, int) and classes > 2:
        raise UsageError(f"{name} tells {classes} classes apart: say which is the score, as in {name}:logit=0")
    return 1 if classes == 2 else 0


def _dense(card: Card, given: dict[str, Any], folder: Path | None) -> PairScorer:
    from ..retrieve.dense import DenseRetriever
    from .by_vectors import VectorScorer

    second = locate(card, "document") if card.document_source else None
    folder = folder or (None if card.is_api else locate(card))
    return VectorScorer(DenseRetriever(card, folder=folder, document_folder=second, **given))


def _maxsim(card: Card, name: str, given: dict[str, Any], folder: Path | None = None) -> Reranker:
    from .late_interaction import MaxSimScorer

    own = {k: given[k] for k in _RERANKER_ONLY if k in given}
    options = make_options(**{k: v for k, v in given.items() if k not in _RERANKER_ONLY})
    if options.max_length is not None:
        card = card.replace(query_length=options.max_length, document_length=options.max_length)
    return PointwiseReranker(MaxSimScorer(card, options, folder=folder or locate(card)), name=name, **own)


def _is_free(name: str) -> bool:
    """Whether no reranker of ours has this name: those are never taken over."""
    return name != "maxsim" and name.casefold().replace("_", "-") not in card_names()


def _plugged(plugin: Plugin, name: str, given: dict[str, Any]) -> Reranker:
    try:
        return as_reranker(plugin.make(), name=name, **given)
    except UsageError as error:
        raise UsageError(f"{plugin.label}: {error}") from None


def _custom(address: str, given: dict[str, Any]) -> Reranker:
    return as_reranker(resolve(address), name=address.rpartition(":")[2], **given)


def as_reranker(model: Any, *, name: str = "", logit: int | None = None, **given: Any) -> Reranker:
    """An object as reranker: one already, a card, a cross-encoder of whichever library, a function of pairs.

    The name of a reranker is enough too, and a class is made.
    """
    from .custom import CustomScorer

    if isinstance(model, str):
        return get_reranker(model, **given)
    model = made(model, name or name_of(model))
    if isinstance(model, Reranker):
        return model if is_ours(model, Reranker) else GuardedReranker(model)
    if isinstance(model, Card):
        return from_card(model, name=name, **given)
    own = {k: given[k] for k in _RERANKER_ONLY if k in given}
    return PointwiseReranker(CustomScorer(model, name=name, logit=logit), **own)
