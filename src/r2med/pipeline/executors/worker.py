"""What travels between driver and workers, and what a worker does with it.

Texts and plain options go there, arrays come back; keys and weights never travel. A worker makes a component from its
spec, reading the files of its own `R2MED_HOME`, and checks that they are the driver's files before it encodes anything:
a vector of another model never comes back under this one's name.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Literal, NamedTuple

from ..._version import __version__
from ...core import ModelError, R2MedError, fingerprint
from ...core.options import Options
from ...core.plugins import one_line
from ...core.queries import Side
from ...core.spec import Spec
from ..system import Builder


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
