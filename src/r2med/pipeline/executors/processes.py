"""Workers as processes of this machine: one for each core that is given them, or one for each GPU."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from ...retrieve.encoders.devices import may_have_gpu, resolve_devices
from ...retrieve.sparse import available_cores
from .pool import Event
from .worker import Job, Worker


class Process:
    """One worker and the pipe to it."""

    def __init__(self, own: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit the threads' locks, not the threads
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, own), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def died(self) -> str:
        """How it ended."""
        self.process.join(1)
        code = self.process.exitcode
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"exit status {code}"


def serve(pipe: Connection, own: dict[str, Any]) -> None:
    """The worker's side: jobs in, values out, until the driver hangs up or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the driver decides
    worker = Worker(f"{socket.gethostname()} (process {multiprocessing.current_process().pid})", **own)
    try:
        pipe.send(worker.hello())
        while True:
            pipe.send(worker.do(pipe.recv()))
    except (EOFError, OSError):
        return


class Processes:
    """`size` processes; each has its share of the cores, or a GPU of its own as far as there are any."""

    def __init__(self, size: int, device: str | None = None) -> None:
        self.size = size
        self._device = device
        self._alive: list[Process] = []
        self._made = 0
        self._own: list[dict[str, Any]] = []

    def start(self) -> None:
        """Decide who works on what."""
        devices = resolve_devices(self._device) if self._device or may_have_gpu() else ["cpu"]
        if devices[0] == "cpu":
            self._own = [{"threads": max(available_cores() // self.size, 1), "device": self._device}] * self.size
        else:
            self._own = [{"device": devices[i % len(devices)]} for i in range(self.size)]

    def spawn(self) -> Process:
        """Begin a process."""
        made = Process(self._own[self._made % self.size])
        self._made += 1
        self._alive.append(made)
        return made

    def send(self, worker: Process, job: Job) -> None:
        """Hand over a job; a process that has just died is found out by `events`."""
        with suppress(OSError):
            worker.pipe.send(job)

    def events(self, timeout: float) -> Sequence[Event]:
        """Values that have come, and processes that have ended."""
        by_pipe = {id(worker.pipe): worker for worker in self._alive}
        found = []
        for pipe in wait([worker.pipe for worker in self._alive], timeout):
            worker = by_pipe[id(pipe)]
            try:
                found.append(Event(worker, worker.pipe.recv()))
            except (EOFError, OSError):
                self._alive.remove(worker)
                found.append(Event(worker, None, worker.died))
        return found

    def stop(self) -> None:
        """End them at once: the driver keeps what was finished."""
        for worker in self._alive:
            worker.process.terminate()
            worker.pipe.close()
        for worker in self._alive:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._alive.clear()
