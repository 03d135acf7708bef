"""English analysis, equal token for token to Lucene's EnglishAnalyzer (the default of Anserini and Pyserini).

Words by Unicode's rules, a possessive 's dropped, lower case, stop words dropped, Porter stems. This is the twin of
r2med/_native/analyze.c and porter.c, for where they are not built: same results, more slowly.

Words are those of Lucene's StandardTokenizer: UAX #29 (Unicode 12.1) with emoji sequences kept whole. The tables are
written by tools/wordbreak_tables.py, where the grammar is. They do not depend on the Unicode version of the running
Python, so an index built today fits queries asked under any other.

`analyze_nano` is the analysis of NanoR2MED's builder: runs of ASCII letters and digits, its stop words, NLTK's stems.

Porter's stemmer (1980) never looks words up: a suffix goes when what stands before it is long enough. Length is the
measure, the number of times a consonant follows a vowel. Everything but a, e, i, o, u and some y is a consonant, so any
script is fine. Lucene's has the two later changes of its author, -bli and -logi. NLTK's default mode departs further:
sixteen irregular words, and other rules for -ies, -ied, -y, -alli, -fulli and -logi.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files

MAX_UNITS = 255  # the longest token, in UTF-16 units; what is longer goes on as a new token

# Where all is ASCII a regular expression says the same as the automaton, but for runs of underscores and for length.
_ASCII_WORD = re.compile(r"[A-Za-z0-9_]+(?:(?:(?<=[A-Za-z])[.:'](?=[A-Za-z])|(?<=[0-9])[.,;'](?=[0-9]))[A-Za-z0-9_]+)*")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def read_tables() -> dict[str, list[str]]:
    """The words of each section of the tables, in the order of the file."""
    tables: dict[str, list[str]] = {}
    for line in files(__package__).joinpath("wordbreak.txt").read_text("ascii").splitlines():
        if line.startswith("["):
            section = tables[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            section.extend(line.split())
    return tables


def code_points(item: str) -> tuple[int, int]:
    """The first and the last code point of a range in hexadecimal."""
    first, _, last = item.partition("-")
    return int(first, 16), int(last or first, 16)


def _lower(items: list[str]) -> dict[int, int]:
    """Map code points to their simple lower case, one to one (as Java's Character.toLowerCase)."""
    mapping: dict[int, int] = {}
    for item in items:
        source, _, target = item.partition(">")
        span, _, step = source.partition("/")
        first, last = code_points(span)
        shift = int(target, 16) - first
        mapping.update((code, code + shift) for code in range(first, last + 1, int(step, 16)))
    return mapping


def _classes(tables: dict[str, list[str]]) -> bytes:
    classes = bytearray(0x110000)
    for number, name in enumerate((name for name in tables if name.startswith("class ")), 1):
        for first, last in map(code_points, tables[name]):
            classes[first : last + 1] = bytes([number]) * (last + 1 - first)
    return bytes(classes)


_TABLES = read_tables()
LOWER = _lower(_TABLES["lower"])
_CLASSES = _classes(_TABLES)
_ROWS = list(map(bytes.fromhex, _TABLES["transitions"]))
_ACCEPTING = frozenset(map(int, _TABLES["accepting"]))


def words(text: str) -> list[str]:
    """Find the words in order, each as it stands in the text; what lies between them is dropped."""
    if text.isascii():
        return _ascii_words(text)
    found: list[str] = []
    done = 0
    # A space never is part of a word: the automaton walks only the stretches between spaces that need it.
    for match in _BEYOND_ASCII.finditer(text):
        if match.start() < done:
            continue
        first = max(text.rfind(" ", done, match.start()), done)
        last = text.find(" ", match.end())
        last = len(text) if last < 0 else last
        found += _ascii_words(text[done:first])
        found += _walk(text[first:last])
        done = last
    return found + _ascii_words(text[done:])


def _ascii_words(text: str) -> list[str]:
    found: list[str] = _ASCII_WORD.findall(text)
    if len(text) > MAX_UNITS and max(map(len, found), default=0) > MAX_UNITS:
        return list(_walk(text))
    return [word for word in found if word.strip("_")] if "_" in text else found


def _walk(text: str) -> Iterator[str]:
    """Find the words by the automaton: at each place the longest match, else one character on."""
    start, size = 0, len(text)
    while start < size:
        at, end, state, units = start, start, 1, 0
        while at < size:
            code = ord(text[at])
            units += 1 if code < 0x10000 else 2
            state = _ROWS[state][_CLASSES[code]]
            if not state or units > MAX_UNITS:
                break
            at += 1
            if state in _ACCEPTING:
                end = at
        if end > start:
            yield text[start:end]
        start = max(end, start + 1)


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


_NANO_RUN = re.compile(r"[A-Za-z0-9]+")
NANO_STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "for", "from", "had"}
    | {"has", "have", "he", "her", "hers", "him", "his", "i", "if", "in", "into", "is", "it", "its"}
    | {"itself", "me", "my", "myself", "of", "on", "or", "our", "ours", "ourselves", "she", "so", "than", "that"}
    | {"the", "their", "theirs", "them", "themselves", "then", "there", "these", "they", "this", "those", "to"}
    | {"too", "up"}
    | {"very", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with", "you"}
    | {"your", "yours", "yourself", "yourselves"}
)


@lru_cache(maxsize=200_000)
def _nano_term(token: str) -> str:
    """The term of a token, empty for a stop word."""
    return "" if token in NANO_STOP_WORDS else stem_nltk(token)


def analyze_nano(text: str) -> list[str]:
    """Give the terms of a text as NanoR2MED's builder does, in order."""
    return [term for run in _NANO_RUN.findall(text) if (term := _nano_term(run.lower()))]


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
