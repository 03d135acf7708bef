from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import DataError, UnknownName
from r2med.integrations.upstream.tree import Tree, below, find_names, find_tree


def test_a_name_is_one_folder(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    expected = tmp_path / "results" / "base retriever" / "bm25" / "Biology.json"
    assert tree.scores("base retriever", "bm25", task="Biology") == expected
    names = ["Own", "own", "org/model", "org_model", "..", "a:b", "a+b", "x" * 300]
    found = {below(tmp_path, name) for name in names}
    assert len({path.name.lower() for path in found}) == len(names)
    assert {path.parent for path in found} == {tmp_path}


def test_folders_of_the_published_tree_are_found(tmp_path: Path) -> None:
    """Also under names that we would write otherwise."""
    (tmp_path / "My LLM").mkdir()
    assert below(tmp_path, "My LLM", "bm25") == tmp_path / "My LLM" / "bm25"
    assert below(tmp_path, "My_LLM") != below(tmp_path, "My LLM")


def test_task_folders_by_any_spelling(tmp_path: Path) -> None:
    for name in ("Biology", "MedQA", "mine"):
        (tmp_path / "dataset" / name).mkdir(parents=True)
    tree = find_tree(str(tmp_path))
    assert tree == Tree(tmp_path)
    assert find_names("Stack-Biology", tree) == ["Biology"]
    assert find_names("MedQA-Diag", tree) == ["MedQA"]
    assert find_names("mine", tree) == ["mine"]
    with pytest.raises(UnknownName, match="did you mean mine"):
        find_names("mime", tree)
    with pytest.raises(DataError, match="has no task Bioinformatics"):
        find_names("All", tree)
