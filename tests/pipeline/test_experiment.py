"""Experiments as data: what a file or a command line asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from r2med.cli.run import command as run_command
from r2med.core import DataError, UsageError
from r2med.pipeline import Experiment, SystemSpec, read_experiment
from r2med.pipeline.experiment import SystemTable

TWO_WEIGHTED = """
tasks = ["mini@1/Biology"]

[[system]]
retrievers = ["bm25", "bm25-lucene"]
fuse = "weighted"
weights = [0.9, 0.1]

[[system]]
retrievers = ["bm25", "bm25-lucene"]
fuse = "weighted"
weights = [0.1, 0.9]
"""


def read(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return [str(system) for system in read_experiment(path).systems()]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(run_command, arguments)


def test_an_experiment_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('tasks = ["mini@1/Biology"]\n[[system]]\nretrievers = ["bm25"]\n')
    assert read_experiment(path) == Experiment(tasks=["mini@1/Biology"], system=[SystemTable(retrievers=["bm25"])])
    for broken in ("[[system]]\nretriever = 1\n", "tasks = [", "x = 1\n", "system = []\n"):
        path.write_text(broken)
        with pytest.raises(DataError, match="is no experiment"):
            read_experiment(path)


def test_parts_and_specs_say_the_same(tmp_path: Path) -> None:
    parts = """
    [[system]]
    retrievers = ["bm25", "bm25-lucene:b=0.4,k1=2"]
    fuse = "rrf"
    k = 7
    expand = "oracle"
    policy = "passages"
    rerank = "maxsim@50"
    rest = "drop"
    [[system]]
    spec = "oracle:policy=passages+bm25+bm25-lucene:k1=2.0.rrf:k=7+maxsim:rest=drop@50"
    """
    assert read(parts, tmp_path) == ["oracle:policy=passages+bm25+bm25-lucene:k1=2.rrf:k=7+maxsim:rest=drop@50"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('spec = "bm25"\nrerank = "maxsim"', "by its spec .* or by its parts"),
        ("", "a system needs a spec, or retrievers"),
        ('retrievers = ["bm25"]\nfuse = "rrf"', "at least two"),
        ('retrievers = ["bm25", "bm25-lucene"]', "need a fusion"),
        ('retrievers = ["bm25", "bm25-lucene"]\nfuse = "rrf"\nweights = [1, 2]', "takes no weights"),
        ('retrievers = ["bm25", "bm25-lucene"]\nfuse = "weighted"\nk = 3', "has no constant k"),
        ('retrievers = ["bm25"]\nweights = [1.0]', "belong to a fusion"),
        ('retrievers = ["bm25"]\npolicy = "passages"', "belongs to an expansion"),
        ('retrievers = ["bm25"]\nrest = "drop"', "belongs to a reranker"),
        ('retrievers = ["bm25", "bm25-lucene"]\nfuse = "rrf:k=10"\nk = 20', "rrf:k=10 says k=10"),
        (
            'retrievers = ["bm25", "bm25-lucene"]\nfuse = "weighted:w=0.1/0.9"\nweights = [0.5, 0.5]',
            "says w=0.1/0.9, and something else",
        ),
        ('retrievers = ["bm25"]\nexpand = "oracle:policy=passages"\npolicy = "append"', "says policy=passages"),
        ('retrievers = ["bm25", "bm25-lucene"]\nfuse = "rrf:k=60"\nk = 20', "rrf says k=60"),
        ('retrievers = ["bm25"]\nrerank = "maxsim:rest=keep@5"\nrest = "drop"', "says rest=keep"),
        ('retrievers = ["bm25"]\nrerank = "maxsim:rest=drop@5"\nrest = "keep"', "says rest=drop"),
        ('spec = "bm25+maxsim:rest=drop@5"\nrest = "keep"', "by its spec .* or by its parts"),
        ('retrievers = ["bm52"]', "did you mean bm25"),
        ('retrievers = ["bm25:k3=1"]', "no parameter 'k3'"),
        ('retrievers = ["bm25:k1=high"]', "must be a number"),
        ('retrievers = ["bm25:k1=-1"]', "at least 0"),
        ('retrievers = ["bm25", "bm25"]\nfuse = "blend"', "unknown fusion"),
    ],
)
def test_systems_that_cannot_be(table: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        read(f"[[system]]\n{table}\n", tmp_path)


def test_two_systems_that_differ_in_weights_are_two_rows_twice_the_same(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO_WEIGHTED)
    arguments = (str(tmp_path / "two.toml"), "--results", str(tmp_path / "r"), "--json")
    first, second = (command(*arguments) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    systems = json.loads(first.stdout)["systems"]
    pair = "bm25+bm25-lucene.weighted:w="
    assert [s["name"] for s in systems] == [f"{pair}0.9/0.1", f"{pair}0.1/0.9"]
    scores = [s["tasks"]["mini@1/Biology"]["ndcg_at_10"] for s in systems]
    assert len(set(scores)) == 2
    assert [s["tasks"] for s in json.loads(second.stdout)["systems"]] == [s["tasks"] for s in systems]


@pytest.mark.parametrize(
    "flags",
    [
        ["--retriever", "bm25-lucene"], ["--rerank", "maxsim@5"], ["--system", "bm25"], ["--expand", "oracle"],
        ["--fuse", "rrf"], ["--weights", "1,2"], ["--policy", "passages"], ["--rest", "drop"], ["--rest", "keep"],
        ["--max-length", "9"],
        ["--candidates", "nano:bm25"], ["--passages", "2"], ["--max-tokens", "9"],
    ],
    ids=lambda flags: flags[0],
)  # fmt: skip
def test_flags_beside_a_file_are_refused(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO_WEIGHTED)
    done = command(str(tmp_path / "two.toml"), *flags, "--results", str(tmp_path / "r"))
    assert isinstance(done.exception, UsageError)
    assert f"leave out {flags[0]}, or the file" in str(done.exception)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "flags",
    [["--rerank", "maxsim@5"], ["--expand", "oracle"], ["--fuse", "rrf"], ["--weights", "1,2"], ["--rest", "drop"]],
    ids=lambda flags: flags[0],
)
def test_flags_beside_a_whole_system_are_refused(flags: list[str], tmp_path: Path) -> None:
    done = command("--system", "bm25+bm25-lucene.rrf", *flags, "--results", str(tmp_path / "r"))
    assert isinstance(done.exception, UsageError)
    assert flags[0] in str(done.exception)


def test_systems_of_the_first_edition_are_read(tmp_path: Path) -> None:
    text = '[[system]]\nretrievers = ["run:nano:bm25"]\n[[system]]\nretrievers = ["bm25"]\nk = 60\n'
    assert read(text.replace("k = 60\n", ""), tmp_path) == ["nano:bm25", "bm25"]
    assert SystemSpec.parse("nano:bm25").retrievers[0].argument == "bm25"
