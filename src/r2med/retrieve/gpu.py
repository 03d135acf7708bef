"""The first stage of exact search on a GPU.

float32 throughout (no TF32) and candidates with a margin; `exact` then decides on the CPU in float64, as it does
for the CPU's own product, so both give the same ranking.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import MissingExtra
from ..core.columns import Int32
from .rows import Float32, Rows
from .sparse import TopK
from .vectors import FirstStage

BLOCK_BYTES = 1 << 30


def gpu_first_stage(device: str | None, memory: int | None = None) -> FirstStage | None:
    """The GPU's first stage where the user names a CUDA device; None: the CPU's."""
    if device is None or not device.startswith("cuda"):
        return None
    return TorchFirstStage(device.split(",")[0], BLOCK_BYTES if memory is None else min(memory // 4, BLOCK_BYTES))


class TorchFirstStage:
    """Candidates by a product on a torch device."""

    def __init__(self, device: str, block_bytes: int = BLOCK_BYTES) -> None:
        try:
            import torch
        except ImportError:
            raise MissingExtra("searching on a GPU", "torch") from None
        self._torch: Any = torch
        self.device = device
        self.block_bytes = block_bytes

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query; which of equal scores come first is left to `exact`."""
        del tie_rank
        torch = self._torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.inference_mode():
                return self._product(queries, rows, depth)
        finally:
            torch.set_float32_matmul_precision(before)

    def _product(self, queries: Float32, rows: Rows, depth: int) -> TopK:
        torch = self._torch
        left = torch.from_numpy(queries).to(self.device)
        step = max(self.block_bytes // max(4 * (rows.shape[1] + len(queries)), 1), depth, 1024)
        scores = torch.empty((len(queries), 0), device=self.device)
        docs = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        for begin in range(0, rows.shape[0], step):
            # A copy: torch does not take the read-only memory of a mapped shard.
            block = torch.from_numpy(np.array(rows.read(begin, min(begin + step, rows.shape[0])))).to(self.device)
            best = torch.topk(left @ block.T, min(depth, len(block)), dim=1)
            scores = torch.cat((scores, best.values), dim=1)
            docs = torch.cat((docs, best.indices + begin), dim=1)
            keep = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
            scores, docs = keep.values, torch.gather(docs, 1, keep.indices)
        return TopK(docs.to(torch.int32).cpu().numpy(), scores.cpu().numpy())
