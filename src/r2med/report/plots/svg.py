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

from ...core import MissingExtra, UsageError
from ...core.atomic import write_bytes
from ...core.untrusted import printable

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
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" font-family="{font}">{text}</svg>'
_NOT_XML = re.compile("[\ufffe\uffff]")
WIDE, NARROW = frozenset("MWmw@%—"), frozenset("ijlIftr.,:;|!'()[]/ -")


def text_width(text: str, size: float) -> float:
    """How wide a text will be at most: measured on DejaVu Sans and Verdana, the widest of the fonts asked for."""
    em = sum(0.95 if c in WIDE else 0.42 if c in NARROW else 0.68 if c.isupper() else 0.635 for c in text)
    return em * size


class Canvas:
    """A picture being drawn; y grows downwards, lengths are pixels."""

    def __init__(self, width: float, height: float, *, title: str, description: str = "") -> None:
        self.width, self.height = math.ceil(width), math.ceil(height)
        self.title, self.description = title, description
        self._parts: list[str] = []
        self.rect(0, 0, self.width, self.height, "paper")

    def rect(self, x: float, y: float, width: float, height: float, ink: Ink, *, opacity: float = 1.0) -> None:
        """A filled rectangle."""
        faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
        self._parts.append(
            f'<rect class="f-{ink}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
            f'fill="{INKS[ink].light}"{faint}/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, ink: Ink, *, width: float = 1, dash: str = "") -> None:
        """A straight line in a neutral ink."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line class="l-{ink}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" '
            f'stroke="{INKS[ink].light}" stroke-width="{width:g}"{dashed}/>'
        )

    def bar(self, x1: float, y1: float, x2: float, y2: float, series: int, *, width: float = 2) -> None:
        """A straight line in a series' colour: an interval, a link."""
        index = series % len(SERIES)
        self._parts.append(
            f'<line class="ls{index}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" '
            f'stroke="{SERIES[index].light}" stroke-width="{width:g}" stroke-linecap="round"/>'
        )

    def polyline(self, points: list[tuple[float, float]], ink: Ink, *, width: float = 1, dash: str = "") -> None:
        """A broken line in a neutral ink."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        joined = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(
            f'<polyline class="l-{ink}" points="{joined}" fill="none" stroke="{INKS[ink].light}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def marker(self, x: float, y: float, series: int, *, radius: float = 5, opacity: float = 1.0) -> None:
        """A point in a series' colour and shape."""
        index = series % len(SERIES)
        style = f'class="fs{index} l-paper" fill="{SERIES[index].light}" stroke="{INKS["paper"].light}"'
        style += ' stroke-width="1"' + (f' fill-opacity="{opacity:g}"' if opacity < 1 else "")
        corners = SHAPES[series % len(SHAPES)]
        if not corners:
            self._parts.append(f'<circle {style} cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>')
            return
        reach = radius * (1.3 if len(corners) == 3 else 1.22)
        places = " ".join(
            f"{_n(x + reach * math.sin(math.radians(a)))},{_n(y - reach * math.cos(math.radians(a)))}" for a in corners
        )
        self._parts.append(f'<polygon {style} points="{places}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        ink: Ink = "text",
        anchor: Anchor = "start",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """A line of text; y is its baseline. `turned`: read from below."""
        extra = ' font-weight="bold"' if bold else ""
        extra += f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
        self._parts.append(
            f'<text class="f-{ink}" x="{_n(x)}" y="{_n(y)}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{INKS[ink].light}"{extra}>{_text(text)}</text>'
        )

    @contextmanager
    def link(self, href: str, label: str) -> Iterator[None]:
        """What is drawn inside leads to `href`; without one it only has a label."""
        if href:
            self._parts.append(f'<a href="{_text(href)}" aria-label="{_text(label)}">')
        else:
            self._parts.append("<g>")
        self._parts.append(f"<title>{_text(label)}</title>")
        yield
        self._parts.append("</a>" if href else "</g>")

    def render(self, *, dark: bool = True) -> str:
        """The document; with `dark`, it follows the reader's preference."""
        # A picture with links is not one image to a reader of screens, but a group of them.
        role = "group" if any(part.startswith("<a ") for part in self._parts) else "img"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="{role}" font-family="{FONT}">',
            f"<title>{_text(self.title)}</title>",
            *([f"<desc>{_text(self.description)}</desc>"] if self.description else []),
            *([f"<style>@media (prefers-color-scheme: dark) {{ {_dark_style()} }}</style>"] if dark else []),
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


def _dark_style() -> str:
    rules = [f".f-{name} {{ fill: {c.dark} }} .l-{name} {{ stroke: {c.dark} }}" for name, c in INKS.items()]
    rules += [f".fs{i} {{ fill: {c.dark} }} .ls{i} {{ stroke: {c.dark} }}" for i, c in enumerate(SERIES)]
    return " ".join(rules)


def _n(value: float) -> str:
    """A length with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
