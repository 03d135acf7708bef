"""One query's score under the systems shown, against all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup

from ...plots.layout import fit
from ...plots.scales import linear
from ..text import plain
from .canvas import LinkedCanvas

WIDTH, LEFT, RIGHT, ROW = 620.0, 170.0, 596.0, 26.0


def draw_field(shown: Mapping[str, float], others: list[float], measure: str) -> Markup:
    """A line a system, and one for everybody else where there is anybody else."""
    rows = len(shown) + bool(others)
    bottom = 10 + ROW * rows
    canvas = LinkedCanvas(WIDTH, bottom + 40, title=f"{measure} of this query under each system")
    x = linear(0, 100, LEFT, RIGHT)
    for tick in x.ticks:
        canvas.line(x(tick), 6, x(tick), bottom, "grid")
        canvas.text(x(tick), bottom + 17, f"{tick:g}", size=12, ink="muted", anchor="middle")
    canvas.text((LEFT + RIGHT) / 2, bottom + 34, f"{measure} × 100", size=12, ink="muted", anchor="middle")
    for i, (system, score) in enumerate(shown.items()):
        y = 10 + ROW * (i + 0.5)
        canvas.text(LEFT - 12, y + 4, fit(plain(system), LEFT - 20, 12), size=12, anchor="end")
        canvas.bar(x(0), y, x(100 * score), y, i, width=3)
        canvas.marker(x(100 * score), y, i, radius=6)
    if others:
        y = 10 + ROW * (len(shown) + 0.5)
        noun = "other system" if len(others) == 1 else "others"
        canvas.text(LEFT - 12, y + 4, f"{len(others)} {noun}", size=12, ink="muted", anchor="end")
        for score, count in Counter(round(s, 3) for s in others).items():
            canvas.marker(x(100 * score), y, 6, radius=min(3 + count**0.5, 10), opacity=0.6)
        mean = sum(others) / len(others)
        canvas.line(x(100 * mean), y - 10, x(100 * mean), y + 10, "text", width=2)
    return canvas.markup()
