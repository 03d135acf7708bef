"""Names from data that are paths: nothing is ever written outside the output folder, and no two names share a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from r2med.cli.data import data as data_command
from r2med.cli.publish import export as export_command
from r2med.core import HostileData, R2MedError, UsageError
from r2med.core.files import write_bytes
from r2med.pipeline.nano_build import build_nano
from r2med.retrieve import BM25
from r2med.tasks import convert, load_all, write_task
from r2med.tasks.formats import layouts
from r2med.tasks.load import from_path
from r2med.tasks.nano import PoolSettings
from r2med.tasks.nano.folder import Manifest, changed_files
from tests.builders import r2med_folder, small_task

HOSTILE = [
    "..", ".", "...", "../..", "a/b", "../out2", "/abs", "a\\b", "..\\x", "C:x", "x\n", "\x1b[2J", " x", "~", "-rf",
]  # fmt: skip

CORPUS = {"_id": ["d1", "d2"], "text": ["one", "two"]}
QUERIES = {"_id": ["q1"], "text": ["first"]}
QRELS = {"query-id": ["q1"], "corpus-id": ["d1"], "score": [1]}


def parquet(columns: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def nano(split: str, config: str = "bm25") -> dict[str, bytes]:
    """A Nano folder whose split, or a config of candidates, has that name."""
    files = {f"{c}/{split}.parquet": parquet(t) for c, t in (("corpus", CORPUS), ("queries", QUERIES))}
    files[f"qrels/{split}.parquet"] = parquet(QRELS)
    candidates = pa.table({"query-id": ["q1"], "corpus-ids": [["d1", "d2"]]})
    buffer = io.BytesIO()
    pq.write_table(candidates, buffer)
    return files | {f"{config}/{split}-00000-of-00001.parquet": buffer.getvalue()}


def r2med(method: str, llm: str) -> dict[str, bytes]:
    """R2MED's own layout with generated texts under these names."""
    return {
        "corpus.jsonl": b'{"id": "d1", "text": "one"}\n',
        "query.jsonl": b'{"id": "q1", "text": "first"}\n',
        "qrels.jsonl": b'{"q_id": "q1", "p_id": "d1", "score": 1}\n',
        f"{method}/{llm}/query_with_hydoc.jsonl": b'{"id": "q1", "hy_doc": "text"}\n',
        f"hyde/{llm}.jsonl": b'{"id": "q1", "hy_doc": "other"}\n',
    }


def hub(method: str, llm: str) -> dict[str, bytes]:
    """The hub's layout with generated texts under these names."""
    files = {
        "corpus/corpus.parquet": parquet({"id": ["d1"], "text": ["one"]}),
        "query/query.parquet": parquet({"id": ["q1"], "text": ["first"]}),
        "qrels/qrels.parquet": parquet({"q_id": ["q1"], "p_id": ["d1"], "score": [1]}),
    }
    return files | {f"{method}/{llm}.parquet": parquet({"id": ["q1"], "hy_doc": ["text"]})}


SOURCES: dict[str, Callable[[str], dict[str, bytes]]] = {
    "split": nano,
    "config": lambda name: nano("task", config=name),
    "method": lambda name: r2med(name, "gpt4"),
    "model": lambda name: r2med("hyde", name),
    "hub method": lambda name: hub(name, "gpt4"),
    "hub model": lambda name: hub("hyde", name),
}


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name) if name else "x", content)
    return path


def laid_out(folder: Path, members: dict[str, bytes]) -> Path:
    """The same as files, as far as a file system takes such names."""
    for name, content in members.items():
        try:
            path = folder / name
            if folder in path.resolve().parents:
                write_bytes(path, content)
        except (OSError, ValueError, R2MedError):
            continue
    return folder


def content(folder: Path, *, without: Path) -> dict[str, bytes]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and without not in (p, *p.parents))
    return {str(p): p.read_bytes() for p in files}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's folder with files that an attack would overwrite."""
    user = tmp_path / "work" / "user"
    for place in (user, user.parent):
        for name in ("corpus.jsonl", "query.jsonl", "queries.jsonl", "qrels/test.tsv", "corpus/test.parquet", "out2/x"):
            write_bytes(place / name, b"precious")
    return user


def refusal(source: Path, out: Path, layout: str) -> str:
    """The error of a conversion, or nothing."""
    try:
        convert(from_path(source), out, to=layout)
    except R2MedError as error:
        return str(error)
    return ""


def sources(tmp_path: Path, what: str, name: str) -> Iterator[Path]:
    members = SOURCES[what](name)
    yield zipped(tmp_path / "evil.zip", members)
    yield laid_out(tmp_path / "evil", members)


@pytest.mark.parametrize("what", SOURCES)
@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_is_converted_to_whatever_layout_stays_in_its_folder(
    home: Path, tmp_path: Path, what: str, name: str
) -> None:
    before = content(tmp_path / "work", without=home / "none")
    for source in sources(tmp_path, what, name):
        for layout in layouts():
            out = home / "out"
            said = refusal(source, out, layout)
            assert len(said.splitlines()) <= 1
            assert load_all(out) if not said else not out.exists()
            assert content(tmp_path / "work", without=out) == before
            assert not (home.parent / "out2" / "new").exists()
            for path in sorted(out.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            if out.exists():
                out.rmdir()


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize(
    "make", [lambda name: nano(name, config=name), lambda name: r2med(name, name)], ids=["nano", "r2med"]
)
def test_a_zip_whose_every_name_is_hostile(
    home: Path, tmp_path: Path, layout: str, make: Callable[[str], dict[str, bytes]]
) -> None:
    """All of them at once, the archive's own name too, through the command."""
    before = content(tmp_path / "work", without=home / "none")
    members: dict[str, bytes] = {}
    for name in HOSTILE:
        members |= {member.replace(".parquet", f"{name}.parquet"): data for member, data in make(name).items()}
        members |= make(name)
    for stem in ("evil", "..", "\x1b[2J"):
        source = zipped(tmp_path / f"{stem}.zip", members)
        done = CliRunner().invoke(data_command, ["convert", str(source), str(home / "out"), "--to", layout])
        assert isinstance(done.exception, R2MedError), done.output
        assert len(str(done.exception).splitlines()) == 1
        assert content(tmp_path / "work", without=home / "none") == before
        assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".zip") == ["work"]


@pytest.mark.parametrize(
    ("what", "name"),
    [(w, n) for w in ("split", "config") for n in ("a\\b", "C:x", "x\n", "\x1b[2J")]
    + [("split", ".."), ("split", ".")],
)
def test_a_hostile_split_or_config_is_refused_where_it_is_read(tmp_path: Path, what: str, name: str) -> None:
    source = laid_out(tmp_path / "evil", SOURCES[what](name))
    with pytest.raises(HostileData, match=f"{what} .* cannot be part of a path"):
        from_path(source)


@pytest.mark.parametrize("stem", ["..", ".", "x\n", "a\\b", "C:x"])
def test_a_hostile_archive_name_is_no_task_name(tmp_path: Path, stem: str) -> None:
    source = zipped(tmp_path / f"{stem}.zip", r2med("hyde", "gpt4"))
    with pytest.raises(HostileData, match=r"task .* cannot be part of a path"):
        from_path(source)


@pytest.mark.parametrize("layout", [*layouts(), "export beir"])
def test_the_attack_of_the_review(home: Path, tmp_path: Path, layout: str) -> None:
    """A zip whose split is `..` made `data convert` overwrite the files beside its output folder."""
    source, before = zipped(tmp_path / "evil.zip", nano("..")), content(home.parent, without=home / "none")
    arguments = ["convert", str(source), str(home / "out"), "--to", layout]
    command = data_command
    if layout == "export beir":
        command, arguments = export_command, ["beir", str(source), "--out", str(home / "out")]
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, HostileData), done.output
    assert content(home.parent, without=home / "none") == before


def test_the_manifest_names_no_file_outside(tmp_path: Path) -> None:
    (tmp_path / "split-secret").write_text("secret")
    (tmp_path / "nano").mkdir()
    for name in ("../split-secret", "/etc/split-secret", "a/../../split-secret"):
        with pytest.raises(HostileData):
            changed_files(tmp_path / "nano", Manifest(1, "", {}, {name: "0"}), "split")
    (tmp_path / "nano" / "split-link").symlink_to(tmp_path / "split-secret")
    assert changed_files(tmp_path / "nano", Manifest(1, "", {}, {"split-link": "0"}), "split") == ["split-link"]


NAMES = ["my task", "my_task", "my:task", "äö", "öä", "Task", "task", "TASK", "CON", "con", "a.b", "a.b.", "x~12345678"]


@pytest.mark.parametrize("layout", layouts())
def test_tasks_never_share_a_folder_or_a_split(tmp_path: Path, layout: str) -> None:
    """Every task apart, or a refusal that names two of them."""
    for first in NAMES:
        for second in NAMES:
            if first >= second:
                continue
            refs = [ref for n in (first, second) for ref in from_path(r2med_folder(tmp_path / "src" / n))]
            out = tmp_path / "out" / f"{NAMES.index(first)}-{NAMES.index(second)}"
            if first.casefold() == second.casefold():
                with pytest.raises(UsageError, match="are one file on some systems"):
                    convert(refs, out, to=layout)
                continue
            convert(refs, out, to=layout)
            assert sorted(task.name for task in load_all(out)) == sorted((first, second))


def test_composed_and_decomposed_letters_are_one_file_on_some_systems(tmp_path: Path) -> None:
    refs = [ref for n in ("\u00e4", "a\u0308") for ref in from_path(r2med_folder(tmp_path / n))]
    with pytest.raises(UsageError, match="are one file on some systems"):
        convert(refs, tmp_path / "out", to="beir")


@pytest.mark.parametrize(("first", "second"), [("my task", "my_task"), ("my:task", "my_task"), ("Task", "task")])
def test_splits_of_a_build_are_never_merged(tmp_path: Path, first: str, second: str) -> None:
    refs = [ref for n in (first, second) for ref in from_path(r2med_folder(tmp_path / n))]
    with pytest.raises(UsageError, match=r"two of the tasks are called|are one file on some systems"):
        build_nano(refs, tmp_path / "out", PoolSettings(docs=2), bm25=BM25(), dense=None)
    assert not (tmp_path / "out").exists()


def test_exports_of_tasks_have_a_file_each(tmp_path: Path) -> None:
    """Names that lost a character used to overwrite each other's judgments."""
    for name in NAMES:
        write_task(small_task(), tmp_path / "all" / name, to="beir")
    done = CliRunner().invoke(export_command, ["trec", str(tmp_path / "all"), "--out", str(tmp_path / "trec")])
    assert done.exit_code == 0, done.output
    written = [p.name for p in (tmp_path / "trec").rglob("*.qrels")]
    assert len(written) == len(NAMES)
    assert len({name.casefold() for name in written}) == len(NAMES)
    assert "a.b.qrels" in written
    done = CliRunner().invoke(export_command, ["trec", "mini@1/MedQA-Diag", "--out", str(tmp_path / "mini@1")])
    assert sorted(p.name for p in (tmp_path / "mini@1" / "mini@1").iterdir()) == [
        "MedQA-Diag.qrels",
        "MedQA-Diag.topics.tsv",
    ]


@pytest.mark.parametrize("to", ["r2med", "beir", "hub"])
def test_two_models_of_one_spelling_do_not_overwrite_each_other(tmp_path: Path, to: str) -> None:
    """The hub writes hyphens as underscores, so `a-b` and `a_b` would be one file."""
    folder = r2med_folder(tmp_path / "task")
    for llm in ("a-b", "a_b"):
        write_bytes(
            folder / "hyde" / llm / "query_with_hydoc.jsonl", b'{"id": "q1", "hy_doc": "text of %s"}\n' % llm.encode()
        )
    with pytest.raises(R2MedError, match="holds hyde of a-b twice"):
        convert(from_path(folder), tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()
