"""An executor with workers: models encode and score there, and whole rankings are made there where that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...rerank.cross_encoder import CrossEncoder
from ...rerank.pointwise import PointwiseReranker
from ...retrieve.dense import DenseRetriever
from ...retrieve.encoders.api import ApiEncoder
from ...retrieve.encoders.devices import DTYPES
from ..stages import Stage
from .jobs import Corpus, Ranked, RetrieveJob
from .models import PooledEncoder, PooledScorer
from .pool import Pool, Workers
from .protocol import Executor, Made, Recipe, Ticket

if TYPE_CHECKING:
    from ..plan import Plan, Step

LOCAL_ONLY = ("on_progress", "verify", "device", "max_cost", "prompts", "memory")
"""Options that stay with the driver."""


class PoolExecutor(Executor):
    """Stages on workers where they hold a model, the rest on the driver, which alone writes results and caches.

    Models behind an API stay with the driver too: their keys are in its environment, and a network needs no cores.
    """

    def __init__(self, name: str, workers: Workers, tell: Callable[[str], None]) -> None:
        self.name = name
        self.tasks_at_once = 2
        self.pool = Pool(workers)
        self._tell = tell
        self._recipes: list[Made] = []
        self._undo: list[Callable[[], None]] = []
        self._corpora: dict[str, Any] = {}
        self._away: dict[Ticket, Plan] = {}

    def __enter__(self) -> PoolExecutor:
        try:
            self.pool.workers.start()
        except BaseException:
            self.pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give models back to the driver, and end the workers."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self.pool.close()
        if self.pool.deaths:
            lost = "1 worker was" if self.pool.deaths == 1 else f"{self.pool.deaths} workers were"
            self._tell(f"{lost} lost on the way; what was not finished was done by others.")

    def adopt(self, parts: Iterable[Made]) -> None:
        """Put the pool behind models that workers can make again."""
        for part, recipe in parts:
            if isinstance(part, DenseRetriever) and not isinstance(part.encoder, ApiEncoder):
                inner = part.encoder
                part.encoder = PooledEncoder(inner, portable(recipe, inner.describe("document")), self.pool)
                self._undo.append(lambda part=part, inner=inner: setattr(part, "encoder", inner))  # type: ignore[misc]
            elif isinstance(part, PointwiseReranker) and isinstance(part.scorer, CrossEncoder):
                scorer = part.scorer
                part.scorer = PooledScorer(scorer, portable(recipe, scorer.describe()), self.pool)
                self._undo.append(lambda part=part, scorer=scorer: setattr(part, "scorer", scorer))  # type: ignore[misc]
            elif self._ranks_there(part, recipe):
                self._recipes.append(Made(part, portable(recipe, part.encoder.describe("document"))))

    def _ranks_there(self, part: object, recipe: Recipe) -> bool:
        """Whether a worker makes whole rankings with this; a prompt file is the driver's, and BM25 is done at once."""
        whole = getattr(part, "kind", "") in ("sparse", "late-interaction") and hasattr(part, "encoder")
        return self.name == "ray" and recipe.kind == "retriever" and whole and "prompts" not in recipe.options

    def provenance(self) -> Mapping[str, object]:
        """Which executor made a result; what it says besides is the driver's machine."""
        return {"executor": self.name, "workers": self.pool.workers.size}

    def take(self, step: Step, plan: Plan, values: Mapping[str, Any]) -> Ticket | None:
        """Rankings by models that keep no vectors are made whole by a worker: the corpus goes there once."""
        if step.kind != "retrieve" or any(values[need] is not plan.task for need in step.needs):
            return None  # it needs more than the task, such as expansions
        recipe = next((made.recipe for made in self._recipes if made.part is step.part), None)
        if recipe is None:
            return None
        key = plan.task.fingerprint
        if key not in self._corpora:
            self._corpora = {key: self.pool.workers.share(Corpus.of(plan.task))}
        ticket = self.pool.submit(RetrieveJob(recipe, step.part.describe(), self._corpora[key], plan.depth))
        self._away[ticket] = plan
        return ticket

    def wait(self, tickets: Sequence[Ticket]) -> tuple[Ticket, Stage]:
        """The ranking a worker finishes first, with the notes that need the driver's judgments."""
        ticket, ranked = self.pool.first(tickets)
        assert isinstance(ranked, Ranked)
        run = ranked.run(self._away.pop(ticket).task)
        return ticket, Stage(run, {"retrieve": ranked.seconds}, dict(run.notes))


def portable(recipe: Recipe, described: Mapping[str, object]) -> Recipe:
    """A recipe for another machine: its own device, the driver's precision."""
    options = {key: value for key, value in recipe.options.items() if key not in LOCAL_ONLY}
    if described.get("dtype") in DTYPES and described.get("backend") == "transformers":
        options["dtype"] = described["dtype"]
    return recipe._replace(options=options)
