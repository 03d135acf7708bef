"""Tables and their writers: harmless wherever they go, and with the numbers in them."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser

import numpy as np
import pytest

import r2med
from r2med.core import Document, Documents, IdTable, Qrels, Query, Task
from r2med.core.table import Mark, Table, counted, interval, p_value, points, share, shortened, signed
from r2med.scoring.evaluation import ScoreSet
from r2med.scoring.intervals import Settings

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Shown(HTMLParser):
    """Tags that are closed in order, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(html)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        for _, value in attrs:
            assert "#" not in str(value), "a colour of its own would not fit a dark page"
            assert "url(" not in str(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture
def task() -> r2med.Task:
    return r2med.load("mini@1/MedQA-Diag")


def test_each_value_shows_its_numbers(task: r2med.Task) -> None:
    run = r2med.BM25().retrieve(task)
    evaluation = r2med.score(run, task)
    scores = ScoreSet.of_evaluations({"bm25": {task.full_name: evaluation}})
    of_task = Shown(task._repr_html_()).text
    assert "13 queries" in of_task
    assert task.queries[0].id in of_task
    assert run.of(task.queries[0].id)[0].doc_id in Shown(run._repr_html_()).text
    expected = f"{100 * evaluation.mean():.2f}"
    assert expected in Shown(scores._repr_html_()).text
    assert expected in Shown(evaluation._repr_html_()).text
    assert "R@5" in Shown(r2med.score(run, task, measures=["R@5"])._repr_html_()).text


def test_a_comparison_shows_intervals(task: r2med.Task) -> None:
    both = {name: r2med.evaluate(name, task) for name in ("bm25", "bm25-lucene")}
    text = Shown(r2med.compare(both, settings=Settings(resamples=500))._repr_html_()).text
    assert "bm25-lucene minus bm25" in text
    assert "95 % interval" in text


def test_hostile_text_stays_text() -> None:
    documents = Documents.of([Document(HOSTILE, HOSTILE), Document("d", "nothing")])
    task = Task(HOSTILE, (Query(HOSTILE, HOSTILE),), documents, Qrels.from_judgments([(HOSTILE, HOSTILE, 1)]))
    for html in (task._repr_html_(), r2med.BM25().retrieve(task).renamed(HOSTILE)._repr_html_()):
        page = Shown(html)
        assert not page.tags & {"script", "img"}
        assert "<script>alert(1)" in page.text


def test_an_empty_run_has_a_table() -> None:
    empty = r2med.Run(IdTable([]), IdTable([]), np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32))
    assert "0 queries" in Shown(empty._repr_html_()).text


ODD = "a\x1b[31m\nb\u202e|&%_$#{}~^\\\\<i>`*["


@pytest.fixture
def hostile() -> Table:
    return Table(["System", ODD], [[ODD, "1.00"], ["=cmd()", "–"]], caption=f"caption {ODD}", heading=ODD)


def test_no_writer_lets_a_cell_out_of_its_place(hostile: Table) -> None:
    written = [hostile.text(), hostile.markdown(), hostile.csv(), hostile.latex(), hostile.html()]
    for text in written:
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert len(hostile.text().splitlines()) == 6
    assert len(hostile._replace(caption="").markdown().splitlines()) == 4
    assert hostile.latex().count("\n") == 15


def test_markdown() -> None:
    table = Table(["System", "n"], [["a|b_c", "1"], ["`x`", "2"]], caption="words")
    assert table.markdown().splitlines() == [
        "| System | n |", "|:---|---:|", r"| a\|b\_c | 1 |", r"| \`x\` | 2 |", "", "words",
    ]  # fmt: skip
    assert Table(["a"], [["`x`"]]).markdown(ready=True).splitlines()[-1] == "| `x` |"


def test_csv_reads_back_and_is_no_formula(hostile: Table) -> None:
    rows = list(csv.reader(io.StringIO(hostile.csv())))
    assert len(rows) == 3
    assert rows[2] == ["'=cmd()", ""]
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row)


def test_csv_keeps_dashes_within_a_cell_and_signs_of_numbers() -> None:
    """`3–5` became 35, and -0.64 was no number any more."""
    table = Table(["Rank", "x"], [["1 (3–5)", "-0.64"], ["–", "+1.5"], ["-cmd", "-1+cmd|'x'"]])
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows[1:] == [["1 (3–5)", "-0.64"], ["", "+1.5"], ["'-cmd", "'-1+cmd|'x'"]]


def test_latex_escapes_what_means_something_there(hostile: Table) -> None:
    """A line break in a collection's name reached LaTeX, where it ends a comment."""
    lines = hostile.latex().splitlines()
    odd = r"a\textbackslash{}x1b[31m\textbackslash{}nb\textbackslash{}u202e\textbar{}\&\%\_\$\#\{\}"
    assert lines[0] == r"% Needs \usepackage{booktabs}; the note below the table explains it."
    assert lines[1:3] == [r"\begin{table*}[t]", r"\centering"]
    assert lines[3].startswith(rf"\caption{{{odd}")
    assert r"\begin{tabular}{@{}lr@{}}" in lines
    body = lines.index(r"\midrule") + 1
    assert lines[body].startswith(odd)
    assert lines[body + 1] == r"=cmd() & -- \\"
    assert lines[-2].startswith(rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize caption {odd}")


def test_latex_shows_marks_and_keeps_figures_below_each_other() -> None:
    marks = {(0, 1): Mark(bold=True, raised="ab", below="1.00–2.00"), (1, 1): Mark(raised="a")}
    text = Table(["System", "Score"], [["x---y", "-1.50"], ["[z]", "0.50"]], heading="Δ × 100").latex(marks)
    lines = text.splitlines()
    body = lines.index(r"\midrule") + 1
    assert lines[body : body + 4] == [
        r"x-{}-{}-y & \textbf{$-$1.50}\textsuperscript{ab} \\",
        r" & {\tiny 1.00--2.00} \\",
        r"\addlinespace",
        r"{}[z] & 0.50\textsuperscript{a\phantom{b}} \\",  # a bracket behind a line's end would be its option
    ]
    assert lines[1] == "% pdfLaTeX lacks Δ: take LuaLaTeX or XeLaTeX and a font that has them."
    assert r"\caption{Δ $\times$ 100}" in lines
    assert "\\parbox" not in text


def test_text_is_aligned() -> None:
    table = Table(["System", "Score"], [["a", "1.00"], ["检索", "10.00"]], caption="words", heading="Scores")
    assert table.text().splitlines() == [
        "Scores",
        "System   Score",
        "─" * 14,
        "a         1.00",
        "检索     10.00",
        "words",
    ]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (points(0.24674996), "24.67"),
        (points(None), "–"),
        (points(1 / 3, 1), "33.3"),
        (signed(-0.001234), "-0.12"),
        (signed(0.5, 1), "+50.0"),
        (interval(0.1, 0.2), "[10.0, 20.0]"),
        (p_value(0.0004), "<0.001"),
        (p_value(0.05), "0.050"),
        (p_value(0.0496), "0.0496"),  # "0.050*" would be a star at a p that is not below 0.05
        (p_value(0.0500003), "0.0500003"),
        (p_value(0.0099), "0.0099"),
        (p_value(0.0514), "0.051"),
        (share(0.256), "26 %"),
        (share(0.9975), "99.8 %"),
        (share(0.99995), "99.995 %"),
        (share(0.003), "0.3 %"),
        (share(1.0), "100 %"),
        (share(0.0), "0 %"),
        (counted(1, "query", "queries"), "1 query"),
        (counted(1200, "task"), "1,200 tasks"),
        (shortened("a\n b   c"), "a b c"),
        (shortened("one two three four", 9), "one two …"),
        (shortened("x" * 50, 20), "x" * 20 + " …"),
    ],
)
def test_numbers_and_words(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_long_text_costs_no_more_than_a_short_one() -> None:
    assert len(shortened("word " * 10_000_000, 50)) < 60
