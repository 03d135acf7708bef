"""One way to compare texts by what they say: case, accents, punctuation and a plural's s do not count."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s\b")
_KEEPS_ITS_S = ("ss", "us", "is", "as", "os")
# Greek letters are written out in one text and set in the next.
_GREEK = str.maketrans(
    {
        "α": " alpha ", "β": " beta ", "γ": " gamma ", "δ": " delta ", "ε": " epsilon ", "κ": " kappa ",
        "λ": " lambda ", "μ": " mu ", "µ": " mu ", "σ": " sigma ", "τ": " tau ", "ω": " omega ",
    }
)  # fmt: skip


def fold(text: str) -> str:
    """Lower case without accents, possessives and set Greek."""
    plain = unicodedata.normalize("NFKD", _POSSESSIVE.sub("", text.translate(_GREEK)))
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold()


def tokens(text: str) -> list[str]:
    """Normalised words, singular where a plural ends in a plain s: `Crohn's diseases` becomes crohn, disease."""
    return [_singular(word) for word in _TOKEN.findall(fold(text))]


def normalised(text: str) -> str:
    """The normalised words, joined: equal for texts that differ in form only."""
    return " ".join(tokens(text))


def contains(text: str, phrase: str) -> bool:
    """Whether the words of `phrase` stand next to each other in `text`; an empty phrase stands nowhere."""
    wanted = normalised(phrase)
    return bool(wanted) and f" {wanted} " in f" {normalised(text)} "


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith(_KEEPS_ITS_S):
        return word[:-1]
    return word
