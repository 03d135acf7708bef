"""Cross-encoders: a pair goes in, a score comes out. Tokens and the loop that all backends share, and ONNX Runtime's.

A query stands in a hundred pairs. Each text is tokenized once and put together as the model's own template does:
tokenizers treat the two halves of a pair apart anyway, so the ids are the same.

ONNX Runtime needs no torch. As with encoders, a dynamically quantized model scales a whole batch together, so that a
pair's score would depend on its neighbours; such a model gets batches of one, which is also the fastest way on a CPU:
nothing is padding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import ModelError
from ..core.columns import Int64
from ..core.options import Options
from ..models import Card
from ..models.card import Truncation
from ..models.locate import file_hash
from ..retrieve.encoders import WorkOrder, check_length
from ..retrieve.encoders.batching import BATCH_TOKENS, Job, halving, pad, stream_jobs, tokenize_bounded
from ..retrieve.encoders.onnx import OnnxModel, find_onnx, onnx_hashes, scales_batches
from .contract import Float32
from .pointwise import Pairs, Scored, by_query

WINDOW = 8192
"""Pairs tokenized and sorted by length together; two windows are in memory at a time."""


class PairIds:
    """What the model sees of a pair."""

    __slots__ = ("cut", "ids", "second")

    def __init__(self, ids: list[int], second: int, cut: tuple[int, int]) -> None:
        self.ids = ids
        self.second = second
        """Where the second segment begins; the number of tokens if there is only one."""
        self.cut = cut
        """Tokens of document and query that were cut off."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def types(self) -> list[int]:
        """Segment of each token."""
        return [0] * self.second + [1] * (len(self.ids) - self.second)


class Template(NamedTuple):
    """The special tokens around and between two texts."""

    before: list[int]
    between: list[int]
    after: list[int]
    second_segment: int | None
    """How many tokens of `between` belong to the first segment; None: one segment for all."""

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return len(self.before) + len(self.between) + len(self.after)


class Text(NamedTuple):
    """A tokenized text, no longer than a model could take, and its whole length."""

    ids: list[int]
    total: int


def document_floor(limit: int) -> int:
    """Tokens a document keeps even beside a query that would fill the model: an eighth of it, 16 at least."""
    return max(16, limit // 8)


class Kept(NamedTuple):
    """Tokens that a query and a document keep."""

    query: int
    document: int


def document_first(query: int, document: int, room: int, floor: int) -> Kept:
    """The document gives way first, down to a floor, then the query."""
    kept = min(query, max(room - min(document, floor), 1))
    return Kept(kept, min(document, room - kept))


def longest_first(query: int, document: int, room: int) -> Kept:
    """Whichever is longer gives way first, as transformers truncates pairs; an odd token goes to the longer text."""
    if query + document <= room:
        return Kept(query, document)
    half = room // 2
    if min(query, document) <= half:
        return Kept(query, room - query) if query <= document else Kept(room - document, document)
    return Kept(half, room - half) if query <= document else Kept(room - half, half)


class PairTokenizer:
    """Builds pairs with a `tokenizers.Tokenizer`, whichever library loaded it."""

    def __init__(self, tokenizer: Any, limit: int, name: str, truncation: Truncation = "document-first") -> None:
        # Whoever saved it may have left their padding and truncation in it; both are ours to decide.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.limit, self.truncation, self.floor = limit, truncation, document_floor(limit)
        self.template = read_template(tokenizer, name)
        if limit < self.template.size + 2:
            raise ModelError(f"{name}: a maximum length of {limit} tokens leaves no room for a pair of texts")

    def texts(self, texts: list[str]) -> list[Text]:
        """Ids without special tokens."""
        bounded = tokenize_bounded(texts, self.limit, self._encodings)
        return [Text(b.tokens.ids[: self.limit], b.total) for b in bounded]

    def _encodings(self, texts: list[str]) -> list[Any]:
        return list(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))

    def pair(self, query: Text, document: Text) -> PairIds:
        """Both texts within the limit."""
        before, between, after, segment = self.template
        room = self.limit - self.template.size
        if self.truncation == "longest-first":
            kept, shown = longest_first(query.total, document.total, room)
        else:
            kept, shown = document_first(query.total, document.total, room, self.floor)
        first = len(before) + kept
        ids = [*before, *query.ids[:kept], *between, *document.ids[:shown], *after]
        second = len(ids) if segment is None else first + segment
        return PairIds(ids, second, (document.total - shown, query.total - kept))


def read_template(tokenizer: Any, name: str) -> Template:
    """The template, read off a pair that the tokenizer makes itself."""
    made = tokenizer.encode("a", "b")
    sides, ids, types = made.sequence_ids, made.ids, made.type_ids
    left = [i for i, side in enumerate(sides) if side == 0]
    right = [i for i, side in enumerate(sides) if side == 1]
    if not left or not right or left[-1] > right[0]:
        raise ModelError(f"the tokenizer of {name} does not make pairs of texts")
    between = slice(left[-1] + 1, right[0])
    segment = None if types[right[0]] == types[left[0]] else types[between].count(types[left[0]])
    return Template(ids[: left[0]], ids[between], ids[right[-1] + 1 :], segment)


class CrossEncoder(ABC):
    """What ONNX and torch share: tokens, batches of like length under a token budget, checks."""

    kind = "cross-encoder"
    keeps_scores = True
    distributable = True

    def __init__(self, card: Card, options: Options | None = None) -> None:
        self.card, self.options, self.name = card, options or Options(), card.name
        self.notes: Counter[str] = Counter()
        self.query_prefix, self.document_prefix = card.prefix("query", ""), card.prefix("document", "")

    def max_length(self) -> int:
        """Where pairs are cut."""
        return self.card.document_length

    @property
    @abstractmethod
    def tokenizer(self) -> PairTokenizer:
        """Loaded on first use."""

    def around_query(self, names: tuple[str, ...]) -> tuple[str, str]:
        """What a query is tokenized with, before and after it; `names` are those of the task."""
        del names
        return self.query_prefix, ""

    def facts(self) -> dict[str, object]:
        """What of the card changes a score, besides the maximum length."""
        cut = {} if self.card.truncation == "document-first" else {"truncation": self.card.truncation}
        return {"logit": self.card.logit, "template": [self.query_prefix, self.document_prefix], **cut}

    @abstractmethod
    def batching(self) -> tuple[int, int, int]:
        """Tokens of a batch, pairs of a batch, workers."""

    @abstractmethod
    def forward(self, batch: list[PairIds], worker: int) -> Float32:
        """One score per pair."""

    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed where this one failed."""

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """Whole windows of pairs: what a pair scores may depend on its batch in the last bits."""
        return by_query(pairs, WINDOW)

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Score all pairs, a batch at a time; the next window is tokenized while this one is scored."""
        budget, most, workers = self.batching()

        def work(job: Job[PairIds], worker: int) -> Scored:
            scores = halving(lambda part: self.forward(part, worker), job.items, self)
            return self._checked(job.rows, scores, job.items, pairs)

        order = by_query(pairs, WINDOW)
        return stream_jobs(
            order, lambda rows: self.tokenize(pairs.take(rows), names), work, budget=budget, most=most, workers=workers
        )

    def tokenize(self, pairs: Pairs, names: tuple[str, ...] = ()) -> list[PairIds]:
        """Pairs as tokens; a text that occurs several times is read once. `names` are those of the task."""
        tokenizer = self.tokenizer
        before_query, after_query = self.around_query(names)
        used_queries, query = np.unique(pairs.query, return_inverse=True)
        used_documents, document = np.unique(pairs.document, return_inverse=True)
        left = tokenizer.texts([before_query + pairs.queries[i] + after_query for i in used_queries.tolist()])
        right = tokenizer.texts([self.document_prefix + pairs.documents[i] for i in used_documents.tolist()])
        places = zip(query.reshape(-1).tolist(), document.reshape(-1).tolist(), strict=True)
        return [tokenizer.pair(left[q], right[d]) for q, d in places]

    def _checked(self, rows: Int64, scores: Float32, batch: list[PairIds], pairs: Pairs) -> Scored:
        if scores.shape != (len(rows),):
            raise ModelError(f"{self.name} returned an array of shape {scores.shape} for {len(rows)} pairs")
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            query, document = pairs.texts(rows[bad[:1]])[0]
            shown = f"{' '.join(query.split())[:40]!r} with {' '.join(document.split())[:40]!r}"
            raise ModelError(f"{self.name} returned a score that is not finite for {shown}")
        return Scored(rows, scores, np.array([item.cut for item in batch], dtype=np.int32).reshape(-1, 2))


class OnnxCrossEncoder(CrossEncoder):
    """A sequence classifier as an ONNX file beside its `tokenizer.json`."""

    def __init__(self, card: Card, folder: Path, options: Options | None = None) -> None:
        super().__init__(card, options)
        self.folder = folder
        check_length(card, folder)

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
