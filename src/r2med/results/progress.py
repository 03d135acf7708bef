"""How far a run is, in a small file beside its results: written while it goes, read by whoever looks on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec

from ..core import ResultError
from ..core.files import open_regular, write_bytes
from ..core.portable import process_lives

FILE = ".progress.json"
KEPT_FINISHED = 200
_LARGEST = 1 << 20
_EVERY = 0.25  # seconds: results that were there already would otherwise cost a write each


class Step(msgspec.Struct, frozen=True):
    """One system on one task."""

    system: str
    task: str


class Progress(msgspec.Struct, kw_only=True):
    """What the file holds. Times are seconds since 1970."""

    started: float
    updated: float
    done: int
    total: int
    current: Step | None = None
    finished: list[Step] = []  # The latest ones only.
    ended: float | None = None
    pid: int = 0
    host: str = ""

    @property
    def running(self) -> bool:
        """Whether somebody is still at it; a run that was killed has no end and no process."""
        if self.ended is not None:
            return False
        if self.host != platform.node() or self.pid <= 0:
            return time.time() - self.updated < 3600
        return process_lives(self.pid)


class ProgressFile:
    """Keeps the file up to date. That it cannot be written never stops a run."""

    def __init__(self, root: str | Path) -> None:
        self.path = Path(root) / FILE
        self._state: Progress | None = None
        self._written = 0.0

    def begin(self, total: int) -> None:
        """A run of `total` steps starts."""
        now = time.time()
        self._state = Progress(started=now, updated=now, done=0, total=total, pid=os.getpid(), host=platform.node())
        self._write(force=True)

    def step(self, system: str, task: str, *, finished: bool = False) -> None:
        """A step starts or, with `finished`, is done."""
        state = self._state
        if state is None:
            return
        here = Step(system, task)
        if finished:
            state.done += 1
            state.finished = [*state.finished, here][-KEPT_FINISHED:]
            state.current = None if state.current == here else state.current
        else:
            state.current = here
        self._write(force=not finished)

    def end(self) -> None:
        if self._state is not None:
            self._state.ended, self._state.current = time.time(), None
            self._write(force=True)

    def _write(self, *, force: bool) -> None:
        state, now = self._state, time.time()
        if state is None or not (force or now - self._written >= _EVERY):
            return
        state.updated = self._written = now
        try:
            write_bytes(self.path, msgspec.json.encode(state))
        except ResultError:
            self._state = None


def read_progress(root: str | Path) -> Progress | None:
    """The state of the latest run into a results folder; None where there is none or it cannot be read."""
    path = Path(root) / FILE
    try:
        if path.is_symlink():
            return None
        with open_regular(path) as stream:
            return msgspec.json.decode(stream.read(_LARGEST), type=Progress)
    except (OSError, ValueError, RecursionError):
        return None
