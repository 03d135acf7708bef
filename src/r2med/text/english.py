"""English analysis, equal token for token to Lucene's EnglishAnalyzer (the default of Anserini and Pyserini).

Words by Unicode's rules, a possessive 's dropped, lower case, stop words dropped, Porter stems. This is the twin of
r2med/_native/analyze.c, for where that is not built: same results, more slowly.
"""

from __future__ import annotations

from .porter import stem
from .wordbreak import LOWER, words

__all__ = ["ENGLISH_STOP_WORDS", "analyze"]

ENGLISH_STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"}
    | {"of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"}
    | {"will", "with"}
)

_POSSESSIVES = tuple(mark + s for mark in "'’＇" for s in "sS")
_MEMO_MOST = 200_000


class _Terms(dict[str, str]):
    """The term of each token seen, empty for a stop word: most tokens of a text have been seen before."""

    def __missing__(self, token: str) -> str:
        term = _term(token)
        if len(self) >= _MEMO_MOST:
            self.clear()  # the frequent ones soon are back
        self[token] = term
        return term


_TERMS = _Terms()


def analyze(text: str) -> list[str]:
    """Give the terms of a text, in order."""
    return [term for term in map(_TERMS.__getitem__, words(text)) if term]


def _term(token: str) -> str:
    if token.endswith(_POSSESSIVES):
        token = token[:-2]
    token = token.lower() if token.isascii() else token.translate(LOWER)
    return "" if token in ENGLISH_STOP_WORDS else stem(token)
