"""Plug-ins: the example is really installed and run; broken ones break nothing but themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from enum import Enum
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, ModelError, UnknownName, UsageError, fingerprint
from r2med.core.identity import identify
from r2med.core.options import Options
from r2med.core.plugins import by_module, find_plugin, plugins, redirect_stdout
from r2med.core.spec import Spec
from r2med.models import listing
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.system import REGISTRIES
from r2med.retrieve import get_retriever

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, built and installed by pip into a folder of its own."""
    pytest.importorskip("setuptools")
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "plugin")
    target = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def r2med_command(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "r2med", *arguments], cwd=cwd, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_example_runs(installed: Path, tmp_path: Path) -> None:
    flags = ("--retriever", "char-tfidf", "--expand", "acronyms", "--rerank", "proximity@20", "--json")
    done = r2med_command(installed, "run", "--tasks", "mini@1/IIYi-Clinical", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    systems = {s["name"]: s["tasks"]["mini@1/IIYi-Clinical"]["ndcg_at_10"] for s in json.loads(done.stdout)["systems"]}
    assert list(systems) == ["char-tfidf", "acronyms+char-tfidf", "acronyms+char-tfidf+proximity@20"]
    assert all(value > 0.2 for value in systems.values())
    assert len(set(systems.values())) == 3


def test_the_example_is_listed(installed: Path, tmp_path: Path) -> None:
    done = r2med_command(installed, "models", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {rows[name]["kind"] for name in ("char-tfidf", "proximity", "acronyms")} == {
        "retriever",
        "reranker",
        "expander",
    }
    assert rows["char-tfidf"]["source"] == "r2med-example-plugin"
    assert rows["char-tfidf"]["revision"] == "0.1.0"
    assert rows["char-tfidf"]["ready"] is True
    only = r2med_command(installed, "models", "--kind", "expander", "--json", cwd=tmp_path)
    assert [row["name"] for row in json.loads(only.stdout)] == ["acronyms"]


def test_the_example_is_worth_something(installed: Path, monkeypatch: pytest.MonkeyPatch, shared_data: Path) -> None:
    monkeypatch.syspath_prepend(str(installed))
    task = r2med.load(shared_data / "scifact")
    bm25 = r2med.BM25().retrieve(task, depth=100)
    reranked = r2med.rerank("proximity@20", task, bm25)
    assert r2med.score(reranked, task).mean() > r2med.score(bm25, task).mean()


def fake(site: Path, distribution: str, **groups: str) -> None:
    """The metadata that an installer leaves."""
    folder = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    text = "".join(f"[r2med.{group}]\n{lines}\n" for group, lines in groups.items())
    (folder / "entry_points.txt").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_broken_plug_ins_name_themselves_and_break_nothing_else(site: Path, tmp_path: Path) -> None:
    (site / "raises_on_import.py").write_text("raise RuntimeError('licence server\\nunreachable')\n")
    (site / "fine_module.py").write_text("def make():\n    raise OSError('no weights')\n\n\nNUMBER = 3\n")
    fake(
        site,
        "rotten-pack",
        retrievers="gone = no_such_package:Model\nraising = raises_on_import:Model\nlacking = fine_module:Nothing\n"
        "unmade = fine_module:make\nnumber = fine_module:NUMBER",
        rerankers="gone-too = no_such_package:Model\nnumber = fine_module:NUMBER",
        expanders="gone-three = no_such_package:Model\nnumber = fine_module:NUMBER",
    )
    for name, words in {
        "gone": "plug-in 'gone' of rotten-pack (no_such_package:Model) cannot be loaded (ModuleNotFoundError",
        "raising": "(RuntimeError: licence server unreachable)",
        "lacking": "plug-in 'lacking' of rotten-pack",
        "unmade": "plug-in 'unmade' of rotten-pack (fine_module:make) cannot be constructed (OSError: no weights)",
        "number": "plug-in 'number' of rotten-pack (fine_module:NUMBER): number does not encode",
    }.items():
        with pytest.raises((ModelError, UsageError)) as caught:
            get_retriever(name)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    builder = Builder()
    for get, name in ((builder.reranker, "gone-too"), (builder.expander, "gone-three")):
        with pytest.raises(ModelError, match="of rotten-pack"):
            get(name)
    for find in (builder.reranker, builder.expander):
        with pytest.raises(UsageError, match=r"plug-in 'number' of rotten-pack"):
            find("number")
    rows = {row.name: row for row in listing("retriever")}
    assert (rows["gone"].ready, rows["gone"].missing, rows["raising"].ready) == (False, ("package",), True)
    done = r2med_command(site, "run", "--tasks", "mini@1/Biology", "--retriever", "bm25", cwd=tmp_path)
    assert (done.returncode, "rotten" in done.stderr) == (0, False)
    broken = r2med_command(site, "run", "--tasks", "mini@1/Biology", "--retriever", "raising", cwd=tmp_path)
    assert broken.returncode == 1
    assert broken.stderr.count("\n") == 1


def test_names_of_ours_are_never_taken_over(site: Path) -> None:
    (site / "takeover.py").write_text("raise SystemExit('never loaded')\n")
    fake(site, "greedy", retrievers="bm25 = takeover:X\nbge-small = takeover:X", expanders="oracle = takeover:X",
         rerankers="maxsim = takeover:X")  # fmt: skip
    assert isinstance(get_retriever("bm25"), r2med.BM25)
    assert Builder().expander("oracle").name == "oracle"
    hidden = [row for row in listing(registries=REGISTRIES) if row.source == "greedy"]
    assert [row.name for row in hidden] == ["bge-small", "bm25", "maxsim", "oracle"]
    for row in hidden:
        assert (row.ready, row.missing) == (False, ("name",))
        assert "hidden by" in row.summary


def test_two_packages_with_one_name(site: Path) -> None:
    (site / "both.py").write_text("def encode(texts):\n    return [[1.0]] * len(texts)\n")
    fake(site, "one-pack", retrievers="twice = both:encode\nonce = both:encode")
    fake(site, "other-pack", retrievers="twice = both:encode")
    with pytest.raises(UsageError, match="'twice' is offered by one-pack and by other-pack: remove one"):
        find_plugin("retriever", "twice")
    assert get_retriever("once").name == "once"
    assert {p.name for p in plugins("retriever")} >= {"once", "twice"}
    with pytest.raises(UnknownName, match="did you mean once"):
        get_retriever("oncee")


def test_a_retriever_and_an_expander_of_one_name(site: Path) -> None:
    """The expander then stands behind `expand=` in the name of a system: no two systems are called the same."""
    (site / "both.py").write_text("def encode(texts):\n    return [[1.0]] * len(texts)\n")
    fake(site, "double-pack", retrievers="double = both:encode", expanders="double = both:encode")
    assert SystemSpec.parse("double") == SystemSpec((Spec("double"),))
    fused, rrf = tuple(map(Spec, ("double", "bm25", "bm25-lucene"))), Spec("rrf")
    first, second = SystemSpec(fused, rrf), SystemSpec(fused[1:], rrf, expander=Spec("double"))
    assert str(first) != str(second)
    for system in (first, second):
        assert SystemSpec.parse(str(system)) == system


def test_parameters_reach_encoders_only(site: Path) -> None:
    (site / "plain.py").write_text(
        "class Model:\n    name = kind = 'custom'\n    def describe(self): return {}\n"
        "    def retrieve(self, task, *, depth=1000): ...\n"
        "def encode(texts):\n    return [[1.0]] * len(texts)\n"
    )
    fake(site, "plain-pack", retrievers="full = plain:Model\nbare = plain:encode", rerankers="pairs = plain:encode")
    dot = get_retriever("bare:similarity=dot,variant=int8,dimension=1")
    assert getattr(dot, "similarity", "") == "dot"
    assert dot.describe()["variant"] == "int8@1"
    assert dot.name == "bare:dimension=1,similarity=dot,variant=int8"
    assert get_retriever("bare:variant=float32").name == "bare"
    assert get_retriever("full", Options(device="cpu", trust_remote_code=False)).name == "full"
    with pytest.raises(UsageError, match="no parameter 'similarity': it is no encoder"):
        get_retriever("full:similarity=dot")
    with pytest.raises(UsageError, match=r"of plain-pack .* has no parameter 'max_length'"):
        Builder().reranker("pairs:max_length=64")


class Made:
    """Takes arguments of every kind."""

    def __init__(
        self,
        dim: int = 8,
        ratio: float = 0.5,
        name: str = "x",
        fast: bool = False,
        device: str = "cpu",
        free: object = None,
    ) -> None:
        self.given = {"dim": dim, "ratio": ratio, "name": name, "fast": fast, "device": device, "free": free}

    def encode(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    predict = encode


def make(dim: int = 8) -> Made:
    return Made(dim)


class Style(Enum):
    PLAIN = "plain"
    BOLD = "bold"


class FromFile:
    """Known by the version of its class, and by what its file holds."""

    version = "1"

    def __init__(self, path: str = "", style: Style = Style.PLAIN) -> None:
        self.path, self.style = path, style
        self.shift = float(Path(path).read_text()) if path and Path(path).is_file() else 0.0

    def encode(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text)) + self.shift] for text in texts]


HERE = "tests.core.test_plugins"


def test_a_file_among_the_arguments_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contents at one path shared a name, the cached vectors and the result."""
    monkeypatch.chdir(tmp_path)
    found = []
    for content, place in (("1", "w.txt"), ("2", "w.txt"), ("2", "./w.txt"), ("2", "sub/w.txt")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(content)
        found.append(get_retriever(f"{HERE}:FromFile,path={place}"))
    names, facts = [made.name for made in found], [fingerprint("facts", made.describe()) for made in found]
    assert names[0] != names[1]
    assert names[1] == names[2] == names[3]
    assert all(re.fullmatch(rf"{HERE}:FromFile,path=w~[0-9a-f]{{8}}", name) for name in names)
    assert facts[0] != facts[1] == facts[2] == facts[3]
    assert [made.encoder.model.path for made in found[2:]] == ["./w.txt", "sub/w.txt"]  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="names content that is not at hand"):
        get_retriever(names[0])
    around = get_retriever(f"{HERE}:FromFile,path=.")
    assert around.name == f"{HERE}:FromFile,path=."


def test_a_file_that_an_object_was_made_with_is_known_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "w.txt"
    facts = []
    for content in ("1", "2", "1"):
        file.write_text(content)
        facts.append(identify(FromFile(str(file))).facts)
    assert facts[0] == facts[2] != facts[1]


def test_a_member_of_an_enumeration_is_named_by_its_value() -> None:
    made = get_retriever(f"{HERE}:FromFile,style=bold")
    assert made.name == get_retriever(made.name).name == f"{HERE}:FromFile,style=bold"
    assert made.encoder.model.style is Style.BOLD  # type: ignore[attr-defined]
    assert get_retriever(f"{HERE}:FromFile,style=plain").name == f"{HERE}:FromFile"


@pytest.mark.parametrize(
    ("text", "name", "given"),
    [
        ("Made", "Made", {}),
        ("Made,dim=64", "Made,dim=64", {"dim": 64}),
        ("Made,dim=8", "Made", {}),
        ("Made,free=1_0", "Made,free=1_0", {"free": "1_0"}),
        ("Made,free=nan", "Made,free=nan", {"free": "nan"}),
        ("Made,free=-1.5e-07", "Made,free=-1.5e-07", {"free": -1.5e-07}),
        ("Made,ratio=1,fast=yes,name=7", "Made,fast=yes,name=7,ratio=1", {"ratio": 1.0, "fast": True, "name": "7"}),
        ("Made,free=3", "Made,free=3", {"free": 3}),
        ("Made,free=text", "Made,free=text", {"free": "text"}),
        ("Made,device=cuda", "Made", {"device": "cuda"}),
        ("Made,name=a%2Cb c", "Made,name=a%2Cb%20c", {"name": "a,b c"}),
        ("make,dim=64", "make,dim=64", {"dim": 64}),
        ("make", "make", {}),
    ],
)
def test_arguments_on_the_command_line(
    text: str, name: str, given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2med.retrieve.dense.resolve_devices", lambda device: [device])
    found = get_retriever(f"{HERE}:{text}")
    assert found.name == f"{HERE}:{name}"
    plain = {"dim": 8, "ratio": 0.5, "name": "x", "fast": False, "device": "cpu", "free": None}
    assert found.encoder.model.given == plain | given  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Made,size=3", "has no parameter 'size'; it has dim, ratio, name, fast, device, free"),
        ("Made,dimm=3", "did you mean dim"),
        ("Made,ratio=inf", "ratio of .*Made must be a finite number, not 'inf'"),
        ("Made,dim=wide", "dim of .*Made must be a value of type int, not 'wide'"),
        ("HERE,x=1", "HERE has no parameter 'x': it is no class"),
    ],
)
def test_wrong_arguments_are_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        get_retriever(f"{HERE}:{text}")
    assert "\n" not in str(caught.value)


def test_a_models_arguments_are_its_own(tmp_path: Path) -> None:
    """Two objects of one class with other arguments are two systems, and each is read back as itself."""
    (tmp_path / "widths.py").write_text(
        "import zlib, numpy as np\n\n\nclass M:\n    def __init__(self, dim: int = 8):\n        self.dim = dim\n\n"
        "    def encode(self, texts):\n        made = np.zeros((len(texts), self.dim))\n"
        "        for i, text in enumerate(texts):\n            for word in text.split():\n"
        "                made[i, zlib.crc32(word.encode()) % self.dim] += 1\n        return made\n"
    )
    flags = ("--tasks", "mini@1/Biology", "--json", "-r", "widths:M,dim=64")
    first = r2med_command(tmp_path, "run", *flags, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    both = r2med_command(tmp_path, "run", *flags, "-r", "widths:M,dim=4096", cwd=tmp_path)
    systems = {s["name"]: s["tasks"]["mini@1/Biology"]["ndcg_at_10"] for s in json.loads(both.stdout)["systems"]}
    assert list(systems) == ["widths:M,dim=64", "widths:M,dim=4096"]
    assert len(set(systems.values())) == 2
    assert json.loads(first.stdout)["systems"][0]["tasks"]["mini@1/Biology"]["ndcg_at_10"] == systems["widths:M,dim=64"]


CHATTY = """
import os
import re
import zlib

import numpy as np

print("loading")


class Model:
    def __init__(self):
        print("making")
        os.fork()

    def encode(self, texts):
        print("encoding")
        return np.array([[zlib.crc32(t.encode()) % 97, len(t)] for t in texts])


def overlap(pairs):
    print("scoring")
    return [len(set(q.split()) & set(d.split())) for q, d in pairs]
"""


def test_what_a_model_prints_stays_out_of_the_json(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    flags = ("--tasks", "mini@1/Biology", "--retriever", "chatty:Model", "--rerank", "chatty:overlap", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["systems"]) == 2
    assert {"loading", "making", "encoding", "scoring"} <= set(done.stderr.splitlines())
    assert done.stderr.count("forked on construction") == 1


def test_output_comes_back_whichever_thread_leaves_last(capsys: pytest.CaptureFixture[str]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with redirect_stdout("a", "work"):
            entered.set()
            leave.wait(10)

    output, thread = sys.stdout, threading.Thread(target=stay)
    with redirect_stdout("b", "work"):
        thread.start()
        assert entered.wait(10)
        print("aside")
    leave.set()
    thread.join()
    assert sys.stdout is output
    assert capsys.readouterr() == ("", "aside\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nobody.py:Model", "nobody.py: no such file"),
        ("./nobody.py:Model", "./nobody.py: no such file"),
        ("json.py:Model", "there is an installed module 'json'; rename yours"),
        ("2nd.py:Model", "'2nd' cannot be part of a module's name"),
        ("../outside.py:Model", "code is loaded from the current folder; go to "),
    ],
)
def test_a_file_that_cannot_be_a_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "here").mkdir()
    for name in ("here/json.py", "here/2nd.py", "outside.py"):
        (tmp_path / name).write_text("class Model:\n    pass\n")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match=re.escape(words)):
        get_retriever(text)


def test_a_file_is_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "my_model.py").touch()
    monkeypatch.chdir(tmp_path)
    for text in ("package/my_model.py:M,dim=3", f"{tmp_path}/package/my_model.py:M,dim=3", "package.my_model:M,dim=3"):
        assert by_module(text) == "package.my_model:M,dim=3"
    for text in ("bm25:k1=1.2", "package.py:M", "hyde:gpt4", "run:results/a.py", "my_model.py"):
        assert by_module(text) == text
