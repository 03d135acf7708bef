"""Encoders that keep a vector per token, in ONNX Runtime or torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ...core import UsageError
from ...core.columns import Int64
from ...core.options import Options
from ...core.queries import Side
from ...models import Card
from .base import Float32, TokenBatch, WorkOrder, check_vectors
from .batching import Job, Tokens, by_length, pad, stream_jobs
from .devices import mixed_precision, use_all_cores
from .onnx import BATCH_TOKENS, OnnxEncoder
from .torch_encoder import TorchEncoder

WINDOW = 256
"""Texts that are put into batches together: their token vectors travel together where a worker makes them."""


class TokenEncoder(Protocol):
    """What late interaction needs of a model."""

    name: str
    notes: Counter[str]

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        ...

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut."""
        ...

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """How texts are dealt out to workers."""
        ...

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        ...

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text as the tokenizer writes them, one for each vector."""
        ...


class OnnxTokenEncoder(OnnxEncoder):
    """Token vectors from an ONNX file."""

    pooling = "tokens"

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """A model that takes one text at a time lets workers share texts as they like."""
        return by_length(texts, WINDOW, free=super().work_order(texts).free)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        model = self.model

        def work(job: Job[Tokens], worker: int) -> TokenBatch:
            del worker
            hidden, _ = model.hidden([t.ids for t in job.items])
            return _without_padding(job, hidden, texts, self.name)

        def tokenize(window: Int64) -> list[Tokens]:
            return self.tokenize([texts[i] for i in window.tolist()], side, instruction)

        budget, most = self.options.batch_tokens or BATCH_TOKENS, 1 if model.per_text else 64
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=most, workers=model.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        name = self.model.tokenizer.backend.id_to_token
        return [[str(name(i)) for i in tokens.ids] for tokens in self.tokenize(list(texts), side, instruction)]


class TorchTokenEncoder(TorchEncoder):
    """Token vectors from a transformers model, through its projection where it has one."""

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """Whole windows: what a text becomes may depend on its batch in the last bits."""
        return by_length(texts, WINDOW)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        import torch

        def work(job: Job[Tokens], worker: int) -> TokenBatch:
            replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
            arrays = pad([t.ids for t in job.items], tokenizer.pad_token_id or 0)
            with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
                ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
                hidden = replica.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                hidden = hidden if replica.projection is None else replica.projection(hidden)
                return _without_padding(job, hidden.cpu().numpy(), texts, self.name)

        def tokenize(window: Int64) -> list[Tokens]:
            return self.tokenize([texts[i] for i in window.tolist()], side, instruction)

        if not self.devices[0].startswith("cuda"):
            use_all_cores(self.options.threads)
        budget = self.options.batch_tokens or BATCH_TOKENS
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=32, workers=self.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        names = self.tokenizer(side).convert_ids_to_tokens
        return [list(map(str, names(tokens.ids))) for tokens in self.tokenize(list(texts), side, instruction)]


def _without_padding(job: Job[Tokens], hidden: Float32, texts: Sequence[str], name: str) -> TokenBatch:
    """The vectors of the tokens that are there."""
    states = []
    for row, tokens, padded in zip(job.rows.tolist(), job.items, hidden, strict=True):
        kept = padded[: len(tokens.ids)]
        states.append(check_vectors(kept, np.full(len(kept), row), texts, name))
    return TokenBatch(job.rows, states, np.array([tokens.total for tokens in job.items], dtype=np.int32))


def token_encoder(card: Card, folder: Path, options: Options, *, dtype: str | None = None) -> TokenEncoder:
    """The token encoder of a card."""
    if card.backend == "onnx":
        return OnnxTokenEncoder(card, folder, options)
    if card.backend != "transformers":
        raise UsageError(f"{card.name} runs on {card.backend}, which gives no vectors of tokens")
    return TorchTokenEncoder(card, folder, options, dtype=dtype)
