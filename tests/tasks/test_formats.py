"""Every layout gives back what was put into it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from r2med.cli.data import data as command
from r2med.core import DataError, Document, Documents, Qrels, Query, Task, UnknownName, UsageError
from r2med.core.stores import Store, open_store, open_stream
from r2med.tasks import convert, load_all, write_task
from r2med.tasks.formats import Expansion, Format, Parts, detect, formats, get_format, layouts, register
from r2med.tasks.load import from_path
from tests.builders import ANY_ID, TEXTS, ids_of, load_path, small_task, tasks

LAYOUTS = [(name, "none") for name in layouts()] + [(name, c) for name in ("r2med", "beir") for c in ("gz", "zst")]


def assert_same(task: Task, other: Task) -> None:
    assert other.queries == task.queries
    assert list(other.documents) == list(task.documents)
    assert other.qrels == task.qrels
    assert other.fingerprint == task.fingerprint


def test_the_formats() -> None:
    assert list(layouts()) == ["r2med", "beir", "hub", "mteb", "nano"]
    with pytest.raises(UnknownName, match="unknown format 'bier'; did you mean beir"):
        get_format("bier")


@pytest.mark.parametrize(("name", "compress"), LAYOUTS)
def test_everything_survives_a_round_trip(name: str, compress: str) -> None:
    @given(tasks(ids_of.get(name, ANY_ID)))
    def check(task: Task) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_task(task, Path(folder), to=name, compress=compress)
            assert detect(open_store(Path(folder)))[0].name == name
            assert_same(task, load_path(Path(folder)))

    check()


@pytest.mark.parametrize("first", layouts())
@pytest.mark.parametrize("second", layouts())
def test_every_layout_converts_to_every_other(tmp_path: Path, first: str, second: str) -> None:
    task = small_task()
    write_task(task, tmp_path / "a", to=first)
    (one,) = convert(from_path(tmp_path / "a"), tmp_path / "b", to=second)
    assert (one.path, one.fingerprint) == (str(tmp_path / "b"), task.fingerprint)
    assert_same(task, load_path(tmp_path / "b"))


EXPANSIONS = st.lists(
    st.builds(
        Expansion,
        st.sampled_from(["hyde", "lamer", "search-o1", "my-method"]),
        st.sampled_from(["gpt4", "huatuo-o1-70b", "qwen-7b"]),
        st.dictionaries(st.sampled_from(["q1", "q2"]), st.lists(TEXTS, max_size=3).map(tuple), min_size=1),
    ),
    max_size=4,
    unique_by=lambda e: e[:2],
)


@pytest.mark.parametrize("name", ["r2med", "beir", "hub"])
def test_expansions_survive(name: str) -> None:
    @given(EXPANSIONS)
    def check(generated: list[Expansion]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_task(small_task(), Path(folder), to=name, expansions=generated)
            (ref,) = from_path(Path(folder))
            assert sorted(ref.expansions()) == sorted(generated)
            assert_same(small_task(), ref.load())

    check()


def test_expansions_travel_between_r2med_and_the_hub(tmp_path: Path) -> None:
    generated = [
        Expansion("hyde", "huatuo-o1-70b", {"q1": ("a text",), "q2": ("β\u2028",)}),
        Expansion("lamer", "gpt4", {"q1": ("one", "two"), "q2": ("three",)}),
    ]
    write_task(small_task(), tmp_path / "a", to="r2med", expansions=generated)
    assert (tmp_path / "a" / "hyde" / "huatuo-o1-70b" / "query_with_hydoc.jsonl").is_file()
    convert(from_path(tmp_path / "a"), tmp_path / "b", to="hub")
    assert (tmp_path / "b" / "hyde" / "huatuo_o1_70b-00000-of-00001.parquet").is_file()
    convert(from_path(tmp_path / "b"), tmp_path / "c", to="r2med", compress="zst")
    (ref,) = from_path(tmp_path / "c")
    assert list(ref.expansions()) == generated


@pytest.mark.parametrize(("to", "lost"), [("beir", 0), ("nano", 1), ("mteb", 1)])
def test_expansions_that_a_layout_cannot_hold_are_counted(tmp_path: Path, to: str, lost: int) -> None:
    generated = [Expansion("hyde", "gpt4", {"q1": ("a passage",)})]
    write_task(small_task(), tmp_path / "a", to="r2med", expansions=generated)
    (written,) = convert(from_path(tmp_path / "a"), tmp_path / "b", to=to)
    assert written.expansions_left_out == lost


def test_several_tasks_go_into_a_folder_each_or_into_one_nano(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_task(small_task(), tmp_path / "src" / name, to="r2med")
    refs = from_path(tmp_path / "src")
    assert [ref.full_name for ref in refs] == ["one", "two"]
    convert(refs, tmp_path / "beir", to="beir")
    assert sorted(p.name for p in (tmp_path / "beir").iterdir()) == ["one", "two"]
    convert(refs, tmp_path / "nano", to="nano")
    loaded = load_all(tmp_path / "nano")
    assert [t.full_name for t in loaded] == ["nano~/one", "nano~/two"], "the folder is not the collection nano"
    for task in loaded:
        assert_same(small_task(), task)


def test_two_tasks_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_task(small_task(), tmp_path / name / "same", to="r2med")
    refs = [*from_path(tmp_path / "x" / "same"), *from_path(tmp_path / "y" / "same")]
    for to in ("beir", "nano"):
        with pytest.raises(UsageError, match="two of the tasks are called 'same'"):
            convert(refs, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


def test_a_nano_folder_keeps_the_names_of_its_splits(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "a", to="nano", split="NanoR2MEDBiology")
    (ref,) = from_path(tmp_path / "a")
    assert (ref.name, ref.split) == ("Biology", "NanoR2MEDBiology")
    convert([ref], tmp_path / "b", to="nano")
    assert (tmp_path / "b" / "corpus" / "NanoR2MEDBiology-00000-of-00001.parquet").is_file()


def test_requests_that_cannot_be(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "a", to="r2med")
    refs = from_path(tmp_path / "a")
    for arguments, message in (
        ({"to": "xml"}, "unknown format 'xml'"),
        ({"to": "beir", "compress": "rar"}, "unknown compression 'rar'; known: none, gz, zst"),
        ({"to": "hub", "compress": "gz"}, "parquet is compressed inside"),
    ):
        with pytest.raises(UsageError, match=message):
            convert(refs, tmp_path / "out", **arguments)
    with pytest.raises(UsageError, match="nothing to convert"):
        convert([], tmp_path / "out", to="beir")
    assert not (tmp_path / "out").exists()


class Tabs(Format):
    """A layout of one's own: three tab-separated files."""

    name = "tabs"
    summary = "documents.tab, questions.tab, relevant.tab"
    holds_expansions = False

    def splits(self, names: list[str]) -> list[str]:
        return [""] if {"documents.tab", "questions.tab", "relevant.tab"} <= set(names) else []

    def read(self, store: Store, split: str) -> Parts:
        def rows(name: str) -> list[list[str]]:
            with open_stream(store, name) as stream:
                return [line.decode().rstrip("\n").split("\t") for line in stream]

        return Parts(
            tuple(Query(i, text) for i, text in rows("questions.tab")),
            Documents.of(Document(i, text) for i, text in rows("documents.tab")),
            Qrels.from_judgments((q, d, int(grade)) for q, d, grade in rows("relevant.tab")),
        )

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        (folder / "documents.tab").write_text("".join(f"{d.id}\t{d.text}\n" for d in parts.documents))
        (folder / "questions.tab").write_text("".join(f"{q.id}\t{q.text}\n" for q in parts.queries))
        (folder / "relevant.tab").write_text("".join(f"{q}\t{d}\t{g}\n" for q, d, g in parts.qrels))


@pytest.fixture
def with_tabs() -> Iterator[None]:
    register(Tabs)
    layouts.cache_clear()
    yield
    formats._entries.pop("tabs")
    layouts.cache_clear()


@pytest.mark.usefixtures("with_tabs")
def test_a_class_is_all_it_takes_to_add_a_layout(tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "nano, tabs" in call("convert", "--help")
    call("convert", "mini@1/Biology", str(tmp_path / "tabs"), "--to", "tabs")
    assert load_path(tmp_path / "tabs").extra["layout"] == "tabs"
    assert "ok (13 queries" in call("validate", str(tmp_path / "tabs"))
    call("convert", str(tmp_path / "tabs"), str(tmp_path / "beir"), "--to", "beir")
    (tmp_path / "tabs" / "documents.tab").unlink()
    with pytest.raises(UnknownName, match="unknown format 'tab'; did you mean tabs"):
        get_format("tab")
    with pytest.raises(DataError, match=r"tabs: documents\.tab, questions\.tab, relevant\.tab\); it holds"):
        from_path(tmp_path / "tabs")


def test_the_documentation_names_every_layout() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    assert all(f"\n| `{name}` | " in page for name in layouts())


def test_two_tasks_are_not_written_as_one_split(tmp_path: Path) -> None:
    """The second overwrote the first: one has the split as its name, the other as a split."""
    write_task(small_task(), tmp_path / "a", to="nano", split="NanoR2MEDBiology")
    write_task(small_task(), tmp_path / "NanoR2MEDBiology", to="r2med")
    refs = [*from_path(tmp_path / "a"), *from_path(tmp_path / "NanoR2MEDBiology")]
    assert [ref.name for ref in refs] == ["Biology", "NanoR2MEDBiology"]
    with pytest.raises(UsageError, match="two of the tasks are called 'NanoR2MEDBiology'"):
        convert(refs, tmp_path / "out", to="nano")
    assert len(convert(refs, tmp_path / "out", to="beir")) == 2
