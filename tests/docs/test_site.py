"""The site: built strictly from a copy of the sources, complete, and sufficient to itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
SHOWN = (
    "index",
    "tutorial",
    "intervals",
    "reference/commands/run",
    "reference/files",
    "reference/tasks/mini@1/Biology",
)
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]+src="([^"]+)"|<link[^>]+rel="(?:stylesheet|icon|preload)"[^>]*>')

pytestmark = pytest.mark.skipif(find_spec("material") is None, reason="mkdocs-material is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` does, in a folder of its own."""
    root = tmp_path_factory.mktemp("sources")
    shutil.copy2(ROOT / "mkdocs.yml", root)
    shutil.copytree(DOCS, root / "docs", ignore=shutil.ignore_patterns("reference"))
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "R2MED_HOME": str(root / "home")}
    for command in (["tools/docs.py"], ["-m", "mkdocs", "build", "--strict", "--quiet"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return root / "site"


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    written = [page.stem for page in (site.parent / "docs").glob("*.md")]
    for name in written:
        assert (site / f"{name}.html").is_file()
        assert f"{name}.html" in found
    for name in ("commands/doctor", "python", "files", "environment", "models/nv", "tasks/nano/Biology"):
        assert f"reference/{name}.html" in found
    menu = (site / "index.html").read_text("utf-8")
    for name in written:
        assert f'href="{name}.html"' in menu, f"{name}.md is missing from nav"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = 0
    for page in site.rglob("*.html"):
        for tag in _LOADED.finditer(page.read_text("utf-8")):
            assert "//" not in tag[0], f"{page}: {tag[0]}"
            loaded += 1
    assert loaded > 200, "the pattern finds scripts and styles"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text("utf-8")), sheet


def test_the_reference_speaks_of_everything(site: Path) -> None:
    from r2med import __all__ as names
    from r2med.cli import COMMANDS

    python = (site / "reference" / "python.html").read_text("utf-8")
    assert not [name for name in names if name != "__version__" and f"r2med.{name}" not in python]
    for command in COMMANDS:
        text = (site / "reference" / "commands" / f"{command}.html").read_text("utf-8")
        assert "object at 0x" not in text
        assert "Sentinel" not in text
    files = (site / "reference" / "files.html").read_text("utf-8")
    for field in ("retrievers", "queries_without_positives", "document_template", "free_bytes"):
        assert f"<code>{field}</code>" in files


@pytest.mark.slow
def test_pages_fit_narrow_and_wide_screens(site: Path, browser: Any) -> None:
    asked: list[str] = []
    for width in WIDTHS:
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.on("request", lambda request: asked.append(request.url))
            for name in SHOWN:
                page.goto((site / f"{name}.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} at {width}"
                assert page.locator("h1").first.is_visible()
            page.close()
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
