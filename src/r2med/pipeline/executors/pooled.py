"""An executor with workers: models encode and score there, and whole rankings are made there where that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...expand import queries_for
from ...rerank import Reranker
from ...retrieve import Retriever
from ..stages import Ranked, with_expansions
from . import Executor, Ticket
from .jobs import Component, Corpus, Ranking, RetrieveJob
from .models import RemoteModels, portable
from .pool import Pool, Workers

if TYPE_CHECKING:
    from ..plan import Plan, Step


class Away(NamedTuple):
    """A search that a worker does."""

    step: Step
    plan: Plan
    values: Mapping[str, Any]
    """Of the stages it needs."""


class PoolExecutor(Executor):
    """Stages on workers where they hold a model, the rest on the driver, which alone writes results and caches.

    Models behind an API stay with the driver too: their keys are in its environment, and a network needs no cores.
    """

    def __init__(self, name: str, workers: Workers, tell: Callable[[str], None]) -> None:
        self.name = name
        self.tasks_at_once = 2
        self.pool = Pool(workers)
        self._tell = tell
        self._components: list[Retriever | Reranker] = []
        self._corpora: dict[str, Any] = {}
        self._away: dict[Ticket, Away] = {}

    def __enter__(self) -> PoolExecutor:
        try:
            self.pool.workers.start()
        except BaseException:
            self.pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give models back to the driver, and stop the workers."""
        for component in self._components:
            component.distribute(None)
        self._components.clear()
        self.pool.close()
        if self.pool.deaths:
            lost = "1 worker was" if self.pool.deaths == 1 else f"{self.pool.deaths} workers were"
            self._tell(f"{lost} lost on the way; what was not finished was done by others.")

    def adopt(self, components: Iterable[Retriever | Reranker]) -> None:
        """Put the pool behind models that workers can make again."""
        remote = RemoteModels(self.pool)
        for component in components:
            component.distribute(remote)
            self._components.append(component)

    def provenance(self) -> Mapping[str, object]:
        """Which executor made a result; what it says besides is the driver's machine."""
        return {"executor": self.name, "workers": self.pool.workers.size}

    def take(self, step: Step, plan: Plan, values: Mapping[str, Any]) -> Ticket | None:
        """Rankings by models that keep no vectors are made whole by a worker: the corpus goes there once."""
        retriever = step.part
        away = self.name == "ray" and step.kind == "search" and retriever.whole_on_worker
        if not away or retriever not in self._components or step.queries is None:
            return None
        key = plan.task.fingerprint
        if key not in self._corpora:
            self._corpora = {key: self.pool.workers.share(Corpus.of(plan.task))}
        described = retriever.describe()
        component = Component("retriever", *portable(retriever.spec, retriever.options, described["document"]))
        job = RetrieveJob(component, described, self._corpora[key], step.queries(values), plan.depth)
        ticket = self.pool.submit(job)
        self._away[ticket] = Away(step, plan, {need: values[need] for need in step.needs})
        return ticket

    def wait(self, tickets: Sequence[Ticket]) -> tuple[Ticket, Ranked]:
        """The ranking a worker finishes first."""
        ticket, ranking = self.pool.first(tickets)
        assert isinstance(ranking, Ranking)
        step, plan, values = self._away.pop(ticket)
        run = ranking.run(plan.task).renamed(step.part.name)  # a worker's spec says more: the driver's precision
        ranked = Ranked(run, {"retrieve": ranking.seconds}, dict(run.notes))
        system = next(system for system in plan.systems if system.name == step.owner)
        if len(step.needs) == 1 or system.expander is None:
            return ticket, ranked
        expanded = values[step.needs[1]]
        _, used = queries_for(step.part, plan.task, expanded.value, system.policy)
        return ticket, with_expansions(ranked, system.expander, expanded, used)
