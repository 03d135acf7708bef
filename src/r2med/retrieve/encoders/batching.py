"""Batches of texts of like length under a token budget.

Padding is the whole cost of a badly made batch: abstracts in input order waste half of all work on it. Texts are put
in order of their length in characters, tokenized a window at a time, so that a corpus is never in memory as tokens,
and cut into batches whose padded size stays under the budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from ...core import ModelError, TextColumn
from ...core.columns import Int32, Int64
from ...core.queries import Side
from . import Batch, Float32, TokenBatch, WorkOrder, check_vectors

WINDOW = 2048
TOKEN_WINDOW = 256
"""Texts that are put into batches together: their token vectors travel together where a worker makes them."""
BATCH_TOKENS = 4096
PREFIX = 1 << 16
"""Characters of a text that are tokenized at first; more only where they give too few tokens."""
MARGIN = 256
"""Tokens beyond the limit, so that a word cut at the end of a beginning is not among those that are kept."""
BYTES_PER_TOKEN = 4
Made = TypeVar("Made")
Item = TypeVar("Item", bound=Sized)
T = TypeVar("T", bound=Sized)


class Tokens:
    """A tokenized text."""

    __slots__ = ("ids", "total")

    def __init__(self, ids: list[int], total: int) -> None:
        self.ids = ids
        """What the model sees: cut at its limit, special tokens included."""
        self.total = total
        """Length before it was cut."""

    def __len__(self) -> int:
        return len(self.ids)


class MemoryBackend(Protocol):
    """What can run out of memory and say so."""

    name: str
    notes: Counter[str]

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed where this one failed."""
        ...


class TokenBackend(MemoryBackend, Protocol):
    """What the loop needs of a model."""

    def max_length(self, side: Side) -> int:
        """Where texts are cut, in tokens."""
        ...

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        """Token ids of each text."""
        ...

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """One vector per list of token ids."""
        ...


def estimated_tokens(texts: Sequence[str], positions: Int64, instruction: str, limit: int | None) -> Int64:
    """About how many tokens some texts have, cut at the model's limit."""
    tokens = (text_lengths(texts)[positions] + len(instruction)) // BYTES_PER_TOKEN + 1
    return np.minimum(tokens, limit) if limit else tokens


def text_lengths(texts: Sequence[str]) -> Int64:
    """Lengths in bytes or characters, whichever is at hand: only their order matters."""
    if isinstance(texts, TextColumn):
        return np.diff(texts.offsets)
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def by_length(texts: Sequence[str], window: int = WINDOW, *, free: bool = False) -> WorkOrder:
    """The order in which texts are put into batches: the longest first, a window at a time."""
    return WorkOrder(np.argsort(-text_lengths(texts), kind="stable"), window, free)


@dataclass(frozen=True)  # Python 3.10 has no generic NamedTuple
class Bounded(Generic[T]):
    """The beginning of a text that was tokenized: all of it, unless it is very long."""

    text: str
    tokens: T
    times: float
    """How many times longer the whole text is."""

    @property
    def total(self) -> int:
        """Tokens of the whole text; an estimate where not all of it was tokenized."""
        return round(len(self.tokens) * self.times)


def tokenize_bounded(
    texts: list[str], limit: int, tokenize: Callable[[list[str]], list[T]], cut_at: Literal["left", "right"] = "right"
) -> list[Bounded[T]]:
    """Tokens of each text without tokenizing what lies far beyond the limit: a corpus may hold a 50 MB document.

    Of a long text a beginning is tokenized that gives more tokens than the limit; they are those the whole text
    begins with. Texts that lose their beginnings are tokenized whole.
    """
    if cut_at == "left":
        return [Bounded(text, tokens, 1.0) for text, tokens in zip(texts, tokenize(texts), strict=True)]
    made = [
        Bounded(text, tokens, 1.0) for text, tokens in zip(texts, tokenize([t[:PREFIX] for t in texts]), strict=True)
    ]
    for i, text in enumerate(texts):
        size, tokens = PREFIX, made[i].tokens
        while size < len(text) and len(tokens) <= limit + MARGIN:
            size *= 4
            (tokens,) = tokenize([text[:size]])
        if len(text) > PREFIX:
            made[i] = Bounded(text[:size], tokens, max(len(text) / size, 1.0))
    return made


def plan(lengths: Sequence[int], budget: int, most: int) -> list[list[int]]:
    """Groups of positions, longest texts first; the longest of a group times its size stays within `budget`."""
    groups: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if groups and len(groups[-1]) < most and (len(groups[-1]) + 1) * longest <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
            longest = max(lengths[i], 1)
    return groups


@dataclass(frozen=True)
class Job(Generic[T]):
    """What goes through a model together."""

    rows: Int64
    """Positions among all that is to be done."""
    items: list[T]


def stream_jobs(
    work_order: WorkOrder,
    tokenize: Callable[[Int64], list[T]],
    work: Callable[[Job[T], int], Made],
    *,
    budget: int,
    most: int,
    workers: int = 1,
) -> Iterator[Made]:
    """Tokenize a window of positions after the other, and do `work` on batches of like length.

    `workers` jobs are under way at once, each told the number of its worker.
    """
    slots = list(range(workers))

    def in_slot(job: Job[T]) -> Made:
        worker = slots.pop()
        try:
            return work(job, worker)
        finally:
            slots.append(worker)

    order, size = work_order.order, work_order.window
    windows = [order[start : start + size] for start in range(0, len(order), size)]
    with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(1) as ahead:
        # The next window is tokenized while the model works on this one.
        coming = [ahead.submit(tokenize, window) for window in windows[:1]]
        try:
            for number, window in enumerate(windows):
                items = coming.pop().result()
                coming += [ahead.submit(tokenize, window) for window in windows[number + 1 : number + 2]]
                groups = plan([len(item) for item in items], budget, most)
                yield from pool.map(in_slot, [Job(window[group], [items[i] for i in group]) for group in groups])
        finally:
            # A failure or an interrupt must not wait for a window of work that nobody will see.
            pool.shutdown(wait=True, cancel_futures=True)
            ahead.shutdown(wait=True, cancel_futures=True)


def check_room(nothing: Tokens, limit: int, name: str) -> None:
    """Refuse a maximum length that an empty text fills already: every text would become the same vector."""
    if nothing.total >= limit:
        raise ModelError(
            f"{name}: a maximum length of {limit} tokens leaves no room for a text: "
            f"its instruction and the model's own tokens are {nothing.total}"
        )


def stream_batches(
    backend: TokenBackend,
    texts: Sequence[str],
    side: Side,
    instruction: str,
    *,
    budget: int,
    most: int,
    workers: int = 1,
) -> Iterator[Batch]:
    """Encode all texts: one vector each."""
    check_room(backend.tokenize([""], side, instruction)[0], backend.max_length(side), backend.name)

    def work(job: Job[Tokens], worker: int) -> Batch:
        ids = [t.ids for t in job.items]
        made = halving(lambda part: backend.forward(part, side, instruction, worker), ids, backend)
        totals: Int32 = np.array([t.total for t in job.items], dtype=np.int32)
        return Batch(job.rows, check_vectors(made, job.rows, texts, backend.name), totals)

    def tokenize(window: Int64) -> list[Tokens]:
        return backend.tokenize([texts[i] for i in window.tolist()], side, instruction)

    return stream_jobs(by_length(texts), tokenize, work, budget=budget, most=most, workers=workers)


def token_batch(
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


def halving(forward: Callable[[list[Item]], Float32], batch: list[Item], backend: MemoryBackend) -> Float32:
    """Encode a batch, in halves where the device has no memory for the whole."""
    try:
        return forward(batch)
    except Exception as error:
        if not backend.is_out_of_memory(error):
            raise
        if len(batch) == 1:
            raise ModelError(
                f"{backend.name}: not enough memory on the device for one text of {len(batch[0])} tokens; "
                "use a smaller maximum length or another device"
            ) from None
    # Outside the except block, so that the failed attempt's tensors are no longer held by its traceback.
    backend.notes["batches_halved"] += 1
    middle = len(batch) // 2
    return np.concatenate((halving(forward, batch[:middle], backend), halving(forward, batch[middle:], backend)))


def pad(batch: list[list[int]], value: int, side: str = "right", multiple: int = 1) -> tuple[Int64, Int64]:
    """Token ids as a rectangle with its attention mask."""
    width = max(map(len, batch), default=0)
    width = max(-(-width // multiple) * multiple, 1)
    ids = np.full((len(batch), width), value, dtype=np.int64)
    mask = np.zeros((len(batch), width), dtype=np.int64)
    for row, tokens in enumerate(batch):
        span = slice(width - len(tokens), width) if side == "left" else slice(0, len(tokens))
        ids[row, span], mask[row, span] = tokens, 1
    return ids, mask
