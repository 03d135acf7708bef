"""A table as a value, with its writers: Markdown, HTML for notebooks, CSV, LaTeX and aligned text.

`cli/layout.py` fits one into a terminal. Cells are texts that may come from data: every writer makes them harmless for
the place they go to. Numbers are turned into text here too, once, from the value itself.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from .untrusted import printable

NONE = "–"
GAP = " " * 3
"""What stands between two columns of plain text."""
_MARKDOWN = re.compile(r"([\\`*_<>\[\]|#~$])")
_FORMULA = re.compile(r"[=@\t]|[-+](?!\d[\d.]*$)")
"""What a spreadsheet takes for a formula; a number with a sign is none."""
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\ldots{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"×": r"$\times$", "−": "$-$", "≤": r"$\leq$", "≠": r"$\neq$", "κ": r"$\kappa$", "τ": r"$\tau$"}
    | {c: f"\\{c}" for c in "&%$#_{}"}
)
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")
_PDFLATEX = {*map(chr, range(0xA1, 0x180)), *"—‘’“”•€™"} - {*"«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧſŲų"}
"""Characters beside ASCII that pdfLaTeX prints without further packages."""
_LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
_CELL = "padding:2px 10px;vertical-align:top;background:transparent;color:inherit;border:0"
_HEADING = "display:block;margin-top:.8em"
_QUIET = "opacity:.75;font-size:90%"


class Mark(NamedTuple):
    """What a paper's table shows of a cell beside its text."""

    bold: bool = False
    raised: str = ""  # Behind it, small and high.
    below: str = ""  # Below it, small.

    def around(self, text: str, widest: str) -> str:
        """A cell in LaTeX; `widest` is the longest mark of its column, so that figures stay below each other."""
        rest = widest[len(self.raised) :]
        behind = latex_text(self.raised) + (rf"\phantom{{{latex_text(rest)}}}" if rest else "")
        return (rf"\textbf{{{text}}}" if self.bold else text) + (rf"\textsuperscript{{{behind}}}" if behind else "")


class Table(NamedTuple):
    """Titles and rows of cells; the first `left` columns are words, the others figures."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    left: int = 1
    heading: str = ""

    def text(self) -> str:
        """Aligned columns, with the heading above and the caption below: for a pipe, and for a Python prompt."""
        titles, *rows = [[printable(cell) for cell in row] for row in (self.titles, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(titles, *rows, strict=True)]
        head, *body = [
            GAP.join(padded(cell, widths[i], right=i >= self.left) for i, cell in enumerate(row)).rstrip()
            for row in (titles, *rows)
        ]
        rule = "─" * max(map(cell_len, (head, *body)))
        around = [[printable(text)] if text else [] for text in (self.heading, self.caption)]
        return "\n".join([*around[0], head, rule, *body, *around[1]])

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
            cells = ["" if cell == NONE else printable(cell) for cell in row]
            writer.writerow([f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells])
        return out.getvalue()

    def latex(self, marks: Mapping[tuple[int, int], Mark] | None = None) -> str:
        """A LaTeX table in the style of booktabs, with the heading as its caption and the caption as a note below.

        `marks` say by row and column which cells are bold, what is raised behind them and what stands below them.
        """
        marks = marks or {}
        behind = [max((m.raised for (_, at), m in marks.items() if at == i), key=len, default="")
                  for i in range(len(self.titles))]  # fmt: skip
        lines = [_latex_row(self._latex_cell(cell, i) for i, cell in enumerate(self.titles)), r"\midrule"]
        for number, row in enumerate(self.rows):
            of_row = [marks.get((number, i), Mark()) for i in range(len(row))]
            cells = [m.around(self._latex_cell(cell, i), behind[i])
                     for i, (cell, m) in enumerate(zip(row, of_row, strict=True))]  # fmt: skip
            lines.append(_latex_row(cells))
            if any(m.below for m in of_row):
                small = (rf"{{\tiny {self._latex_cell(m.below, self.left)}}}" if m.below else "" for m in of_row)
                lines += [_latex_row(small), *([r"\addlinespace"] if number + 1 < len(self.rows) else [])]
        body = "\n".join(lines)
        columns = "l" * self.left + "r" * (len(self.titles) - self.left)
        heading, note = latex_text(self.heading), latex_text(self.caption)
        return "\n".join(
            [
                r"% Needs \usepackage{booktabs}; the note below the table explains it.",
                *_latex_fonts(body + heading + note),
                r"\begin{table*}[t]",
                r"\centering",
                *([rf"\caption{{{heading}}}"] if heading else []),
                r"\small\setlength{\tabcolsep}{3pt}",
                rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
                r"\toprule",
                body,
                r"\bottomrule",
                r"\end{tabular}",
                *([rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {note}}}"] if note else []),
                r"\end{table*}",
                "",
            ]
        )

    def _latex_cell(self, cell: str, column: int) -> str:
        text = latex_text(cell)
        return _MINUS.sub("$-$", text) if column >= self.left else text

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


def cell_len(text: str) -> int:
    """How many cells of a terminal a text takes: a Chinese character has two, a combining one none."""
    if text.isascii():
        return len(text)
    without = ("Mn", "Me", "Cf")
    return sum(
        0 if unicodedata.category(c) in without else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A text with spaces up to a width in cells, before it or behind it."""
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _latex_row(cells: Iterable[str]) -> str:
    """A row; what stands first must not be taken for an option of the line before it."""
    row = " & ".join(cells)
    return ("{}" if row.startswith(("[", "*")) else "") + row + r" \\"


def _latex_fonts(text: str) -> list[str]:
    """A comment that names the characters which pdfLaTeX does not print."""
    lacking = "".join(sorted({c for c in text if not c.isascii()} - _PDFLATEX))
    return [f"% pdfLaTeX lacks {lacking}: take LuaLaTeX or XeLaTeX and a font that has them."] if lacking else []


def latex_text(text: str) -> str:
    """A text that means itself in LaTeX, on one line."""
    escaped = printable(unicodedata.normalize("NFC", text)).translate(_LATEX)
    return re.sub("-(?=-)", "-{}", escaped).replace(NONE, "--")  # two hyphens would be a dash


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
    """Two ends of a score's interval × 100 in brackets: resampling leaves one digit certain."""
    return f"[{points(low, 1)}, {points(high, 1)}]"


LEVELS = (0.1, 0.05, 0.01)
"""What p values are held against."""


def p_value(value: float) -> str:
    """A p value with three digits, or as many as it takes not to print a usual level for what lies beside it."""
    if value < 0.001:
        return "<0.001"
    shown = (f"{value:.{digits}f}" for digits in range(3, 18))
    return next(text for text in shown if float(text) not in LEVELS or float(text) == value)


def share(value: float | None, digits: int = 0) -> str:
    """A share in per cent; an en dash where there is none. Only all is 100 %, and only nothing 0 %."""
    if value is None:
        return NONE
    shown = (f"{100 * value:.{more}f}" for more in range(digits, 18))
    return next(text for text in shown if float(text) not in (0, 100) or abs(100 * value - float(text)) < 1e-9) + " %"


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
