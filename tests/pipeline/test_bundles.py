"""Bundles: packed here, taken in on another machine, and run again there without a key or a network."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, ResultError, UsageError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.llm.store import read_store
from r2med.pipeline.bundles import opened, pack
from r2med.results import ResultIndex, ResultStore
from r2med.results.bundle import Manifest
from r2med.results.protocols import get_protocol
from tests.builders import r2med_folder
from tests.llm.conftest import KEY
from tests.llm.server import ChatServer, serving
from tests.results.sealing import edit

TASK = "mini@1/Biology"
USER = "ada-lovelace"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two systems on two tasks."""
    folder = tmp_path_factory.mktemp("plain") / "results"
    r2med.run("bm25", "bm25-lucene", tasks=[TASK, "mini@1/MedQA-Diag"], results=folder)
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def another_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A home with nothing in it, no key, and no server."""
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("R2MED_HOME", str(folder / "home"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_a_bundle_holds(plain: Path, tmp_path: Path) -> None:
    packed = r2med.pack_bundle(tmp_path / "a.zip", "bm25", results=plain, title="Two tasks", authors="Nobody")
    found = members(packed.path)
    manifest = json.loads(found.pop("manifest.json"))
    assert sorted(found) == sorted(manifest["members"])
    assert sorted(name for name in found if name.endswith(".json")) == [
        "results/bm25/mini@1/Biology.json",
        "results/bm25/mini@1/MedQA-Diag.json",
    ]
    assert (manifest["format"], manifest["schema"], manifest["title"]) == ("r2med bundle", 1, "Two tasks")
    assert manifest["systems"][0] == {
        "name": "bm25",
        "protocol": "default",
        "protocol_fingerprint": get_protocol("default").fingerprint,
        "replays": True,
    }
    assert list(manifest["protocols"]) == ["default"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", manifest["date"])
    assert manifest["date"] == json.loads(found["results/bm25/mini@1/Biology.json"])["environment"]["date"][:10]


def test_the_same_content_gives_the_same_bytes_here_and_elsewhere(plain: Path, tmp_path: Path) -> None:
    first = r2med.pack_bundle(tmp_path / "a.zip", results=plain)
    second = r2med.pack_bundle(tmp_path / "b.zip", "bm25-lucene", "bm25", results=plain)
    assert first.path.read_bytes() == second.path.read_bytes()
    r2med.add_bundle(first.path, results=tmp_path / "there")
    again = r2med.pack_bundle(tmp_path / "c.zip", results=tmp_path / "there")
    assert again.path.read_bytes() == first.path.read_bytes()
    assert (first.id, len(first.id)) == (again.id, 64)
    other = r2med.pack_bundle(tmp_path / "d.zip", results=plain, note="another")
    assert other.id != first.id


def test_a_bundle_is_added_once_and_read_by_every_command(plain: Path, tmp_path: Path) -> None:
    path = r2med.pack_bundle(tmp_path / "a.zip", results=plain).path
    there = tmp_path / "there"
    added = r2med.add_bundle(path, results=there)
    assert len(added.results) == 4
    again = r2med.add_bundle(path, results=there)
    assert (again.results, len(again.there)) == ([], 4)
    assert r2med.add_bundle(path, results=plain).results == []  # where it came from
    assert {row.system for row in r2med.leaderboard(there, collection="mini@1").rows} >= {"bm25", "bm25-lucene"}
    assert r2med.compare("bm25", "bm25-lucene", results=there).pairs
    kept = r2med.run("bm25", tasks=TASK, results=there)
    assert kept.kept == 1


def test_something_different_of_the_same_name_stays(plain: Path, tmp_path: Path) -> None:
    path = r2med.pack_bundle(tmp_path / "a.zip", results=plain).path
    there = tmp_path / "there"
    r2med.run("bm25", tasks=TASK, results=there, depth=7)
    before = {p: p.read_bytes() for p in there.rglob("*") if p.is_file()}
    with pytest.raises(ResultError, match=r"Biology\.json is another result of bm25: choose another folder"):
        r2med.add_bundle(path, results=there)
    assert {p: p.read_bytes() for p in there.rglob("*") if p.is_file()} == before


def test_no_path_and_no_name_of_this_machine_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = r2med_folder(tmp_path / USER / "ward 7" / "cases")
    results = tmp_path / USER / "results"
    monkeypatch.setenv("HOME", str(tmp_path / USER))
    r2med.run("bm25", tasks=str(folder), results=results)
    (path,) = results.glob("bm25/*/*.json")
    said = f"read from {results}/corpus.jsonl, then ~/secret/place; see https://example.org/a/b"
    edit(path, lambda document: document["notes"].update(warning=said, store=str(home() / "generations" / "x.jsonl")))
    packed = r2med.pack_bundle(tmp_path / "a.zip", results=results)
    found = members(packed.path)
    for name, data in found.items():
        for secret in (USER, str(tmp_path), "ward 7", "/home", "secret/place"):
            assert secret.encode() not in data, name
            assert secret not in name
    result = json.loads(found["results/bm25/own/cases.json"])
    assert result["task"]["source"] == "cases"
    assert result["notes"]["warning"] == "read from corpus.jsonl, then place; see https://example.org/a/b"
    assert result["notes"]["store"] == "x.jsonl"
    texts = [record["text"] for record in map(json.loads, (folder / "corpus.jsonl").read_text().splitlines())]
    assert not [t for t in texts if any(json.dumps(t).encode() in data for data in found.values())]


def test_a_key_never_leaves(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    copy = shutil.copytree(plain, tmp_path / "results")
    path = copy / "bm25" / "mini@1" / "Biology.json"
    edit(path, lambda document: document["notes"].update(said="asked with sk-0123456789"))
    with pytest.raises(UsageError, match="holds the value of SOME_API_KEY, so nothing was written"):
        r2med.pack_bundle(tmp_path / "a.zip", results=copy)
    assert not (tmp_path / "a.zip").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["results"]


def test_only_used_answers_are_packed_and_they_run_again_without_a_key(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.text = lambda body: "[2] > [1]" if "[1]" in body["messages"][-1]["content"] else "Cells, water and blood."
    here = tmp_path / "results"
    ranker = "rankgpt:gpt4,window=4,step=2@4"
    r2med.run("bm25", expand="hyde:gpt4", rerank=ranker, tasks=TASK, results=here)
    r2med.run("bm25-lucene", rerank=ranker, tasks=TASK, results=here)  # its answers go into the same store
    names = {stored.system for stored in ResultIndex([here]).select()}
    chosen = next(name for name in names if name.startswith("hyde") and "rankgpt" in name)
    asked = len(server.asked)
    packed = r2med.pack_bundle(tmp_path / "a.zip", chosen, results=here)
    found = members(packed.path)
    stored = {name: data for name, data in found.items() if name.startswith("generations/")}
    assert {name.split("/")[1] for name in stored} == {"hyde", "rerank-listwise"}
    assert not any(KEY.encode() in data for data in found.values())
    with opened(packed.path) as bundle:
        (result,) = bundle.results
        used = {line.method: len(line.prompts) for line in result.generations()}
        kept = [read_store(bundle.folder / name) for name in bundle.generations]
    assert {key.method: len({g.prompt_hash for g in found}) for key, found, _ in kept} == used
    whole = read_store(next((home() / "generations").glob("rerank-listwise/*/*.jsonl")))[1]
    assert len(whole) > used["rerank-listwise"]  # those of the other system stay here
    server.shutdown()

    another_machine(monkeypatch, tmp_path)
    there = tmp_path / "there"
    added = r2med.add_bundle(packed.path, results=there)
    assert (added.answers, added.answers_there) == (sum(used.values()), 0)
    assert r2med.add_bundle(packed.path, results=there).answers == 0
    again = tmp_path / "again"
    scores = r2med.run(chosen, tasks=TASK, results=again)
    assert len(server.asked) == asked
    old, new = ResultStore(there).find(chosen, "mini@1", "Biology"), scores.results[0]
    assert old is not None
    assert (old.measures, old.fingerprint) == (new.measures, new.fingerprint)
    assert old.files[".run.gz"] == new.files[".run.gz"]
    assert r2med.run(chosen, tasks=TASK, results=there).kept == 1


def test_kept_prompts_and_the_texts_of_queries_stay_here(server: ChatServer, tmp_path: Path) -> None:
    here = tmp_path / "results"
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=here, options=Options(keep_prompts=True))
    query = r2med.load(TASK).queries[0].text
    (kept,) = (home() / "generations").glob("hyde/*/*.jsonl")
    assert json.dumps(query).strip('"').encode() in kept.read_bytes()
    server.text = lambda body: "never asked"
    found = members(r2med.pack_bundle(tmp_path / "a.zip", results=here).path)
    answers = b"".join(data for name, data in found.items() if name.startswith("generations/"))
    assert b'"prompt":' not in answers
    (expansions,) = [data for name, data in found.items() if name.endswith(".expansions.jsonl")]
    assert set(json.loads(expansions.splitlines()[0])) == {"query_id", "texts", "statuses", "reasoning", "searches"}


def test_another_answer_to_the_same_prompt_is_never_mixed_in(server: ChatServer, tmp_path: Path) -> None:
    here = tmp_path / "results"
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=here)
    path = r2med.pack_bundle(tmp_path / "a.zip", results=here).path
    shutil.rmtree(home() / "generations")
    server.text = lambda body: "Something else."
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=tmp_path / "second")
    with pytest.raises(ResultError, match="gave another answer for 'Biology-q01' here than in the bundle"):
        r2med.add_bundle(path, results=tmp_path / "third")
    assert not list((tmp_path / "third").glob("*/*/*"))


def test_answers_that_are_gone_are_said(server: ChatServer, tmp_path: Path) -> None:
    here = tmp_path / "results"
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=here)
    (kept,) = (home() / "generations").glob("hyde/*/*.jsonl")
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(ResultError, match="will not run again without a key: 2 of 13 answers of hyde are gone"):
        r2med.pack_bundle(tmp_path / "a.zip", results=here)
    packed = r2med.pack_bundle(tmp_path / "a.zip", results=here, incomplete=True)
    assert packed.notes[0].endswith("2 of 13 answers of hyde are gone")
    assert [system.replays for system in packed.manifest.systems] == [False]
    checked = r2med.check_bundle(packed.path)
    assert (checked.verified, checked.systems[0].replays) == (1, False)


def test_answers_that_were_asked_for_again_are_not_those_of_an_earlier_result(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed with the newer answers, the earlier result would claim that they give its ranking."""
    here, later = tmp_path / "results", tmp_path / "later"
    server.plan = ["null"]
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=here)
    retry = Options(retry=frozenset({"empty"}))
    r2med.run("hyde:gpt4+bm25", tasks=TASK, results=later, options=retry)
    with pytest.raises(ResultError, match="without a key: answers of hyde were asked for again since it was made"):
        r2med.pack_bundle(tmp_path / "a.zip", results=here)
    packed = r2med.pack_bundle(tmp_path / "b.zip", results=later)
    assert packed.manifest.systems[0].replays
    server.shutdown()
    another_machine(monkeypatch, tmp_path)
    r2med.add_bundle(packed.path, results=tmp_path / "there")
    (name,) = {stored.system for stored in ResultIndex([later]).select() if stored.system.startswith("hyde")}
    scores = r2med.run(name, tasks=TASK, results=tmp_path / "again")
    old = ResultStore(later).find(name, "mini@1", "Biology")
    assert old is not None
    assert old.files[".run.gz"] == scores.results[0].files[".run.gz"]


def test_a_target_that_is_there_and_odd_words_are_refused(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        r2med.pack_bundle(tmp_path / "a.zip", results=plain)
    assert (tmp_path / "a.zip").read_text() == "mine"
    for about in (
        Manifest(title="<b>best</b>"),
        Manifest(url="javascript:alert(1)"),
        Manifest(date="2026-02-30"),
        Manifest(authors="a\x1b[31m"),
    ):
        with pytest.raises(DataError, match=r"title|url|date|authors"):
            pack(ResultIndex([plain]).select(), tmp_path / "b.zip", about)
