"""Templates to HTML. Everything is escaped; text from data goes through `v`, which also shows odd characters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...core import MissingExtra
from ...core.table import p_value, points, shortened, signed
from .request import Links, Page
from .text import plain, visible

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> Environment:
    """The templates that come with the package."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("pages for the browser", "view") from None
    made = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        v=visible, plain=plain, points=points, signed=with_minus, p_value=p_value, span=span, shortened=shortened
    )
    return made


def static_file(name: str) -> bytes:
    """A file of the app itself."""
    return files(__package__ or "").joinpath("static", name).read_bytes()


def compile_templates() -> None:
    """Compile all templates before the first page needs one."""
    made = environment()
    for name in made.list_templates():
        made.get_template(name)


def with_minus(value: float, digits: int = 2) -> str:
    """A difference × 100 with its sign, a true minus."""
    return signed(value, digits).replace("-", "−")


def span(seconds: float) -> str:
    """A time for people."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def page_html(page: Page, url: Links, *, layout: str = "layout.html", live: bool = True, running: bool = False) -> str:
    """A whole page of the running app; with `bare.html`, only what is special about it, for the single file."""
    about: dict[str, Any] = {"page": page, "url": url, "layout": layout, "live": live, "running": running}
    html: str = environment().get_template(page.template).render(about | dict(page.context))
    return html
