"""Figures and texts as words on a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...tasks.nano.figures import Contrast

ROLE_NAMES = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}
_SPECIAL = re.compile(r"([\\`*_<>\[\]|#~$])")


def score(value: float | None) -> str:
    """A score as pages print it."""
    return "–" if value is None else f"{value:.4f}"


def share(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.0f} %"


def plain(text: str) -> str:
    """Text that means itself in Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def snippet(text: str, length: int = 320) -> str:
    """The beginning of a text, cut at a word."""
    flat = " ".join(text.split())
    if len(flat) > length:
        flat = flat[:length].rsplit(" ", 1)[0] + " …"
    return plain(flat)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table; the first columns are texts, the others figures."""
    marks = "".join(":---|" if i < left else "---:|" for i in range(len(titles)))
    return [f"| {' | '.join(titles)} |", f"|{marks}", *(f"| {' | '.join(row)} |" for row in rows)]


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 query`, `3 queries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def versus(contrast: Contrast) -> str:
    """A difference in a sentence's half, with what the interval allows one to say."""
    name = ROLE_NAMES[contrast.worse]
    interval = f"95 % interval {contrast.low:+.3f} to {contrast.high:+.3f}"
    if contrast.clear:
        return f"{contrast.difference:.3f} above {name} ({interval})"
    return f"{contrast.difference:.3f} above {name}, which these queries cannot tell from no difference ({interval})"
