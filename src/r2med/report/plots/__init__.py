"""Pictures of results: SVG by our own small writer, PNG from it; no browser, no plotting library."""

from .data import Cost, cut_points, family_points, system_costs
from .dots import draw_scores
from .output import check_output, write_picture
from .pareto import draw_pareto
from .scatter import draw_scatter
from .truncation import draw_truncation

__all__ = [
    "Cost",
    "check_output",
    "cut_points",
    "draw_pareto",
    "draw_scatter",
    "draw_scores",
    "draw_truncation",
    "family_points",
    "system_costs",
    "write_picture",
]
