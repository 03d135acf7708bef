"""The leaderboard to take along: Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from ..scores import SHORT
from .data.rows import Line, cell_of
from .text import plain

_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_MARKDOWN = re.compile(r"([\\`*_<>\[\]|#~$])")
Rows = list[list[str]]


def table_rows(lines: Sequence[Line], tasks: Sequence[str], average: str) -> Rows:
    """Titles and cells, with nothing to escape yet; an en dash where there is no number."""
    columns = ["average", *(["other"] if len(tasks) > 1 else []), *tasks]
    averages = ["Macro", "By query"] if average == "macro" else ["By query", "Macro"]
    titles = ["System", "Kind", "From", *averages[: 2 if len(tasks) > 1 else 1], *(SHORT.get(t, t) for t in tasks)]
    rows = [titles]
    for line in lines:
        values = (cell_of(line, column, average).value for column in columns)
        scores = ["–" if value is None else f"{value:.2f}" for value in values]
        if not line.row.complete:
            scores[0] = f"{line.row.tasks_of[0]} of {line.row.tasks_of[1]} tasks"
        origin = line.row.origin if line.row.measured else f"{line.row.origin} {line.row.date} {line.row.protocol}"
        rows.append([plain(line.row.label), line.kind, plain(origin), *scores])
    return rows


def markdown(rows: Rows, caption: str) -> str:
    """A Markdown table."""
    safe = [[_MARKDOWN.sub(r"\\\1", " ".join(cell.split())) for cell in row] for row in rows]
    marks = "|:---|:---|:---|" + "---:|" * (len(rows[0]) - 3)
    lines = [f"| {' | '.join(row)} |" for row in safe]
    return "\n".join([lines[0], marks, *lines[1:], "", caption, ""])


def comma_separated(rows: Rows, caption: str) -> str:
    """CSV; a name that a spreadsheet would take for a formula is quoted for it. The caption has no place in it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if cell[:1] in "=+-@\t" and cell else cell.replace("–", "") for cell in row])
    return out.getvalue()


def latex(rows: Rows, caption: str) -> str:
    """A LaTeX table in the style of booktabs."""
    lines = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in rows]
    head = r"\begin{tabular}{lll" + "r" * (len(rows[0]) - 3) + "}"
    body = [head, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([f"% {caption}", *body, ""])


def _tex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text).replace("–", "--")


FORMATS: dict[str, tuple[str, Callable[[Rows, str], str]]] = {
    "md": ("text/markdown", markdown),
    "csv": ("text/csv", comma_separated),
    "tex": ("text/x-tex", latex),
}
