from __future__ import annotations

import pytest

from r2med.core.registry import Registry


def test_a_registered_name_is_found_before_its_package_is_imported() -> None:
    registry: Registry[object] = Registry("thing", package="r2med.no_such_package")

    @registry.register("first", aliases=["one"])
    class First:
        """The first thing."""

    found = registry["One"]
    assert (found.name, found.summary) == ("first", "The first thing")
    with pytest.raises(ModuleNotFoundError):
        registry.find("second")


@pytest.mark.parametrize(("name", "aliases"), [("first", []), ("one", []), ("second", ["first"]), ("second", ["one"])])
def test_no_two_things_have_one_name(name: str, aliases: list[str]) -> None:
    registry: Registry[object] = Registry("thing")
    registry.register("first", aliases=["one"])(type("First", (), {}))
    with pytest.raises(ValueError, match="is registered twice"):
        registry.register(name, aliases=aliases)(type("Second", (), {}))
