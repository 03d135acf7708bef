"""The LLMs a user can name, and what is known of them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from ..core import UnknownName
from ..core.toml import loads
from .protocol import Sampling


class LlmPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Dollars for a million tokens, as seen on a day."""

    prompt: float
    completion: float
    # Reasoning included.
    seen: str
    # When, as YYYY-MM.
    source: str


class LlmCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of one LLM."""

    name: str
    summary: str = ""
    hub_id: str = ""
    # Open weights: what a server of one's own calls the model.
    api_id: str = ""
    # A model of OpenAI's.
    context: int | None = None
    # Tokens of prompt and answer together.
    marking: str = "auto"
    # How its answers mark reasoning.
    sampling: Sampling = Sampling()
    # What its makers recommend.
    fixed_sampling: bool = False
    # It takes no temperature and no top_p.
    price: LlmPrice | None = None

    @property
    def model(self) -> str:
        """Its name at an endpoint."""
        return self.api_id or self.hub_id or self.name

    @property
    def open(self) -> bool:
        """Its weights are public, so somebody has to serve it."""
        return bool(self.hub_id)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Dollars for so many tokens, where the price is known."""
        if self.price is None:
            return None
        return (prompt_tokens * self.price.prompt + completion_tokens * self.price.completion) / 1e6


@cache
def _catalogue() -> dict[str, LlmCard]:
    data = loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
    return {name: msgspec.convert(facts | {"name": name}, LlmCard) for name, facts in data.items()}


def llm_names() -> tuple[str, ...]:
    """All names of the catalogue, as listed there."""
    return tuple(_catalogue())


def llm_card(name: str) -> LlmCard:
    """The card of a named LLM."""
    card = find_llm(name)
    if card is None:
        raise UnknownName("LLM", name, (*llm_names(), "local"))
    return card


def find_llm(name: str) -> LlmCard | None:
    """The card of a name, spelt with any case, hyphens or underscores; None where there is none."""
    return _catalogue().get(name.casefold().replace("_", "-"))


def card_of_model(model: str) -> LlmCard | None:
    """The card of a model called by its hub id or its name at OpenAI."""
    return next((card for card in _catalogue().values() if model in (card.hub_id, card.api_id)), None)
