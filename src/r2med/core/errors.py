"""Every error a user can meet.

    R2MedError
    ├── UsageError            a value, option or combination that cannot be
    │   └── UnknownName       a name nobody knows; carries the nearest known ones
    ├── DataError             a file that is missing, broken or contradicts itself (names file and place)
    │   └── HostileData       a file that tries to harm: path traversal, decompression bomb
    ├── MissingExtra          an optional dependency is not installed (names the extra)
    ├── Unavailable           something outside this machine cannot be reached
    ├── ModelError            a model that is missing, broken or returns nonsense
    └── ResultError           stored results that do not fit: schema, fingerprint, permissions

The command line prints the message of an `R2MedError` as one line and exits with its `exit_code`;
anything else is a bug of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from .untrusted import printable


class R2MedError(Exception):
    """Root of all errors that are not bugs of r2med; its message is one line, whatever it quotes."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, whatever its class is made from: so it comes back from another process."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[R2MedError], args: tuple[str, ...], facts: dict[str, object]) -> R2MedError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class UsageError(R2MedError):
    """The request cannot be carried out as written."""

    exit_code = 2


class UnknownName(UsageError):
    """A task, model, measure or format that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        near = nearest(name, known)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}{advice}{f' {hint}' if hint else ''}")
        self.suggestions = near


class DataError(R2MedError):
    """A data file that cannot be used; says which file and where in it."""

    def __init__(self, message: str, *, path: str | Path | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(place + message)
        self.message, self.path, self.line = message, path, line


class HostileData(DataError):
    """An archive that would write outside its folder or unpack without end."""


class MissingExtra(R2MedError):
    """A capability whose optional dependency is not installed."""

    def __init__(self, capability: str, extra: str) -> None:
        super().__init__(f"{capability} needs an optional dependency: pip install 'r2med[{extra}]'")
        self.extra = extra


class Unavailable(R2MedError):
    """The network, the hub or an endpoint did not answer."""


class ModelError(R2MedError):
    """A model that cannot be loaded or whose output cannot be used."""


class ResultError(R2MedError):
    """Stored results that cannot be read, written or trusted."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that a typo of `name` may have meant."""
    by_fold = {k.casefold(): k for k in known}
    return [by_fold[m] for m in difflib.get_close_matches(name.casefold(), by_fold, n=3, cutoff=0.6)]
