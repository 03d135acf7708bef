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
