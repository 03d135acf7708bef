"""One passage at a time: does it help or not? Scored by how sure the model is, where the server tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from ..llm import Generation
from ..llm.decision import decided
from ..llm.reading import TRUE_FALSE, YES_NO, Words, read_verdict, verdict_odds
from .asking import PASSAGE_WORDS, MaxTokens, OwnPrompt, PassageWords
from .chat_scorer import ChatScorer, Logits
from .contract import rerankers

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
