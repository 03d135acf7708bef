"""BERT in bytes in our own C against a bare loop over ONNX Runtime: tokens a second on one core, in one run.

Both get the same texts, one at a time on one thread, and take turns; texts are random tokens of four lengths. The ways
that this processor has besides its fastest follow, for what other processors would do.
"""

from __future__ import annotations

import statistics
import sys
import time
from importlib.util import find_spec
from typing import Any

import numpy as np
from common import report, seconds, skipped

from r2med.core.files import home
from r2med.retrieve.encoders.native_bert import NativeBert, native, recognized

LENGTHS = (32, 128, 235, 512)
"""235 tokens is the mean of Mini's passages."""
TOKENS, TURNS = 1500, 7


def speed(work: Any, length: int, count: int) -> float:
    """Tokens a second of CPU time."""
    return count * length / seconds(lambda: [work() for _ in range(count)], 1, clock=time.process_time)[0]


def main() -> None:
    path = home() / "models" / "bge-small" / "model.onnx"
    if not path.is_file() or find_spec("onnxruntime") is None or native is None or (bert := recognized(path)) is None:
        sys.exit(not skipped("native encoding", "pip install 'r2med[onnx]' && r2med models fetch bge-small"))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    models = {name: NativeBert(path, bert, way) for way, name in enumerate(native.ways())}
    fastest, ratios = next(iter(models)), list[float]()
    for length in LENGTHS:
        ids = np.random.default_rng(length).integers(1000, 30_000, (1, length))
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        text, count = ids[0].astype(np.int32), max(1, TOKENS // length)
        turns = [
            (
                speed(lambda: session.run(None, feed), length, count),  # noqa: B023 - called at once
                speed(lambda: models[fastest].states(text, first=True), length, count),  # noqa: B023
            )
            for _ in range(TURNS)
        ]
        theirs, ours = (statistics.median(turn[side] for turn in turns) for side in (0, 1))
        ratios.append(statistics.median(b / a for a, b in turns))
        others = ", ".join(
            f"{name} {speed(lambda: model.states(text, first=True), length, 1):,.0f}"  # noqa: B023
            for name, model in models.items()
            if name != fastest
        )
        print(
            f"     {length} tokens: ONNX Runtime {theirs:,.0f} tokens/s, ours ({fastest}) {ours:,.0f}, "
            f"{ratios[-1]:.2f} times; {others}"
        )
    sys.exit(not report("BERT in bytes, times ONNX Runtime", statistics.fmean(ratios), 1.4))


if __name__ == "__main__":
    main()
