"""How a number was made is looked up when it is made; how far a run is, as others see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from r2med.results.schema import PROGRESS, ProgressFile, commit_of, read_progress
from r2med.retrieve.encoders.native_bert import recognized
from tests.retrieve.encoders.weights import real_model

RUN = """
import sys
import r2med
results = r2med.run("bm25", "bge-small", tasks="mini@1/Biology", results=sys.argv[1]).results
for result in results:
    print(result.system.name, *sorted(result.environment["versions"]))
"""


def test_versions_are_those_of_what_the_result_used(tmp_path: Path) -> None:
    """The first result of a process froze the list: bge-small's named no onnxruntime when bm25 came first."""
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "models" / "bge-small").symlink_to(real_model("bge-small", "model.onnx"))
    environment = os.environ | {"R2MED_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", RUN, str(tmp_path / "results")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lists = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert "onnxruntime" not in lists["bm25"]
    assert {"tokenizers", "numpy"} <= set(lists["bge-small"])
    # Where C of our own computes the model, ONNX Runtime took no part.
    ours = recognized(tmp_path / "home" / "models" / "bge-small" / "model.onnx") is not None
    assert ("onnxruntime" in lists["bge-small"]) != ours


def test_the_commit_is_found_also_where_branches_are_packed(tmp_path: Path) -> None:
    """`git gc` packs them, and results said that they were made by an installed package."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    commit = git("rev-parse", "HEAD")
    assert commit_of(tmp_path / ".git") == commit
    git("pack-refs", "--all")
    assert commit_of(tmp_path / ".git") == commit
    git("checkout", "--quiet", "--detach")
    assert commit_of(tmp_path / ".git") == commit
    assert commit_of(tmp_path / "elsewhere") is None


def test_progress_is_written_read_and_outlived(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    file = ProgressFile(tmp_path / "results")
    file.begin(3)
    file.step("bm25", "mini@1/Biology")
    state = read_progress(tmp_path / "results")
    assert state is not None
    assert state.running
    assert state.current is not None
    assert (state.current.system, state.current.task, state.done, state.total) == ("bm25", "mini@1/Biology", 0, 3)
    file.step("bm25", "mini@1/Biology", finished=True)
    file.end()
    state = read_progress(tmp_path / "results")
    assert state is not None
    assert not state.running
    assert state.current is None
    assert [(s.system, s.task) for s in state.finished] == [("bm25", "mini@1/Biology")]
    (tmp_path / "results" / ".progress.json").write_text("{")
    assert read_progress(tmp_path / "results") is None


def test_a_killed_run_does_not_look_alive(tmp_path: Path) -> None:
    code = "import sys, time; from r2med.results.schema import ProgressFile; p = ProgressFile(sys.argv[1])\n"
    code += "p.begin(2); p.step('a', 'b'); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    state = read_progress(tmp_path)
    assert state is not None
    assert state.running
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not state.running


def test_progress_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = ProgressFile(tmp_path / "file" / "inside")
    file.begin(1)
    file.step("a", "b")
    file.end()


def test_what_is_no_file_is_no_progress(tmp_path: Path) -> None:
    """A named pipe in its place hung every page."""
    os.mkfifo(tmp_path / PROGRESS)
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS).unlink()
    (tmp_path / PROGRESS).symlink_to("/dev/zero")
    assert read_progress(tmp_path) is None
