"""Score against seconds, tokens, dollars and parameters."""

from __future__ import annotations

from markupsafe import Markup

from ....results.protocols import MAIN_PROTOCOL
from ...costs import AXES, CostPoint, cost_points
from ...leaderboard import ALL
from ...plots import draw_tradeoff, frontier
from ..request import Links, Page, PageRequest
from ..site import Site
from .board import published
from .choices import chips, choose, collection_chips, measure_chips, measure_param


def tradeoffs(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    results = site.results(slug)
    measure = site.measure(asked.get("measure"))
    usual = "seconds" if results.systems else "parameters"
    against = choose("cost", asked.get("against", usual), AXES)
    points, left_out = cost_points(results, results.whole, measure, against, site.parameters)
    points = [p._replace(href=url("system", slug, p.system)) for p in points]
    if against == "parameters":
        for row in published(results, measure, MAIN_PROTOCOL.get(slug, ALL)):
            weights = site.parameters(row.system)
            if weights is not None and row.macro is not None:
                points.append(CostPoint(f"{row.label} (published)", weights, row.macro, measured=False))

    def link(**changed: str) -> str:
        chosen = {"measure": measure_param(measure), "against": against} | changed
        return url("tradeoffs", slug, **(chosen | {"against": "" if chosen["against"] == usual else chosen["against"]}))

    picture = draw_tradeoff(points, AXES[against], measure, results.title, headed=False) if points else None
    context = {
        "collections": collection_chips(site, slug, lambda c: url("tradeoffs", c)),
        "axes": chips([(k, a.title) for k, a in AXES.items()], against, lambda a: link(against=a)),
        "measures": measure_chips(measure, lambda key: link(measure=key)),
        "axis": AXES[against],
        "measure": measure,
        "title": picture.title if picture else "",
        "points": sorted(points, key=lambda p: (-p.score, p.cost)),
        "front": frontier(points),
        "picture": Markup(picture.render(dark=False)) if picture else "",
        "left_out": left_out,
        "any_published": any(not p.measured for p in points),
    }
    return Page("tradeoffs.html", "Trade-offs", context, "tradeoffs")
