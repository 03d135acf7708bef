"""Encoders that keep a vector per token, in ONNX Runtime or torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ...core import UsageError
from .batching import Job, Tokens, pad, stream_jobs
from .onnx import OnnxEncoder
from .protocol import Float32, Side, check_vectors
from .torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from ...models import Card
    from .load import Options


class TextStates(NamedTuple):
    """The token vectors of one text."""

    row: int
    states: Float32
    tokens: int
    """Length before it was cut."""


class TokenEncoder(Protocol):
    """What late interaction needs of a model."""

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        ...

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut."""
        ...

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[list[TextStates]]:
        """Token vectors of all texts, a batch at a time."""
        ...


class OnnxTokenEncoder(OnnxEncoder):
    """Token vectors from an ONNX file."""

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[list[TextStates]]:
        """Token vectors of all texts, a batch at a time."""
        model = self.model

        def work(job: Job, worker: int) -> list[TextStates]:
            del worker
            hidden, _ = model.hidden([t.ids for t in job.tokens])
            return _cut(job, hidden, texts, self.name)

        return stream_jobs(
            lambda window: self.tokenize(window, side, instruction),
            work,
            texts,
            budget=self.batch_tokens,
            most=1 if model.per_text else 64,
            workers=model.workers,
        )


class TorchTokenEncoder(TorchEncoder):
    """Token vectors from a transformers model, through its projection where it has one."""

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[list[TextStates]]:
        """Token vectors of all texts, a batch at a time."""
        import torch

        def work(job: Job, worker: int) -> list[TextStates]:
            replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
            arrays = pad([t.ids for t in job.tokens], tokenizer.pad_token_id or 0)
            with torch.inference_mode():
                ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
                hidden = replica.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                hidden = hidden if replica.projection is None else replica.projection(hidden)
                return _cut(job, hidden.cpu().numpy(), texts, self.name)

        def tokenize(window: list[str]) -> list[Tokens]:
            return self.tokenize(window, side, instruction)

        budget = self.options.batch_tokens or 4096
        return stream_jobs(tokenize, work, texts, budget=budget, most=32, workers=self.workers)


def _cut(job: Job, hidden: Float32, texts: Sequence[str], name: str) -> list[TextStates]:
    """The rows of the tokens that are there, padding left out."""
    made = []
    for row, tokens, states in zip(job.rows.tolist(), job.tokens, hidden, strict=True):
        kept = states[: len(tokens.ids)]
        made.append(TextStates(row, check_vectors(kept, np.full(len(kept), row), texts, name), tokens.total))
    return made


def token_encoder(card: Card, folder: Path, options: Options) -> TokenEncoder:
    """The token encoder of a card."""
    if card.backend == "onnx":
        return OnnxTokenEncoder(
            folder,
            name=card.name,
            pooling="tokens",
            normalize=card.normalize,
            query_length=card.query_length,
            document_length=card.document_length,
            batch_tokens=options.batch_tokens or 4096,
            threads=options.threads,
        )
    if card.backend != "transformers":
        raise UsageError(f"{card.name} runs on {card.backend}, which gives no vectors of tokens")
    return TorchTokenEncoder(card, folder, options)
