"""TOML on every Python we support, with bounds on what is parsed."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST = 4 << 20
"""Characters of a document; the largest of our own has thirty thousand."""
DEEPEST = 64
"""Dots of a key: the parser's time and memory grow with the square of them."""
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*"""|\'\'\'(?:(?!\'\'\').)*\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*', re.DOTALL
)
_NAME_CHARACTERS = dict.fromkeys(map(ord, "_- \t" + "".join(chr(c) for c in range(128) if chr(c).isalnum())))


def loads(text: str) -> dict[str, Any]:
    """Parse one document; a mistake is a `ValueError`."""
    if len(text) > LARGEST:
        raise ValueError(f"is longer than {LARGEST:,} characters")
    if _has_deep_key(text):
        raise ValueError(f"holds a key with more than {DEEPEST} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _has_deep_key(text: str) -> bool:
    """Whether dots follow each other with nothing but the parts of a key between them."""
    if not any(line.count(".") > DEEPEST for line in text.splitlines()):
        return False
    outside = _STRING_OR_COMMENT.sub("", text)
    return "." * (DEEPEST + 1) in outside.translate(_NAME_CHARACTERS)
