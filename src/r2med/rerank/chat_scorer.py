"""A chat model asked about one passage at a time: what all such rerankers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from ..core import Hasher
from ..core.budget import Account
from ..core.spec import Content, Spec
from ..llm import Chat, Generation, GenerationStore, Request, StoreKey, generate, unless_read
from ..retrieve import Build
from ..retrieve.encoders.base import WorkOrder
from .asking import PASSAGE_WORDS, ask_about, count_problem, load_prompt, on_chat, sampling_for, shortened
from .pairs import Pairs, Scored, by_query
from .pointwise import PointwiseReranker

PAIRS = 64
"""Scored pairs that are handed on together."""
LOGPROBS = 20
"""Likeliest tokens that are asked for."""
SAMPLING_TEMPERATURE = 0.6
"""Of several answers to one prompt, where nothing else is said: at 0 they would all be the same."""
Logits = Annotated[bool, Meta(description="score by the odds of the answer's token, where the server tells")]
Samples = Annotated[int, Meta(ge=1, description="answers to one prompt; their mean counts")]
Temperature = Annotated[
    float, Meta(ge=0, description="of the answers; unset: 0, or 0.6 for several, or the model's own where it reasons")
]


class ChatScorer(ABC):
    """A pair's score is read from an answer, or is the mean over several; NaN where no answer can be read."""

    kind = "pointwise"
    keeps_scores = False  # the generation store keeps the answers, which say more
    distributable = False
    Parameters: ClassVar[type[Any]]
    """A dataclass of what may be set on it; the fields are arguments of its constructor."""
    method: ClassVar[str]
    """The name of the prompt, and of the store that answers are kept in."""

    def __init__(
        self,
        chat: Chat,
        *,
        logits: bool = True,
        samples: int = 1,
        temperature: float | None = None,
        passage_words: int = PASSAGE_WORDS,
        max_tokens: int | None = None,
        prompt: Path | None = None,
        store: Path | None = None,
        retry: Collection[str] = (),
    ) -> None:
        self.chat, self.name = chat, f"{self.method}:{chat.name}"
        self.passage_words = passage_words
        self.prompt = load_prompt(self.method, prompt)
        if temperature is None and samples > 1 and chat.defaults.temperature is None:
            temperature = SAMPLING_TEMPERATURE
        more = {"top_logprobs": LOGPROBS if logits else 0, "n": samples}
        self.sampling = sampling_for(chat, self.prompt, max_tokens, temperature=temperature, **more)
        self.store, self.retry = store, retry
        self.notes: Counter[str] = Counter()
        self.bill: dict[str, Any] = {}
        """Tokens and dollars of the answers behind the last scores."""
        self.reused: Account = {}

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> PointwiseReranker:
        """The reranker of a spec, on the chat model that is its argument."""
        assert isinstance(spec.argument, Spec)
        chat = build.chat(spec.argument)
        given = dict(vars(spec.values(cls.Parameters)))
        own = given["prompt"]
        given["prompt"] = own.located() if isinstance(own, Content) else None
        scorer = cls(chat, **given, retry=build.options.retry)
        return PointwiseReranker(scorer, on_chat(spec, chat), build.options.changed(spec.options))

    @abstractmethod
    def read(self, answer: Generation, notes: Counter[str]) -> float:
        """The score that an answer gives; NaN where it gives none, which is counted in the notes."""

    def status(self, answer: Generation) -> str:
        """What an answer is worth: nothing where no score can be read."""
        return unless_read(answer, not np.isnan(self.read(answer, Counter())))

    def gaps(self) -> dict[str, str]:
        """What fills gaps of the prompt besides the query and the passage."""
        return {}

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score."""
        return {
            "method": self.method,
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
        # Requests are told apart by their content, so one store serves all tasks.
        key = StoreKey.of(f"rerank-{self.method}", self.chat, self.prompt.hash, self.sampling, "pairs")
        with GenerationStore(key, self.store, retry=self.retry) as store:
            group: list[tuple[int, float]] = []
            for row, answers in self._answers(pairs, store):
                group.append((row, self._score(answers)))
                if len(group) == PAIRS:
                    yield _scored(group)
                    group = []
            if group:
                yield _scored(group)
            self.notes["cache_hits"] += store.hits
            self.bill, self.reused = store.bill(), store.reused

    def _answers(self, pairs: Pairs, store: GenerationStore) -> Iterator[tuple[int, list[Generation]]]:
        """Each pair with all its answers, as soon as the last of them is there."""
        places: dict[str, int] = {}
        waiting: dict[int, list[Generation]] = {}

        def requests() -> Iterator[Request]:
            for row in np.lexsort((pairs.document, pairs.query)).tolist():
                query, document = pairs.texts(np.array([row]))[0]
                passage, cut = shortened(document, self.passage_words)
                self.notes["passages_cut"] += cut
                key = pair_key(query, document)
                places[key] = row
                yield Request(ask_about(self.prompt, query, [passage], None, **self.gaps()), self.sampling, key)

        for answer in generate(self.chat, requests(), store, clean=False, status=self.status):
            row = places[answer.query_id]
            answers = waiting.setdefault(row, [])
            answers.append(answer)
            if len(answers) == self.sampling.n:
                yield row, waiting.pop(row)
        yield from waiting.items()  # a later answer failed

    def _score(self, answers: list[Generation]) -> float:
        """The mean of what can be read."""
        scores = []
        for answer in answers:
            count_problem(answer, self.notes)
            if answer.status != "failed":
                scores.append(self.read(answer, self.notes))
        heard = [score for score in scores if not np.isnan(score)]
        return float(np.mean(heard)) if heard else np.nan


def pair_key(query: str, document: str) -> str:
    """What requests and answers about a pair are filed under."""
    hasher = Hasher("pair")
    hasher.texts((query, document))
    return hasher.digest()


def _scored(group: list[tuple[int, float]]) -> Scored:
    rows, scores = zip(*group, strict=True)
    cut = np.zeros((len(rows), 2), dtype=np.int32)
    return Scored(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32), cut - 1)
