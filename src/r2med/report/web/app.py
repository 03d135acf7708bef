"""The web app: addresses in, pages out. It reads; there is nothing to send to it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ...core import MissingExtra, R2MedError, UnknownName, UsageError
from .asked import Asked, Page, ServerLinks
from .pages.progress import state
from .render import page_html
from .router import NoSuchPage, find_page, table_text
from .security import Application, Guard
from .site import Site

STATIC = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def create_app(site: Site, *, host: str = "") -> Application:
    """An ASGI application."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse, JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise MissingExtra("the web app", "view") from None
    url = ServerLinks()

    async def page(request: Any) -> Any:
        html, status = await run_in_threadpool(_answer, site, url, _asked(request))
        return HTMLResponse(html.encode("utf-8", "replace"), status, headers={"cache-control": "no-store"})

    async def table(request: Any) -> Any:
        try:
            media, text = await run_in_threadpool(table_text, site, _asked(request))
        except R2MedError as error:
            return Response(f"{error}\n", _status(error), media_type="text/plain")
        return Response(text.encode("utf-8", "replace"), media_type=f"{media}; charset=utf-8")

    async def progress(request: Any) -> Any:
        await run_in_threadpool(site.shelf.refresh)
        return JSONResponse(state(site), headers={"cache-control": "no-store"})

    async def standing(request: Any) -> Any:
        asked = _asked(request)
        try:
            holdings = site.holdings(asked.parts[1] if len(asked.parts) > 1 else "")
            measure = site.measure(asked.get("measure"))
        except R2MedError as error:
            return JSONResponse({"error": str(error)}, _status(error))
        ready = await run_in_threadpool(site.standings.of, holdings, measure, site.shelf.version, wait=0.0)
        return JSONResponse({"ready": ready is not None}, headers={"cache-control": "no-store"})

    async def static(request: Any) -> Any:
        name = request.path_params["name"]
        if name not in STATIC:
            return Response("there is no such file\n", 404, media_type="text/plain")
        headers = {"cache-control": "no-cache", "content-type": STATIC[name]}
        return Response(static_file(name), headers=headers)

    routes = [
        Route("/static/{name}", static),
        Route("/api/progress", progress),
        Route("/api/standing/{rest:path}", standing),
        Route("/table/{rest:path}", table),
        Route("/{rest:path}", page),
    ]
    return Guard(Starlette(routes=routes), host)


def static_file(name: str) -> bytes:
    """A file of the app itself."""
    return files("r2med.report.web").joinpath("static", name).read_bytes()


def _asked(request: Any) -> Asked:
    path = request.scope.get("raw_path") or request.scope["path"].encode()
    return Asked.of(path.decode("latin-1").partition("?")[0], request.scope["query_string"].decode("latin-1"))


def _answer(site: Site, url: ServerLinks, asked: Asked) -> tuple[str, int]:
    status, page = 200, None
    try:
        page = find_page(site, asked, url)
    except R2MedError as error:
        status = _status(error)
        title = "Not found" if status == 404 else "This cannot be shown"
        page = Page("error.html", title, {"message": str(error), "home": url("board")}, status=status)
    running = (found := site.progress()) is not None and found.running
    return page_html(page, site, url, running=running), status


def _status(error: R2MedError) -> int:
    if isinstance(error, NoSuchPage | UnknownName):
        return 404
    return 400 if isinstance(error, UsageError) else 500
