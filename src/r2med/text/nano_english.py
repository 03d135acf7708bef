"""English analysis as NanoR2MED's builder does it: runs of ASCII letters and digits, its stop words, NLTK's stems.

The twin of the Nano part of r2med/_native/analyze.c, for where that is not built: same results, more slowly.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .porter import stem_nltk

_RUN = re.compile(r"[A-Za-z0-9]+")
STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "for", "from", "had"}
    | {"has", "have", "he", "her", "hers", "him", "his", "i", "if", "in", "into", "is", "it", "its"}
    | {"itself", "me", "my", "myself", "of", "on", "or", "our", "ours", "ourselves", "she", "so", "than", "that"}
    | {
        "the",
        "their",
        "theirs",
        "them",
        "themselves",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "too",
        "up",
    }
    | {"very", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with", "you"}
    | {"your", "yours", "yourself", "yourselves"}
)


@lru_cache(maxsize=200_000)
def _term(token: str) -> str:
    """The term of a token, empty for a stop word."""
    return "" if token in STOP_WORDS else stem_nltk(token)


def analyze(text: str) -> list[str]:
    """Give the terms of a text, in order."""
    return [term for run in _RUN.findall(text) if (term := _term(run.lower()))]
