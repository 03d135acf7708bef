"""Keys of services: from the environment or from a file it names, never from an argument, which others could list."""

from __future__ import annotations

import os
import re
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, unquote_plus, urlsplit

from .errors import UsageError

HIDDEN = "[key]"
SHORTEST = 4  # characters of a secret; hiding shorter ones would tear words apart
_KEY = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
_warned: set[str] = set()


def read_key(variable: str) -> str:
    """The value of `variable`, else the content of the file that `variable`_FILE names, else nothing."""
    if key := os.environ.get(variable, "").strip():
        return key
    if not (path := os.environ.get(f"{variable}_FILE")):
        return ""
    try:
        file = Path(path).expanduser()
        key = file.read_text("utf-8").strip()
        readable_by_all = os.name == "posix" and bool(file.stat().st_mode & stat.S_IROTH)
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{variable}_FILE: {path} cannot be read ({why})") from None
    if readable_by_all:
        warn_once(f"everybody on this machine can read the key in {path}: chmod 600 {path}")
    return key


def keys_in_environment() -> dict[str, str]:
    """Every value of the environment that is a key by its name, by variable; files that variables name are read."""
    names = {name.removesuffix("_FILE") for name in os.environ if _KEY.search(name.removesuffix("_FILE"))}
    found: dict[str, str] = {}
    for name in sorted(names):
        with suppress(UsageError):
            if len(key := read_key(name)) >= 2 * SHORTEST:
                found[name] = key
    return found


def key_place(variable: str) -> Literal["environment", "file", ""]:
    """Where a key is, without saying what it is; empty where there is none or its file is of no use."""
    if os.environ.get(variable, "").strip():
        return "environment"
    return "file" if os.environ.get(f"{variable}_FILE") and not key_problem(variable) else ""


def key_problem(variable: str) -> str:
    """Why the file that should hold a key is of no use; empty where there is none or it is fine."""
    if not os.environ.get(f"{variable}_FILE") or os.environ.get(variable, "").strip():
        return ""
    try:
        return "" if read_key(variable) else f"{variable}_FILE names an empty file"
    except UsageError as error:
        return str(error)


def warn_once(message: str) -> None:
    """A warning about the handling of a key, once per process."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=3)


def secrets_of(address: str) -> list[str]:
    """What in an address is secret: its password, and the keys in its query."""
    parts = urlsplit(address)
    asked = [part.partition("=") for part in parts.query.split("&")]
    found = [parts.password or "", *(value for name, _, value in asked if _KEY.search(unquote(name).upper()))]
    # A plus stands for itself in most keys, and for a blank where a server reads it as that of a form.
    return [spelled for secret in found for spelled in (secret, unquote(secret), unquote_plus(secret))]


class Secrets:
    """Takes secrets out of texts, also where some of their characters are escaped as JSON or addresses do."""

    def __init__(self, *secrets: str) -> None:
        self._plain = [secret for secret in secrets if len(secret) >= SHORTEST]
        self._pattern = re.compile("|".join(map(_any_spelling, self._plain)))

    def __repr__(self) -> str:
        return f"Secrets({len(self._plain)})"

    def hide(self, text: str) -> str:
        """The text with every secret replaced."""
        return self._pattern.sub(HIDDEN, text) if self._plain else text

    def hide_in(self, value: Any, raw: bytes) -> Any:
        """Decoded JSON with every secret replaced; `raw` is what it was decoded from, and quicker to look through."""
        occur = any(secret.encode() in raw for secret in self._plain)
        if not occur and self._plain and (b"\\" in raw or b"%" in raw):
            occur = self._pattern.search(raw.decode("utf-8", "replace")) is not None
        return self._without(value) if occur else value

    def _without(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self._without(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(key): self._without(item) for key, item in value.items()}
        return value


def _any_spelling(secret: str) -> str:
    """A pattern for a secret in JSON or in an address."""
    spelled = []
    for character in secret:
        code = "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{ord(character):02x}")
        spelled.append(rf"(?:\\{{0,4}}{re.escape(character)}|\\{{1,4}}u00{code}|%{code})")
    return "".join(spelled)
