"""Pictures of results: SVG by our own small writer, PNG from it; no browser, no plotting library."""

from .pictures import draw_field, draw_scores, draw_truncation, interval_mark
from .scatter import draw_scatter
from .svg import Canvas, check_output, write_picture
from .tradeoff import draw_tradeoff, frontier

__all__ = [
    "Canvas",
    "check_output",
    "draw_field",
    "draw_scatter",
    "draw_scores",
    "draw_tradeoff",
    "draw_truncation",
    "frontier",
    "interval_mark",
    "write_picture",
]
