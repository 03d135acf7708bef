"""Text from data as HTML: never run, and nothing in it that a reader cannot see.

Control characters, NULs and marks that turn the direction of writing are shown by their number; everything else is
escaped. Words that a query shares with a passage are marked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from markupsafe import Markup, escape

from ...text import get_analyzer
from ...text.english import words

# C0 but tab and line feed, DEL and C1, zero-width space, direction marks, separators, BOM, half characters.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: object) -> Markup:
    """A text as it is, odd characters shown by their numbers."""
    whole = str(text)
    if not _ODD.search(whole):
        return escape(whole)
    out, at = [], 0
    for match in _ODD.finditer(whole):
        out += [escape(whole[at : match.start()]), _shown(match[0])]
        at = match.end()
    return Markup("").join([*out, escape(whole[at:])])


def _shown(character: str) -> Markup:
    if character == "\r":
        return Markup("")
    name = unicodedata.name(character, "control character").lower()
    return Markup('<span class="odd" title="{}">U+{:04X}</span>').format(name, ord(character))


def plain(text: object) -> str:
    """The same for places that take no markup, such as the title of a window."""
    return _ODD.sub(lambda match: "" if match[0] == "\r" else f"[U+{ord(match[0]):04X}]", str(text))


def terms_of(text: str) -> frozenset[str]:
    """The terms that a lexical retriever would look for."""
    return frozenset(get_analyzer("english")(text))


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    found = get_analyzer("english")(word)
    return found[0] if len(found) == 1 else ""


def marked(text: str, terms: Collection[str], *, most: int | None = None) -> Markup:
    """A text with the words of `terms` marked, cut at a word after `most` characters."""
    cut = most is not None and len(text) > most
    shown = _cut(text, most) if cut and most is not None else text
    out, at, done = list[Markup](), 0, 0
    for word in words(shown) if terms else ():
        start = shown.find(word, done)
        done = start + len(word)
        if _term(word) in terms:
            out += [visible(shown[at:start]), Markup("<mark>"), visible(word), Markup("</mark>")]
            at = done
    out.append(visible(shown[at:]))
    return Markup("").join(out) + (" …" if cut else "")


def _cut(text: str, most: int) -> str:
    head = text[:most]
    short = head.rsplit(None, 1)[0]
    return short if len(short) > most // 2 else head


def shared_words(text: str, terms: Collection[str]) -> dict[str, str]:
    """Terms of a text that are among `terms`, each with the word it first stands as."""
    found: dict[str, str] = {}
    for word in words(text):
        term = _term(word)
        if term in terms and term not in found:
            found[term] = word if word.isupper() and len(word) > 1 else word.lower()
    return found
