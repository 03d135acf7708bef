"""Write the pictures of the judging page in docs/: a small project, a real server, Chromium.

    python tools/judge_pictures.py

needs Chromium and playwright. The texts are written for the pictures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402
from tests.browser import CHROMIUM, FLAGS  # noqa: E402
from tests.judge.conftest import make_project, serving  # noqa: E402

from r2med.judge import Entry  # noqa: E402
from r2med.judge.journal import now  # noqa: E402

QUERIES = {
    "case-01": "A 54-year-old man has had crushing chest pain for 40 minutes. He is pale and sweating, with a blood "
    "pressure of 95/60 mmHg. The ECG shows ST elevation in leads II, III and aVF. What should be done first?",
    "case-02": "A three-year-old with sickle cell disease has a fever of 39.2 °C. Why can this not wait until morning?",
    "case-03": "An elderly woman on a diet of tea and toast has bleeding gums and bruises. Which vitamin is lacking?",
}
TITLES = {
    "p1": "Infarction with ST elevation", "p2": "Causes of chest pain", "p3": "Aspirin in acute infarction",
    "p4": "The right ventricle", "p5": "Pain of the chest wall", "p6": "After the infarction",
}  # fmt: skip
PASSAGES = {
    "p1": "In infarction with ST elevation the artery is opened as soon as possible. Primary percutaneous coronary "
    "intervention is preferred when it can be done within 120 minutes of the first ECG; otherwise fibrinolysis is "
    "given at once. Time lost is muscle lost.",
    "p2": "Chest pain has many causes. Reflux, muscle strain and anxiety are common, and most patients who are seen "
    "for it in general practice have nothing wrong with the heart.",
    "p3": "Aspirin, 150 to 300 mg chewed, lowers the mortality of acute infarction by about a quarter. It is given as "
    "soon as the diagnosis is likely, unless there is a true allergy.",
    "p4": "ST elevation in leads II, III and aVF points to the inferior wall. The right ventricle is involved in a "
    "third of these patients: blood pressure then falls with nitrates, and fluid is given instead.",
    "p5": "Pain that can be brought on by pressing on the chest wall is likely to come from ribs or muscles.",
    "p6": "Rehabilitation after infarction lowers readmission. Exercise begins with walking.",
}
GRADES = (
    "does not help",
    "background only",
    "supports a step towards the answer",
    "answers the question or supports its conclusion",
)


def main() -> None:
    program = next((path for name in CHROMIUM if (path := _which(name))), None)
    if program is None:
        raise SystemExit("Chromium is missing")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = make_project(
            Path(folder) / "project", QUERIES, PASSAGES, titles=TITLES, grades=GRADES, terms=("fibrinolysis",),
            name="Emergencies",
        )  # fmt: skip
        bo = {"p1": 2, "p2": 0, "p3": 3, "p4": 2, "p5": 0, "p6": 0}
        _judge(project, "Bo", bo, "Treatment is named, not its order.")
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        with serving(project.folder, "--judge", "Ada") as clients:
            for width in (1280, 400):
                page = _page(browser, width)
                page.goto(clients["Ada"].url)
                page.locator("li.passage.current").wait_for()
                if width == 1280:
                    page.keyboard.press("2")
                    page.keyboard.press("m")
                    page.keyboard.press("Enter")
                    page.keyboard.press("3")
                page.wait_for_timeout(300)
                page.evaluate("window.scrollTo(0, 0)")
                page.screenshot(path=ROOT / f"docs/judge-{width}.png")
        own = project.journal("Ada").current("case-01", "p1")
        _judge(project, "Ada", {"p1": 3}, "Says what to do, and how soon.", replaces=own.id if own else "")
        with serving(project.folder, "--adjudicator", "Cleo") as clients:
            for width in (1280, 400):
                page = _page(browser, width)
                page.goto(clients["Cleo"].url)
                page.locator("li.passage.current").wait_for()
                page.wait_for_timeout(300)
                page.evaluate("window.scrollTo(0, 0)")
                page.screenshot(path=ROOT / f"docs/judge-adjudicate-{width}.png")
        browser.close()


def _which(name: str) -> str | None:
    import shutil

    return shutil.which(name)


def _page(browser: Any, width: int) -> Any:
    return browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light").new_page()


def _judge(project: Any, judge: str, grades: dict[str, int], reason: str, *, replaces: str = "") -> None:
    """Write a judge's grades of the first query, and that the judge has finished."""
    journal = project.journal(judge)
    for doc_id, grade in grades.items():
        said = reason if doc_id == "p1" else ""
        journal.save(
            Entry(
                id=f"{judge}-{doc_id}", at=now(), query_id="case-01", doc_id=doc_id, grade=grade, reason=said,
                replaces=replaces,
            )
        )  # fmt: skip
    journal.save(Entry(id=f"{judge}-end", at=now(), finished=True))
    journal.close()


if __name__ == "__main__":
    main()
