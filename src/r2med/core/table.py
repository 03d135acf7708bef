"""A table as a value, with its writers: Markdown, HTML for notebooks, CSV, LaTeX and aligned text.

`cli/output.py` draws one on a terminal. Cells are texts that may come from data: every writer makes them harmless for
the place they go to. Numbers are turned into text here too, once, from the value itself.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from .untrusted import printable

NONE = "–"
_MARKDOWN = re.compile(r"([\\`*_<>\[\]|#~$])")
_FORMULA = ("=", "+", "-", "@", "\t")
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", NONE: "--"}
    | {c: f"\\{c}" for c in "&%$#_{}"}
)
_LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
_CELL = "padding:2px 10px;vertical-align:top;background:transparent;color:inherit;border:0"
_HEADING = "display:block;margin-top:.8em"
_QUIET = "opacity:.75;font-size:90%"


class Table(NamedTuple):
    """Titles and rows of cells; the first `left` columns are words, the others figures."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    left: int = 1
    heading: str = ""

    def text(self) -> str:
        """Aligned columns, for a place that shows plain text."""
        lines = [[printable(cell) for cell in row] for row in (self.titles, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [
            "  ".join(
                cell.ljust(width) if i < self.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*aligned, *([printable(self.caption)] if self.caption else [])])

    def markdown(self, *, ready: bool = False) -> str:
        """A Markdown table with its caption below; `ready` texts are Markdown already."""
        show = str if ready else markdown_text
        marks = "".join(":---|" if i < self.left else "---:|" for i in range(len(self.titles)))
        head, *body = (f"| {' | '.join(map(show, row))} |" for row in (self.titles, *self.rows))
        return "\n".join([head, f"|{marks}", *body, *(["", show(self.caption)] if self.caption else [])])

    def csv(self) -> str:
        """Comma-separated values; a cell that a spreadsheet would take for a formula is quoted for it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in (self.titles, *self.rows):
            cells = [printable(cell).replace(NONE, "") for cell in row]
            writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells])
        return out.getvalue()

    def latex(self) -> str:
        """A LaTeX table in the style of booktabs, with the caption as a comment."""
        rows = ([printable(cell).translate(_LATEX) for cell in row] for row in (self.titles, *self.rows))
        head, *body = (" & ".join(row) + r" \\" for row in rows)
        columns = "l" * self.left + "r" * (len(self.titles) - self.left)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([f"% {printable(self.caption)}", *lines, r"\end{tabular}", ""])

    def html(self) -> str:
        """A table for notebooks: no script, and the colours of the page around it, light or dark."""
        head = self._html_row("th", self.titles, f";border-bottom:{_LINE}")
        body = "".join(self._html_row("td", cells) for cells in self.rows)
        heading = f'<strong style="{_HEADING}">{_html(self.heading)}</strong>' if self.heading else ""
        caption = f'<div style="{_QUIET}">{_html(self.caption)}</div>' if self.caption else ""
        return html_block(
            heading, f'<table style="border-collapse:collapse;margin:.4em 0">{head}{body}</table>', caption
        )

    def _html_row(self, tag: str, cells: Sequence[str], line: str = "") -> str:
        row = ""
        for column, cell in enumerate(cells):
            figure = column >= self.left
            style = f"{_CELL};text-align:{'right;font-variant-numeric:tabular-nums' if figure else 'left'}"
            style += ";white-space:nowrap" if column == 0 or figure else ""
            row += f'<{tag} style="{style}{line}">{_html(cell)}</{tag}>'
        return f"<tr>{row}</tr>"


def html_tables(tables: Iterable[Table]) -> str:
    """Several tables, one below the other."""
    return html_block(*(table.html() for table in tables))


def html_block(*parts: str) -> str:
    """Parts that are HTML already, one below the other; wide tables scroll by themselves."""
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def markdown_text(text: str) -> str:
    """A text that means itself in Markdown, on one line."""
    return _MARKDOWN.sub(r"\\\1", printable(" ".join(text.split())))


def _html(text: str) -> str:
    return escape(printable(text))


def points(value: float | None, digits: int = 2) -> str:
    """A score × 100, rounded once from the value itself; an en dash where there is none."""
    return NONE if value is None else f"{100 * value:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """A difference × 100 with its sign; none where it is 0 but for rounding."""
    return f"{100 * value:+.{digits}f}" if abs(value) > 1e-12 else f"{0.0:.{digits}f}"


def interval(low: float, high: float) -> str:
    """Two scores × 100 in brackets."""
    return f"[{points(low)}, {points(high)}]"


def p_value(value: float) -> str:
    """A p value with three digits."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def share(value: float, digits: int = 0) -> str:
    """A share in per cent."""
    return f"{100 * value:.{digits}f} %"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 query`, `3 queries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, length: int = 160) -> str:
    """The beginning of a text on one line, cut at a word."""
    looked_at = text[: 4 * length + 200]  # a text of any size costs the same
    flat = " ".join(looked_at.split())
    if len(flat) <= length and len(looked_at) == len(text):
        return flat
    head = flat[:length].rsplit(" ", 1)[0]
    return f"{head if len(head) > length // 2 else flat[:length]} …"
