"""Calls that were sent, so that those whose answer a kill lost can be counted: they may have been charged for.

    >1f6b0c3a9d2e44:0     sent: where the call is claimed, and the number of the answer asked for
    <1f6b0c3a9d2e44:0     came back, with an answer or an error

A line is one small write that nobody waits for: a kill loses none, and a machine that lost its power may lose the last.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..core.portable import BINARY

_LINE = re.compile(rb"([<>])([0-9a-f]{1,14}):(\d{1,9})")


class Call(NamedTuple):
    """One call: the byte of the lock file by which it is claimed, and the number of the first answer asked for."""

    place: int
    sample: int


class SentCalls:
    """The journal beside a file of records; may be used from many threads and by many processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._lock = threading.Lock()
        self._open: set[Call] = set()
        """Calls of this process that are under way."""

    def send(self, call: Call) -> None:
        """Note that a call goes out; one that is under way already is not another."""
        with self._lock:
            if call not in self._open:
                self._open.add(call)
                self._write(b">", call)

    def settle(self, call: Call) -> None:
        """Note that a call came back; nothing where it never went out."""
        with self._lock:
            if call in self._open:
                self._open.discard(call)
                self._write(b"<", call)

    def settle_all(self) -> None:
        """Note that all calls of this process came back."""
        for call in list(self._open):
            self.settle(call)

    def lost(
        self, stored: Collection[Call], claimed: Callable[[int], bool], among: Collection[int] | None = None
    ) -> int:
        """How many calls went out and never came back: not stored, and nobody waits for them any more.

        Whoever was killed between storing an answer and noting it here has lost nothing. `among`: places of the calls
        that count, where not all do.
        """
        try:
            lines = _LINE.findall(self.path.read_bytes())
        except OSError:
            return 0
        sent, back = Counter[Call](), Counter[Call]()
        for mark, place, sample in lines:
            (sent if mark == b">" else back)[Call(int(place, 16), int(sample))] += 1
        lost = 0
        for call, times in sent.items():
            missing = times - max(back[call], int(call in stored))
            if missing > 0 and (among is None or call.place in among):
                lost += missing - (call in self._open or claimed(call.place))
        return lost

    def close(self) -> None:
        """Give back the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _write(self, mark: bytes, call: Call) -> None:
        with suppress(OSError):  # a full disk ends the work where answers are stored, not here
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
            os.write(self._file, b"%s%x:%d\n" % (mark, *call))
