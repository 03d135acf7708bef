"""Dense retrieval on the CPU against its peers: encoding, exact search, a cached task.

Every contender runs in a process of its own; encoders take the same passages. The product alone and the two searches
share a process on one core and take turns, because their ratio is what counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import DATA, contender, english_like, report, skipped

from r2med.core.files import home

PASSAGES = 160
measured = partial(contender, "dense_contenders.py")


def texts() -> list[str]:
    """SciFact's first abstracts where they are at hand, else something like them."""
    if (DATA / "scifact").is_dir():
        import r2med

        return list(r2med.load(str(DATA / "scifact")).documents.contents[:PASSAGES])
    return english_like(np.random.default_rng(0), PASSAGES, 220)


def encoding() -> bool:
    folder = home() / "models" / "bge-small"
    if not (folder / "model.onnx").is_file() or find_spec("onnxruntime") is None:
        return skipped("encoding", "pip install 'r2med[onnx]' && r2med models fetch bge-small")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "passages.json"
        path.write_text(json.dumps(texts()), "utf-8")
        given = str(path), str(folder)
        ours = measured("encode-ours", *given)["seconds"]
        plain = measured("encode-plain", *given)["seconds"]
        print(f"     ours {PASSAGES / ours:.1f} passages/s, plain ONNX Runtime {PASSAGES / plain:.1f}")
        met = report("int8 encoding, times plain ONNX Runtime in input order", plain / ours, 1.4)
        if find_spec("sentence_transformers") is None:
            return skipped("sentence-transformers", "pip install 'r2med[torch]'") and met
        peer = measured("encode-st", *given)["seconds"]
        print(f"     sentence-transformers, float32, its defaults: {PASSAGES / peer:.1f} passages/s")
        return report("int8 encoding, times sentence-transformers", peer / ours, 2.0) and met


def searching() -> bool:
    best = measured("search", one_core=True)
    print("     " + ", ".join(f"{name} {1000 * best[name]:.0f} ms" for name in best if name != "wrong"))
    met = report("exact top-1,000, time over the bare product", best["ours"] / best["blas"], 1.3, at_least=False)
    if "beir" in best:
        met &= report("exact top-1,000, times BEIR's search", best["beir"] / best["ours"], 2.5)
    else:
        skipped("BEIR", "pip install beir")
    met &= report("documents out of place", best["wrong"], 0, at_least=False)
    if sys.platform == "linux":
        met &= report("extra memory in MB", measured("memory")["megabytes"], 200, at_least=False)
    return met


def remembering() -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        measured("cached", scratch)
        again = measured("cached", scratch, one_core=True)
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
