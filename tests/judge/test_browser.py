"""A real browser judges: by keyboard, in two windows, with a full disk, narrow and wide, light and dark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from r2med.judge import Project, open_project
from r2med.judge.desk import Desk, Sent
from tests.faults.mounts import tmpfs
from tests.judge.conftest import Client, make_project, serving
from tests.judge.scripted import Verdict, judge_by_keyboard
from tests.report.test_browser import OVERFLOW

Visit = Callable[..., Any]
CURRENT = "li.passage.current"
ALL_SAVED = "() => !document.querySelector('li.passage:not([data-state=saved])')"


def doc(page: Any) -> str:
    return str(page.locator(CURRENT).get_attribute("data-doc"))


def grades(folder: Path, judge: str = "Ada") -> dict[tuple[str, str], int]:
    project = open_project(folder)
    return project.journal(judge).grades() if project.journal_path(judge).exists() else {}


def opened(visit: Visit, client: Client, **how: Any) -> Any:
    page = visit(**how)
    page.goto(client.url)
    page.locator(CURRENT).wait_for()
    return page


@pytest.fixture
def ada(project: Project) -> Iterator[Client]:
    with serving(project.folder, "--judge", "Ada") as clients:
        yield clients["Ada"]


@pytest.fixture
def loose(browser: Any) -> Iterator[Visit]:
    """Pages whose failed requests may stand in the console."""
    contexts = []

    def open_page(**how: Any) -> Any:
        contexts.append(context := browser.new_context(**how))
        context.set_default_timeout(15_000)
        return context.new_page()

    yield open_page
    for context in contexts:
        context.close()


def test_judging_by_keyboard(project: Project, ada: Client, visit: Visit) -> None:
    page = opened(visit, ada)
    assert "token" not in page.url
    first = doc(page)
    page.keyboard.press("2")
    second = doc(page)
    assert second != first
    page.keyboard.press("s")
    third = doc(page)
    page.keyboard.press("r")
    page.keyboard.type("because 3 is not a grade here")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.type("look again")
    page.keyboard.press("Enter")
    page.keyboard.press("m")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.press("3")
    page.wait_for_function(ALL_SAVED)
    journal = project.journal("Ada")
    assert journal.grades() == {("q1", first): 2, ("q1", third): 3}
    entry = journal.current("q1", third)
    assert entry is not None
    text = project.passages[third].text
    assert (entry.reason, entry.note) == ("because 3 is not a grade here", "look again")
    assert entry.support
    assert entry.support in text
    assert not text.startswith(entry.support)
    assert entry.seconds is not None
    skipped = journal.current("q1", second)
    assert skipped is not None
    assert skipped.skipped
    assert page.locator("#query-count").inner_text() == "3 of 5"
    assert page.locator("#all-count").inner_text() == "3 of 15"
    page.keyboard.press("u")
    page.wait_for_function(ALL_SAVED)
    assert ("q1", third) not in grades(project.folder)
    entry = project.journal("Ada").current("q1", third)
    assert entry is not None
    assert entry.reason == "because 3 is not a grade here"  # only the last step is undone
    assert doc(page) == third
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    assert doc(page) == first
    page.keyboard.press("9")  # no such grade
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Query 2 of 3").wait_for()
    page.keyboard.press("1")
    page.wait_for_function(ALL_SAVED)
    page.keyboard.press("p")
    page.get_by_role("heading", name="Query 1 of 3").wait_for()
    page.keyboard.press("u")  # goes back to where it was given
    page.get_by_role("heading", name="Query 2 of 3").wait_for()
    page.wait_for_function(ALL_SAVED)
    assert grades(project.folder) == {("q1", first): 2}
    page.keyboard.press("?")
    assert page.get_by_role("heading", name="Keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("heading", name="Keys").is_visible()


def test_what_was_judged_is_there_after_a_reload(project: Project, ada: Client, visit: Visit) -> None:
    page = opened(visit, ada)
    order = page.locator("li.passage").evaluate_all("all => all.map(p => p.dataset.doc)")
    assert order == [p.doc_id for p in project.shown_to("Ada", "q1")]
    page.keyboard.press("2")
    page.keyboard.press("0")
    page.wait_for_function(ALL_SAVED)
    page.reload()
    page.locator(CURRENT).wait_for()
    assert doc(page) == order[2]  # the first that has no grade
    assert page.locator("li.passage").evaluate_all("all => all.map(p => p.dataset.grade)") == ["2", "0", "", "", ""]
    assert page.locator("button[aria-pressed=true]").count() == 2


def test_a_key_too_many_grades_nothing(project: Project, ada: Client, visit: Visit) -> None:
    page = opened(visit, ada)
    for _ in range(5):
        page.keyboard.press("2")
    page.keyboard.press("0")
    page.keyboard.press("s")
    page.wait_for_function(ALL_SAVED)
    assert list(grades(project.folder).values()) == [2] * 5
    page.keyboard.press("k")
    page.keyboard.press("1")
    page.wait_for_function(ALL_SAVED)
    assert sorted(grades(project.folder).values()) == [1, 2, 2, 2, 2]


def test_with_the_mouse_too(project: Project, ada: Client, visit: Visit) -> None:
    page = opened(visit, ada)
    passage = page.locator("li.passage").nth(1)
    name = passage.get_attribute("data-doc")
    passage.get_by_role("button", name="answers it").click()
    page.wait_for_function(ALL_SAVED)
    assert grades(project.folder) == {("q1", name): 3}
    passage.locator(".sentence").first.evaluate("s => getSelection().selectAllChildren(s)")
    page.keyboard.press("k")
    page.keyboard.press("m")
    page.wait_for_function(ALL_SAVED)
    entry = project.journal("Ada").current("q1", str(name))
    assert entry is not None
    assert project.passages[str(name)].text.startswith(entry.support)
    assert entry.support


def test_words_are_marked(tmp_path: Path, visit: Visit) -> None:
    project = make_project(tmp_path / "p", terms=("artery",))
    with serving(project.folder, "--judge", "Ada") as clients:
        page = opened(visit, clients["Ada"])
        passage = page.locator("li.passage[data-doc=d1]")
        assert passage.locator("mark").all_inner_texts() == ["comes", "first", "ST", "elevation", "artery"]
        assert passage.locator("mark.term").all_inner_texts() == ["artery"]
        page.get_by_label("Also mark these words").fill("Myocardial, minutes")
        page.keyboard.press("Tab")
        assert passage.locator("mark.term").all_inner_texts() == ["myocardial", "artery", "minutes"]
        assert passage.locator(".text").inner_text() == project.passages["d1"].text


def test_what_the_project_asks_for(tmp_path: Path, visit: Visit) -> None:
    project = make_project(tmp_path / "p", reason="required", support="required", answer_first=True)
    with serving(project.folder, "--judge", "Ada") as clients:
        page = visit()
        page.goto(clients["Ada"].url)
        page.get_by_label("Answer the query yourself").wait_for()
        assert page.locator("li.passage").count() == 0
        page.keyboard.press("Control+Enter")
        page.get_by_text("Write an answer").wait_for()
        page.keyboard.type("Reperfusion")
        page.keyboard.press("Control+Enter")
        page.locator(CURRENT).wait_for()
        assert page.locator("#own-answer-text").inner_text() == "Reperfusion"
        name = doc(page)
        page.keyboard.press("2")  # asks for a sentence, then for a reason
        page.locator(".stepped").wait_for()
        assert not grades(project.folder)
        page.keyboard.press("Enter")
        page.keyboard.type("it says so")
        page.keyboard.press("Enter")
        page.wait_for_function("d => document.querySelector('.current').dataset.doc !== d", arg=name)
        page.wait_for_function(ALL_SAVED)
        other = doc(page)
        page.keyboard.press("0")  # asks for a reason only
        page.keyboard.type("it does not")
        page.keyboard.press("Enter")
        page.wait_for_function(ALL_SAVED)
        assert grades(project.folder) == {("q1", name): 2, ("q1", other): 0}
        entry = project.journal("Ada").current("q1", name)
        assert entry is not None
        assert entry.reason == "it says so"
        assert entry.support in project.passages[name].text
        answer = project.journal("Ada").current("q1")
        assert answer is not None
        assert answer.answer == "Reperfusion"
        page.keyboard.press("Enter")
        page.get_by_role("button", name="I do not know").click()
        page.locator(CURRENT).wait_for()


def test_two_judges_and_an_adjudicator(project: Project, visit: Visit) -> None:
    def grading(project: Project, judge: str, query_id: str, doc_id: str) -> Verdict:
        number = (sum(map(ord, query_id + doc_id)) + (judge == "Bo" and query_id == "q2" and doc_id < "d3")) % 4
        return Verdict(number, f"by {judge}", 0 if number else None)

    with serving(project.folder, "--judge", "Ada", "--judge", "Bo", "--adjudicator", "Cy") as clients:
        cy = visit()
        cy.goto(clients["Cy"].url)
        cy.get_by_text("nothing that you have to decide. Not finished yet: Ada, Bo").wait_for()
        for judge in ("Ada", "Bo"):
            assert judge_by_keyboard(visit(), clients[judge].url, project, judge, grading) == 15
        journals = {judge: project.journal(judge) for judge in ("Ada", "Bo")}
        assert all(journal.finished for journal in journals.values())
        for judge, journal in journals.items():
            assert journal.grades() == {
                (q, d): grading(project, judge, q, d).grade for q in project.queries for d in project.passages
            }
        cy.reload()
        cy.locator(CURRENT).wait_for()
        assert cy.locator("li.passage").count() == 2
        text = cy.locator("#passages").inner_text()
        assert "by Ada" in text
        assert "Judge 1:" in text
        cy.keyboard.press("3")
        cy.keyboard.press("0")
        cy.wait_for_function(ALL_SAVED)
    decided = project.journal("Cy", "adjudicator").grades()
    assert sorted(decided.values()) == [0, 3]
    assert set(decided) == {("q2", "d1"), ("q2", "d2")}


def test_finishing_is_asked_about_and_ends_judging(project: Project, ada: Client, visit: Visit) -> None:
    page = opened(visit, ada)
    page.keyboard.press("1")
    page.get_by_role("button", name="Finish …").click()
    assert "graded 1 of 15 passages" in page.locator("#finish-text").inner_text()
    assert "cannot be changed" in page.locator("#finish").inner_text()
    page.keyboard.press("Escape")
    assert not project.journal("Ada").finished
    page.get_by_role("button", name="Finish …").click()
    page.get_by_role("button", name="Finish", exact=True).click()
    page.get_by_text("You finished on").wait_for()
    assert project.journal("Ada").finished
    page.locator("button.grade:disabled").first.wait_for()
    before = grades(project.folder)
    page.keyboard.press("3")
    page.keyboard.press("s")
    page.wait_for_timeout(200)
    assert grades(project.folder) == before


def test_two_windows_cannot_overwrite_each_other(project: Project, ada: Client, loose: Visit) -> None:
    first, second = (opened(loose, ada) for _ in range(2))
    name = doc(first)
    assert doc(second) == name
    first.keyboard.press("2")
    first.wait_for_function(ALL_SAVED)
    second.keyboard.press("0")
    passage = second.locator(f"li.passage[data-doc={name}]")
    passage.get_by_text("Saved elsewhere: grade 2").wait_for()
    assert "Here, not saved: grade 0" in passage.inner_text()
    assert grades(project.folder) == {("q1", name): 2}
    passage.get_by_role("button", name="Save mine instead").click()
    second.wait_for_function(ALL_SAVED)
    assert grades(project.folder) == {("q1", name): 0}
    first.locator(f"li.passage[data-doc={name}]").get_by_role("button", name="answers it").click()
    passage = first.locator(f"li.passage[data-doc={name}]")
    passage.get_by_role("button", name="Keep what is saved").click()
    first.wait_for_function(ALL_SAVED)
    assert passage.get_attribute("data-grade") == "0"
    assert grades(project.folder) == {("q1", name): 0}


def test_a_full_disk_is_said_on_the_page(tmp_path: Path, loose: Visit) -> None:
    with tmpfs(tmp_path / "small", "64k") as disk:
        project = make_project(tmp_path / "small" / "project")
        with serving(project.folder, "--judge", "Ada") as clients:
            page = opened(loose, clients["Ada"])
            filler = tmp_path / "small" / "filler"
            with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as stream:
                while True:
                    stream.write(b"x" * 512)
            journal = project.journal_path("Ada")
            with pytest.raises(OSError, match="No space"), journal.open("ab", buffering=0) as stream:
                while True:  # the rest of the journal's own block
                    stream.write(b"\n")
            name = doc(page)
            page.keyboard.press("2")
            page.locator("#trouble").get_by_text("No space left on device").wait_for()
            passage = page.locator(f"li.passage[data-doc={name}]")
            assert "not saved" in passage.inner_text()
            assert not grades(project.folder)
            disk.remount("size=1m")
            page.locator("#retry").click()
            page.wait_for_function(ALL_SAVED)
            assert not page.locator("#trouble").is_visible()
            assert grades(project.folder) == {("q1", name): 2}


def test_a_lost_connection_and_a_server_started_again(project: Project, loose: Visit) -> None:
    with serving(project.folder, "--judge", "Ada") as clients:
        page = opened(loose, clients["Ada"])
        port = clients["Ada"].base.rpartition(":")[2]
        name = doc(page)
        page.context.set_offline(True)
        page.keyboard.press("1")
        page.locator("#trouble").get_by_text("does not answer").wait_for()
        page.context.set_offline(False)
        page.locator("#retry").click()
        page.wait_for_function(ALL_SAVED)
        assert grades(project.folder) == {("q1", name): 1}
        os.kill(clients["Ada"].pid, signal.SIGKILL)
        other = doc(page)
        page.keyboard.press("3")
        page.locator("#trouble").get_by_text("does not answer").wait_for()
    with serving(project.folder, "--judge", "Ada", "--port", port) as clients:
        page.locator("#retry").click()
        page.locator("#trouble").get_by_text("it holds a new key").wait_for()
        page.evaluate("address => { location.href = address; }", clients["Ada"].url)
        page.wait_for_function("() => document.getElementById('trouble').hidden")
        page.wait_for_function(ALL_SAVED)
        assert grades(project.folder) == {("q1", name): 1, ("q1", other): 3}


def test_without_the_key_nothing_is_shown(project: Project, ada: Client, visit: Visit) -> None:
    page = visit()
    page.goto(f"{ada.base}/")
    page.get_by_text("Open the address that the server printed").wait_for()
    assert "chest pain" not in page.content()


def test_a_pause_is_not_counted(project: Project, ada: Client, visit: Visit) -> None:
    page = visit()
    page.clock.install()
    page.goto(ada.url)
    page.locator(CURRENT).wait_for()
    name = doc(page)
    page.clock.fast_forward(30_000)
    page.keyboard.press("n")
    page.clock.fast_forward(600_000)
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.wait_for_function(ALL_SAVED)
    entry = project.journal("Ada").current("q1", name)
    assert entry is not None
    assert entry.seconds is not None
    assert 30 <= entry.seconds < 60


BOTH_IN_VIEW = """() => {
    const query = document.querySelector('#query-text').getBoundingClientRect();
    const passage = document.querySelector('li.passage.current').getBoundingClientRect();
    const beside = passage.left >= query.right, below = passage.top >= query.bottom;
    return query.top >= 0 && (beside || below) && passage.top < innerHeight && query.bottom <= innerHeight;
}"""


@pytest.mark.parametrize("width", [1280, 400])
def test_the_query_stays_in_view(tmp_path: Path, visit: Visit, width: int) -> None:
    texts = {f"d{i}": f"Passage {i} says pain. " * 60 for i in range(6)}
    project = make_project(tmp_path / "p", {"q1": "Why does it hurt? " * 60}, texts)
    with serving(project.folder, "--judge", "Ada") as clients:
        page = opened(visit, clients["Ada"], width=width)
        for key in ("", "1", "j", "j", "k"):
            if key:
                page.keyboard.press(key)
            page.wait_for_function(BOTH_IN_VIEW)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (400, "dark"),
        *(pytest.param(*p, marks=pytest.mark.slow) for p in ((1280, "dark"), (400, "light"))),
    ],
)
def test_the_page_is_accessible_and_fits(tmp_path: Path, visit: Visit, axe: str, width: int, scheme: str) -> None:
    project = make_project(tmp_path / "p", reason="required")
    for judge, grade in (("Ada", 1), ("Bo", 3)):
        desk = Desk(project, judge)
        desk.save(Sent(id=f"grade-of-{judge}", query_id="q1", doc_id="d1", grade=grade, reason="so"))
        desk.save(Sent(id=f"finish-of-{judge}", finished=True))
    with serving(project.folder, "--judge", "Di", "--adjudicator", "Cy") as clients:
        for judge in ("Di", "Cy"):
            page = opened(visit, clients[judge], width=width, scheme=scheme)
            assert page.locator("html").get_attribute("data-theme") == scheme
            for step in ("", "1", "m", "?"):
                if step:
                    page.keyboard.press("Escape")
                    page.locator(CURRENT).focus()
                    page.keyboard.press(step)
                assert page.evaluate(OVERFLOW) == []
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
                if not page.evaluate("Boolean(window.axe)"):
                    page.evaluate(axe)
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
                assert [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found["violations"]] == [], step
            page.evaluate("window.onbeforeunload = null")


MANY = 1000


def test_a_thousand_passages(tmp_path: Path, visit: Visit) -> None:
    """Work is counted, not time: what is drawn in full stays near the window, however long the list is."""
    texts = {f"d{i:04d}": f"Passage {i} says pain. " * 12 for i in range(MANY)}
    project = make_project(tmp_path / "p", {"q1": "pain"}, texts)
    with serving(project.folder, "--judge", "Ada") as clients:
        page = opened(visit, clients["Ada"])
        assert page.locator("li.passage").count() == MANY
        page.wait_for_timeout(300)
        drawn = "document.querySelectorAll('.grades').length"
        first = page.evaluate(drawn)
        assert 0 < first < 40
        nodes = page.evaluate("document.getElementsByTagName('*').length")
        assert nodes < 12 * MANY
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def layouts() -> float:
            metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
            return float(metrics["LayoutCount"])

        before = layouts()
        for _ in range(20):
            page.keyboard.press("j")
        assert page.evaluate(drawn) < first + 40
        assert layouts() - before < 400
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_function("() => document.querySelectorAll('li.passage')[999].querySelector('.grades')")
        assert page.evaluate(drawn) < first + 150
        page.keyboard.press("2")
        page.wait_for_function(ALL_SAVED)
        assert len(grades(project.folder)) == 1
