"""A score edited by hand, with its checksum emptied or left: no command and no page shows it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli import app
from r2med.core import ResultError
from r2med.report.web.app import respond
from r2med.report.web.render import PageRequest
from r2med.report.web.site import Site
from r2med.tasks import resolve

COMMANDS = {
    "run": ["run", "-t", "mini@1/Biology", "-r", "bm25"],
    "leaderboard": ["leaderboard"],
    "leaderboard --json": ["leaderboard", "--json"],
    "compare": ["compare", "bm25", "bm25-lucene", "--resamples", "200"],
    "report": ["report", "results", "--html", "out.html"],
    "plot": ["plot", "scores", "--out", "out.svg", "--resamples", "200"],
    "reproduce": ["reproduce", "--collection", "mini@1", "--results", "results"],
    "export mteb": ["export", "mteb", "results", "--out", "out"],
    "export trec": ["export", "trec", "results", "--out", "out"],
    "export beir": ["export", "beir", "results", "--out", "out"],
    "export hub": ["export", "hub", "results", "--repo", "lab/x", "--out", "out"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "results"
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1/Biology"), results=folder)
    return folder


@pytest.fixture(params=["emptied", "left"])
def tampered(request: pytest.FixtureRequest, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, whose results hold one false score."""
    shutil.copytree(made, tmp_path / "results")
    path = tmp_path / "results" / "bm25" / "mini@1" / "Biology.json"
    document = json.loads(path.read_text())
    document["measures"]["ndcg_at_10"] = 0.98765
    if request.param == "emptied":
        document["checksum"] = ""
    path.write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(arguments: list[str]) -> Result:
    return CliRunner().invoke(app, arguments)


def shown(folder: Path) -> str:
    """Everything that a command wrote."""
    paths = [path for name in ("out", "out.html", "out.svg") for path in [folder / name, *(folder / name).rglob("*")]]
    written = "".join(path.read_bytes().decode("utf-8", "replace") for path in paths if path.is_file())
    return re.sub(r'\b(?:points|[cxy][xy12]?)="[^"]*"', "", written)  # where things are drawn is no score


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_believes_it(tampered: Path, arguments: list[str]) -> None:
    done = call(arguments)
    for text in (done.output, shown(tampered)):
        assert "98.7" not in text
        assert "0.987" not in text
    if done.exception is not None:
        assert isinstance(done.exception, ResultError), done.exception
        assert "checksum" in str(done.exception) or "was changed" in str(done.exception)
    else:
        assert "checksum" in done.output or "was changed" in done.output, done.output


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/board/mini@1",
        "/table/mini@1?format=csv",
        "/task/mini@1/Biology",
        "/tradeoffs/mini@1",
        "/compare/mini@1?s=bm25&s=bm25-lucene",
        "/system/mini@1/bm25",
    ],
)
def test_no_page_believes_it(tampered: Path, address: str) -> None:
    pytest.importorskip("jinja2", reason="the extra `view` is not installed")
    answer = respond(Site([tampered / "results"]), PageRequest.from_url(address))
    text = bytes(answer.body).decode()
    assert "98.7" not in text
    assert "0.987" not in text


def test_the_app_says_which_result_it_left_out(tampered: Path) -> None:
    pytest.importorskip("jinja2", reason="the extra `view` is not installed")
    answer = respond(Site([tampered / "results"]), PageRequest.from_url("/"))
    assert "checksum" in bytes(answer.body).decode() or "was changed" in bytes(answer.body).decode()
