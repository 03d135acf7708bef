"""Which object this is: what it says of itself, its state, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from r2med.core.identity import Identity, identify, name_of, revision_of
from tests import own_models as models


class Plain:
    def __init__(self, dim: int = 1) -> None:
        self.dim = dim

    def encode(self, texts: list[str]) -> Any:
        return [[self.dim]] * len(texts)


class OfClass(Plain):
    version = "7"


class OfObject(Plain):
    def __init__(self, dim: int = 1, version: str = "7") -> None:
        super().__init__(dim)
        self.version = version


class Computed(Plain):
    @property
    def revision(self) -> str:
        return f"r{self.dim}"


class Called(Plain):
    def cache_key(self) -> str:
        return f"key-{self.dim}"


class Connected(Plain):
    def __init__(self, dim: int = 1) -> None:
        super().__init__(dim)
        self.stream = (number for number in range(dim))


class ConnectedAndSaid(Connected):
    version = "3"


class Slotted:
    version = "7"
    __slots__ = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = dim


class Private:
    version = "7"

    def __init__(self, dim: int) -> None:
        self._dim = dim


class Through:
    version = "7"

    def __init__(self, dim: int, source: Any) -> None:
        self.dim, self.source = dim, source


def test_state_tells_objects_apart() -> None:
    one, same, other = (identify(Plain(dim)) for dim in (64, 64, 4096))
    assert one == same != other
    assert one.facts["class"] == f"{__name__}:Plain"
    assert str(one.facts["state"]).startswith(one.digest)
    assert (len(one.digest), one.unknown) == (8, "")


@pytest.mark.parametrize(
    ("model", "revision"),
    [(OfClass(), "7"), (OfObject(version="8"), "8"), (Computed(3), "r3"), (Called(4), "key-4"), (Plain(), "")],
)
def test_what_an_object_says_of_itself(model: Any, revision: str) -> None:
    assert revision_of(model) == revision
    assert identify(model).facts.get("revision", "") == revision
    assert bool(identify(model).digest) == (not revision)


def test_a_version_of_the_class_says_nothing_about_its_arguments() -> None:
    """`version = "7"` in the class is the code's; objects with other arguments are others all the same."""
    assert identify(OfClass(64)) == identify(OfClass(64)) != identify(OfClass(4096))
    assert identify(OfObject(64)) == identify(OfObject(4096)), "an object's own version is its word"
    assert identify(ConnectedAndSaid(1)) != identify(ConnectedAndSaid(2))
    assert identify(Slotted(1)) == identify(Slotted(1)) != identify(Slotted(2))
    assert identify(Private(1)) == identify(Private(1)) != identify(Private(2))
    one, same, other = (identify(Through(dim, (i for i in range(3)))) for dim in (1, 1, 2))
    assert one == same != other, "an argument that cannot be read does not hide the others"


def test_what_cannot_be_read_is_nobody_else() -> None:
    model = Connected()
    one, other = identify(model), identify(model)
    assert one.facts != other.facts
    assert "generator" in one.unknown
    assert one.digest == ""
    assert identify(ConnectedAndSaid(1)).unknown == ""
    assert isinstance(one, Identity)


def test_functions() -> None:
    assert identify(models.encode).facts["class"] == "tests.own_models:encode"
    assert identify(lambda x: 1).digest != identify(lambda x: 2).digest


def test_names() -> None:
    named = Plain()
    named.name = "/data/models/mine"  # type: ignore[attr-defined]
    assert name_of(named) == "mine"
    assert name_of(Plain()) == f"{__name__}:Plain"
    assert name_of(models.encode) == "tests.own_models:encode"
    named.name = " "  # type: ignore[attr-defined]
    assert name_of(named) == f"{__name__}:Plain"
    space: dict[str, Any] = {}
    exec("def typed(x): return x", space)
    assert name_of(space["typed"]) == "typed"
    assert identify(space["typed"]).facts["class"] == "__main__:typed"
