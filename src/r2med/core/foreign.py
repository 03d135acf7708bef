"""Calls into code that is not ours: its output is redirected, its errors are one line, its forked children end."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .errors import ModelError, R2MedError
from .untrusted import printable

STRAY_CHILD = 70
"""Exit status of a process that a model forked and let run on into r2med."""


class _Redirect:
    """Standard output goes to standard error while any thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._output: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._output, sys.stdout = sys.stdout, sys.stderr
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.stdout, self._output = self._output, None


_redirect = _Redirect()


@contextmanager
def redirect_stdout(label: str, doing: str) -> Iterator[None]:
    """Keep standard output for our results; a process that the code forks ends here, so that none writes them twice."""
    process = os.getpid()
    try:
        with _redirect:
            yield
    finally:
        if os.getpid() != process:
            sys.stderr.write(printable(f"r2med: {label} forked on {doing}; the child process ends here") + "\n")
            sys.stderr.flush()
            os._exit(STRAY_CHILD)


@contextmanager
def wrap_errors(label: str, given: str) -> Iterator[None]:
    """Turn whatever the code raises into one line that says what it was given."""
    with redirect_stdout(label, given):
        try:
            yield
        except R2MedError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(f"{label} failed on {given} ({one_line(error)})") from error


def one_line(error: BaseException) -> str:
    """An error as its type and message, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of a library's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def accepted(call: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a call takes by keyword."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(arguments)
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return {key: value for key, value in arguments.items() if key in names}


def takes(call: Any, *names: str) -> bool:
    """Whether a call has parameters of all these names."""
    try:
        return set(names) <= set(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        return False
