"""Whether a text names the answer: texts are compared by their words, whatever their case, accents and plurals."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

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
_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")
_QUALIFIER = re.compile(r"\s*(?:[,;]|\s[–—-]\s|\b(?:due to|caused by|secondary to|because of|not)\b)")
_SMALL_WORDS = frozenset({"of", "the", "a", "an", "and", "or", "in", "with", "by", "to", "for", "on", "from", "as"})
SLACK = 3
"""Words that may stand between those of an answer: `amyloidosis of the heart of transthyretin type`."""
SHORTEST = 4
"""Letters of a one-word answer that can be looked for."""


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


def answer_forms(answer: str) -> list[str]:
    """Ways in which an answer may be named: without what stands in brackets or after a comma, and a name in brackets.

    `Primary adrenal insufficiency (Addison disease), autoimmune` is named by `primary adrenal insufficiency` and by
    `Addison disease`.
    """
    bracketed = [a or b for a, b in _BRACKETS.findall(answer)]
    bare = _BRACKETS.sub(" ", answer)
    head = _QUALIFIER.split(bare.strip(), maxsplit=1)[0]
    aliases = [alias for alias in bracketed if len(content_words(alias)) >= 2]
    forms = {" ".join(content_words(form)): form for form in (bare, head, *aliases)}
    return [" ".join(form.split()) for words, form in forms.items() if len(words) >= SHORTEST]


def content_words(text: str) -> list[str]:
    """Normalised words without the small ones."""
    return [word for word in tokens(text) if word not in _SMALL_WORDS]


def names_answer(texts: Sequence[str], answer: str) -> bool:
    """Whether one of the texts has all words of one form of the answer close together, in any order."""
    forms = [content_words(form) for form in answer_forms(answer)]
    return any(_close_together(content_words(text), form) for text in texts for form in forms)


def _close_together(words: list[str], wanted: list[str]) -> bool:
    need = Counter(wanted)
    size = len(wanted) + (SLACK if len(wanted) > 1 else 0)
    lacking = len(need)
    have: Counter[str] = Counter()
    for end, word in enumerate(words):
        if word in need:
            have[word] += 1
            lacking -= have[word] == need[word]
        if end >= size and (gone := words[end - size]) in need:
            lacking += have[gone] == need[gone]
            have[gone] -= 1
        if not lacking:
            return True
    return False
