"""kill -9 in the middle of writing a folder: the next command removes what was left, and only that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from r2med.tasks.load import from_path

# The command as it is, but for one thing: having written the first task it waits for the signal.
COMMAND = """
import sys, time
import r2med.tasks.load, r2med.pipeline.nano_build

def wait_after(write):
    def written(*arguments, **options):
        write(*arguments, **options)
        print("half", flush=True)
        time.sleep(3600)
    return written

for module in (sys.modules["r2med.tasks.load"], sys.modules["r2med.pipeline.nano_build"]):
    module.write_task = wait_after(module.write_task)
sys.argv = ["r2med", *sys.argv[1:]]
from r2med.cli import main
main()
"""
COMMANDS = {
    "convert": ("data", "convert", "mini@1", "{out}", "--to", "beir"),
    "nano build": ("nano", "build", "mini@1", "--docs", "60", "--dense", "none", "--out", "{out}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_nothing_for_long(tmp_path: Path, name: str) -> None:
    def arguments(out: str) -> list[str]:
        return [part.format(out=tmp_path / out) for part in COMMANDS[name]]

    def run(out: str) -> None:
        done = subprocess.run([sys.executable, "-m", "r2med", *arguments(out)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    (tmp_path / ".mine.tmp").mkdir()
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments("out")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    alive = set(os.listdir(tmp_path))
    assert len(alive) == 2
    run("other")
    assert set(os.listdir(tmp_path)) == {*alive, "other"}, "what a living command is writing stays"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert set(os.listdir(tmp_path)) == {*alive, "other"}
    run("out")
    assert set(os.listdir(tmp_path)) == {".mine.tmp", "other", "out"}
    first, second = ([ref.load().fingerprint for ref in from_path(tmp_path / out)] for out in ("out", "other"))
    assert first == second
