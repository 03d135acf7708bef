"""Retrievers by model card: the named models, any folder, any hub id; and plug-ins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ..core import MissingExtra, Task, UsageError
from ..core.files import exists, typed_path
from ..core.options import Options, Parameter, declared_parameters, path_exists
from ..core.plugins import find_plugin, plugins
from ..core.queries import Side
from ..core.registry import Entry
from ..core.spec import Content, Spec
from ..models import Card, cards, find_card, missing_extra, named_card
from ..models.prompts import PAPER, names_of, own_wording, pack_of, read_pack, wording
from .contract import Remote, Retriever, retrievers

RETRIEVES = ("dense", "sparse", "late-interaction")


@dataclass(frozen=True)
class CardParameters:
    """What may be set on any model with a card."""

    max_length: Annotated[int, Meta(ge=1, description="tokens that a text, or a pair of texts, keeps")] | None = None
    dtype: Annotated[str, Meta(description="precision: float32, float16, float16-autocast or bfloat16")] | None = None
    protocol: Annotated[Literal["r2med-paper"], Meta(description="the settings of the paper's scripts")] | None = None

    def changed(self, card: Card) -> Card:
        """The card as these parameters set it."""
        if self.dtype is not None and card.backend != "transformers":
            where = "behind an API" if card.is_api else "in ONNX Runtime"
            raise UsageError(f"{card.name} runs {where}, where its precision is fixed: leave out dtype={self.dtype}")
        if self.protocol is not None:
            card = card.published()
        if self.max_length is not None:
            card = card.replace(query_length=self.max_length, document_length=self.max_length)
        return card

    def precision(self, card: Card) -> str | None:
        """What was asked for; under the paper's protocol what its scripts used; else None: what suits the device."""
        if self.dtype is not None or self.protocol is None or card.backend != "transformers":
            return self.dtype
        return card.dtype or None


@dataclass(frozen=True)
class ModelParameters(CardParameters):
    """What may be set on any model that encodes."""

    prompts: Annotated[Content, Meta(description="a prompt pack in place of the task instructions")] | None = None

    def changed(self, card: Card) -> Card:
        """The card as these parameters set it."""
        card = super().changed(card)
        return card if self.prompts is None else card.with_prompts(self.prompts.located())


def card_of(spec: Spec) -> Card:
    """The card behind a spec."""
    return find_card(str(spec.path) if spec.path is not None else spec.name)


def with_paper_pack(spec: Spec) -> Spec:
    """A model under the paper's protocol with the paper's instructions, where they were fetched."""
    given = spec.get("prompts")
    if spec.get("protocol") != PAPER or not own_wording(card_of(spec)):
        return spec
    pack = pack_of(PAPER)
    if pack is None or given not in (None, pack) or not read_pack(pack.located()).speaks_to(card_of(spec)):
        return spec
    return spec.with_parameters(prompts=pack)


def with_pack(spec: Spec, pack: Content) -> Spec:
    """A retriever with a prompt pack, as far as it takes instructions and the pack has some for it."""
    if "prompts" not in retrievers.declared(spec):
        return spec
    card = card_of(spec)
    if not (card.takes_instructions and read_pack(pack.located()).speaks_to(card)):
        return spec
    return retrievers.changed(spec, prompts=pack)


def prefix_for(card: Card, side: Side, task: Task) -> str:
    """What stands before every text of a side."""
    return card.prefix(side, card.instruction(side, *names_of(task)))


def _pack(spec: Spec) -> Content | None:
    pack = spec.get("prompts")
    return pack if isinstance(pack, Content) else None


def wording_of(spec: Spec, card: Card) -> str:
    """Whose words a model is instructed in; empty where it takes no instruction."""
    return wording(card, _pack(spec))


def instructed(spec: Spec, card: Card) -> dict[str, object]:
    """The instructions of a model as facts, with whose they are where somebody chose them."""
    facts: dict[str, object] = {"instructions": card.describe().get("instructions", {})}
    if _pack(spec) or spec.get("protocol") is not None:
        facts |= {"prompts": whose} if (whose := wording_of(spec, card)) else {}
    return facts


def instructed_for(spec: Spec, card: Card, task: Task) -> dict[str, object]:
    """What a pack says before the texts of a task; a pack that lacks the task is refused before anything is encoded."""
    if _pack(spec) is None or not card.takes_instructions:
        return {}
    return {"prefixes": [prefix_for(card, "query", task), prefix_for(card, "document", task)]}


class ModelRetriever(Retriever):
    """Ranks by what a model makes of queries and documents."""

    prepares = "encode documents"
    card: Card | None
    encoder: Any

    def __init__(self, card: Card | None, spec: Spec, encoder: Any, options: Options) -> None:
        self.card, self.spec, self.options = card, spec, options
        self.encoder = self._own_encoder = encoder

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "query": self.encoder.describe("query"),
            "document": self.encoder.describe("document"),
            **(instructed(self.spec, self.card) if self.card else {"instructions": {}}),
        }

    def task_facts(self, task: Task) -> dict[str, object]:
        """What the model is told before the texts of this task, where a prompt pack says it."""
        return instructed_for(self.spec, self.card, task) if self.card else {}

    def check(self) -> None:
        """Raise what would stop it later, such as a missing key or extra."""
        check = getattr(self.encoder, "check", None)
        if check is not None:
            check()
        elif self.card is not None and (extra := missing_extra(self.card)):
            raise MissingExtra(f"running {self.name}", extra)

    def instruction(self, side: Side, *names: str) -> str:
        """What stands before every text of a side, for a task or a family of tasks."""
        return self.card.prefix(side, self.card.instruction(side, *names)) if self.card else ""

    def distribute(self, remote: Remote | None) -> None:
        """Let workers encode, unless the model runs elsewhere already."""
        own = self._own_encoder
        if remote is None or not getattr(own, "runs_here", True):
            self.encoder = own
        else:
            self.encoder = remote.encoder(own, self.spec, self.options)


def card_parameters(card: Card, declared: Any) -> dict[str, Parameter]:
    """Declared parameters with the defaults of one card: what the card says already need not be said again."""
    found = declared_parameters(declared)
    defaults: dict[str, object] = {}
    if card.query_length == card.document_length:
        defaults["max_length"] = card.document_length
    if "similarity" in found:
        defaults["similarity"] = card.similarity
    if "truncation" in found:
        defaults["truncation"] = card.truncation
    # Beside `protocol` a length or a similarity is the paper's unless it is said, so the card's own must be kept.
    found |= {name: found[name]._replace(default=value, unless="protocol") for name, value in defaults.items()}
    if "query_length" in found:
        found["query_length"] = found["query_length"]._replace(default=card.query_length, unless="max_length")
    if "dim" in found:
        found["dim"] = found["dim"]._replace(default=card.dimension)
        found["dimension"] = found["dimension"]._replace(default=card.dimension, unless="dim")
    if card.published() == card and not own_wording(card) and card.backend != "transformers":
        # Nothing is left to differ; in transformers the precision may.
        found["protocol"] = found["protocol"]._replace(default=PAPER)
    return found


def place_card(text: str) -> Card | None:
    """The card of a folder or a hub id; None for anything else."""
    path = typed_path(text)
    is_folder = (exists(path) and path.is_dir()) or text.startswith(("/", "./", "../", "~"))
    return find_card(text) if is_folder or "/" in text else None


def place_name(card: Card) -> str:
    """How a model without a card of its own prints: a hub id as it is, a folder by its content."""
    if not card.folder:
        return card.name
    return f"{Path(card.folder).name}~{card.revision.removeprefix('local-')[:8]}"


def remembered(text: str, *declared: Any) -> Entry[Any] | None:
    """A model folder that is known by its printed name alone: it can be read about, and not be loaded."""
    known = None if path_exists(text) else Content.read(text)
    if known is None:
        return None

    def make(spec: Spec, *given: object) -> Any:
        del spec, given
        return known.located()

    parameters = {name: p for kind in declared for name, p in declared_parameters(kind).items()}
    return Entry(text, make, "a model folder that is not at hand", parameters)


def entry_of(card: Card) -> Entry[Retriever] | None:
    """The entry of a card that retrieves."""
    from .dense import DenseParameters, DenseRetriever
    from .late_interaction import InteractionParameters, MaxSimRetriever
    from .splade import SpladeRetriever

    makers: dict[str, tuple[Any, Any]] = {
        "dense": (DenseRetriever.from_spec, DenseParameters),
        "late-interaction": (MaxSimRetriever.from_spec, InteractionParameters),
        "sparse": (SpladeRetriever.from_spec, ModelParameters),
    }
    if card.kind not in makers:
        return None
    make, declared = makers[card.kind]
    return Entry(card.name, make, card.summary, card_parameters(card, declared))


def _named(name: str) -> Entry[Retriever] | None:
    card = named_card(name)
    if card is None:
        return None
    if (entry := entry_of(card)) is None:
        raise UsageError(f"{card.name} is a {card.kind} model, not a retriever")
    return entry


def _placed(text: str) -> Entry[Retriever] | None:
    from .dense import DenseParameters

    if known := remembered(text, DenseParameters):
        return known
    card = place_card(text)
    if card is None:
        return None
    if (entry := entry_of(card)) is None:
        raise UsageError(f"{text} is a {card.kind} model, not a retriever")
    return replace(entry, name=place_name(card), path=Path(card.folder) if card.folder else None)


def _plugged(name: str) -> Entry[Retriever] | None:
    from .custom import from_plugin

    plugin = find_plugin("retriever", name)
    return None if plugin is None else Entry(name, from_plugin, f"plug-in of {plugin.distribution}", open=True)


retrievers.finders += [_named, _plugged]
retrievers.places.append(_placed)
retrievers.listings += [
    lambda: (card.name for card in cards() if card.kind in RETRIEVES),
    lambda: (plugin.name for plugin in plugins("retriever")),
]
