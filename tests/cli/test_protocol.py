"""`r2med protocol` as a command."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cli.test_machine import r2med
from tests.paper_files import COMMIT, KEYS, write_clone, write_protocol
from tests.serving import in_background


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """A web server of a folder, by its address."""
    with in_background(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def home() -> Path:
    return Path(os.environ["R2MED_HOME"])


def test_a_clone_is_read_and_the_pack_is_shown(tmp_path: Path) -> None:
    clone, protocol = write_clone(tmp_path / "clone"), write_protocol(tmp_path / "own.toml")
    before = json.loads(r2med("protocol", "show", str(protocol), "--json").stdout)["pack"]
    assert (before["here"], before["instructions"]) == (False, "r2med's own")
    done = json.loads(r2med("protocol", "fetch", str(protocol), "--from", str(clone), "--json").stdout)
    assert set(done["tasks"]) == set(KEYS.values())
    assert done["models"]["e5"] == {"query": 8, "document": 0}
    assert Path(done["path"]) == home() / "prompts" / "r2med-paper.json"
    after = json.loads(r2med("protocol", "show", str(protocol), "--json").stdout)["pack"]
    assert (after["here"], after["digest"]) == (True, done["digest"])
    assert after["instructions"] == f"r2med-paper~{done['digest'][:8]}"
    listed = {row["name"]: row for row in json.loads(r2med("protocol", "--json").stdout)}
    assert listed["r2med-paper"]["pack"] == "another one", "not the pack of the protocol that comes with r2med"
    assert listed["default"]["pack"] == ""
    assert "Medical-Sciences" in r2med("protocol", "fetch", str(protocol), "--from", str(clone)).stdout
    assert "r2med-paper" in r2med("protocol").stdout
    assert "cosine" in r2med("protocol", "show", "r2med-paper").stdout


def test_files_come_over_the_network(tmp_path: Path) -> None:
    write_clone(tmp_path / "served" / COMMIT)
    with files_of(tmp_path / "served") as url:
        protocol = write_protocol(tmp_path / "own.toml", url=url + "/{commit}/{path}")
        done = json.loads(r2med("protocol", "fetch", str(protocol), "--json").stdout)
        assert len(done["tasks"]) == 8
        other = write_protocol(tmp_path / "other.toml", "other", url=url + "/nowhere/{path}")
        said = r2med("protocol", "fetch", str(other), code=1).stderr
        assert "404" in said
        assert "carry over src/example.py and src/instrcution.py" in said
        changed = tmp_path / "served" / COMMIT / "src" / "example.py"
        changed.write_text(changed.read_text("utf-8") + "# more\n", "utf-8", newline="")
        edited = write_protocol(tmp_path / "edited.toml", "edited", url=url + "/{commit}/{path}")
        said = r2med("protocol", "fetch", str(edited), code=1).stderr
    assert "is not the file of commit 0123456" in said
    assert {path.name for path in (home() / "prompts").iterdir()} == {"r2med-paper.json"}


def test_an_offline_machine_is_told_what_to_carry_over(tmp_path: Path) -> None:
    protocol = write_protocol(tmp_path / "own.toml")
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        said = r2med("protocol", "fetch", str(protocol), code=1, environment=environment).stderr
        assert len(said.splitlines()) == 1
        assert "carry over src/example.py and src/instrcution.py of https://example.org/own at commit 0123456" in said
        assert "r2med protocol fetch r2med-paper --from FOLDER" in said
    assert not (home() / "prompts").exists()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "did you mean r2med-paper" in r2med("protocol", "fetch", "r2med-papr", code=2).stderr
    assert "cannot be read" in r2med("protocol", "show", str(tmp_path / "none.toml"), code=1).stderr
    broken = tmp_path / "broken.toml"
    broken.write_text("name = 3")
    assert "not a protocol" in r2med("protocol", "show", str(broken), code=1).stderr
    assert len(r2med("protocol", "fetch", "r2med-paper", "--from", str(tmp_path), code=1).stderr.splitlines()) == 1
