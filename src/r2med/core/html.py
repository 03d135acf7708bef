"""Tables for notebooks: escaped text, no script, colours of the page they stand in, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
_CELL = "padding:2px 10px;vertical-align:top;background:transparent;color:inherit;border:0"
_HEADING = "display:block;margin-top:.8em"
_QUIET = "opacity:.75;font-size:90%"


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", left: int = 1, heading: str = ""
) -> str:
    """A table with text in the first `left` columns and figures in the others."""

    def cell(tag: str, text: str, column: int, line: str) -> str:
        align = "left" if column < left else "right"
        figures = "" if column < left else ";font-variant-numeric:tabular-nums"
        figures += ";white-space:nowrap" if column == 0 or column >= left else ""
        return f'<{tag} style="{_CELL};text-align:{align}{figures}{line}">{escape(text)}</{tag}>'

    def row(tag: str, cells: Sequence[str], line: str = "") -> str:
        return "<tr>" + "".join(cell(tag, text, i, line) for i, text in enumerate(cells)) + "</tr>"

    head = row("th", titles, f";border-bottom:{_LINE}")
    body = "".join(row("td", cells) for cells in rows)
    inside = f'<table style="border-collapse:collapse;margin:.4em 0">{head}{body}</table>'
    return block(
        *([f'<strong style="{_HEADING}">{escape(heading)}</strong>'] if heading else []), inside, *(_small(caption))
    )


def block(*parts: str) -> str:
    """Parts that are HTML already, one below the other; wide tables scroll by themselves."""
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def _small(text: str) -> list[str]:
    return [f'<div style="{_QUIET}">{escape(text)}</div>'] if text else []


def shortened(text: str, length: int = 160) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"
