"""A clock that goes backwards: no order of shards, no progress, no waiting hangs on the time of day."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.runs import ONE_TASK, Place, check_whole, content, rows_and_texts, run, run_well
from tests.llm.test_kill import server_process

SOURCE = Path(__file__).parent / "clock.c"
BACKWARDS = "import time; a = [time.time() for _ in range(3)]; print(a[0] - a[2] > 10, time.time_ns() < a[2] * 1e9)"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose clock runs backwards."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the clock with")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)], check=True)
    env = {"LD_PRELOAD": str(library)}
    shown = subprocess.run([sys.executable, "-c", BACKWARDS], env=env, capture_output=True, text=True, check=True)
    if shown.stdout.split() != ["True", "True"]:
        pytest.skip("this Python does not take its time from the C library")
    return env


@pytest.mark.faults
def test_a_run_against_time(place: Place, clock: dict[str, str]) -> None:
    run_well(place, tasks=ONE_TASK)
    back = place.beside("back")
    for _ in range(2):  # the second one reads what the first one kept
        done = run(back, tasks=ONE_TASK, env=clock)
        assert done.returncode == 0, done.stderr
    done = run(back, "--overwrite", tasks=f"{ONE_TASK},mini@1/MedQA-Diag", env=clock)
    assert done.returncode == 0, done.stderr
    check_whole(back)
    assert {k: v for k, v in content(back.results).items() if "Biology" in k} == content(place.results)
    assert len(set(rows_and_texts(back.home))) == 1
    state = json.loads((back.results / ".progress.json").read_bytes())
    assert state["done"] == state["total"]


RATE = """
import sys
from r2med.core.options import Options
from r2med.llm import Message, Request, Sampling, get_llm
chat = get_llm("openai:any", Options(base_url=sys.argv[1], requests_per_minute=1200, attempts=3))
asked = [Request((Message("user", f"q{i}"),), Sampling(max_tokens=8), f"q{i}") for i in range(100)]
answers = list(chat.complete(asked))
assert all(not a.error for a in answers), answers
print(len(answers))
"""


def test_a_rate_limit_against_time(clock: dict[str, str], tmp_path: Path) -> None:
    """A hundred requests take five seconds; whoever waited for the time of day would wait ten more for each."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    with server_process(0.0) as url:
        env = {
            **clock,
            "R2MED_HOME": str(tmp_path),
            "OPENAI_API_KEY": "sk-x",
            "NO_PROXY": "127.0.0.1",
            "PATH": "/usr/bin",
        }
        done = subprocess.run(
            [sys.executable, "-c", RATE, url], env=env, capture_output=True, text=True, check=False, timeout=500
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "100"
