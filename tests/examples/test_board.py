"""The workflow of a public board: its steps, carried out on real pull requests in a real repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med import __version__
from tests.results.sealing import edit

yaml = pytest.importorskip("yaml")
pytest.importorskip("jinja2", reason="the extra `view` is not installed")
if shutil.which("git") is None or shutil.which("bash") is None:
    pytest.skip("takes git and bash", allow_module_level=True)

FOLDER = Path(__file__).parents[2] / "examples" / "board"
WORKFLOW: dict[str, Any] = yaml.safe_load((FOLDER / ".github/workflows/board.yml").read_text("utf-8"))


class PullRequest:
    """A copy of the example with a first commit, and a second one on top of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(FOLDER, folder)
        tools = folder.parent / "bin"
        tools.mkdir()
        for name, code in (
            ("r2med", f'exec "{sys.executable}" -m r2med "$@"'),
            ("python", f'exec "{sys.executable}" "$@"'),
        ):
            (tools / name).write_text(f"#!/bin/sh\n{code}\n")
            (tools / name).chmod(0o755)
        self.environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": os.devnull}
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.base = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "core.quotepath=true")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """Carry out a step of the check as the runner does."""
        (step,) = [step for step in WORKFLOW["jobs"]["check"]["steps"] if step.get("name") == name]
        variables = {"BASE": self.base, "TITLE": WORKFLOW["env"]["TITLE"], "RUNNER_TEMP": str(self.folder.parent)}
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=self.folder, env=self.environment | variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def pull(tmp_path: Path) -> PullRequest:
    return PullRequest(tmp_path / "board")


ONLY_ADDS = "It adds bundles to submissions/, and changes nothing else"
SCORED = "Score every run again"


def test_a_good_submission_passes_and_a_false_one_fails(pull: PullRequest, tmp_path: Path) -> None:
    results = tmp_path / "results"
    r2med.run("bm25", tasks="mini@1/Biology", results=results)
    r2med.pack_bundle(pull.folder / "submissions" / "good.zip", results=results)
    pull.commit()
    for name in (ONLY_ADDS, SCORED, "The site can be built with it"):
        done = pull.step(name)
        assert done.returncode == 0, done.stderr
    assert (pull.folder / "site" / "index.html").is_file()
    edit(results / "bm25" / "mini@1" / "Biology.json", lambda d: d.update(judged_at_10=0.5))
    r2med.pack_bundle(pull.folder / "submissions" / "false.zip", results=results)
    shutil.rmtree(pull.folder / "site")
    pull.commit()
    assert pull.step(ONLY_ADDS).returncode == 0
    done = pull.step(SCORED)
    assert done.returncode != 0
    assert "scores differ" in done.stdout


@pytest.mark.parametrize(
    "change",
    [
        ".github/workflows/board.yml",
        "README.md",
        "submissions/.gitkeep",
        "submissions/sub/a.zip",
        "submissions/-rf.zip",
        "submissions/$(touch hurt).zip",
        "submissions/two\nlines.zip",
        "submissions/a.zip.sh",
        "other.zip",
    ],
)
def test_anything_but_a_new_bundle_is_refused(pull: PullRequest, change: str) -> None:
    path = pull.folder / change
    path.parent.mkdir(exist_ok=True)
    path.write_text("changed")
    pull.commit()
    done = pull.step(ONLY_ADDS)
    assert done.returncode == 1
    assert "adds submissions/NAME.zip and nothing else" in done.stderr
    assert not (pull.folder / "hurt").exists()


def test_a_changed_or_removed_bundle_is_refused(pull: PullRequest) -> None:
    path = pull.folder / "submissions" / "a.zip"
    path.write_text("first")
    pull.commit()
    pull.base = pull.git("rev-parse", "HEAD").strip()
    path.write_text("second")
    pull.commit()
    assert pull.step(ONLY_ADDS).returncode == 1
    path.unlink()
    (pull.folder / "submissions" / "b.zip").write_text("first")
    pull.commit()
    assert pull.step(ONLY_ADDS).returncode == 1


def test_the_workflow_installs_this_version() -> None:
    assert WORKFLOW["env"]["R2MED"] == f"r2med[view]=={__version__}"
