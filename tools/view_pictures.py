"""Write the pictures of the web app in docs/, as Chromium shows it.

    python tools/view_pictures.py

needs Chromium, playwright and the embedded model (`r2med models fetch bge-small`). All texts are Mini's.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402
from tests.browser import CHROMIUM, FLAGS  # noqa: E402
from tests.report.conftest import serving  # noqa: E402

import r2med  # noqa: E402
from r2med.pipeline import SystemSpec  # noqa: E402
from r2med.pipeline.experiment import default_systems  # noqa: E402

QUERY = "MedQA-Diag-q02"
EXPANSION = (
    "Peripheral arterial disease: intermittent claudication, rest pain relieved by letting the leg hang, absent "
    "pulses, and an ankle-brachial index that is falsely high because the arteries are calcified."
)


def main() -> None:
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    chosen = default_systems()
    if program is None or chosen.missing:
        raise SystemExit(chosen.missing or "Chromium is missing")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        results = Path(folder) / "results"
        r2med.run(*chosen.retrievers, fuse=chosen.fusion, results=results)
        r2med.run(SystemSpec.parse(chosen.best), results=results)
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        with serving(results) as server:
            page = open_page(browser, 1280, 720)
            page.goto(f"{server.base}/board/mini")
            page.locator("#scores:not([aria-busy])").wait_for()
            page.screenshot(path=ROOT / "docs/view-board.png")
            page = open_page(browser, 1280, 900)
            page.goto(f"{server.base}/query/mini/MedQA-Diag/{QUERY}")
            page.locator("main").wait_for()
            page.screenshot(path=ROOT / "docs/home-inspector.png")
            for width, height, name in ((1280, 1150, "view-try.png"), (400, 900, "view-try-400.png")):
                page = open_page(browser, width, height)
                systems = "s=bm25&s=bge-small&s=bm25%2Bbge-small.rrf"
                page.goto(f"{server.base}/try?task=mini/MedQA-Diag&query={QUERY}&{systems}")
                if width > 400:
                    page.locator("textarea[name=expansion]").fill(EXPANSION)
                page.get_by_role("button", name="Search").click()
                page.locator(".lists").wait_for()
                if width == 400:
                    page.locator(".shares summary").first.click()
                    page.locator(".list h3").first.evaluate("e => window.scrollTo(0, e.offsetTop - 90)")
                page.screenshot(path=ROOT / "docs" / name)
        browser.close()


def open_page(browser: Any, width: int, height: int) -> Any:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
    context.set_default_timeout(60_000)
    return context.new_page()


if __name__ == "__main__":
    main()
