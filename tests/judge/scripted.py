"""A browser that judges by keyboard alone, for tests and for trying a project out.

    python -m tests.judge.scripted PROJECT --judge Ada --judge Bo --queries 10 --grading tests.judge.scripted:known

serves the project and lets each judge grade its first queries in Chromium. A grading says what a judge gives to a
passage; `known` gives the grade that came with the data, or 0, and now and then one beside it, as people do.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from r2med.judge import Project, open_project
from tests.browser import CHROMIUM, FLAGS
from tests.judge.conftest import serving

SECONDS = 20_000.0  # milliseconds that a step of the page may take


class Verdict(NamedTuple):
    """What a judge gives to a passage; `sentence` is the number of the one that supports the grade."""

    grade: int
    reason: str = ""
    sentence: int | None = None


Grading = Callable[[Project, str, str, str], Verdict]
"""From a project, a judge, a query and a passage to a verdict."""


def known(project: Project, judge: str, query_id: str, doc_id: str) -> Verdict:
    """The grade that came with the data, and for one passage in five one beside it."""
    (pooled,) = [p for p in project.pool[query_id] if p.doc_id == doc_id]
    drawn = hashlib.blake2b("\0".join((judge, query_id, doc_id)).encode(), digest_size=2).digest()
    shift = (-1 if drawn[1] % 2 else 1) if drawn[0] % 5 == 0 else 0
    grade = min(max((pooled.known or 0) + shift, 0), len(project.settings.grades) - 1)
    return Verdict(grade, f"judged as {project.settings.grades[grade]}", 0 if grade else None)


def judge_by_keyboard(
    page: Any, url: str, project: Project, judge: str, grading: Grading, *, queries: int = 10, finish: bool = True
) -> int:
    """Grade all passages of the first queries that have some left; gives the number of grades."""
    settings, given = project.settings, 0
    page.goto(url)
    for _ in range(queries):
        page.locator("#judging[data-query]").wait_for(timeout=SECONDS)
        query_id = page.locator("#judging").get_attribute("data-query")
        if page.locator("#answer-form").is_visible():
            page.keyboard.type("my own answer")
            page.keyboard.press("Control+Enter")
        page.locator("li.passage.current").wait_for(timeout=SECONDS)
        for _ in range(page.locator("li.passage[data-grade='']").count()):
            doc_id = page.locator("li.passage.current").get_attribute("data-doc")
            verdict = grading(project, judge, query_id, doc_id)
            if verdict.reason and settings.reason != "no":
                page.keyboard.press("r")
                page.keyboard.type(verdict.reason)
                page.keyboard.press("Escape")
            if verdict.sentence is not None and verdict.grade and settings.support != "no":
                page.keyboard.press("m")
                for _ in range(verdict.sentence):
                    page.keyboard.press("ArrowRight")
                page.keyboard.press("Enter")
            page.keyboard.press(str(verdict.grade))
            given += 1
        page.wait_for_function("() => !document.querySelector('li.passage:not([data-state=saved])')", timeout=SECONDS)
        title = page.locator("#query-title").inner_text()
        page.keyboard.press("Enter")
        number, count = (int(word) for word in title.split() if word.isdecimal())
        if number == count:
            break
        page.wait_for_function("t => document.querySelector('h1').innerText !== t", arg=title, timeout=SECONDS)
    if finish:
        page.locator("#finish-button").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_text("You finished on").wait_for(timeout=SECONDS)
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--judge", action="append", required=True)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--grading", default="tests.judge.scripted:known")
    given = parser.parse_args()
    module, _, name = given.grading.partition(":")
    grading: Grading = getattr(importlib.import_module(module), name)
    project = open_project(given.project)
    from playwright.sync_api import sync_playwright

    program = next(found for name in CHROMIUM if (found := shutil.which(name)))
    names = [argument for judge in given.judge for argument in ("--judge", judge)]
    with serving(given.project, *names) as clients, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for judge, client in clients.items():
            page = browser.new_context().new_page()
            count = judge_by_keyboard(page, client.url, project, judge, grading, queries=given.queries)
            print(f"{judge}: {count} grades")
        browser.close()


if __name__ == "__main__":
    main()
