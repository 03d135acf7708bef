"""Rerankers by model card: cross-encoders, dense and late-interaction models; any folder or hub id; plug-ins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from msgspec import Meta

from ..core import UsageError
from ..core.options import Names, Options, declared_parameters
from ..core.plugins import find_plugin, plugins
from ..core.registry import Entry
from ..core.spec import Spec
from ..models import Card, cards, named_card
from ..models.card import Truncation
from ..retrieve import Build, retrievers
from ..retrieve.cards import (
    CardParameters,
    ModelParameters,
    card_of,
    card_parameters,
    place_card,
    place_name,
    remembered,
)
from ..retrieve.encoders import model_folder
from .contract import Reranker, rerankers
from .pointwise import PairScorer, PointwiseReranker

if TYPE_CHECKING:
    from ..retrieve.dense import DenseRetriever

RERANKS = ("cross-encoder", "dense", "late-interaction")
MAXSIM_MODEL = Spec("bge-small")


@dataclass(frozen=True)
class PairParameters(CardParameters):
    """What may be set on a model that reads a query and a document as one text."""

    truncation: Annotated[Truncation, Meta(description="what a pair that is too long loses")] | None = None

    def changed(self, card: Card) -> Card:
        """The card as these parameters set it."""
        card = super().changed(card)
        return card if self.truncation is None else card.replace(truncation=self.truncation)


@dataclass(frozen=True)
class CrossEncoderParameters(PairParameters):
    """What may be set on a cross-encoder."""

    logit: Annotated[int, Meta(ge=0, description="which output is the score")] | None = None


@dataclass(frozen=True)
class JudgmentParameters(PairParameters, ModelParameters):
    """What may be set on a language model that judges pairs by its next token."""


@dataclass(frozen=True)
class MaxSimParameters(ModelParameters):
    """What may be set on `maxsim`."""

    model: Annotated[Spec, Meta(description="the model whose token vectors are compared"), Names(retrievers.parse)] = (
        MAXSIM_MODEL
    )


def _maxsim(spec: Spec, build: Build) -> Reranker:
    given = spec.values(MaxSimParameters)
    if inside := [*dict(given.model.parameters), *given.model.options]:
        raise UsageError(f"{spec}: {inside[0]} is set on maxsim, not on its model")
    return _late_interaction(spec, build, given.changed(card_of(given.model)), given)


def _from_card(spec: Spec, build: Build) -> Reranker:
    """The reranker of a card."""
    card, options = card_of(spec), build.options.changed(spec.options)
    if card.one_context is not None:
        return _one_context(spec, card, options)
    if card.judgment is not None:
        return PointwiseReranker(_judging(card, spec.values(JudgmentParameters), options), spec, options)
    if card.kind == "cross-encoder":
        return PointwiseReranker(cross_encoder(card, spec.values(CrossEncoderParameters), options), spec, options)
    given = spec.values(ModelParameters)
    if card.kind == "late-interaction":
        return _late_interaction(spec, build, given.changed(card), given)
    from .similarity import VectorScorer

    dense = cast("DenseRetriever", build.retriever(spec.without("rest").at(None)))
    # As the model was found: with the host that serves it.
    return PointwiseReranker(VectorScorer(dense), spec.with_parameters(**dict(dense.spec.parameters)), options)


def _late_interaction(spec: Spec, build: Build, card: Card, given: ModelParameters) -> Reranker:
    from .similarity import MaxSimScorer

    options = build.options.changed(spec.options)
    return PointwiseReranker(MaxSimScorer(card, options, dtype=given.precision(card)), spec, options)


def cross_encoder(card: Card, given: CrossEncoderParameters, options: Options) -> PairScorer:
    """The cross-encoder of a card from the folder its files lie in; nothing is loaded yet.

    Which output is the score a named model's card says, or whoever chooses it; a folder's own configuration tells no
    more than how many there are.
    """
    card = given.changed(card)
    folder = model_folder(card)
    if given.logit is not None:
        card = card.replace(logit=given.logit)
    elif not card.logit and named_card(card.name) is None:
        card = card.replace(logit=relevant_class(folder, card.name))
    if card.backend == "onnx":
        from .cross_encoder import OnnxCrossEncoder

        return OnnxCrossEncoder(card, folder, options)
    from .torch_cross_encoder import TorchCrossEncoder

    base = model_folder(card, "base") if card.base_source else None
    return TorchCrossEncoder(card, folder, options, base=base, dtype=given.precision(card))


def _judging(card: Card, given: JudgmentParameters, options: Options) -> PairScorer:
    from .language_models import JudgingModel

    card = given.changed(card)
    return JudgingModel(card, model_folder(card), options, dtype=given.precision(card))


def _one_context(spec: Spec, card: Card, options: Options) -> Reranker:
    from .language_models import OneContextModel, OneContextReranker

    given = spec.values(CardParameters)
    card = given.changed(card)
    model = OneContextModel(card, model_folder(card), options, dtype=given.precision(card))
    return OneContextReranker(model, spec, options)


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


def _entry(card: Card) -> Entry[Reranker] | None:
    from ..retrieve.dense import DenseParameters

    declared = {"cross-encoder": CrossEncoderParameters, "dense": DenseParameters, "late-interaction": ModelParameters}
    if card.kind not in declared:
        return None
    parameters: type[CardParameters] = declared[card.kind]
    if card.kind == "cross-encoder" and card.one_context is not None:
        parameters = CardParameters
    elif card.judgment is not None:
        parameters = JudgmentParameters
    return Entry(card.name, _from_card, card.summary, card_parameters(card, parameters))


def _named(name: str) -> Entry[Reranker] | None:
    card = named_card(name)
    if card is None:
        return None
    if (entry := _entry(card)) is None:
        raise UsageError(f"{card.name} is a {card.kind} model and cannot rerank")
    return entry


def _placed(text: str) -> Entry[Reranker] | None:
    from ..retrieve.dense import DenseParameters

    if known := remembered(text, DenseParameters, CrossEncoderParameters):
        return known
    card = place_card(text)
    entry = None if card is None else _entry(card)
    if card is None or entry is None:
        return None
    return replace(entry, name=place_name(card), path=Path(card.folder) if card.folder else None)


def _plugged(name: str) -> Entry[Reranker] | None:
    from .custom import from_plugin

    plugin = find_plugin("reranker", name)
    return None if plugin is None else Entry(name, from_plugin, f"plug-in of {plugin.distribution}", open=True)


rerankers.add(
    Entry(
        "maxsim",
        _maxsim,
        "late interaction: sums, over query tokens, of the best match among a passage's tokens",
        declared_parameters(MaxSimParameters),
    )
)
rerankers.finders += [_named, _plugged]
rerankers.places.append(_placed)
rerankers.listings += [
    lambda: (card.name for card in cards() if card.kind in RERANKS),
    lambda: (plugin.name for plugin in plugins("reranker")),
]
