"""Porter's stemmer (1980), as Lucene and as NLTK have it; the twin of r2med/_native/porter.c.

It never looks words up: a suffix goes when what stands before it is long enough. Length is the measure, the number of
times a consonant follows a vowel. Everything but a, e, i, o, u and some y is a consonant, so any script is fine.
Lucene's has the two later changes of its author, -bli and -logi. NLTK's default mode departs further: sixteen irregular
words, and other rules for -ies, -ied, -y, -alli, -fulli and -logi.
"""

from __future__ import annotations

import struct
from collections.abc import Callable


def _rules(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((suffix, end) for suffix, _, end in (rule.partition(">") for rule in text.split()))


# Porter's suffixes of steps 2 to 4, in the order in which they are tried, with what takes their place.
_STEP_2 = _rules(
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize "
    "ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble"
)
_STEP_2_LUCENE = _rules("logi>log")
_STEP_2_NLTK = _rules("fulli>ful")
_STEP_3 = _rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = _rules("al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> ion> ou> ism> ate> iti> ous> ive> ize>")
_IRREGULAR = dict(
    _rules(
        "sky>sky skies>sky dying>die lying>lie tying>tie news>news inning>inning innings>inning outing>outing "
        "outings>outing canning>canning cannings>canning howe>howe proceed>proceed exceed>exceed succeed>succeed"
    )
)


def stem(word: str) -> str:
    """Stem a word in lower case; words of one or two letters are left alone."""
    if max(word, default="") <= "\uffff":
        return _stem(word)
    # Lucene counts UTF-16 units: a character beyond the Basic Multilingual Plane is two consonants.
    encoded = word.encode("utf-16-be", "surrogatepass")
    units = "".join(map(chr, struct.unpack(f">{len(encoded) // 2}H", encoded)))
    return _stem(units).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _stem(word: str) -> str:
    if len(word) < 3:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, _STEP_2 + _STEP_2_LUCENE)
    word = _replace(word, _STEP_3)
    return _tidy(_drop(word))


def stem_nltk(word: str) -> str:
    """Stem a word in lower case as NLTK's `PorterStemmer()` does."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 3:
        return word
    word = word[:-1] if word.endswith("ies") and len(word) == 4 else _plural(word)
    word = _past_nltk(word)
    if word.endswith("y") and len(word) > 2 and _shape(word[:-1]).endswith("c"):
        word = word[:-1] + "i"
    word = _replace(_step_2_nltk(word), _STEP_3)
    return _tidy(_drop(word), _is_short_nltk)


def _past_nltk(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    return _past(word, _is_short_nltk)


def _step_2_nltk(word: str) -> str:
    while word.endswith("alli") and _measure(word[:-4]) > 0:
        word = word[:-2]
    if word.endswith("logi"):  # its l counts as part of what stands before the suffix
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replace(word, _STEP_2 + _STEP_2_NLTK)


def _is_short_nltk(word: str) -> bool:
    """A word of a vowel and a consonant is short, too."""
    return _is_short(word) or _shape(word) == "vc"


def _shape(word: str) -> str:
    """Spell the word as vowels and consonants; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _is_doubled(word: str) -> bool:
    return word[-1:] == word[-2:-1] and _shape(word).endswith("c")


def _is_short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant, as hop does: then an e was dropped, or must stay."""
    return word[-1:] not in "wxy" and _shape(word).endswith("cvc")


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str, is_short: Callable[[str], bool] = _is_short) -> str:
    """Without -eed, -ed or -ing, and with the e that those took."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _is_doubled(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and is_short(rest) else rest


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Replace the first suffix that fits, which is the only one tried."""
    for suffix, end in rules:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return rest + end if _measure(rest) > 0 else word
    return word


def _drop(word: str) -> str:
    for suffix, _ in _STEP_4:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            if suffix == "ion" and not rest.endswith(("s", "t")):
                continue
            return rest if _measure(rest) > 1 else word
    return word


def _tidy(word: str, is_short: Callable[[str], bool] = _is_short) -> str:
    """Without a final e, and with one l for two."""
    if word.endswith("e"):
        measure = _measure(word)
        if measure > 1 or (measure == 1 and not is_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
