"""Waiting for a server: one deadline for a whole call, however slowly it answers, and an interrupt that ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from .errors import Unavailable

STOP = threading.Event()
"""Set when the program ends: calls under way are abandoned at once, whichever thread waits for them."""
LOOK_SECONDS = 0.2
"""How often a waiting thread looks whether it shall stop."""

Result = TypeVar("Result")


def in_time(call: Callable[[], Result], seconds: float) -> Result:
    """What a call returns or raises; a `TimeoutError` after so many seconds.

    It runs in a thread of its own, which is left to itself when the time is over or the program ends: no library call
    can be interrupted while it waits for a header, a name server or a certificate.
    """
    outcome: SimpleQueue[tuple[Result] | BaseException] = SimpleQueue()
    deadline = time.monotonic() + seconds

    def run() -> None:
        try:
            outcome.put((call(),))
        except BaseException as error:
            outcome.put(error)

    threading.Thread(target=run, daemon=True).start()
    while (left := deadline - time.monotonic()) > 0 and not STOP.is_set():
        try:
            found = outcome.get(timeout=min(left, LOOK_SECONDS))
        except Empty:
            continue
        if isinstance(found, BaseException):
            raise found
        return found[0]
    if STOP.is_set():
        raise Unavailable("interrupted")
    raise TimeoutError(f"no whole answer within {seconds:.0f} seconds")


def sleep(seconds: float, stop: threading.Event) -> None:
    """Sleep, but no longer than until `stop` or the end of the program."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not (stop.is_set() or STOP.is_set()):
        stop.wait(min(left, LOOK_SECONDS))
