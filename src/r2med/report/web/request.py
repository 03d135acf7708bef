"""What a visitor asks for, and the addresses that ask for it: every view has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

LONGEST = 1 << 16


@dataclass(frozen=True)
class PageRequest:
    """A page, what it is about, and choices."""

    page: str
    parts: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, path: str, query: str) -> PageRequest:
        """From the two halves of an address. All but the first two parts of a path belong to one id."""
        page, *rest = path[:LONGEST].lstrip("/").split("/", 3)
        params = parse_qsl(query[:LONGEST], keep_blank_values=False, errors="replace", max_num_fields=None)
        return cls(page, tuple(unquote(part) for part in rest if part), tuple(params))

    @classmethod
    def from_url(cls, url: str) -> PageRequest:
        """From an address that `Links` made."""
        split = urlsplit(url)
        return cls.of(split.path, split.query)

    def get(self, name: str, default: str = "") -> str:
        """One choice."""
        return next((value for key, value in self.params if key == name), default)

    def all(self, name: str) -> list[str]:
        """A choice that can be made several times, each value once."""
        return list(dict.fromkeys(value for key, value in self.params if key == name))


class Page(NamedTuple):
    """What a page function returns: a template and what goes into it."""

    template: str
    title: str
    context: Mapping[str, Any]
    section: str = ""


class Links:
    """Addresses of the running app."""

    brief = False
    """Whether pages should be kept short."""

    def __call__(self, page: str, *parts: str, **params: str | Sequence[str]) -> str:
        """The address of a page; empty where that page is not there."""
        pairs = [
            (name, value)
            for name, given in sorted(params.items())
            for value in ([given] if isinstance(given, str) else given)
            if value
        ]
        path = "/" + "/".join([page, *(quote(part, safe="") for part in parts)])
        return path + (f"?{urlencode(pairs)}" if pairs else "")

    def near(self, page: str, *parts: str, **params: str | Sequence[str]) -> str:
        """The address of a page, or of the same page with its usual choices where only that is there."""
        return self(page, *parts, **params) or self(page, *parts)


class FileLinks(Links):
    """Addresses inside one file: an anchor for each page that was put into it."""

    brief = True

    def __init__(self, anchors: Mapping[str, str]) -> None:
        self.anchors = anchors

    def __call__(self, page: str, *parts: str, **params: str | Sequence[str]) -> str:
        anchor = self.anchors.get(super().__call__(page, *parts, **params))
        return f"#{anchor}" if anchor else ""
