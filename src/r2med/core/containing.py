"""Around code that is not ours: what it prints stays out of our output, and a child that it forks never gets back."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STRAY_CHILD = 70
"""Exit status of a process that a model forked and let run on into r2med."""


class _Aside:
    """Standard output turned over to standard error while anybody is inside, whichever thread leaves last."""

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


_aside = _Aside()


@contextmanager
def contained(name: str, what: str) -> Iterator[None]:
    """Around a call into somebody else's code, which may print: standard output holds our results and nothing else.

    A model that forks and lets its child come back would have two processes write the same results: the child ends.
    """
    process = os.getpid()
    try:
        with _aside:
            yield
    finally:
        if os.getpid() != process:
            sys.stderr.write(f"r2med: {name} forked on {what}; the child process ends here\n")
            sys.stderr.flush()
            os._exit(STRAY_CHILD)
