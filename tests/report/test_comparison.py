"""Tables for a paper: the marks are the comparison's own, and a real LaTeX takes them as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.browse import leaderboard
from r2med.cli.compare import command as compare_command
from r2med.cli.run import command as run_command
from r2med.core import DataError, UsageError
from r2med.core.table import Table, points
from r2med.report.comparison import comparison_latex, read_flags, scores_latex
from r2med.report.scores import Scores
from r2med.scoring import MAIN
from r2med.scoring.compare import Comparison, compare
from r2med.scoring.evaluation import ScoreSet, TaskScores
from r2med.scoring.intervals import Settings

QUICK = Settings(resamples=500)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper") / "results"
    r2med.run("bm25", "bm25-lucene", tasks="mini@1", fuse="rrf", results=root)
    return root


def synthetic(of_tasks: int = 3, systems: int = 4) -> Comparison:
    """The second is much better than the first on two of three tasks, the third is like it, the fourth is the first."""
    random = np.random.default_rng(0)
    tasks = []
    for number in range(3):
        first = random.uniform(0.1, 0.4, 40)
        better = first + (0.3 if number else 0.001) * random.uniform(0.5, 1, 40)
        alike = first + random.normal(0, 0.05, 40)
        scores = np.stack([first, better, alike, first])[:systems]
        tasks.append(TaskScores(f"own/T{number}", tuple(f"q{i}" for i in range(40)), scores))
    names = ("base", "better", "alike", "again")[:systems]
    return compare(ScoreSet(names, tuple(tasks), of_tasks), QUICK)


class Cell(NamedTuple):
    text: str
    bold: bool
    raised: str
    below: str


def read(latex: str) -> tuple[list[str], dict[str, dict[str, Cell]]]:
    """The titles and the cells of the first table, by system and title."""
    body = latex.partition("\\toprule\n")[2].partition("\n\\bottomrule")[0]
    lines = [line.removesuffix(r" \\").split(" & ") for line in body.splitlines() if "&" in line]
    titles, *rows = lines
    systems: dict[str, dict[str, Cell]] = {}
    for scores, intervals in zip(rows[::2], rows[1::2], strict=True):
        cells = {}
        for title, cell, below in zip(titles[1:], scores[1:], intervals[1:], strict=True):
            raised = re.search(r"\\textsuperscript\{([^\\}]*)", cell)
            text = re.sub(r"\\textsuperscript\{.*", "", cell)
            bold = re.fullmatch(r"\\textbf\{(.*)\}", text)
            low_high = re.fullmatch(r"\{\\tiny (.*)\}", below.strip())
            assert low_high
            cells[title] = Cell(bold[1] if bold else text, bool(bold), raised[1] if raised else "", low_high[1])
        systems[scores[0]] = cells
    return titles, systems


def test_marks_are_those_of_the_comparison() -> None:
    found = synthetic()
    titles, cells = read(comparison_latex(found))
    assert titles == ["System", "T0", "T1", "T2", "Macro", "By query"]
    assert list(cells) == ["base", "better", "alike", "again"]
    starred = set()
    against = {pair.second: pair for pair in found.pairs if pair.first == "base"}
    for system in found.systems:
        row, pair = cells[system.name], against.get(system.name)
        for number, name in enumerate(("own/T0", "own/T1", "own/T2", "By query")):
            estimate = system.tasks.get(name, system.query_weighted)
            cell = row[name.removeprefix("own/")]
            assert (cell.text, cell.below) == (
                points(estimate.value),
                f"{points(estimate.low, 1)}--{points(estimate.high, 1)}",
            )
            line = [*pair.tasks.values(), pair.query_weighted][number] if pair else None
            assert cell.raised == ("*" if line and line.different else "")
            starred.add(cell.raised)
        assert row["Macro"].raised == found.letters[system.name]
        assert row["Macro"].text == points(system.macro.value)
    assert starred == {"", "*"}
    assert len({cells[name]["Macro"].raised for name in cells}) > 1
    for title in titles[1:]:
        best = max(float(row[title].text) for row in cells.values())
        assert all(row[title].bold == (float(row[title].text) == best) for row in cells.values())


def test_the_best_of_a_column_are_all_that_print_alike() -> None:
    _, cells = read(comparison_latex(synthetic(systems=4)))
    assert cells["base"]["T0"].text == cells["again"]["T0"].text
    assert cells["base"]["T0"].bold == cells["again"]["T0"].bold


def test_the_note_explains_every_mark_and_nothing_else() -> None:
    latex = comparison_latex(synthetic())
    for words in ("Below each score: its 95", "Bold: the best", "share a letter", "* marks what differs", "from base"):
        assert words in latex
    one = synthetic(systems=2)
    alone = scores_latex(one.systems[:1], MAIN, QUICK, None, {})
    assert not re.search(r"textbf|textsuperscript|Bold|letter", alone)
    assert "Mean of only 3 of 8 tasks" in comparison_latex(synthetic(of_tasks=8))


def test_each_pair_has_a_table_with_its_stars() -> None:
    found = synthetic(systems=2)
    table = comparison_latex(found).split(r"\begin{table*}")[2]
    assert r"\caption{nDCG@10 $\times$ 100: better minus base.}" in table
    rows = [line for line in table.splitlines() if line.startswith(("own/", "Macro", "By query"))]
    lines = [*found.pairs[0].tasks.values(), found.pairs[0].macro, found.pairs[0].query_weighted]
    assert [r"*" in row for row in rows] == [line.different for line in lines]
    assert "Detectable" not in table


def test_a_flag_means_one_query(tmp_path: Path) -> None:
    """An id that two tasks have flagged the query of both."""
    tasks = [TaskScores(name, ("1", "2"), np.zeros((2, 2))) for name in ("a", "b")]
    scores = ScoreSet(("x", "y"), (*tasks, TaskScores("c", ("3",), np.zeros((2, 1)))), 3)
    (tmp_path / "flags").write_text("a\t1\n\n3\n")
    assert read_flags(tmp_path / "flags", scores) == {("a", "1"), ("c", "3")}
    (tmp_path / "flags").write_text("3\n1\n")
    with pytest.raises(DataError, match="flags:2: '1' is a query of a, b: write the task and a tab before it"):
        read_flags(tmp_path / "flags", scores)


def test_run_and_compare_agree(results: Path) -> None:
    arguments = ["-t", "mini@1", "-r", "bm25", "-r", "bm25-lucene", "--results", str(results), "--latex"]
    ran = CliRunner().invoke(run_command, arguments, catch_exceptions=False)
    compared = CliRunner().invoke(compare_command, ["bm25", "bm25-lucene", "--results", str(results), "--latex"])
    assert compared.exit_code == 0, compared.output
    assert compared.stdout.startswith(ran.stdout.rstrip("\n"))
    titles, cells = read(ran.stdout)
    assert titles[1:3] == ["Biology", "Bioinf"]
    letters = r2med.compare("bm25", "bm25-lucene", results=results).letters
    assert {name: row["Macro"].raised for name, row in cells.items()} == letters


def test_one_system_and_several_collections(results: Path) -> None:
    alone = r2med.run("bm25", tasks="mini@1/Biology", results=results).to_latex(QUICK)
    titles, cells = read(alone)
    assert (titles, list(cells), cells["bm25"]["Biology"].bold) == (["System", "Biology"], ["bm25"], False)
    both = r2med.run("bm25", "bm25-lucene", tasks=["mini@1/Biology", "mini-dev/Biology"], results=results)
    assert re.findall(r"caption\{.*? on (.*?)\.\}", both.to_latex(QUICK)) == ["mini@1", "mini-dev"]
    with pytest.raises(UsageError, match="no folder"):
        Scores(both.results).to_latex()


def test_one_form_at_a_time(results: Path) -> None:
    for asked in (run_command, ["--markdown", "--latex"]), (compare_command, ["a", "b", "--json", "--latex"]):
        done = CliRunner().invoke(asked[0], asked[1])
        assert "exclude each other" in done.output


def test_a_real_latex_takes_them_as_they_are(results: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine")
    if not subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).stdout:
        pytest.skip("pdflatex has no booktabs.sty here")
    odd = "a\x1b[31m\nb|&%_$#{}~^\\\\<i>`*[--“é”ø×−≤≠κτ…"
    hostile = Table(["*", odd], [["[1pt]", "-1.00"], ["*", "–"], [odd, "<0.001*"]], caption=odd, heading=odd)
    stored = r2med.run("bm25", "bm25-lucene", tasks="mini@1", results=results)
    board = CliRunner().invoke(leaderboard, ["-c", "mini@1", "--results", str(results), "--latex"]).stdout
    published = CliRunner().invoke(leaderboard, ["--published", "--protocol", "all", "-n", "40", "--latex"]).stdout
    tables = [stored.to_latex(QUICK), comparison_latex(synthetic()), hostile.latex(), board, published]
    preamble = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "paper.tex").write_text(f"{preamble}{chr(10).join(tables)}\\end{{document}}\n", "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
