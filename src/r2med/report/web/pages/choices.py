"""Choices as rows of links: they work without script, and each has an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from ....tasks import collections
from ..site import Site

T = TypeVar("T")


class Chip(NamedTuple):
    """One choice; without an address it cannot be made here."""

    title: str
    href: str
    chosen: bool


def chips(options: Iterable[tuple[T, str]], chosen: T, link: Callable[[T], str]) -> list[Chip]:
    """Options of which one is chosen; those that lead nowhere are left out."""
    found = [Chip(title, link(value), value == chosen) for value, title in options]
    return [chip for chip in found if chip.href or chip.chosen]


def collection_title(site: Site, slug: str) -> str:
    """A collection's name for people."""
    held = site.held.get(slug)
    if held is not None:
        return held.title
    known = collections().get(slug)
    return known.title if known else slug


def collection_chips(site: Site, chosen: str, link: Callable[[str], str], *, held_only: bool = False) -> list[Chip]:
    """The collections there are."""
    names = list(site.held) if held_only else site.collections()
    return chips([(c, collection_title(site, c)) for c in names], chosen, link)
