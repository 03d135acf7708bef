"""Two systems against each other: what changed, where, and whether it means anything."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from markupsafe import Markup

from ....core import UnknownName
from ....core.table import shortened
from ....scoring import Measure
from ....scoring.evaluation import ScoreSet, mean_judged
from ...collection import CollectionResults
from ...pictures import MIDDLE_SIDE, PHONE_SIDE, SIDE, draw_scatter
from ...scores import cut_short
from ..render import Links, Page, PageRequest
from ..site import Site
from . import chips, collection_chips, measure_chips, measure_param

LISTED, LISTED_ALL = 25, 1_000
FEW = 6
SAME = 1e-12


def compare_page(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    results = site.results(slug)
    measure = site.measure(asked.get("measure"))
    usual = best_systems(results, measure)[:2]
    chosen = (*asked.all("s"), *(s for s in usual if s not in asked.all("s")))[:2]
    for system in chosen:
        if system not in results.systems:
            raise UnknownName("system", system, results.systems, hint=f"in {slug}")
    everything = asked.get("show") == "all"
    few = sorted(results.systems) if len(results.systems) <= FEW else []
    pairs = [(pair, " and ".join(pair)) for pair in combinations(few, 2)]

    def link(**changed: Any) -> str:
        params = {"s": () if list(chosen) == usual else chosen, "measure": measure_param(measure)}
        return url("compare", slug, **(params | {"show": "all" if everything else ""} | changed))

    context: dict[str, Any] = {
        "collections": collection_chips(site, slug, lambda c: url("compare", c), held_only=True),
        "measures": measure_chips(measure, lambda key: link(measure=key)),
        "collection_title": results.title,
        "slug": slug,
        "measure": measure,
        "measure_key": measure_param(measure),
        "all_systems": list(results.systems),
        "chosen": chosen,
        "tasks": [info.full_name for info in results.infos.values()],
        "pairs": chips(pairs, tuple(sorted(chosen)), lambda pair: url("compare", slug, s=pair)),
        "swap": link(s=tuple(reversed(chosen))),
        "scatter": None,
    }
    if len(chosen) == 2 and (scores := results.score_set(measure, chosen)) is not None:
        context |= _compared(site, results, scores, url, everything)
        context["more"] = link(show="" if everything else "all")
    return Page("compare.html", "Compare", context, "compare")


def best_systems(results: CollectionResults, measure: Measure) -> list[str]:
    """Systems by mean over their tasks, those with most tasks first."""

    def rank(system: str) -> tuple[int, float, str]:
        scores = [r.measures.get(measure.key, 0.0) for r in results.results(system)]
        return -len(scores), -sum(scores) / len(scores), system

    return sorted(results.systems, key=rank)


def _compared(site: Site, results: CollectionResults, scores: ScoreSet, url: Links, everything: bool) -> dict[str, Any]:
    names = {info.full_name: task for task, info in results.infos.items()}
    key = measure_param(scores.measure)

    def link(full_name: str, query_id: str) -> str:
        choices = {"s": scores.systems, "order": "diff", "scope": "all", "measure": key}
        return url.near("query", results.slug, names[full_name], query_id, **choices)

    both = np.concatenate([task.scores[:2] for task in scores.tasks], axis=1)
    queries = [(task.name, query_id) for task in scores.tasks for query_id in task.query_ids]

    def moved(place: int) -> dict[str, Any]:
        """A query whose score differs between the two systems."""
        full_name, query_id = queries[place]
        task = site.texts.of(results.infos[names[full_name]]).task
        query = task.query(query_id) if task else None
        first, second = both[:, place].tolist()
        found = {"task": names[full_name], "query_id": query_id, "first": first, "second": second}
        return found | {"text": shortened(query.text, 110) if query else "", "href": link(full_name, query_id)}

    differences = both[1] - both[0]
    order = np.argsort(-differences, kind="stable")
    gains, losses = order[differences[order] > SAME], order[::-1][differences[order[::-1]] < -SAME]
    most = LISTED_ALL if everything else LISTED
    found = site.comparison(results, scores)
    pictures = [
        draw_scatter(scores, results.title, headed=False, group=lambda t: names[t], link=link, side=side)
        for side in ((MIDDLE_SIDE,) if url.brief else (SIDE, PHONE_SIDE))
    ]
    shown = {task.name for task in scores.tasks}
    scored = {s: [r for r in results.results(s) if r.task.full_name in shown] for s in scores.systems[:2]}
    judged = [mean_judged(r.judged_at_10 for r in of_system) for of_system in scored.values()]
    return {
        "cautions": {system: cut_short(scores.measure, of_system) for system, of_system in scored.items()},
        "judged": judged if None not in judged else None,
        "pair": found.pairs[0] if found else None,
        "first": found.systems[0] if found else None,
        "second": found.systems[1] if found else None,
        "gains": [moved(place) for place in gains[:most].tolist()],
        "losses": [moved(place) for place in losses[:most].tolist()],
        "gains_all": len(gains),
        "losses_all": len(losses),
        "everything": everything,
        "scatter": [Markup(picture.render(dark=False)) for picture in pictures],
        "left_out": [t for t in results.tasks if results.infos[t].full_name not in shown],
    }
