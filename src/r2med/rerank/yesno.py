"""One passage at a time: does it help, yes or no? Scored by how sure the model is, where the server tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..core import Hasher
from ..core.spec import Content, Spec
from ..llm import Chat, Generation, GenerationStore, Request, StoreKey, generate
from ..llm.reading import read_verdict, verdict_odds
from ..retrieve import Build
from ..retrieve.encoders.base import WorkOrder
from .contract import rerankers
from .listwise import (
    PASSAGE_WORDS,
    MaxTokens,
    OwnPrompt,
    PassageWords,
    ask_about,
    load_prompt,
    on_chat,
    sampling_for,
    shortened,
)
from .pairs import Pairs, Scored, by_query
from .pointwise import PointwiseReranker

SURE = 10.0
"""Log-odds of an answer in words alone: as good as certain. Answers of one kind tie and keep their order."""
ANSWERS = 64
"""Answers handed on together."""


@rerankers.register("yesno", argument="chat", needs_argument=True)
class YesNo:
    """A chat model says of each passage whether it helps, yes or no."""

    def __init__(
        self,
        logits: Annotated[
            bool, Meta(description="score by the odds of the first token, where the server tells")
        ] = True,
        passage_words: PassageWords = PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        """Only the parameters: the reranker is made by `from_spec`."""

    @staticmethod
    def from_spec(spec: Spec, build: Build) -> PointwiseReranker:
        """The reranker of a spec, on the chat model that is its argument."""
        assert isinstance(spec.argument, Spec)
        chat = build.chat(spec.argument)
        given: dict[str, Any] = {key: value for key, value in spec.parameters if key not in ("rest", "prompt")}
        own = spec.get("prompt")
        scorer = YesNoScorer(chat, prompt=own.located() if isinstance(own, Content) else None, **given)
        return PointwiseReranker(scorer, on_chat(spec, chat), build.options.changed(spec.options))


class YesNoScorer:
    """A pair's score is the log-odds of yes against no; an answer that is neither has no score."""

    kind = "pointwise"
    keeps_scores = False  # the generation store keeps the answers, which say more
    distributable = False

    def __init__(
        self,
        chat: Chat,
        *,
        logits: bool = True,
        passage_words: int = PASSAGE_WORDS,
        max_tokens: int | None = None,
        prompt: Path | None = None,
        store: Path | None = None,
    ) -> None:
        self.chat, self.name = chat, f"yesno:{chat.name}"
        self.passage_words = passage_words
        self.prompt = load_prompt("yesno", prompt)
        self.sampling = sampling_for(chat, self.prompt, max_tokens, top_logprobs=20 if logits else 0)
        self.store = store
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score."""
        return {
            "method": "yesno",
            "llm": self.chat.describe(),
            "prompt": self.prompt.hash,
            "passage_words": self.passage_words,
            "sampling": msgspec.to_builtins(self.sampling),
        }

    def max_length(self) -> int | None:
        """The limit is in words, and counted in the notes."""
        return None

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """Never dealt out: answers lie in one store."""
        return by_query(pairs, len(pairs) or 1)

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Ask about all pairs, many at a time."""
        del names
        places: dict[str, int] = {}

        def requests() -> Iterator[Request]:
            for row in np.lexsort((pairs.document, pairs.query)).tolist():
                query, document = pairs.texts(np.array([row]))[0]
                passage, cut = shortened(document, self.passage_words)
                self.notes["passages_cut"] += cut
                key = _key(query, document)
                places[key] = row
                yield Request(ask_about(self.prompt, query, [passage]), self.sampling, key)

        # Requests are told apart by their content, so one store serves all tasks.
        key = StoreKey.of("rerank-yesno", self.chat, self.prompt.hash, self.sampling, "pairs")
        with GenerationStore(key, self.store) as store:
            stored = len(store)
            group: list[tuple[int, float]] = []
            for answer in generate(self.chat, requests(), store, clean=False):
                group.append((places[answer.query_id], self._score(answer)))
                if len(group) == ANSWERS:
                    yield _scored(group)
                    group = []
            if group:
                yield _scored(group)
            self.notes["cache_hits"] += max(len(pairs) - (len(store) - stored) - self.notes["failed"], 0)

    def _score(self, answer: Generation) -> float:
        if answer.status == "failed":
            self.notes["failed"] += 1
            return np.nan
        odds = _odds(answer)
        if odds is not None:
            self.notes["with_logits"] += 1
            return odds
        verdict = read_verdict(answer.final)
        if verdict is None:
            self.notes["unparsed"] += 1
            return np.nan
        self.notes["in_words"] += 1
        return SURE if verdict else -SURE


def _odds(answer: Generation) -> float | None:
    """From the first token, unless the model reasoned first: then that token says nothing about the answer."""
    given = answer.extra.get("first_token")
    if not given or answer.reasoning:
        return None
    return verdict_odds(msgspec.convert(given, list[tuple[str, float]]))


def _key(query: str, document: str) -> str:
    hasher = Hasher("pair")
    hasher.texts((query, document))
    return hasher.digest()


def _scored(group: list[tuple[int, float]]) -> Scored:
    rows, scores = zip(*group, strict=True)
    cut = np.zeros((len(rows), 2), dtype=np.int32)
    return Scored(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32), cut - 1)
