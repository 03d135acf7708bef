"""Facts on the models behind published figures: parameters, licence and release, from the TOML file beside this.

What nobody published is left out there and is unknown here. A system's facts follow from those of its models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec

from ..core import DataError
from ..core.files import parse_toml

Terms = Literal["open", "restricted", "proprietary", "unknown", "none"]
OPEN = ("apache-2.0", "mit", "public domain")
FUSIONS = (".rrf", ".weighted", ".combsum", ".combmnz", ".tuned")
SERVED = "openai:"  # Stands before the name of a model that a server of one's own has.
FREE = "bm25"  # A method without weights, and without a licence to ask about.


class ServicePrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars that a service takes for a million tokens."""

    per_million: float
    completion: float
    seen: str  # YYYY or YYYY-MM.
    source: str

    def cost(self, tokens: int, completion_tokens: int) -> float:
        """Dollars for tokens read and written."""
        return (tokens * self.per_million + completion_tokens * self.completion) / 1e6


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known about one model."""

    hub: str = ""  # Hub id, or the name at a service.
    parameters: int | None = None
    active: int | None = None  # Parameters that take part in one token, where that is fewer.
    licence: str = ""
    released: str = ""  # YYYY-MM-DD or YYYY-MM.
    source: str  # Where the facts were read.
    price: ServicePrice | None = None  # Of open weights at somebody's service.
    note: str = ""


class SystemFacts(NamedTuple):
    """What is known about all models of a system together."""

    models: tuple[str, ...]
    parameters: int | None  # Of all models; None where one is not known.
    licence: str  # Licences, joined; empty where one is not known.
    terms: Terms
    released: str  # Of its newest model; empty where one is not known.


@cache
def model_facts() -> dict[str, ModelFacts]:
    """Facts by the name that the ledger has for a model."""
    name = "published_models.toml"
    try:
        data: dict[str, Any] = parse_toml(files(__package__).joinpath(name).read_text("utf-8"))
        return msgspec.convert(data["models"], dict[str, ModelFacts])
    except (ValueError, KeyError) as error:
        raise DataError(f"is no file of facts ({error})", path=name) from None


def find_facts(name: str) -> ModelFacts | None:
    """Facts by a model's name or hub id; None where nothing is known."""
    by_hub = (facts for facts in model_facts().values() if facts.hub == name)
    return model_facts().get(name) or next(by_hub, None)


def model_names(system: str) -> list[str]:
    """The models that a published system is made of: `hyde:gpt4+nv+rankllama@10` has gpt4, nv and rankllama."""
    names = []
    for part in system.split("+"):
        name, _, given = part.partition("@")[0].partition(":")
        for suffix in FUSIONS:
            name = name.removesuffix(suffix)
        argument = given.partition(",")[0].removeprefix(SERVED)
        names.append(argument if argument and "=" not in argument else name)
    return list(dict.fromkeys(names))


def system_facts(system: str) -> SystemFacts:
    """Facts on a published system."""
    names = tuple(name for name in model_names(system) if not name.startswith(FREE))
    return joint_facts(names, [find_facts(name) for name in names])


def joint_facts(names: tuple[str, ...], known: Sequence[ModelFacts | None]) -> SystemFacts:
    """Facts on some models together; None stands for a model that nothing is known about."""
    found = [facts for facts in known if facts is not None]
    whole = len(found) == len(names)
    sizes = [facts.parameters for facts in found if facts.parameters is not None]
    licences = [facts.licence for facts in found]
    dates = [facts.released for facts in found]
    return SystemFacts(
        names,
        sum(sizes) if whole and len(sizes) == len(found) else None,
        ", ".join(dict.fromkeys(licences)) if whole and all(licences) else "",
        _terms(licences if whole else [""]),
        max(dates, default="") if whole and all(dates) else "",
    )


def _terms(licences: Iterable[str]) -> Terms:
    """The strictest of some licences; none where a system has no model."""
    kinds = {terms_of(licence) for licence in licences}
    ordered: tuple[Terms, ...] = ("proprietary", "restricted", "unknown", "open")
    return next((kind for kind in ordered if kind in kinds), "none")


def terms_of(licence: str) -> Terms:
    """What a licence means for a user: open, open weights with conditions, a service, or not known."""
    plain = licence.lower()
    if not plain or plain.startswith(("unstated", "not ", "unknown")):
        return "unknown"
    if plain == "proprietary":
        return "proprietary"
    return "open" if plain in OPEN else "restricted"
