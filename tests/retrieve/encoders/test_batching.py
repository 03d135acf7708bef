"""Batches: every text once, within the budget, and smaller where memory runs out."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import ModelError, TextColumn
from r2med.core.queries import Side
from r2med.retrieve.encoders import Float32, batching
from r2med.retrieve.encoders.batching import Tokens, pad, plan, stream_batches


class Model:
    """Adds up token ids; has memory for so many padded tokens."""

    name = "adder"

    def __init__(self, memory: int = 10**9) -> None:
        self.notes: Counter[str] = Counter()
        self.memory = memory
        self.sizes: list[int] = []
        self.workers: set[int] = set()
        self.busy: set[int] = set()
        self.lock = threading.Lock()

    def max_length(self, side: Side) -> int:
        return 1000

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        return [Tokens([len(word) for word in (instruction + t).split()], len(t.split())) for t in texts]

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        with self.lock:
            assert worker not in self.busy
            self.busy.add(worker)
            self.workers.add(worker)
        try:
            ids, _ = pad(batch, 0)
            if ids.size > self.memory:
                raise MemoryError
            self.sizes.append(ids.size)
            return np.array([[sum(b), len(b)] for b in batch], dtype=np.float32)
        finally:
            with self.lock:
                self.busy.discard(worker)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)


@given(st.lists(st.integers(0, 50)), st.integers(1, 200), st.integers(1, 10))
def test_a_plan_holds_every_text_once(lengths: list[int], budget: int, most: int) -> None:
    groups = plan(lengths, budget, most)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= most
        assert len(group) == 1 or len(group) * max(max(lengths[i], 1) for i in group) <= budget


@given(st.lists(st.text("ab ", max_size=30), max_size=50), st.integers(1, 3), st.booleans())
def test_every_text_gets_its_own_vector(texts: list[str], workers: int, column: bool) -> None:
    model = Model()
    given_texts = TextColumn.from_texts(texts) if column else texts
    made: dict[int, list[float]] = {}
    for batch in stream_batches(model, given_texts, "document", "", budget=20, most=8, workers=workers):
        made.update(zip(batch.rows.tolist(), batch.vectors.tolist(), strict=True))
    assert made == {i: [sum(map(len, t.split())), len(t.split())] for i, t in enumerate(texts)}
    assert model.workers <= set(range(workers))


def test_memory_that_runs_out_halves_the_batch_and_is_counted() -> None:
    model = Model(memory=12)
    texts = ["a b c d"] * 10
    made = list(stream_batches(model, texts, "document", "", budget=40, most=10))
    assert sum(len(b.rows) for b in made) == 10
    assert max(model.sizes) <= 12
    assert model.notes["batches_halved"] > 0
    with pytest.raises(ModelError, match="not enough memory on the device for one text of 4 tokens"):
        list(stream_batches(Model(memory=2), texts, "document", "", budget=40, most=10))


def test_numbers_that_are_none_name_the_text() -> None:
    class Broken(Model):
        def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
            made = super().forward(batch, side, instruction, worker)
            made[made[:, 1] == 3] = np.nan
            return made

    texts = ["one", "two words", "three words here"]
    with pytest.raises(ModelError, match=r"adder returned .* not finite .* text 2 \('three words here'\)"):
        list(stream_batches(Broken(), texts, "document", "", budget=100, most=10))


@given(st.text("ab ", min_size=1, max_size=400), st.integers(1, 20))
def test_the_beginning_of_a_long_text_gives_the_tokens_of_the_whole(text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "PREFIX", 16)
        patch.setattr(batching, "MARGIN", 2)
        seen: list[int] = []

        def tokenize(texts: list[str]) -> list[list[str]]:
            seen.extend(map(len, texts))
            return [t.split() for t in texts]

        (made,) = batching.tokenize_bounded([text], limit, tokenize)
    assert made.tokens[:limit] == text.split()[:limit]
    assert (made.text, made.times) == (text, 1.0) or len(made.text) < len(text)
    if made.text == text:
        assert made.total == len(text.split())
    assert max(seen) <= max(16, len(text))


def test_padding_on_either_side() -> None:
    ids, mask = pad([[1, 2, 3], [4]], 9, "left")
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert pad([[1, 2, 3], [4]], 9)[0].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert pad([[]], 0)[0].shape == (1, 1)
