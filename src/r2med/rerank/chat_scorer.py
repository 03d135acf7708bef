"""A chat model asked about one passage at a time: whether it helps, or how much."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from ..core import Hasher
from ..core.budget import Account
from ..core.spec import Content, Spec
from ..llm import Chat, Generation, GenerationStore, Request, StoreKey, asked_by, generate, unless_read
from ..llm.protocol import Decision
from ..llm.reading import (
    TRUE_FALSE,
    YES_NO,
    Words,
    decided,
    expectation,
    probability,
    read_grade,
    read_verdict,
    verdict_odds,
)
from ..retrieve import Build
from ..retrieve.encoders import WorkOrder
from .asking import (
    PASSAGE_WORDS,
    MaxTokens,
    OwnPrompt,
    PassageWords,
    ask_about,
    count_problem,
    load_prompt,
    on_chat,
    sampling_for,
    shortened,
)
from .contract import rerankers
from .pointwise import Pairs, PointwiseReranker, Scored, by_query

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
        self.chat, self.name, self.warning = chat, f"{self.method}:{chat.name}", chat.warning
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
        chat = build.chat(asked_by(spec))
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


SURE = 10.0
"""Log-odds of an answer in words alone: as good as certain. Answers of one kind tie and keep their order."""


@dataclass(frozen=True)
class VerdictParameters:
    """What may be set on rerankers that ask for a verdict."""

    logits: Logits = True
    passage_words: PassageWords = PASSAGE_WORDS
    max_tokens: MaxTokens | None = None
    prompt: OwnPrompt | None = None


class VerdictScorer(ChatScorer):
    """A pair's score is the log-odds of one word against the other; an answer that is neither has no score."""

    words: ClassVar[Words] = YES_NO

    def read(self, answer: Generation, notes: Counter[str]) -> float:
        """By the odds of the two words, or by the word alone."""
        odds = self.odds(answer)
        if odds is not None:
            notes["with_logits"] += 1
            return odds
        verdict = read_verdict(answer.final, self.words)
        if verdict is None:
            notes["unparsed"] += 1
            return np.nan
        notes["in_words"] += 1
        return SURE if verdict else -SURE

    def odds(self, answer: Generation) -> float | None:
        """From the first token, unless the model reasoned first: then that token says nothing about the answer."""
        given = answer.extra.get("first_token")
        if not given or answer.reasoning:
            return None
        return verdict_odds(msgspec.convert(given, list[tuple[str, float]]), self.words)


@rerankers.register("yesno", argument="chat", needs_argument=True)
class YesNoScorer(VerdictScorer):
    """A chat model says of each passage whether it helps, yes or no."""

    Parameters = VerdictParameters
    method = "yesno"


@rerankers.register("rank1", argument="chat", needs_argument=True)
class Rank1(VerdictScorer):
    """A chat model reasons about each passage and ends on true or false (Weller et al., 2025)."""

    Parameters = VerdictParameters
    method = "rank1"
    words = TRUE_FALSE

    def odds(self, answer: Generation) -> float | None:
        """From the token that the answer ends on, if that is the verdict."""
        verdict, decision = read_verdict(answer.final, self.words), answer.decision
        if verdict is None or len(decision) != 1 or decided(decision) != self.words[0 if verdict else 1]:
            return None
        return verdict_odds(decision[0], self.words)


Rule = Literal["number", "probability", "expectation"]
Score = Annotated[
    Rule,
    Meta(
        description="the number itself; times its probability (ERank); or the mean of the likely numbers. "
        "The last two need log-probabilities, and are the number itself where the server gives none"
    ),
]
Scale = Annotated[int, Meta(ge=1, description="the highest grade; the lowest is 0")]


@dataclass(frozen=True)
class ERankParameters:
    """What may be set on `erank`."""

    scale: Scale = 10
    score: Score = "probability"
    samples: Samples = 1
    temperature: Temperature | None = None
    passage_words: PassageWords = PASSAGE_WORDS
    max_tokens: MaxTokens | None = None
    prompt: OwnPrompt | None = None


@dataclass(frozen=True)
class RetroParameters:
    """What may be set on `retro`."""

    scale: Scale = 100
    score: Score = "number"
    samples: Samples = 1
    temperature: Temperature | None = None
    passage_words: PassageWords = PASSAGE_WORDS
    max_tokens: MaxTokens | None = None
    prompt: OwnPrompt | None = None


class GradedScorer(ChatScorer):
    """A pair's score is its grade as a share of the highest; a grade outside the scale is none."""

    def __init__(self, chat: Chat, *, scale: int, score: Rule, **settings: Any) -> None:
        self.scale, self.rule = scale, score
        super().__init__(chat, logits=score != "number", **settings)

    def gaps(self) -> dict[str, str]:
        """The highest grade."""
        return {"scale": str(self.scale)}

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score."""
        return {**super().describe(), "scale": self.scale, "score": self.rule}

    def read(self, answer: Generation, notes: Counter[str]) -> float:
        """The grade, weighed by the rule where the server says how likely it was."""
        grade = read_grade(answer.final, self.scale)
        if grade.value is None:
            notes["out_of_range" if grade.out_of_range else "unparsed"] += 1
            return np.nan
        notes["graded"] += 1
        weighed = None if self.rule == "number" else self._weighed(grade.value, answer.decision)
        if self.rule != "number":
            notes["without_logits" if weighed is None else "with_logits"] += 1
        return (grade.value if weighed is None else weighed) / self.scale

    def _weighed(self, grade: float, decision: Decision) -> float | None:
        """The grade by its probability; None where the tokens are not given, or are not those of the grade."""
        if not decision or decided(decision) not in (f"{grade:g}", f"{grade}"):
            return None
        return grade * probability(decision) if self.rule == "probability" else expectation(decision, self.scale)


@rerankers.register("erank", argument="chat", needs_argument=True)
class ERank(GradedScorer):
    """A chat model thinks about each passage and grades it from 0 to 10, weighed by its probability (ERank, 2025)."""

    Parameters = ERankParameters
    method = "erank"


@rerankers.register("retro", argument="chat", needs_argument=True)
class Retro(GradedScorer):
    """A chat model analyses each passage and grades it from 0 to 100; several answers are averaged (Retro*, 2025)."""

    Parameters = RetroParameters
    method = "retro"
