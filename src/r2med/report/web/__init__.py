"""Results in the browser: a local web app, and the same pages as one file."""

from ...core import MissingExtra

try:
    import markupsafe as _markupsafe  # noqa: F401 (comes with the templates; every page needs it)
except ImportError:
    raise MissingExtra("looking at results in the browser", "view") from None

from .site import Site

__all__ = ["Site"]
