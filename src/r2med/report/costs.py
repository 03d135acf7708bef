"""What systems cost, and what their models never read: the numbers behind trade-offs and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ..core import ResultError
from ..core.budget import known_sum
from ..results import SystemInfo, TaskResult
from ..results.published_models import SystemFacts, joint_facts
from ..results.schema import tables
from ..scoring import Measure
from .collection import CollectionResults

Side = Literal["document", "query"]
Facts = Callable[[Sequence[str]], SystemFacts]  # From the names of a system's models to what is known about them.
OVERHEAD = ("load", "score")  # Stages that are not the system's own time.
UNMEASURED = "what it took without a cache was not measured (an older result or cache; --overwrite with a new one)"
_TOKENS = ("tokens", "prompt_tokens", "completion_tokens")


class Axis(NamedTuple):
    """Something a system costs."""

    title: str
    unit: str
    note: str


AXES = {
    "seconds": Axis(
        "Seconds",
        "seconds per query",
        "Wall time of all stages but loading and scoring, divided by the number of queries, where nothing is stored: "
        "vectors, scores and answers that came from the cache count with the time that making them took.",
    ),
    "warm": Axis(
        "Seconds, warm",
        "seconds per query, warm",
        "Wall time of all stages of the run itself but loading and scoring, divided by the number of queries: what "
        "came from the cache took no time, so it depends on what was stored.",
    ),
    "tokens": Axis("Tokens", "tokens per query", "Tokens that models read or wrote, documents included."),
    "dollars": Axis(
        "Dollars", "dollars per 1,000 queries", "What was paid to others; nothing where nothing was bought."
    ),
    "parameters": Axis("Parameters", "parameters", "Weights of all models of a system, as their cards state them."),
}


class CostPoint(NamedTuple):
    """What a system reaches, 0 to 1, and what that costs."""

    system: str
    cost: float
    score: float
    measured: bool = True
    href: str = ""
    note: str = ""  # Said with its name when somebody points at it.


class CutPoint(NamedTuple):
    """One system on one task: the share of tokens its model never read, and its score."""

    system: str
    task: str
    share: float
    score: float


def unknown_facts(names: Sequence[str]) -> SystemFacts:
    """Nothing is known about any model."""
    return joint_facts(tuple(names), [None])


def models_of(system: SystemInfo) -> list[str]:
    """What the retrievers, the expander and the reranker of a system are made of, each once.

    That is the model that a part is told to use, or the part itself, and the retriever that an expander searches with.
    The first edition's files state only the name of the system.
    """
    found = tables(system.spec.get("retrievers"))
    for part in tables([system.spec.get("expander"), system.spec.get("reranker")]):
        while part:
            found.append(part)
            part = next(iter(tables([part.get("then")])), {})  # noqa: PLW2901 - the next link of a chain
    return list(dict.fromkeys(name for part in found for name in _model_names(part))) or [system.name]


def _model_names(part: Mapping[str, object]) -> Iterator[str]:
    argument, (parameters,) = part.get("argument"), tables([part.get("parameters")]) or ({},)
    told = next((table.get("argument") or table.get("name") for table in tables([argument])), argument)
    yield str(told or parameters.get("model") or part.get("name", ""))
    if searched_with := parameters.get("retriever"):
        yield str(searched_with).partition(":")[0]


def cost_points(
    results: CollectionResults,
    tasks: Sequence[str],
    measure: Measure,
    axis: str,
    facts: Facts = unknown_facts,
) -> tuple[list[CostPoint], list[str]]:
    """Mean over `tasks` against a cost, and which systems are left out, lacking a task, the measure or a price."""
    found, left_out = [], []
    for system, stored in results.systems.items():
        of_system = [stored[task].result for task in tasks if task in stored]
        scores = [r.measures[measure.key] for r in of_system if measure.key in r.measures]
        if len(scores) < len(tasks):
            left_out.append(f"{system} is left out: it has {len(scores)} of {len(tasks)} tasks")
            continue
        cost = cost_of(of_system, axis, facts)
        if cost is None:
            why = UNMEASURED if axis == "seconds" else "its cost is not known"
            left_out.append(f"{system} is left out: {why}")
            continue
        found.append(CostPoint(system, cost, sum(scores) / len(scores)))
    return found, left_out


def cost_of(results: Sequence[TaskResult], axis: str, facts: Facts) -> float | None:
    """What a system costs in units of an axis; None where that is not known."""
    queries = sum(r.task.queries for r in results)
    if axis in ("seconds", "warm"):
        stages = (r.seconds if axis == "warm" else r.cold_seconds for r in results)
        total = known_sum(s for of_result in stages for s in _own_seconds(of_result))
        return None if total is None else total / queries
    if axis == "tokens":
        counts = [v for r in results for v in _noted(r, _TOKENS)]
        return sum(v for v in counts if isinstance(v, int) and not isinstance(v, bool)) / queries
    if axis == "dollars":
        if any(_buys_vectors(r.system.description) for r in results):
            return None
        paid = [v for r in results for v in _noted(r, ("cost",))]
        if any(v is None for v in paid):
            return None
        return 1000 * float(sum(v for v in paid if isinstance(v, int | float))) / queries
    weights = facts(models_of(results[0].system)).parameters
    return None if weights is None else float(weights)


def cut_points(results: Iterable[TaskResult], measure: Measure, side: Side) -> list[CutPoint]:
    """Share of tokens that were cut off, from the notes of results whose models count them."""
    points = []
    for result in results:
        truncation = result.notes.get("truncation")
        note = truncation.get(side) if isinstance(truncation, dict) else None
        tokens, cut = (note.get("tokens"), note.get("tokens_cut")) if isinstance(note, dict) else (None, None)
        if isinstance(tokens, int) and isinstance(cut, int) and tokens:
            points.append(CutPoint(result.system.name, result.task.name, cut / tokens, result.measures[measure.key]))
    if not points:
        raise ResultError("none of these results says what was truncated: only models with a length limit do")
    return points


def _buys_vectors(described: object) -> bool:
    """Whether a part of a system has a service make its vectors: no result says what those were bought for."""
    if isinstance(described, dict):
        return described.get("dtype") == "service" or any(map(_buys_vectors, described.values()))
    return isinstance(described, list) and any(map(_buys_vectors, described))


def _own_seconds(stages: Mapping[str, float | None]) -> Iterator[float | None]:
    """The seconds of a system's own stages; texts that several retrievers search with stand at each and were made once.

    A stage of one of several retrievers is named after it: `bm25.expand`.
    """
    expanded = False
    for stage, seconds in stages.items():
        expands = stage.rpartition(".")[2] == "expand"
        if stage not in OVERHEAD and not (expands and expanded):
            yield seconds
        expanded = expanded or expands


def _noted(result: TaskResult, keys: Sequence[str]) -> Iterator[object]:
    """The values of some keys in a result's notes, those of the texts that its retrievers search with once."""
    for part in (result.notes, *result.expansions[:1]):
        yield from _values(part, keys)


def _values(notes: Mapping[str, object], keys: Sequence[str]) -> Iterator[object]:
    """The values of some keys, however deep they stand below other names than `expansion`.

    What was spent this time is part of what all answers cost.
    """
    for name, value in notes.items():
        if name == "expansion" or (name == "usage" and "answers" in notes):
            continue
        for part in tables(value if isinstance(value, list) else [value]):
            yield from _values(part, keys)
        if name in keys:
            yield value
