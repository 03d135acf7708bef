"""A protocol's instructions, read from its repository's files into a prompt pack."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from r2med.core import DataError, UsageError
from r2med.models import find_card
from r2med.models.prompts import pack_of, pack_place, read_pack
from r2med.pipeline.protocol_pack import fetch_pack
from r2med.results.protocols import get_protocol, read_protocol
from tests.paper_files import KEYS, instruction_file, write_clone, write_protocol

CLONE = os.environ.get("R2MED_CLONE", "")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return write_clone(tmp_path / "clone")


@pytest.fixture
def protocol(tmp_path: Path) -> Path:
    return write_protocol(tmp_path / "own.toml")


def test_instructions_stand_before_texts_as_the_files_have_them(clone: Path, protocol: Path) -> None:
    done = fetch_pack(read_protocol(str(protocol)), clone)
    pack = read_pack(Path(done.path))
    for key, task in KEYS.items():
        for name in (task, key):
            e5, instructor = pack.applied(find_card("e5")), pack.applied(find_card("inst-l"))
            assert e5.prefix("query", e5.instruction("query", name)) == f"Instruct: Look up what settles {key}\nQuery: "
            assert e5.prefix("document", e5.instruction("document", name)) == ""
            assert instructor.prefix("document", instructor.instruction("document", name)) == f"State the {key} page: "
            bmr = pack.applied(find_card("bmr-2b"))
            assert bmr.prefix("query", bmr.instruction("query", name)) == f"Look up what settles {key}\nQuery: "
            assert bmr.prefix("document", bmr.instruction("document", name)) == "State this page\npage: "
    assert set(done.tasks) == set(KEYS.values())
    assert done.models["bge"] == {"query": 8, "document": 0}
    assert done.methods == {"hyde": 8, "query2doc": 8, "lamer": 8}
    assert all(task["examples"] == {"query2doc": 2} for task in done.tasks.values())


def test_the_same_files_make_the_same_pack(clone: Path, protocol: Path) -> None:
    first = fetch_pack(read_protocol(str(protocol)), clone)
    again = fetch_pack(read_protocol(str(protocol)), clone / "src")
    assert (first.digest, first.tasks) == (again.digest, again.tasks)
    assert pack_of("r2med-paper") is not None
    assert not first.published, "not the pack that the protocol's file names"


@pytest.mark.parametrize("file", ["example.py", "instrcution.py"])
def test_an_edited_file_is_named_and_nothing_is_written(clone: Path, protocol: Path, file: str) -> None:
    path = clone / "src" / file
    path.write_text(path.read_text("utf-8") + "\n", "utf-8", newline="")
    with pytest.raises(DataError, match=rf"{file}: is not the file of commit 0123456: SHA-256 .* expected .* nothing"):
        fetch_pack(read_protocol(str(protocol)), clone)
    assert not pack_place("r2med-paper").parent.exists()


def test_a_folder_without_the_files(tmp_path: Path, protocol: Path) -> None:
    with pytest.raises(DataError, match=r"holds no src/example\.py: give a clone"):
        fetch_pack(read_protocol(str(protocol)), tmp_path)


def test_code_in_a_value_is_refused_and_not_run(tmp_path: Path) -> None:
    """A protocol file may name the hash of any file: what the file says is refused all the same."""
    mark = tmp_path / "was-run"
    code = f"x = open({str(mark)!r}, 'w')\n"
    folder, protocol = write_clone(tmp_path / "bad", code), write_protocol(tmp_path / "bad.toml", instructions=code)
    with pytest.raises(DataError, match=r"instrcution\.py:1: holds a call in a value: only literals are read"):
        fetch_pack(read_protocol(str(protocol)), folder)
    assert not mark.exists()
    assert not pack_place("r2med-paper").exists()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("generate_hy_doc", "other", "holds no table generate_hy_doc"),
        ("{TEXT}\\nPassage: \"", "{WHO}\\nPassage: \"", "gap"),
        ('"inst-l": inst_q', '"inst-l": ["a"]', "where instructions belong"),
    ],
)  # fmt: skip
def test_a_file_of_another_shape(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in instruction_file()
    changed = instruction_file().replace(old, new)
    folder = write_clone(tmp_path / "bad", changed)
    protocol = write_protocol(tmp_path / "bad.toml", instructions=changed)
    with pytest.raises(DataError, match=why):
        fetch_pack(read_protocol(str(protocol)), folder)
    assert not pack_place("r2med-paper").exists()


def test_a_protocol_without_a_source_has_nothing_to_fetch() -> None:
    with pytest.raises(UsageError, match="protocol mteb has nothing to fetch"):
        fetch_pack(get_protocol("mteb"))


@pytest.mark.skipif(not CLONE, reason="no clone of the R2MED repository: set R2MED_CLONE to one")
def test_the_real_files_give_the_pack_that_the_protocol_names() -> None:
    done = fetch_pack(get_protocol("r2med-paper"), Path(CLONE))
    assert done.published
    pack = read_pack(Path(done.path))
    theirs = _run_theirs(Path(CLONE) / "src")
    for key, task in KEYS.items():
        for model, lines in theirs["query_instruction"].items():
            card = pack.applied(find_card(model))
            wanted = lines if isinstance(lines, str) else lines[key]
            assert card.prefix("query", card.instruction("query", task)) == wanted
        for model, lines in theirs["doc_instruction"].items():
            card = pack.applied(find_card(model))
            wanted = lines if isinstance(lines, str) else lines[key]
            assert card.prefix("document", card.instruction("document", task)) == wanted


def _run_theirs(folder: Path) -> dict[str, dict[str, dict[str, str] | str]]:
    """The repository's own tables, by running its file: for comparison, in this test only."""
    sys.path.insert(0, str(folder))
    try:
        module = ModuleType("instrcution")
        exec((folder / "instrcution.py").read_text("utf-8"), vars(module))
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("example", None)
    return vars(module)
