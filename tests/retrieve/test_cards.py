"""Retrievers of cards: which instructions they get, and what they are called for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from r2med.cli import app
from r2med.core import Document, Documents, Qrels, Query, Task, UsageError
from r2med.core.files import home
from r2med.core.spec import Content
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.experiment import prompted
from r2med.pipeline.protocol_pack import fetch_pack
from r2med.pipeline.reproduce import as_published
from r2med.results.protocols import read_protocol
from r2med.retrieve import get_retriever, retrievers
from r2med.retrieve.cards import prefix_for
from tests.cli.test_machine import r2med
from tests.paper_files import write_clone, write_protocol
from tests.retrieve.encoders import tiny

PAPER = "e5:protocol=r2med-paper"


def task(name: str = "MedQA-Diag", collection: str = "r2med", family: str = "Clinical evidence") -> Task:
    texts = tiny.texts(4)
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    qrels = Qrels.from_judgments([("q", "d1", 1)])
    return Task(name, (Query("q", texts[0]),), documents, qrels, collection=collection, family=family)


@pytest.fixture
def e5() -> Path:
    """A tiny model of E5's architecture, where its card looks for it."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "e5"
    tiny.save_tokenizer(folder, "mistral")
    tiny.save_model(folder, "mistral")
    return folder


def fetch(tmp_path: Path) -> str:
    """Files of the repository's shape, fetched into R2MED_HOME; gives the hash of the pack."""
    protocol = write_protocol(tmp_path / "own.toml")
    return fetch_pack(read_protocol(str(protocol)), write_clone(tmp_path / "clone")).digest


def pack_file(tmp_path: Path, text: str) -> Content:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    return Content.of(path)


def test_the_papers_pack_is_used_by_itself_and_changes_the_name(e5: Path, tmp_path: Path) -> None:
    del e5
    own = get_retriever(PAPER)
    assert (own.name, own.describe()["prompts"]) == (PAPER, "r2med's own")
    digest = fetch(tmp_path)
    theirs = get_retriever(PAPER)
    assert theirs.name == f"e5:prompts=r2med-paper~{digest[:8]},protocol=r2med-paper"
    assert theirs.describe()["prompts"] == f"r2med-paper~{digest}"
    assert str(as_published(retrievers.parse("e5"))) == theirs.name
    assert get_retriever(theirs.name).name == theirs.name, "what is printed can be typed"
    assert get_retriever("e5").name == "e5", "only under the protocol"
    assert "prompts" not in get_retriever("e5").describe()
    runs = {r: r.retrieve(task(), depth=2) for r in (own, theirs)}
    assert [run.notes["instructions"] for run in runs.values()] == ["r2med's own", f"r2med-paper~{digest}"]
    caches = [run.notes["cache"] for run in runs.values()]
    assert caches[1] == {"cached": 4, "encoded": 1, "damaged_shards": 0}, "documents are told nothing, the query is"
    assert caches[0]["encoded"] == 5  # type: ignore[index]


def test_a_task_that_a_pack_lacks_is_refused_before_anything_is_encoded(e5: Path, tmp_path: Path) -> None:
    del e5
    fetch(tmp_path)
    system = Builder().build(SystemSpec.parse(PAPER))
    with pytest.raises(UsageError, match="prompt pack r2med-paper has no query instruction for r2med/Dermatology"):
        system.task_facts(task("Dermatology"))
    assert system.task_facts(task("PMC-Treat", "")) == {
        f"{system.name}.prefixes": ["Instruct: Look up what settles PMC-Treat\nQuery: ", ""]
    }


def test_names_of_a_task_go_from_narrow_to_wide(tmp_path: Path) -> None:
    text = '[query]\n"r2med/MedQA-Diag" = "collection"\nMedQA-Diag = "task"\n"Clinical evidence" = "family"\n'
    pack = pack_file(tmp_path, text)
    from r2med.models import find_card

    card = find_card("inst-l").with_prompts(pack.located())
    found = {
        "collection": task(),
        "task": task(collection="mini@1"),
        "family": task("Biology", family="Clinical evidence"),
    }
    assert {name: prefix_for(card, "query", of) for name, of in found.items()} == {name: name for name in found}
    with pytest.raises(UsageError, match="prompt pack mine has no query instruction for r2med/Biology"):
        prefix_for(card, "query", task("Biology", family="Q&A reference"))
    other = find_card("inst-l").with_prompts(pack_file(tmp_path, '[query]\n"nano/MedQA-Diag" = "x"\n').located())
    with pytest.raises(UsageError, match=r"no query instruction for mini@1/MedQA-Diag \(it has: nano/MedQA-Diag"):
        prefix_for(other, "query", task(collection="mini@1"))


def test_a_pack_goes_to_those_it_has_words_for(tmp_path: Path) -> None:
    pack = pack_file(tmp_path, '[model.e5.query]\ndefault = "x"\n[generate.hyde]\nuser = "{{query}}"\n')
    from r2med.expand import expanders

    specs = [retrievers.parse(name) for name in ("bm25", "contriever", "sfr", "e5")]
    changed, expander = prompted(specs, expanders.parse("hyde:gpt4"), pack)
    assert [str(spec) for spec in changed] == ["bm25", "contriever", "sfr", f"e5:prompts={pack}"]
    assert str(expander) == f"hyde:gpt4,prompts={pack}"
    for expand in ("lamer:gpt4", "hyde:published:gpt4"):
        assert prompted(specs, expanders.parse(expand), pack)[1] == expanders.parse(expand)
    with pytest.raises(UsageError, match="prompt pack mine changes nothing: it has no words for bm25"):
        prompted(specs[:1], None, pack)
    with pytest.raises(UsageError, match=r"has no instructions for sfr \(it has some for e5\)"):
        Builder().build(SystemSpec((retrievers.changed(specs[2], prompts=pack),)))


def test_the_protocol_stays_in_the_name_of_an_instructed_model() -> None:
    """Instructor's settings are the paper's but for the instructions; BGE's prefix is its own under both."""
    assert str(retrievers.parse("inst-l:protocol=r2med-paper")) == "inst-l:protocol=r2med-paper"
    assert str(retrievers.parse("bge:protocol=r2med-paper").without("protocol")) == "bge"


def call(*arguments: str) -> Result:
    """A command in this process, which has torch already."""
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_commands_say_whose_words_they_used(e5: Path, tmp_path: Path) -> None:
    del e5
    results = str(tmp_path / "results")
    own = call("run", "-r", PAPER, "--tasks", "mini@1/MedQA-Diag", "--results", results)
    assert f"{PAPER}: instructions: r2med's own (r2med protocol fetch r2med-paper)" in own.stderr
    digest = fetch(tmp_path)
    done = call("run", "-r", PAPER, "--tasks", "mini@1/MedQA-Diag", "--results", results, "--json")
    (system,) = json.loads(done.stdout)["systems"]
    assert system["name"] == f"e5:prompts=r2med-paper~{digest[:8]},protocol=r2med-paper"
    assert "warnings" not in system
    assert len(list(Path(results).glob("e5*"))) == 2, "with and without the pack are two systems"
    pack = tmp_path / "mine.toml"
    pack.write_text('[model.e5.query]\nMedQA-Diag = "Find it"\n')
    flags = ("-r", "e5", "--prompts", str(pack))
    named = json.loads(call("run", *flags, "--tasks", "mini@1/MedQA-Diag", "--results", results, "--json").stdout)
    assert named["systems"][0]["name"] == f"e5:prompts={Content.of(pack)}"
    assert json.loads(call("search", "fever", *flags, "--task", "mini@1/MedQA-Diag", "--json").stdout)["hits"]
    said = r2med("run", *flags, "--tasks", "mini@1/Biology", "--results", results, code=2).stderr
    assert "prompt pack mine has no query instruction for mini@1/Biology" in said
    assert len(said.splitlines()) == 1
    said = r2med("search", "fever", "-r", "bm25", "--prompts", str(pack), code=2).stderr
    assert "changes nothing" in said
