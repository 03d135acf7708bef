"""Encoders that keep a vector per token, in ONNX Runtime or torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import to_builtins

from ...core import ModelError, UsageError
from ...core.columns import Int64
from ...core.options import Options
from ...core.queries import Side
from ...models import Card, Interaction
from . import as_stated
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
            return _counted(job, hidden, [slice(len(t.ids)) for t in job.items], texts, self.name)

        def tokenize(window: Int64) -> list[Tokens]:
            return self.tokenize([texts[i] for i in window.tolist()], side, instruction)

        budget, most = self.options.batch_tokens or BATCH_TOKENS, 1 if model.per_text else 64
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=most, workers=model.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        name = self.model.tokenizer.backend.id_to_token
        return [[str(name(i)) for i in tokens.ids] for tokens in self.tokenize(list(texts), side, instruction)]


class MarkedTokens(Tokens):
    """A tokenized text of which some tokens are not attended to, or have no vector."""

    __slots__ = ("kept", "seen")

    def __init__(self, ids: list[int], total: int, seen: int, kept: list[int]) -> None:
        super().__init__(ids, total)
        self.seen = seen
        """Tokens, from the first, that others attend to."""
        self.kept = kept
        """Positions that have a vector."""


class TorchTokenEncoder(TorchEncoder):
    """Token vectors from a transformers model, through its projection where it has one.

    Markers, expansion of queries and tokens without a vector are as PyLate has them.
    """

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        rules = self.card.interaction
        given = {} if rules == Interaction() else {"interaction": to_builtins(rules)}
        return {**super().describe(side), **given}

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """Whole windows: what a text becomes may depend on its batch in the last bits."""
        return by_length(texts, WINDOW)

    def marked(self, texts: list[str], side: Side, instruction: str) -> list[MarkedTokens]:
        """Token ids of each text with what is added to them, and which of them count."""
        rules, tokenizer = self.card.interaction, self.tokenizer(side)
        name = rules.query_marker if side == "query" else rules.document_marker
        marker = [self._token(tokenizer, name)] if name else []
        skipped = self._skipped(tokenizer) if side == "document" else frozenset()
        limit = self.max_length(side)
        made = []
        for tokens in self._tokenize(texts, side, instruction, limit - len(marker)):
            ids = [*tokens.ids[:1], *marker, *tokens.ids[1:]]
            seen = len(ids)
            if rules.expansion and side == "query":
                ids += [self._mask(tokenizer)] * (limit - seen)
            kept = [i for i, token in enumerate(ids) if token not in skipped and (i or rules.first)]
            everything = rules.expansion_seen and side == "query"
            made.append(MarkedTokens(ids, tokens.total + len(marker), len(ids) if everything else seen, kept))
        return made

    def _token(self, tokenizer: Any, name: str) -> int:
        found: int | None = tokenizer.get_vocab().get(name)
        if found is None:
            raise ModelError(f"the tokenizer of {self.name} has no token {name!r}, which marks its texts")
        return found

    def _mask(self, tokenizer: Any) -> int:
        """What fills queries up: the mask token, or EOS in a model that has none."""
        for found in (tokenizer.mask_token_id, tokenizer.eos_token_id):
            if found is not None:
                return int(found)
        raise ModelError(f"the tokenizer of {self.name} has no mask token to fill up queries with")

    def _skipped(self, tokenizer: Any) -> frozenset[int]:
        known = tokenizer.get_vocab()
        return frozenset(known[word] for word in self.card.interaction.skipped if word in known)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        import torch

        def work(job: Job[MarkedTokens], worker: int) -> TokenBatch:
            replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
            arrays = pad([t.ids for t in job.items], tokenizer.pad_token_id or 0)
            for row, tokens in enumerate(job.items):
                arrays[1][row, tokens.seen :] = 0
            with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
                ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
                hidden = replica.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                hidden = hidden if replica.projection is None else replica.projection(hidden)
                return _counted(job, hidden.cpu().numpy(), [t.kept for t in job.items], texts, self.name)

        def tokenize(window: Int64) -> list[MarkedTokens]:
            return self.marked([texts[i] for i in window.tolist()], side, instruction)

        if not self.devices[0].startswith("cuda"):
            use_all_cores(self.options.threads)
        budget = self.options.batch_tokens or BATCH_TOKENS
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=32, workers=self.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        names = self.tokenizer(side).convert_ids_to_tokens
        found = self.marked(list(texts), side, instruction)
        return [list(map(str, names([tokens.ids[place] for place in tokens.kept]))) for tokens in found]


def _counted(
    job: Job[Any], hidden: Float32, kept: Sequence[slice | list[int]], texts: Sequence[str], name: str
) -> TokenBatch:
    """The vectors of the tokens that count."""
    states = []
    for row, positions, padded in zip(job.rows.tolist(), kept, hidden, strict=True):
        vectors = padded[positions]
        if not len(vectors):
            start = " ".join(texts[row].split())[:60]
            raise ModelError(f"{name} gives no token of text {row} a vector ({start!r})")
        states.append(check_vectors(vectors, np.full(len(vectors), row), texts, name))
    return TokenBatch(job.rows, states, np.array([tokens.total for tokens in job.items], dtype=np.int32))


def token_encoder(card: Card, folder: Path, options: Options, *, dtype: str | None = None) -> TokenEncoder:
    """The token encoder of a card."""
    card = as_stated(card, folder)
    if card.backend == "onnx":
        if card.interaction != Interaction() or card.head or card.projection:
            raise UsageError(f"{card.name}: markers and projections of tokens run in transformers, not in ONNX Runtime")
        return OnnxTokenEncoder(card, folder, options)
    if card.backend != "transformers":
        raise UsageError(f"{card.name} runs on {card.backend}, which gives no vectors of tokens")
    return TorchTokenEncoder(card, folder, options, dtype=dtype)
