from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import r2med
from r2med.cli import app


def test_all_is_sorted_and_true() -> None:
    names = [n for n in r2med.__all__ if n != "__version__"]
    assert names == sorted(names, key=lambda n: (n.upper() != n and not n[0].isupper(), n))
    for name in r2med.__all__:
        assert getattr(r2med, name) is not None
    assert dir(r2med) == sorted(r2med.__all__)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = r2med.nonsense


def test_five_lines_to_a_table() -> None:
    code = """
import r2med
from r2med.cli import app
task = r2med.load("mini@1/MedQA-Diag")
run = r2med.BM25().retrieve(task)
print(r2med.score(run, task).mean())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < 1


def test_evaluate_takes_a_name_or_a_retriever() -> None:
    task = r2med.load("mini@1/Biology")
    by_name = r2med.evaluate("bm25", task, measures=["nDCG@10"])
    assert list(by_name.per_query) == ["nDCG@10"]
    assert by_name.mean() == r2med.evaluate(r2med.BM25(), task).mean()


@pytest.mark.parametrize("first", ["r2med.fuse", "r2med.api.experiments", "r2med.rerank", "r2med.expand"])
def test_functions_are_not_hidden_by_rooms_of_their_name(first: str) -> None:
    code = f"import r2med, {first}; print(*(callable(getattr(r2med, n)) for n in ('expand', 'fuse', 'rerank')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3


def test_names_are_seen_by_type_checkers() -> None:
    """A type checker reads only names that stand in `__all__` as they are."""
    tree = ast.parse(Path(r2med.__file__).read_text("utf-8"))
    (value,) = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    assert sorted(ast.literal_eval(value)) == dir(r2med)


FUNCTIONS = {
    "run": "run plan systems",
    "search": "search",
    "score": "score",
    "compare": "compare compare_stored latex_tables per_query",
    "design": "design",
    "judge agree": "judge_agree",
    "judge check": "judge_check",
    "judge finish": "judge_finish",
    "judge pool": "judge_pool",
    "judge relabel": "relabel",
    "judge run": "judge_run judge_plan",
    "judge serve": "judge_serve",
    "board build": "build_board",
    "bundle pack": "pack_bundle",
    "bundle check": "check_bundle",
    "bundle add": "add_bundle",
    "leaderboard": "leaderboard",
    "recommend": "recommend",
    "reproduce": "reproduce",
    "plot scores": "plot_scores",
    "plot pareto": "plot_pareto",
    "plot ranks": "plot_ranks",
    "plot scatter": "plot_scatter",
    "plot truncation": "plot_truncation",
    "view": "view",
    "report": "write_report",
    "tasks": "list_tasks",
    "data add": "add_collection",
    "data remove": "remove_collection",
    "data download": "download",
    "data validate": "validate",
    "data stats": "stats",
    "data convert": "convert",
    "data audit": "audit",
    "nano build": "build_nano",
    "nano profile": "nano_profile",
    "nano fidelity": "nano_fidelity",
    "pages": "write_pages",
    "tune": "tune",
    "models": "list_models",
    "models fetch": "fetch_model",
    "models where": "model_folder",
    "models show": "describe_model",
    "models serve": "serve_command wait_for_server",
    "protocol": "list_protocols",
    "protocol show": "describe_protocol",
    "protocol fetch": "fetch_protocol",
    "quickstart": "quickstart",
    "expand": "expand diagnose",
    "export training": "export_training",
    "export hub": "export_hub",
    "export mteb": "export_mteb",
    "export ledger": "export_ledger",
    "export trec": "export_trec",
    "export beir": "export_beir",
    "cache": "cache_entries",
    "cache verify": "verify_cache",
    "cache prune": "prune_cache",
    "doctor": "check_installation",
    "completion": "",  # of use to a shell only
}


def _commands(command: click.Command, name: str = "") -> Iterator[str]:
    context = click.Context(command)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from _commands(found, f"{name} {sub}".strip())


def test_everything_the_command_can_do_is_a_function() -> None:
    assert {name for name in _commands(app) if name} == {*FUNCTIONS}
    for function in " ".join(FUNCTIONS.values()).split():
        signature = inspect.signature(getattr(r2med, function))
        assert getattr(r2med, function).__doc__
        assert not [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD], function
        assert all(p.annotation is not p.empty for p in signature.parameters.values()), function
        assert signature.return_annotation is not signature.empty, function


def test_functions_give_what_the_command_prints(tmp_path: Path) -> None:
    r2med.run("bm25", "bm25-lucene", tasks=["mini@1/Biology", "mini@1/MedQA-Diag"], results=tmp_path)
    board = r2med.leaderboard(tmp_path, collection="mini@1")
    assert {"bm25", "bm25-lucene"} <= {row.system for row in board.rows}
    assert r2med.compare("bm25", "bm25-lucene", results=tmp_path).pairs
    picture = r2med.plot_scatter(tmp_path / "two.svg", "bm25", "bm25-lucene", results=tmp_path)
    assert picture.canvas.title in (tmp_path / "two.svg").read_text("utf-8")
    assert r2med.write_report(tmp_path / "all.html", tmp_path).pages > 1
    (built,) = r2med.build_nano("mini@1/Biology", out=tmp_path / "nano", docs=50, dense="none").tasks
    assert list(r2med.nano_profile(str(tmp_path / "nano")).tasks) == [built.split]
    assert r2med.validate(str(tmp_path / "nano"))[0].errors == []
    assert [s.queries for s in r2med.stats("mini@1/Biology", "mini@1/MedQA-Diag")] == [13, 13]
    (written,) = r2med.convert("mini@1/Biology", tmp_path / "beir", to="beir")
    assert r2med.load(str(tmp_path / "beir")).fingerprint == written.fingerprint
    assert {row.kind for row in r2med.list_models("chat")} == {"chat"}
