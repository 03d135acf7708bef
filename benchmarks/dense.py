"""Dense retrieval on the CPU against its peers: encoding, exact search, a cached task.

Every contender runs in a process of its own; encoders take the same passages. The product alone and the two searches
share a process on one core and take turns, because their ratio is what counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import english_like, here, report

from r2med.core.places import home

SCIFACT = Path(__file__).parent.parent.parent / "shared" / "data" / "scifact"
PASSAGES = 160


ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def contender(*arguments: str, one_core: bool = False) -> dict[str, float]:
    command = [sys.executable, here("dense_contenders.py"), *arguments]
    if one_core and shutil.which("taskset"):
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    environment = {**os.environ, **(ONE_THREAD if one_core else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def texts() -> list[str]:
    """SciFact's first abstracts where they are at hand, else something like them."""
    if SCIFACT.is_dir():
        import r2med

        return list(r2med.load(str(SCIFACT)).documents.contents[:PASSAGES])
    return english_like(np.random.default_rng(0), PASSAGES, 220)


def encoding() -> bool:
    folder = home() / "models" / "bge-small"
    if not (folder / "model.onnx").is_file() or find_spec("onnxruntime") is None:
        print("--   encoding: needs bge-small (r2med models fetch bge-small) and pip install 'r2med[onnx]'")
        return True
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "passages.json"
        path.write_text(json.dumps(texts()), "utf-8")
        given = str(path), str(folder)
        ours = contender("encode-ours", *given)["seconds"]
        plain = contender("encode-plain", *given)["seconds"]
        print(f"     ours {PASSAGES / ours:.1f} passages/s, plain ONNX Runtime {PASSAGES / plain:.1f}")
        met = report("int8 encoding, times plain ONNX Runtime in input order", plain / ours, 1.4)
        if find_spec("sentence_transformers") is None:
            print("--   sentence-transformers is not installed")
            return met
        peer = contender("encode-st", *given)["seconds"]
        print(f"     sentence-transformers, float32, its defaults: {PASSAGES / peer:.1f} passages/s")
        return report("int8 encoding, times sentence-transformers", peer / ours, 2.0) and met


def searching() -> bool:
    best = contender("search", one_core=True)
    print("     " + ", ".join(f"{name} {1000 * best[name]:.0f} ms" for name in best if name != "wrong"))
    met = report("exact top-1,000, time over the bare product", best["ours"] / best["blas"], 1.3, at_least=False)
    if "beir" in best:
        met &= report("exact top-1,000, times BEIR's search", best["beir"] / best["ours"], 2.5)
    else:
        print("--   BEIR is not installed")
    met &= report("documents out of place", best["wrong"], 0, at_least=False)
    if sys.platform == "linux":
        met &= report("extra memory in MB", contender("memory")["megabytes"], 200, at_least=False)
    return met


def remembering() -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        contender("cached", scratch)
        again = contender("cached", scratch, one_core=True)
    if again["encoded"]:
        raise SystemExit("the cache did not remember")
    print(f"     61,379 × 1,024 from the cache: {again['wall']:.2f} s")
    return report("cached task, CPU seconds", again["cpu"], 1.0, at_least=False)


def main() -> None:
    # `and` would skip what comes after the first miss.
    met = [encoding(), searching(), remembering()]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
