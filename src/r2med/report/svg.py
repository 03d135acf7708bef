"""A small SVG writer: shapes and text in numbered series colours that work on light and on dark pages; PNG from it.

Colours are Okabe and Ito's, chosen for all kinds of colour vision; every series has a shape of its own besides, so
that a picture also reads in grey. Light colours are attributes, dark ones a style sheet that only dark pages apply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

from ..core import MissingExtra, UsageError
from ..core.files import write_bytes
from ..core.untrusted import printable

FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
Anchor = Literal["start", "middle", "end"]
Ink = Literal["text", "muted", "grid", "axis", "paper"]


class Colour(NamedTuple):
    """One colour on white and on black."""

    light: str
    dark: str


INKS: dict[str, Colour] = {
    "text": Colour("#1a1a1a", "#f0f0f0"),
    "muted": Colour("#595959", "#b0b0b0"),
    "grid": Colour("#dddddd", "#3a3a3a"),
    "axis": Colour("#8a8a8a", "#808080"),
    "paper": Colour("#ffffff", "#16181c"),
}
SERIES = (
    Colour("#0072b2", "#4ba3dc"),
    Colour("#d55e00", "#f08c3c"),
    Colour("#009e73", "#2fc79b"),
    Colour("#b0508a", "#dd92bd"),
    Colour("#b07a00", "#ecb93c"),
    Colour("#2f8fc4", "#8fd0f5"),
    Colour("#555555", "#c8c8c8"),
)
# Corners on the unit circle, in degrees from the top; an empty tuple is a circle. Six shapes and seven colours give
# forty-two different marks.
SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (45, 135, 225, 315),
    (0, 120, 240),
    (0, 90, 180, 270),
    (60, 180, 300),
    (0, 72, 144, 216, 288),
)
SUFFIXES = (".svg", ".png")
ZOOM = 2
WIDE, NARROW = frozenset("MWmw@%—"), frozenset("ijlIftr.,:;|!'()[]/ -")
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" font-family="{font}">{text}</svg>'
_NOT_XML = re.compile("[\ufffe\uffff]")
_DARK = " ".join(
    [f".f-{name} {{ fill: {c.dark} }} .l-{name} {{ stroke: {c.dark} }}" for name, c in INKS.items()]
    + [f".fs{i} {{ fill: {c.dark} }} .ls{i} {{ stroke: {c.dark} }}" for i, c in enumerate(SERIES)]
)


def text_width(text: str, size: float) -> float:
    """How wide a text will be at most: measured on DejaVu Sans and Verdana, the widest of the fonts asked for."""
    em = sum(0.95 if c in WIDE else 0.42 if c in NARROW else 0.68 if c.isupper() else 0.635 for c in text)
    return em * size


class Canvas:
    """A picture being drawn; y grows downwards, lengths are pixels, the height is set when it is known."""

    def __init__(self, width: float, height: float = 0.0, *, title: str, description: str = "") -> None:
        self.width, self.height = math.ceil(width), math.ceil(height)
        self.title, self.description = title, description
        self._parts: list[str] = []

    def _add(self, tag: str, *, content: str = "", **attributes: str | float | None) -> None:
        """An element; an attribute that is None is left out."""
        given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
        shown = " ".join(f'{n}="{_text(v) if isinstance(v, str) else _number(v)}"' for n, v in given.items())
        self._parts.append(f"<{tag} {shown}>{_text(content)}</{tag}>" if content else f"<{tag} {shown}/>")

    def rect(self, x: float, y: float, width: float, height: float, ink: Ink, *, opacity: float | None = None) -> None:
        fill = INKS[ink].light
        self._add("rect", class_=f"f-{ink}", x=x, y=y, width=width, height=height, fill=fill, fill_opacity=opacity)

    def line(self, x1: float, y1: float, x2: float, y2: float, ink: Ink, *, width: float = 1) -> None:
        """A straight line in a neutral ink."""
        stroke = INKS[ink].light
        self._add("line", class_=f"l-{ink}", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width)

    def bar(self, x1: float, y1: float, x2: float, y2: float, series: int, *, width: float = 2) -> None:
        """A straight line in a series' colour: an interval, a link."""
        index = series % len(SERIES)
        colour = {"class_": f"ls{index}", "stroke": SERIES[index].light}
        self._add("line", **colour, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=width, stroke_linecap="round")

    def polyline(self, points: list[tuple[float, float]], ink: Ink, *, width: float = 1, dash: str = "") -> None:
        places, stroke = _places(points), INKS[ink].light
        line = {"class_": f"l-{ink}", "points": places, "fill": "none", "stroke": stroke}
        self._add("polyline", **line, stroke_width=width, stroke_dasharray=dash or None)

    def marker(self, x: float, y: float, series: int, *, radius: float = 5, opacity: float | None = None) -> None:
        """A point in a series' colour and shape."""
        index, corners = series % len(SERIES), SHAPES[series % len(SHAPES)]
        style = {"class_": f"fs{index} l-paper", "fill": SERIES[index].light, "stroke": INKS["paper"].light}
        if not corners:
            self._add("circle", **style, stroke_width=1, fill_opacity=opacity, cx=x, cy=y, r=radius)
            return
        reach = radius * (1.3 if len(corners) == 3 else 1.22)
        turned = [(math.sin(math.radians(a)), -math.cos(math.radians(a))) for a in corners]
        points = _places([(x + reach * across, y + reach * down) for across, down in turned])
        self._add("polygon", **style, stroke_width=1, fill_opacity=opacity, points=points)

    def text(
        self, x: float, y: float, text: str, *, size: float = 12, ink: Ink = "text", anchor: Anchor = "start",
        bold: bool = False, turned: bool = False,
    ) -> None:  # fmt: skip
        """A line of text; y is its baseline. `turned`: read from below."""
        weight = "bold" if bold else None
        turn = f"rotate(-90 {_number(x)} {_number(y)})" if turned else None
        style = {"class_": f"f-{ink}", "text_anchor": anchor, "fill": INKS[ink].light, "font_weight": weight}
        self._add("text", **style, x=x, y=y, font_size=size, transform=turn, content=text)

    @contextmanager
    def link(self, href: str, label: str) -> Iterator[None]:
        """What is drawn inside leads to `href`; without one it only has a label."""
        self._parts.append(f'<a href="{_text(href)}" aria-label="{_text(label)}">' if href else "<g>")
        self._parts.append(f"<title>{_text(label)}</title>")
        yield
        self._parts.append("</a>" if href else "</g>")

    def render(self, *, dark: bool = True) -> str:
        """The document; with `dark`, it follows the reader's preference."""
        # A picture with links is not one image to a reader of screens, but a group of them.
        role = "group" if any(part.startswith("<a ") for part in self._parts) else "img"
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="{role}" font-family="{FONT}">',
            f"<title>{_text(self.title)}</title>",
            *([f"<desc>{_text(self.description)}</desc>"] if self.description else []),
            *([f"<style>@media (prefers-color-scheme: dark) {{ {_DARK} }}</style>"] if dark else []),
            f'<rect class="f-paper" width="{self.width}" height="{self.height}" fill="{INKS["paper"].light}"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def check_output(path: Path) -> None:
    """Refuse a picture that cannot be written, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture's name ends in .svg or .png")
    if path.suffix.lower() == ".png":
        _check_fonts()


def write_picture(canvas: Canvas, path: Path) -> None:
    """Write one picture; a PNG has twice the pixels and is always light."""
    check_output(path)
    if path.suffix.lower() == ".svg":
        write_bytes(path, canvas.render().encode())
    else:
        write_bytes(path, _png(canvas.render(dark=False)))


def _png(svg: str) -> bytes:
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MissingExtra("writing PNG", "plots") from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=ZOOM))


@cache
def _check_fonts() -> None:
    """A machine without fonts would give pictures without a word in them."""
    word = '<text x="2" y="15" font-size="14">Ag</text>'
    if _png(_PROBE.format(font=FONT, text=word)) == _png(_PROBE.format(font=FONT, text="")):
        raise UsageError("PNG needs a font, and this machine has none that fits; install DejaVu Sans or write .svg")


def _text(text: str) -> str:
    """A text as XML may hold it: no control characters, no half characters."""
    return _NOT_XML.sub("\ufffd", escape(printable(text)))


def _places(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    """A length with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
