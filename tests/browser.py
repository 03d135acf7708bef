"""A real browser for the tests of every room: one, since Playwright takes no second one in a process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = ("/usr/bin/chromium", "chromium-browser", "chromium", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; tests that need it skip where either is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; whatever a page complains about in its console fails the test, but for what is expected."""
    contexts, complaints = [], list[str]()

    def open_page(
        *, width: int = 1280, scheme: str = "light", offline: bool = False, expected: str = "nothing", **more: Any
    ) -> Any:
        def complain(text: str) -> None:
            if expected not in text:
                complaints.append(text)

        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        context.set_offline(offline)
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda m: complain(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complain(str(e)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched from the npm registry once and kept in pytest's cache.

    Without a cache (``-p no:cacheprovider``) what an earlier run kept is read, or it is fetched for this run alone.
    """
    cache = getattr(request.config, "cache", None)
    kept = (
        cache.mkdir("axe-core") if cache is not None else request.config.rootpath / ".pytest_cache" / "d" / "axe-core"
    )
    inside = "package/axe.min.js"
    if not (kept / inside).is_file():
        if shutil.which("npm") is None:
            pytest.skip("npm is missing, and axe-core with it")
        if cache is None:
            kept = tmp_path_factory.mktemp("axe-core")
        fetched = subprocess.run(
            ["npm", "pack", "axe-core@4", "--silent", "--pack-destination", str(kept)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if fetched.returncode:
            pytest.skip(f"axe-core could not be fetched: {fetched.stderr.strip()[-200:]}")
        shutil.unpack_archive(kept / fetched.stdout.strip().splitlines()[-1], kept, filter="data")
    return (kept / inside).read_text("utf-8")
