"""Which model an MTEB result is filed under, and what its `model_meta.json` says."""

from __future__ import annotations

from typing import NamedTuple

from ..core import R2MedError, fingerprint
from ..models import Card, find_card
from ..results import SystemInfo
from ..results.store import slug

OURS = "r2med"
UNPINNED = "no_revision_available"
LICENCES = {"mit", "apache-2.0", "cc-by-4.0", "cc-by-nc-4.0"}
FRAMEWORKS = {"onnx": "ONNX", "transformers": "PyTorch", "openai": "API", "voyage": "API"}
TYPES = {"dense": "dense", "lexical": "sparse", "sparse": "sparse", "late-interaction": "late-interaction"}


class ModelIdentity(NamedTuple):
    """A model as MTEB names it."""

    name: str
    revision: str
    exact: bool
    """Whether the system is that model and nothing else: no expansion, no reranker, no quantised weights."""
    kind: str
    card: Card | None

    @property
    def folder(self) -> str:
        """How MTEB's folders spell the name."""
        return self.name.replace("/", "__").replace(" ", "_")


def identity(system: SystemInfo) -> ModelIdentity:
    """The model that results go under.

    A plain dense system of a hub model is that model. Everything else, such as BM25, a fusion, a reranked system or a
    quantised copy, is a system of ours and says so: its figures are not the model's.
    """
    card = _card(system)
    exact = card is not None and not (card.is_api or card.variant or card.folder or card.document_source)
    if card is not None and exact:
        revision = card.revision if card.revision != "main" else UNPINNED
        return ModelIdentity(card.source, revision, True, system.kind, card)
    state = fingerprint("system", system.description)[:12]
    return ModelIdentity(f"{OURS}/{slug(system.name)}", state, False, system.kind, card)


def _card(system: SystemInfo) -> Card | None:
    try:
        card = find_card(system.name)
    except R2MedError:
        return None
    return card if card.kind == system.kind else None


def model_meta(model: ModelIdentity) -> dict[str, object]:
    """What MTEB's `ModelMeta` holds; unknown is null, never a guess."""
    card = model.card
    licence = card.licence.lower() if card else "apache-2.0"
    return {
        "loader": None,
        "name": model.name,
        "revision": model.revision,
        "release_date": None,
        "languages": ["eng-Latn"],
        "n_parameters": card.parameters if card else None,
        "memory_usage_mb": None,
        "max_tokens": card.document_length if card else None,
        "embed_dim": card.dimension if card else None,
        "license": licence if licence in LICENCES else None,
        "open_weights": not card.is_api if card else None,
        "public_training_code": None,
        "public_training_data": None,
        "framework": [FRAMEWORKS[card.backend]] if card and card.backend in FRAMEWORKS else ["NumPy"],
        "reference": f"https://huggingface.co/{card.source}" if card and not card.is_api and not card.folder else None,
        "similarity_fn_name": card.similarity if card and model.kind == "dense" else None,
        "use_instructions": bool(card.instructions.query or card.instructions.document) if card else None,
        "training_datasets": None,
        "adapted_from": None if model.exact or not card or card.folder else card.source,
        "model_type": [TYPES.get(model.kind, "hybrid")],
    }
