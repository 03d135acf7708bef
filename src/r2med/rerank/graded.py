"""One passage at a time: how much does it help, as a number? Averaged over answers, or weighed by how sure they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from ..llm import Chat, Generation
from ..llm.decision import Decision, decided, expectation, probability
from ..llm.grades import read_grade
from .asking import PASSAGE_WORDS, MaxTokens, OwnPrompt, PassageWords
from .chat_scorer import ChatScorer, Samples, Temperature
from .contract import rerankers

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
