"""The report's canvas with links in it, coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

from markupsafe import Markup

from ...plots.svg import Canvas
from ..text import plain


class LinkedCanvas(Canvas):
    """A picture whose marks lead somewhere."""

    @contextmanager
    def link(self, href: str, label: str) -> Iterator[None]:
        """What is drawn inside leads to `href`; without one it only has a label."""
        if href:
            self._parts.append(f'<a href="{escape(href)}" aria-label="{escape(plain(label))}">')
        else:
            self._parts.append("<g>")
        self._parts.append(f"<title>{escape(plain(label))}</title>")
        yield
        self._parts.append("</a>" if href else "</g>")

    def markup(self) -> Markup:
        """The picture for a page: no style of its own, which the page's policy would refuse."""
        drawn = self.render(dark=False)
        # A picture with links is not one image to a reader of screens, but a group of them.
        return Markup(drawn.replace('role="img"', 'role="group"', 1) if "<a href" in drawn else drawn)
