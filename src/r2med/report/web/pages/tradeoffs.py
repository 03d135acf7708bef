"""Score against seconds, tokens, dollars and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....core import UnknownName
from ....results import TaskResult
from ...leaderboard import MAIN_PROTOCOL
from ...plots.data import OVERHEAD
from ..asked import Asked, Links, Page
from ..charts.tradeoff import Point, best_points, draw_tradeoff
from ..data.columns import MEASURES
from ..data.rows import ALL, published_lines
from ..site import Site
from .choices import chips, collection_chips, collection_title


class Axis(NamedTuple):
    """Something a system costs."""

    title: str
    unit: str
    note: str


AXES = {
    "seconds": Axis(
        "Seconds",
        "seconds per query",
        "Wall time of all stages but loading and scoring, divided by the number of queries. "
        "Embeddings that came from the cache took no time.",
    ),
    "tokens": Axis("Tokens", "tokens per query", "Tokens that models read or wrote, documents included."),
    "dollars": Axis(
        "Dollars", "dollars per 1,000 queries", "What was paid to others; nothing where nothing was bought."
    ),
    "parameters": Axis("Parameters", "parameters", "Weights of all models of a system, as their cards state them."),
}


def tradeoffs(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    holdings = site.holdings(slug)
    measure = site.measure(asked.get("measure"))
    against = asked.get("against", "seconds" if holdings.systems else "parameters")
    if against not in AXES:
        raise UnknownName("cost", against, AXES, hint=f"(there are: {', '.join(AXES)})")
    axis = AXES[against]
    points, left_out = [], []
    for system, entries in holdings.systems.items():
        results = [e.result for e in entries.values()]
        if not holdings.complete(system):
            left_out.append(f"{system}: it has {len(entries)} of {len(holdings.whole)} tasks")
            continue
        cost = cost_of(results, against, site)
        if cost is None:
            left_out.append(f"{system}: not known")
            continue
        score = sum(r.measures.get(measure.key, 0.0) for r in results) / len(results)
        points.append(Point(system, cost, score, url("system", slug, system), True))
    if against == "parameters":
        for line in published_lines(holdings.collection, measure, MAIN_PROTOCOL.get(slug, ALL)):
            weights = site.parameters(line.row.system)
            if weights is not None and line.row.macro is not None:
                points.append(Point(f"{line.row.label} (published)", weights, line.row.macro / 100, "", False))

    def link(**changed: str) -> str:
        chosen = {"measure": "" if measure == MEASURES[0] else measure.key, "against": against} | changed
        usual = "seconds" if holdings.systems else "parameters"
        return url("tradeoffs", slug, **{**chosen, "against": "" if chosen["against"] == usual else chosen["against"]})

    front = best_points(points) if points else []
    title = f"{measure} against {axis.title.lower()} on {collection_title(site, slug)}"
    context = {
        "collections": collection_chips(site, slug, lambda c: url("tradeoffs", c)),
        "axes": chips([(k, a.title) for k, a in AXES.items()], against, lambda a: link(against=a)),
        "measures": chips(
            [(m, str(m)) for m in MEASURES],
            measure,
            lambda m: link(measure="" if m == MEASURES[0] else m.key),
        ),
        "axis": axis,
        "measure": measure,
        "title": title,
        "points": sorted(points, key=lambda p: (-p.score, p.cost)),
        "front": front,
        "picture": draw_tradeoff(points, axis.unit, f"{measure} × 100, mean of the tasks", title) if points else "",
        "left_out": left_out,
        "any_published": any(not p.measured for p in points),
    }
    return Page("tradeoffs.html", "Trade-offs", context, "tradeoffs")


def cost_of(results: list[TaskResult], against: str, site: Site) -> float | None:
    """What a system costs; None where that is not known."""
    queries = sum(r.task.queries for r in results)
    if against == "seconds":
        return sum(s for r in results for stage, s in r.seconds.items() if stage not in OVERHEAD) / queries
    if against == "tokens":
        return sum(tokens_of(r) for r in results) / queries
    if against == "dollars":
        paid = [v for r in results for v in _values(r.notes, ("cost",))]
        if any(v is None for v in paid):
            return None
        return 1000 * float(sum(v for v in paid if isinstance(v, int | float))) / queries
    weights = site.parameters(results[0].system.name)
    return None if weights is None else float(weights)


def tokens_of(result: TaskResult) -> int:
    """Tokens read by encoders and by language models, and written by the latter."""
    keys = ("tokens", "prompt_tokens", "completion_tokens")
    return sum(v for v in _values(result.notes, keys) if isinstance(v, int) and not isinstance(v, bool))


def _values(notes: Mapping[str, object], keys: tuple[str, ...]) -> Iterator[object]:
    for name, value in notes.items():
        if isinstance(value, dict):
            yield from _values(value, keys)
        elif name in keys:
            yield value
