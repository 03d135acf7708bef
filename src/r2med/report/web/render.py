"""Templates to HTML. Everything is escaped; what strangers wrote goes through `v`, which also shows odd characters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ...core import MissingExtra
from .asked import Links, Page
from .text import plain, snippet, visible

if TYPE_CHECKING:
    from jinja2 import Environment

    from .site import Site


@cache
def environment() -> Environment:
    """The templates that come with the package."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("pages for the browser", "view") from None
    made = Environment(
        loader=PackageLoader("r2med.report.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        v=visible, plain=plain, snippet=snippet, points=points, signed=signed, p_value=p_value, span=span
    )
    return made


def compile_templates() -> None:
    """All of them now, so that nobody's first page waits for it."""
    made = environment()
    for name in made.list_templates():
        made.get_template(name)


def points(value: float | None, digits: int = 2) -> str:
    """A score that is × 100 already; an en dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, a true minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def p_value(value: float) -> str:
    """A p value."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def span(seconds: float) -> str:
    """A time for people."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def page_html(page: Page, site: Site, url: Links, **more: Any) -> str:
    """A whole page of the running app."""
    return _render(page.template, page, site, url, layout="layout.html", **more)


def body_html(page: Page, site: Site, url: Links) -> str:
    """Only what is special about a page, for the single file."""
    return _render(page.template, page, site, url, layout="bare.html", running=False, live=False)


def _render(template: str, page: Page, site: Site, url: Links, *, layout: str, **more: Any) -> str:
    context = {"page": page, "url": url, "layout": layout, "live": True, "running": False, **page.context, **more}
    html: str = environment().get_template(template).render(context)
    return html
