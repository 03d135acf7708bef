from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import r2med


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
task = r2med.load("mini/MedQA-Diag")
run = r2med.BM25().retrieve(task)
print(r2med.score(run, task).mean())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < 1


def test_evaluate_takes_a_name_or_a_retriever() -> None:
    task = r2med.load("mini/Biology")
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
