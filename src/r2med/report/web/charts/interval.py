"""A score with its interval, small enough for a table cell."""

from __future__ import annotations

from markupsafe import Markup

from ...plots.scales import Scale
from ..data.rows import Cell

WIDTH, HEIGHT = 100, 16


def interval_mark(scale: Scale, cell: Cell, *, hollow: bool) -> Markup:
    """A dot with whiskers; a hollow diamond for a figure of others, which has no interval."""
    assert cell.value is not None
    y, x = HEIGHT / 2, scale(cell.value)
    parts = [f'<line class="l-grid" x1="{scale.start}" y1="{y}" x2="{scale.end}" y2="{y}"/>']
    if cell.low is not None and cell.high is not None:
        low, high = scale(cell.low), scale(cell.high)
        parts.append(f'<line class="whisker" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>')
    if hollow:
        corners = f"{x:.1f},{y - 4} {x + 4:.1f},{y} {x:.1f},{y + 4} {x - 4:.1f},{y}"
        parts.append(f'<polygon class="hollow" points="{corners}"/>')
    else:
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>')
    head = f'<svg class="mark" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
    return Markup(head + "".join(parts) + "</svg>")  # numbers only: nothing to escape
