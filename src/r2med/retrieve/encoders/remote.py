"""Models that encode with Python code of their own, which runs only when the user has said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...core import ModelError
from ...core.columns import Int64
from ...core.queries import Side
from .base import Batch, Float32, check_vectors, normalized
from .batching import Job, Tokens, by_length, stream_jobs, tokenize_bounded
from .custom import to_numpy
from .devices import token_budget
from .torch_encoder import TorchEncoder


class RemoteCodeEncoder(TorchEncoder):
    """A model with a method `encode(texts, instruction=…, max_length=…)`, as NV-Embed has."""

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time; tokens are only counted here."""
        first = self.replica(side, 0)
        if not callable(getattr(first.model, "encode", None)):
            raise ModelError(f"{self.name} does not pool by itself: its code has no encode()")
        limit = self.max_length(side)

        def tokenize(window: Int64) -> list[Tokens]:
            tokenizer, whole = self.tokenizer(side), [instruction + texts[i] for i in window.tolist()]
            made = tokenize_bounded(whole, limit, lambda some: self._ids(tokenizer, some, side))
            return [Tokens(b.tokens[:limit], b.total) for b in made]

        def work(job: Job[Tokens], worker: int) -> Batch:
            given = [texts[int(row)] for row in job.rows]
            vectors = self._encode(given, side, instruction, worker)
            totals = np.array([t.total for t in job.items], dtype=np.int32)
            return Batch(job.rows, check_vectors(vectors, job.rows, texts, self.name), totals)

        budget = self.options.batch_tokens or token_budget(first.device, 4096)
        return stream_jobs(by_length(texts), tokenize, work, budget=budget, most=64, workers=self.workers)

    def _encode(self, texts: list[str], side: Side, instruction: str, worker: int) -> Float32:
        import torch

        model = self.replica(side, worker).model
        try:
            with torch.inference_mode():
                made = to_numpy(model.encode(texts, instruction=instruction, max_length=self.max_length(side)))
        except Exception as error:
            if not self.is_out_of_memory(error) or len(texts) == 1:
                raise
        else:
            vectors = np.asarray(made, dtype=np.float32)
            return normalized(vectors) if self.card.normalize else vectors
        self.notes["batches_halved"] += 1
        middle = len(texts) // 2
        parts = [self._encode(part, side, instruction, worker) for part in (texts[:middle], texts[middle:])]
        return np.concatenate(parts)
