"""Which pipeline to use: those that fit a budget and that no cheaper one beats, best first.

Scores are published averages over R2MED's eight tasks, the lowest where sources differ; systems without one are
ordered by our own figures on other collections. Costs are estimates (`estimates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..core import UsageError
from ..results.ledger import Figure, average, ledger, same_figures
from ..scoring import MAIN
from ..tasks import collections
from .estimates import Needs, needs, rates
from .experiment import experiment_for, shipped
from .system import SystemSpec

FINEST = 0.01
"""Seconds a query; less is one and the same."""
Reason = Literal["gpu memory", "dollars", "seconds"]
SAME_WEIGHTS = {"bge-small": "BAAI/bge-small-en-v1.5"}
"""Models of ours in 8 bits, and the name under which figures of their float32 weights were published."""


class PublishedScore(msgspec.Struct, frozen=True, kw_only=True):
    """One published average, × 100."""

    ndcg_at_10: float
    source: str
    protocol: str
    url: str
    date: str
    note: str = ""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline, why, and how to run it."""

    system: str
    score: float | None  # The lowest published average on R2MED, × 100; None where nobody published one.
    published: list[PublishedScore]
    measured: dict[str, float]  # Our own figures on other collections, × 100.
    needs: Needs
    commands: list[str]
    not_measured: list[str]  # What of this nobody here has measured.


class Recommendations(msgspec.Struct, frozen=True, kw_only=True):
    """The front, best first, and what was left out."""

    pipelines: list[Recommendation]
    unranked: list[Recommendation]  # What fits and what nobody has a figure for.
    fitting: int  # Systems that fit, on the front or not.
    considered: int
    too_expensive: dict[Reason, int]  # By the first limit that they exceed, or that nobody can tell they keep.
    not_runnable: list[str]  # Published systems with a better score than the best here that r2med cannot run.
    notes: list[str]


def recommend(
    *,
    gpu_memory: int = 0,
    dollars: float = 0.0,
    seconds_per_query: float | None = None,
    gpu_speed: float = 1.0,
    everything: bool = False,
) -> Recommendations:
    """Pipelines within a budget: bytes of GPU memory, dollars for services on R2MED once, seconds a query.

    `gpu_speed` is the GPU's share of an H200's speed. `everything` keeps what fits but is not on the Pareto front.
    """
    patience = math.inf if seconds_per_query is None else seconds_per_query
    if not (gpu_memory >= 0 and dollars >= 0 and patience > 0 and 0 < gpu_speed < math.inf):  # nor is NaN a limit
        raise UsageError("a budget is not negative, and seconds and speed are more than 0")
    published = _published()
    covered = {file.about.figure for file in shipped().values()}
    runnable = [name for name in published if _runs(name) and (everything or _has_card(name))]
    names = list(dict.fromkeys([*runnable, *rates().measured.systems]))
    excess: dict[Reason, int] = {}
    fitting: list[Recommendation] = []
    for name in names:
        need = needs(name, gpu_speed=gpu_speed)
        reason = _exceeds(need, gpu_memory, dollars, seconds_per_query)
        if reason == "gpu memory" and need.service_dollars is not None:
            need = needs(name, gpu_speed=gpu_speed, at_service=True)
            reason = _exceeds(need, gpu_memory, dollars, seconds_per_query)
        if reason is not None:
            excess[reason] = excess.get(reason, 0) + 1
        else:
            fitting.append(_recommendation(name, published.get(SAME_WEIGHTS.get(name, name), []), need))
    ordered = _ordered(r for r in fitting if r.published or r.measured)
    chosen = ordered if everything else _front(ordered)
    best = max((r.score for r in chosen if r.score is not None), default=0.0)
    lacking = sorted(published.keys() - covered - set(names), key=lambda n: (-_lowest(published[n]), n))
    return Recommendations(
        pipelines=chosen,
        unranked=[r for r in fitting if not r.published and not r.measured],
        fitting=len(fitting),
        considered=len(names),
        too_expensive=excess,
        not_runnable=[name for name in lacking if _lowest(published[name]) > best],
        notes=_notes(chosen, gpu_speed),
    )


def _published() -> dict[str, list[PublishedScore]]:
    """Averages over all eight tasks by system, each figure once."""
    key, whole = MAIN.key, len(collections()["r2med"].tasks)
    found: dict[str, list[PublishedScore]] = {}
    for figure, *_ in same_figures(ledger().select(collection="r2med"), key, whole):
        value = average(figure, key, whole)
        if value is not None:
            found.setdefault(figure.system, []).append(_score(figure, value))
    for file in shipped().values():
        if file.about.figure:  # a system that r2med runs in its own way
            found[file.system[0].spec] = found[file.about.figure]
    return found


def _score(figure: Figure, value: float) -> PublishedScore:
    source = figure.source
    digits = 2 if source.decimals is None else source.decimals
    return PublishedScore(
        ndcg_at_10=round(100 * value, digits), source=source.id, protocol=figure.protocol, url=source.url,
        date=source.date, note=figure.caution,
    )  # fmt: skip


def _lowest(scores: Sequence[PublishedScore]) -> float:
    return min(score.ndcg_at_10 for score in scores)


def _runs(name: str) -> bool:
    """Whether r2med has all parts of a published system under their names."""
    try:
        SystemSpec.parse(name)
    except UsageError:
        return False
    return True


def _has_card(name: str) -> bool:
    """Whether no part of a system is known by its hub id alone; chat models are whatever a server has."""
    return not any("/" in part.partition(":")[0] for part in name.split("+"))


def _exceeds(need: Needs, gpu_memory: int, dollars: float, seconds: float | None) -> Reason | None:
    """The first limit that is exceeded; what is not known is not within it."""
    if need.gpu_memory is None or need.gpu_memory > gpu_memory:
        return "gpu memory"
    if need.dollars is None or need.dollars > dollars:
        return "dollars"
    if seconds is not None and (need.seconds_per_query is None or need.seconds_per_query > seconds):
        return "seconds"
    return None


def _recommendation(name: str, published: list[PublishedScore], need: Needs) -> Recommendation:
    measured = rates().measured
    own = dict(zip(measured.sets, measured.systems.get(name, []), strict=False))
    if name in SAME_WEIGHTS:
        said = f"of {SAME_WEIGHTS[name]} in float32; the weights here are 8-bit"
        published = [msgspec.structs.replace(score, note=said) for score in published]
    unknown = ["its score on R2MED: the figure is somebody else's, under their protocol"] if published else []
    unknown += [] if published else ["its score on R2MED: nobody published one"]
    experiment = experiment_for(name)
    unknown += [f"it differs: {line}" for line in shipped()[experiment].about.differs] if experiment else []
    unknown += ["whether r2med runs it as its authors do: it has no card of it"] if not _has_card(name) else []
    unknown += ["memory and time: estimated from the number of parameters"] if need.models else []
    return Recommendation(
        system=name,
        score=_lowest(published) if published else None,
        published=sorted(published, key=lambda score: score.ndcg_at_10),
        measured=own,
        needs=need,
        commands=_commands(name, need),
        not_measured=unknown,
    )


def _commands(name: str, need: Needs) -> list[str]:
    """What to type, in order."""
    shipped = experiment_for(name)
    steps = ["r2med data download r2med"]
    steps += [model.get for model in need.models if model.get.startswith("r2med ")]
    steps += [f"# {model.get}" for model in need.models if model.get and not model.get.startswith("r2med ")]
    steps += [f"r2med run @{shipped} --tasks r2med" if shipped else f"r2med run --tasks r2med --system {name}"]
    return list(dict.fromkeys(steps))


def _measured_better(one: Recommendation, other: Recommendation) -> bool:
    """Whether our own figures, on the collections that both have, are higher on average."""
    both = one.measured.keys() & other.measured.keys()
    return sum(one.measured[name] - other.measured[name] for name in both) > 0


def _ordered(found: Iterable[Recommendation]) -> list[Recommendation]:
    """Best published score first; a system without one stands before the first that we measured to be worse."""
    found = list(found)
    ordered = sorted((r for r in found if r.score is not None), key=lambda r: (-(r.score or 0.0), r.system))
    for other in (r for r in found if r.score is None):
        worse = (i for i, r in enumerate(ordered) if _measured_better(other, r))
        ordered.insert(next(worse, len(ordered)), other)
    return ordered


def _front(ordered: Sequence[Recommendation]) -> list[Recommendation]:
    """Those for which no better one costs no more in any way."""
    front: list[Recommendation] = []
    for one in ordered:
        if not any(_no_dearer(better.needs, one.needs) for better in front):
            front.append(one)
    return front


def _no_dearer(first: Needs, second: Needs) -> bool:
    pairs = zip(_costs(first), _costs(second), strict=True)
    return all(b is None if a is None else b is None or a <= b for a, b in pairs)


def _costs(need: Needs) -> tuple[float | None, ...]:
    """Memory, dollars and seconds, as finely as the estimates are worth comparing."""
    seconds = need.seconds_per_query
    memory = None if need.gpu_memory is None else math.ceil(need.gpu_memory / (1 << 30))
    return memory, need.dollars, None if seconds is None else math.ceil(seconds / FINEST) * FINEST


def _notes(chosen: Sequence[Recommendation], gpu_speed: float) -> list[str]:
    notes = []
    if len({score.protocol for r in chosen for score in r.published}) > 1:
        notes.append("scores were published under several protocols, which do not compare; the lowest of each is used")
    if any(r.needs.gpu_memory for r in chosen):
        share = "" if gpu_speed == 1 else f", at {gpu_speed:g} of its speed"
        notes.append(f"seconds on a GPU are estimates for {rates().gpu.device}{share}; other cards: --gpu-speed")
    if chosen:
        notes.append("seconds: many queries at once, after indexing; the search of the vectors is left out")
    return notes
