"""Pictures into files: SVG as it is, PNG through resvg."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ...core import MissingExtra, UsageError
from ...core.atomic import write_bytes
from .svg import Canvas

SUFFIXES = (".svg", ".png")
ZOOM = 2
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" font-family="{font}">{text}</svg>'


def check_output(path: Path) -> None:
    """Say before any work that a picture cannot be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture's name ends in .svg or .png")
    if path.suffix.lower() == ".png":
        _check_fonts()


def write_picture(canvas: Canvas, path: Path) -> None:
    """Write one picture; a PNG has twice the pixels and is always light."""
    check_output(path)
    if path.suffix.lower() == ".svg":
        write_bytes(path, canvas.render().encode())
        return
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
    from .svg import FONT

    word = '<text x="2" y="15" font-size="14">Ag</text>'
    if _png(_PROBE.format(font=FONT, text=word)) == _png(_PROBE.format(font=FONT, text="")):
        raise UsageError("PNG needs a font, and this machine has none that fits; install DejaVu Sans or write .svg")
