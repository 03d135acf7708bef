"""From an address to HTML: what a visitor asks for, text from data made safe, templates.

Text from data is never run, and nothing in it is hidden: control characters, NULs and marks that turn the direction of
writing are shown by their number (`v` in templates), everything else is escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from markupsafe import Markup, escape

from ...core import MissingExtra
from ...core.table import p_value, points, share, shortened, signed
from ...text import get_analyzer
from ...text.english import words
from ..pictures import short

LONGEST = 1 << 16
# C0 but tab and line feed, DEL and C1, zero-width space, direction marks, separators, BOM, half characters.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_JOINT = re.compile(r"(?<=[+,:/@_])|(?=\.[a-z])")


@dataclass(frozen=True)
class PageRequest:
    """A page, what it is about, and choices."""

    page: str
    parts: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    form: tuple[tuple[str, str], ...] | None = None  # what a form sent, which no address holds

    @classmethod
    def of(cls, path: str, query: str) -> PageRequest:
        """From the two halves of an address. All but the first two parts of a path belong to one id."""
        page, *rest = path[:LONGEST].lstrip("/").split("/", 3)
        params = parse_qsl(query[:LONGEST], keep_blank_values=False, errors="replace", max_num_fields=None)
        return cls(page, tuple(unquote(part) for part in rest if part), tuple(params))

    @classmethod
    def of_form(cls, path: str, body: bytes) -> PageRequest:
        """From a form that was sent."""
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=50)
        return replace(cls.of(path, ""), form=tuple(pairs))

    @classmethod
    def from_url(cls, url: str) -> PageRequest:
        """From an address that `Links` made."""
        split = urlsplit(url)
        return cls.of(split.path, split.query)

    def get(self, name: str, default: str = "") -> str:
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

    brief = False  # Whether pages should be kept short.

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


def visible(text: object) -> Markup:
    """A text as it is, odd characters shown by their numbers."""
    return Markup(_ODD.sub(_shown, escape(str(text))))


def _shown(match: re.Match[str]) -> str:
    if match[0] == "\r":
        return ""
    name = unicodedata.name(match[0], "control character").lower()
    return f'<span class="odd" title="{name}">U+{ord(match[0]):04X}</span>'


def breakable(text: object) -> Markup:
    """A name as it is, with places where a line may be broken: behind the signs that join the parts of a spec."""
    return Markup("<wbr>").join(visible(part) for part in _JOINT.split(str(text)))


def plain(text: object) -> str:
    """The same for places that take no markup, such as the title of a window."""
    return _ODD.sub(lambda match: "" if match[0] == "\r" else f"[U+{ord(match[0]):04X}]", str(text))


def terms_of(text: str) -> frozenset[str]:
    """The terms that a lexical retriever would look for."""
    return frozenset(get_analyzer("english")(text))


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    found = get_analyzer("english")(word)
    return found[0] if len(found) == 1 else ""


def marked(text: str, terms: Collection[str], *, most: int | None = None, more: Collection[str] = ()) -> Markup:
    """A text with the words of `terms` marked, and those of `more` in another way, cut after `most` characters."""
    shown = text if most is None or len(text) <= most else _cut(text, most)
    out, at, done = list[Markup](), 0, 0
    for word in words(shown) if terms or more else ():
        start = shown.find(word, done)
        done = start + len(word)
        term = _term(word)
        if term and (term in terms or term in more):
            kind = Markup("<mark>") if term in terms else Markup('<mark class="added">')
            out += [visible(shown[at:start]), kind, visible(word), Markup("</mark>")]
            at = done
    out.append(visible(shown[at:]))
    return Markup("".join(out) + (" …" if len(shown) < len(text) else ""))


def matching_words(text: str, terms: Collection[str]) -> set[str]:
    """The words of a text, as they stand in it, that `marked` would mark."""
    return {word for word in words(text) if _term(word) in terms} if terms else set()


def _cut(text: str, most: int) -> str:
    head = text[:most]
    short = head.rsplit(None, 1)[0]
    return short if len(short) > most // 2 else head


def shared_words(text: str, terms: Collection[str]) -> dict[str, str]:
    """Terms of a text that are among `terms`, each with the word it first stands as."""
    found: dict[str, str] = {}
    for word in words(text):
        term = _term(word)
        if term in terms and term not in found:
            found[term] = word if word.isupper() and len(word) > 1 else word.lower()
    return found


if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> Environment:
    """The templates that come with the package."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("pages for the browser", "view") from None
    made = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        v=visible,
        name=breakable,
        plain=plain,
        points=points,
        signed=with_minus,
        p_value=p_value,
        share=share,
        span=span,
        shortened=shortened,
        amount=short,
    )
    return made


def static_file(name: str, package: str = __package__ or "") -> bytes:
    """A file of the app itself, or of another one that is served in the same way."""
    return files(package).joinpath("static", name).read_bytes()


def compile_templates() -> None:
    """Compile all templates before the first page needs one."""
    made = environment()
    for name in made.list_templates():
        made.get_template(name)


def with_minus(value: float, digits: int = 2) -> str:
    """A difference × 100 with its sign, a true minus."""
    return signed(value, digits).replace("-", "−")


def span(seconds: float) -> str:
    """A time for people."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def page_html(
    page: Page, url: Links, *, layout: str = "layout.html", live: bool = True, running: bool = False,
    tryable: bool = False, **more: Any,
) -> str:  # fmt: skip
    """A whole page of the running app; with `bare.html`, only what is special about it, for the single file.

    `submitted` has what a public board says about systems; `more` is for layouts of others.
    """
    about: dict[str, Any] = {
        "page": page,
        "url": url,
        "layout": layout,
        "live": live,
        "running": running,
        "tryable": tryable,
        "submitted": {},
    }
    about |= more
    html: str = environment().get_template(page.template).render(about | dict(page.context))
    return html
