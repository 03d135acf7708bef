"""Cross-encoders in ONNX Runtime: no torch, one pair at a time on every core where the file is 8-bit.

As with encoders, a dynamically quantized model scales a whole batch together, so that a pair's score would depend on
its neighbours; such a model gets batches of one, which is also the fastest way on a CPU: nothing is padding.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..core import ModelError
from ..core.options import Options
from ..models import Card
from ..models.locate import file_hash
from ..retrieve.encoders import WorkOrder
from ..retrieve.encoders.batching import BATCH_TOKENS, pad
from ..retrieve.encoders.onnx import OnnxModel, find_onnx, onnx_hashes, scales_batches
from .contract import Float32
from .cross_encoder import WINDOW, CrossEncoder, PairIds, PairTokenizer
from .pointwise import Pairs, by_query


class OnnxCrossEncoder(CrossEncoder):
    """A sequence classifier as an ONNX file beside its `tokenizer.json`."""

    def __init__(self, card: Card, folder: Path, options: Options | None = None) -> None:
        super().__init__(card, options)
        self.folder = folder

    @cached_property
    def model(self) -> OnnxModel:
        """Loaded on first use: what is all in the cache needs no model."""
        return OnnxModel(self.folder, threads=self.options.threads, device=self.options.device)

    @cached_property
    def tokenizer(self) -> PairTokenizer:
        """Loaded on first use."""
        return PairTokenizer(self.model.tokenizer.backend, self.max_length(), self.name, self.card.truncation)

    def describe(self) -> dict[str, object]:
        """Everything besides the texts and the maximum length that changes a score."""
        return {
            "backend": "onnx",
            **onnx_hashes(find_onnx(self.folder)),
            "tokenizer": file_hash(self.folder / "tokenizer.json"),
            **self.facts(),
        }

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """An 8-bit file takes one pair at a time, so workers may share pairs as they like."""
        return by_query(pairs, WINDOW, free=scales_batches(find_onnx(self.folder)))

    def batching(self) -> tuple[int, int, int]:
        """One pair at a time for 8-bit files."""
        return self.options.batch_tokens or BATCH_TOKENS, 1 if self.model.per_text else 64, self.model.workers

    def forward(self, batch: list[PairIds], worker: int) -> Float32:
        """One score per pair."""
        del worker
        model = self.model
        ids, mask = pad([item.ids for item in batch], model.tokenizer.pad_id)
        types, _ = pad([item.types for item in batch], 0)
        feed: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return pick_logit(model.run(feed), self.card.logit, self.name)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed."""
        return isinstance(error, MemoryError) or "allocate memory" in str(error)


def pick_logit(output: Float32, logit: int, name: str) -> Float32:
    """The output that is the score: the only one, or the one the card names."""
    if output.ndim == 1:
        output = output[:, None]
    if output.ndim != 2 or not 0 <= logit < output.shape[1]:
        raise ModelError(f"{name} gives outputs of shape {output.shape}, which have no score number {logit}")
    return np.ascontiguousarray(output[:, logit])
