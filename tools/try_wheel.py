"""Install a wheel into a clean environment of each Python given, without a compiler, and run r2med from there.

    python tools/try_wheel.py dist/r2med-….whl [python3.10 python3.11 …]

Without a Python, the one that runs this. The C extensions must be loaded and used, and every Python must give the same
scores. Prints one line for each; the times are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SYSTEMS = ("bm25", "bm25-lucene")
# References to None are counted before Python 3.12: an extension built with the headers of a later Python loses one
# with each call, until Python stops with a fatal error.
USE = """
import sys
import numpy as np
from r2med import _bert, _dots, _fast, _maxsim, _sparse
rows, ranks = np.ones((4, 8), np.float32), np.arange(4, dtype=np.int32)
docs, scores = np.empty((1, 2), np.int32), np.empty((1, 2), np.float32)
before = sys.getrefcount(None)
for _ in range(20000):
    _dots.dots(rows[:1], rows, None, rows[1:2, :4].copy(), 8, 4, 0, 4, 0)
    _sparse.topk(scores.repeat(2, axis=1), ranks, docs, scores)
    _maxsim.ways()
    _bert.ways()
    _fast.analyze(b"the fevers of children")
assert abs(sys.getrefcount(None) - before) < 1000, "references to None are lost"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    given = parser.parse_args()
    seen = set()
    for python in given.pythons:
        with tempfile.TemporaryDirectory() as scratch:
            seen.add(tried(given.wheel.resolve(), python, Path(scratch)))
    if len(seen) != 1:
        raise SystemExit(f"the scores differ between Pythons: {seen}")


def tried(wheel: Path, python: str, folder: Path) -> str:
    """The scores of a run in a new environment, which must use the C extensions."""
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    # Nothing but the environment is on the path, so that no compiler is; Windows needs a few variables of its own.
    kept = ("SYSTEMROOT", "TEMP", "TMP", "HOME", "USERPROFILE", "LOCALAPPDATA")
    settings = {name: os.environ[name] for name in (*kept, "SSL_CERT_FILE", *pip_settings()) if name in os.environ}
    settings |= {"PATH": str(programs), "R2MED_HOME": str(folder / "home"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{python}: {' '.join(command)} failed ({done.returncode})\n{done.stdout}{done.stderr}")
        return done.stdout

    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
    mine, r2med = str(programs / "python"), str(programs / "r2med")
    run(mine, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel))
    assert "Usage" in run(r2med, "--help")
    run(mine, "-c", USE)
    asked = [part for system in SYSTEMS for part in ("--retriever", system)]
    systems = json.loads(run(r2med, "run", *asked, "--json"))["systems"]
    (folder / "results").rename(folder / "first")
    started = time.perf_counter()
    run(r2med, "run", *asked)
    seconds = time.perf_counter() - started
    for result in (folder / "results").rglob("Biology.json"):
        assert json.loads(result.read_text("utf-8"))["environment"]["native"] is True, f"{python}: no C extensions"
    scores = json.dumps({system["name"]: system["macro"]["ndcg_at_10"] for system in systems})
    imported = [import_seconds(run, mine) for _ in range(5)]
    print(
        f"{run(mine, '-V').strip()}  {run(r2med, '--version').strip()}  {scores}  "
        f"run {seconds:.2f} s  import {min(imported):.3f} s",
        flush=True,
    )
    return scores


def pip_settings() -> list[str]:
    """Where packages come from."""
    return [name for name in os.environ if name.startswith("PIP_")]


def import_seconds(run: object, python: str) -> float:
    """Seconds of CPU that `import r2med` takes."""
    assert callable(run)
    code = "import time; t = time.process_time(); import r2med; print(time.process_time() - t)"
    return float(run(python, "-c", code))


if __name__ == "__main__":
    main()
