"""Jobs to workers and back, as local processes and Ray actors share it; and workers as processes of this machine.

A worker that dies gives its job back and is replaced. Two bounds keep that from going on for ever: a job that was with
`ATTEMPTS` workers when they died is not tried again, and a pool whose workers die without finishing anything, or of
which none is left for `PATIENCE` seconds, gives up.

Texts and plain options go to workers, arrays come back; keys and weights never travel. A worker makes a component from
its spec, reading the files of its own `R2MED_HOME`, and checks that they are the driver's files before it encodes
anything: a vector of another model never comes back under this one's name.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple, Protocol

from .._version import __version__
from ..core import DataError, MissingExtra, ModelError, R2MedError, ResultError, Unavailable, UsageError, fingerprint
from ..core.options import Options
from ..core.plugins import one_line
from ..core.queries import Side
from ..core.spec import Spec
from ..retrieve.encoders.torch_models import may_have_gpu, resolve_devices
from ..retrieve.sparse import available_cores
from .system import Builder

ATTEMPTS = 4
PATIENCE = 120.0
ERRORS: dict[str, type[R2MedError]] = {
    kind.__name__: kind for kind in (UsageError, DataError, ModelError, ResultError, Unavailable)
}


class Component(NamedTuple):
    """What a worker makes a retriever or reranker from."""

    kind: Literal["retriever", "reranker"]
    spec: Spec
    options: Options


class Job(NamedTuple):
    """A call of the model of a component: texts to encode, or pairs to score."""

    component: Component
    expected: dict[str, Any]  # how the driver's model describes itself
    sides: tuple[Side, ...]  # the side that an encoder is asked to describe
    method: str  # `stream`; others for term weights and for vectors of tokens
    arguments: tuple[Any, ...]


class Done(NamedTuple):
    """What the model made, batch by batch, and what it counted on the way."""

    batches: list[Any]
    notes: dict[str, int]


class Failure(NamedTuple):
    """An error on a worker, as text: exceptions of libraries do not travel well."""

    kind: str
    message: str
    node: str


class Hello(NamedTuple):
    """How a worker introduces itself."""

    node: str
    pid: int
    version: str


class Worker:
    """Keeps the models it has loaded, and does one job at a time."""

    def __init__(self, node: str = "", **own: Any) -> None:
        self.node = node or socket.gethostname()
        self.own = {key: value for key, value in own.items() if value is not None}
        """Options that are this worker's rather than the driver's: its device, its threads."""
        self._components: dict[str, Any] = {}

    def hello(self) -> Hello:
        """Who this is."""
        return Hello(self.node, os.getpid(), __version__)

    def do(self, job: Job) -> Done | Failure:
        """What the job asks for, or what went wrong where."""
        try:
            component = self.component(job.component)
            model = component.encoder if job.component.kind == "retriever" else component.scorer
            check_same(job.expected, model.describe(*job.sides), component.name)
            model.notes.clear()
            return Done(list(getattr(model, job.method)(*job.arguments)), dict(model.notes))
        except R2MedError as error:
            return Failure(type(error).__name__, str(error), self.node)
        except Exception as error:  # a bug or a library: one line with its name
            return Failure("", one_line(error), self.node)

    def component(self, component: Component) -> Any:
        """The retriever or reranker, loaded once."""
        key = f"{component.kind} {component.spec} {sorted(component.spec.options.items())}"
        if key not in self._components:
            build = Builder(component.options.changed(self.own))
            spec = component.spec
            self._components[key] = build.retriever(spec) if component.kind == "retriever" else build.reranker(spec)
        return self._components[key]


def check_same(expected: dict[str, Any], found: dict[str, object], name: str) -> None:
    """Refuse to work with other files or settings than the driver's."""
    if fingerprint("part", expected) == fingerprint("part", found):
        return
    differs = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
    raise ModelError(f"{name} differs from the driver's ({', '.join(differs)}): fetch the same files on both")


class Event(NamedTuple):
    """What happened to a worker: it is up (a `Hello`), has a value, or has died."""

    worker: Any
    value: Any
    died: str = ""  # why, in a few words; empty while it lives


class Workers(Protocol):
    """Where workers come from."""

    size: int  # how many are wanted

    def start(self) -> None:
        """Get ready; raises if there can be no workers."""

    def spawn(self) -> Any:
        """Begin to make a worker; its first event is its hello."""

    def send(self, worker: Any, job: Job) -> None:
        """Give an idle worker a job."""

    def events(self, timeout: float) -> Sequence[Event]:
        """What has happened, waiting if nothing has."""

    def stop(self) -> None:
        """End all workers at once."""


class Sent(NamedTuple):
    """A job that is to be done."""

    call: int  # of `map`: what an abandoned one asked for is dropped when it comes
    number: int
    job: Job
    attempts: int = 0


class Pool:
    """Workers and what they are busy with; driven by whoever waits for a value."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.nodes: dict[Any, Hello] = {}  # workers that are up
        self.deaths = 0
        self.sent = 0  # jobs that were handed to workers
        self._busy: dict[Any, Sent] = {}
        self._calls = 0
        self._coming = 0
        self._fruitless = 0
        self._alone_since: float | None = None

    def map(self, jobs: Iterator[Job]) -> Iterator[tuple[int, Done]]:
        """What became of many jobs, with their numbers, in the order they are finished; few are in memory at once.

        Raises what went wrong on a worker.
        """
        self._calls += 1
        call = self._calls
        coming = (Sent(call, number, job) for number, job in enumerate(jobs))
        waiting: deque[Sent] = deque()
        while True:
            waiting.extend(islice(coming, max(self.workers.size - len(waiting), 0)))
            self._hand_out(waiting)
            if not waiting and not any(sent.call == call for sent in self._busy.values()):
                return
            finished = [self._happened(event, waiting) for event in self.workers.events(1.0)]
            self._check_workers_left()
            for sent, value in (found for found in finished if found is not None):
                if sent.call == call:
                    yield sent.number, _value(value)

    def close(self) -> None:
        """Stop all workers, whatever they are doing."""
        self._busy.clear()
        self.nodes.clear()
        self.workers.stop()

    def _hand_out(self, waiting: deque[Sent]) -> None:
        """Jobs to those that are idle; more workers are asked for while there is more to do than they can."""
        wanted = min(self.workers.size, len(waiting) + len(self._busy))
        for _ in range(wanted - self._coming - len(self.nodes)):
            self.workers.spawn()
            self._coming += 1
        for worker in [worker for worker in self.nodes if worker not in self._busy]:
            if waiting:
                self._busy[worker] = waiting.popleft()
                self.sent += 1
                self.workers.send(worker, self._busy[worker].job)

    def _happened(self, event: Event, waiting: deque[Sent]) -> tuple[Sent, Any] | None:
        """A job with its value, where that is what happened."""
        if event.died:
            self._lost(event, waiting)
        elif isinstance(event.value, Hello):
            self._welcome(event.worker, event.value)
        elif event.worker in self._busy:
            self._fruitless = 0
            return self._busy.pop(event.worker), event.value
        return None

    def _welcome(self, worker: Any, hello: Hello) -> None:
        self._coming -= 1
        if hello.version != __version__:
            raise UsageError(f"{hello.node} has r2med {hello.version}, the driver {__version__}: install the same")
        self.nodes[worker] = hello

    def _lost(self, event: Event, waiting: deque[Sent]) -> None:
        self.deaths += 1
        self._fruitless += 1
        if self.nodes.pop(event.worker, None) is None:
            self._coming -= 1
        sent = self._busy.pop(event.worker, None)
        if sent is not None and sent.call == self._calls:
            if sent.attempts + 1 >= ATTEMPTS:
                raise ModelError(f"one piece of work ended {ATTEMPTS} workers, the last by: {event.died}")
            waiting.appendleft(sent._replace(attempts=sent.attempts + 1))
        if self._fruitless > ATTEMPTS * max(self.workers.size, 1):
            raise Unavailable(f"workers end before they finish anything, the last by: {event.died}")

    def _check_workers_left(self) -> None:
        if self.nodes:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE:
            raise Unavailable(f"no worker is left, and none came in {PATIENCE:.0f} seconds: are all nodes gone?")


def _value(value: Any) -> Done:
    if isinstance(value, Failure):
        kind = ModelError if value.kind == MissingExtra.__name__ else ERRORS.get(value.kind, ModelError)
        raise kind(f"on {value.node}: {value.message}")
    assert isinstance(value, Done)
    return value


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
        devices = resolve_devices(self._device) if self._device or may_have_gpu() else ["cpu"]
        if devices[0] == "cpu":
            self._own = [{"threads": max(available_cores() // self.size, 1), "device": self._device}] * self.size
        else:
            self._own = [{"device": devices[i % len(devices)]} for i in range(self.size)]

    def spawn(self) -> Process:
        made = Process(self._own[self._made % self.size])
        self._made += 1
        self._alive.append(made)
        return made

    def send(self, worker: Process, job: Job) -> None:
        """Hand over a job; a process that has just died is found out by `events`."""
        with suppress(OSError):
            worker.pipe.send(job)

    def events(self, timeout: float) -> Sequence[Event]:
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
