from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from r2med.cli import app
from r2med.cli.layout import lay_out
from r2med.core import DataError, Document, Documents, Qrels, Query, Run, Task
from r2med.core.columns import TextColumn
from r2med.pipeline.artefact_checks import order_followed
from r2med.pipeline.artefact_report import (
    FEWEST_QUERIES,
    THRESHOLDS,
    ArtefactReport,
    Finding,
    TaskArtefacts,
    decide,
)
from r2med.pipeline.artefacts import artefacts
from r2med.retrieve import BM25
from r2med.scoring import score
from r2med.scoring.intervals import Estimate
from r2med.tasks import load, load_all
from r2med.tasks.audit.style import lengths_of
from tests.builders import tasks as any_tasks

EACH = 3


def passages() -> list[str]:
    """Real passages: all of Mini's, in an order that knows nothing of their judgments."""
    texts = [text for task in load_all("mini@1") for text in task.documents.texts]
    return [texts[i] for i in np.random.default_rng(1).permutation(len(texts))]


def task_of(positives: list[str], negatives: list[str], *, name: str = "made") -> Task:
    """Queries of a few words of their first positive, with three positives and three judged negatives each."""
    documents = [Document(f"p{i}", text) for i, text in enumerate(positives)]
    documents += [Document(f"n{i}", text) for i, text in enumerate(negatives)]
    queries, judgments = [], list[tuple[str, str, int]]()
    for q in range(len(positives) // EACH):
        of_query = range(EACH * q, EACH * (q + 1))
        queries.append(Query(f"q{q}", " ".join(positives[EACH * q].split()[::9])))
        judgments += [(f"q{q}", f"{kind}{i}", grade) for kind, grade in (("p", 1), ("n", 0)) for i in of_query]
    return Task(name, tuple(queries), Documents.of(documents), Qrels.from_judgments(judgments))


def moved(task: Task, places: Iterable[int]) -> Task:
    """The task with its documents in another order."""
    documents = list(task.documents)
    return Task("moved", task.queries, Documents.of(documents[i] for i in places), task.qrels)


def finding(of: TaskArtefacts | list[Finding], check: str) -> Finding:
    (found,) = [f for f in (of if isinstance(of, list) else of.findings) if f.check == check]
    return found


def test_a_planted_artefact_is_found() -> None:
    """Positives are the passages with the longest words: nothing else tells them from the negatives."""
    texts = passages()[:120]
    _, word_length = lengths_of(TextColumn.from_texts(texts))
    ordered = [texts[i] for i in np.argsort(-word_length)]
    (found,) = artefacts([task_of(ordered[:60], ordered[60:])]).tasks
    judged = found.separations[0]
    assert judged.negatives_are == "judged"
    assert judged.parts["word length"].value == 1.0, "the part that gives it away"
    assert judged.auc.value > 0.9
    assert judged.pooled.low > 0.8
    assert finding(found, "classifier-judged").verdict == "fails"
    assert finding(found, "classifier-bm25").verdict == "fails"


def test_sorted_lists_score_what_sorting_by_hand_scores() -> None:
    task = load("mini@1/Biology")
    (found,) = artefacts([task]).tasks
    words = {d.id: re.findall(r"[^\W\d_]+", d.contents) for d in task.documents}
    keys = {
        "word length": {d: sum(map(len, own)) / len(own) for d, own in words.items()},
        "length": {d: float(len(own)) for d, own in words.items()},
    }
    top = BM25().retrieve(task, depth=20)
    assert found.bm25_ndcg_at_10 == pytest.approx(score(top, task, ["nDCG@10"]).mean())
    for sorting in found.sortings:
        key, up = keys[sorting.by], 1 if sorting.first == "longest" else -1
        by_hand = {q: sorted(hits, key=lambda hit: -up * key[hit.doc_id]) for q, hits in top}
        ranked = {q: [(hit.doc_id, -float(rank)) for rank, hit in enumerate(hits)] for q, hits in by_hand.items()}
        assert sorting.ndcg_at_10 == pytest.approx(score(Run.from_rankings(ranked), task, ["nDCG@10"]).mean())
        assert sorting.gain.value == pytest.approx(sorting.ndcg_at_10 - found.bm25_ndcg_at_10, abs=1e-6)
        assert sorting.gain.low <= sorting.gain.value <= sorting.gain.high
    best = max(found.sortings, key=lambda s: s.gain.value)
    assert (best.by, best.first) == ("word length", "longest")


def test_exchangeable_labels_are_not_told_apart() -> None:
    texts = passages()[:240]
    found = artefacts([task_of(texts[:120], texts[120:])]).tasks[0]
    for separation in found.separations:
        assert separation.queries == separation.groups == 40
        assert separation.auc.low < 0.5 < separation.auc.high
        assert separation.pooled.low < 0.5 < separation.pooled.high
        assert separation.auc.value <= 0.6
    assert finding(found, "classifier-judged").verdict == "passes"
    assert finding(found, "sort-by-word-length").verdict == "passes"
    assert finding(found, "sort-by-length").verdict == "passes"


def test_one_seed_gives_one_report() -> None:
    texts = passages()[:72]
    made = task_of(texts[:36], texts[36:])
    assert artefacts([made], seed=3) == artefacts([made], seed=3)
    assert artefacts([made], seed=3).tasks[0].separations != artefacts([made], seed=4).tasks[0].separations


def test_too_few_queries_are_not_judged() -> None:
    texts = passages()[:36]
    (found,) = artefacts([task_of(texts[:18], texts[18:])]).tasks
    assert {f.verdict for f in found.findings} == {"cannot be told"}
    (table,) = artefacts([task_of(texts[:18], texts[18:])]).tables()
    assert table.caption.startswith("Cannot be told (6 queries; at least 10 are needed): Classifier, judged negatives;")
    assert all(str(FEWEST_QUERIES) in f.why and f.why.startswith("6 queries") for f in found.findings)


def test_queries_that_all_share_a_positive_cannot_be_divided() -> None:
    texts = passages()[:24]
    queries = tuple(Query(f"q{i}", texts[i][:60]) for i in range(12))
    judgments = [(f"q{i}", "d0", 1) for i in range(12)] + [(f"q{i}", f"d{i + 1}", 0) for i in range(12)]
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    (found,) = artefacts([Task("one", queries, documents, Qrels.from_judgments(judgments))]).tasks
    told = finding(found, "classifier-judged")
    assert (told.verdict, told.value) == ("cannot be told", None)
    assert "cannot be divided" in told.why
    assert finding(found, "twins").value == 1.0, "all have the same relevant document"


def test_what_a_task_has_no_data_for_is_not_there() -> None:
    texts = passages()[:120]
    whole = task_of(texts[:60], texts[60:])
    positives = Task("bare", whole.queries, whole.documents, whole.qrels.positives_only())
    (found,) = artefacts([positives]).tasks
    assert [s.negatives_are for s in found.separations] == ["bm25"]
    assert found.answers is None
    assert found.quoting is None
    assert {f.check for f in found.findings} == {
        "classifier-bm25", "sort-by-word-length", "sort-by-length", "twins", "order"
    }  # fmt: skip
    with pytest.raises(DataError, match="no positive judgment"):
        artefacts([Task("none", whole.queries, whole.documents, Qrels.from_judgments([("q0", "p0", 0)]))])


def test_documents_in_the_order_of_their_queries_are_found() -> None:
    texts = passages()[:120]
    ordered = task_of(texts[:60], texts[60:])
    (found,) = artefacts([ordered]).tasks
    told = finding(found, "order")
    assert (told.verdict, told.queries) == ("fails", 20)
    assert told.value == pytest.approx(1.0)
    mixed = moved(ordered, np.random.default_rng(1).permutation(120).tolist())
    report = artefacts([mixed, ordered])
    assert [(t.verdict, t.low == 0.0) for t in (finding(of, "order") for of in report.tasks)] == [
        ("passes", True), ("fails", False)
    ]  # fmt: skip
    backwards = finding(artefacts([moved(ordered, range(119, -1, -1))]).tasks[0], "order")
    assert backwards.verdict == "fails", "either direction tells"
    assert backwards.value == pytest.approx(1.0)


def test_a_correlation_of_places_has_the_interval_of_fisher() -> None:
    texts = passages()[:120]
    task = task_of(texts[:60], texts[60:])
    made = moved(task, np.random.default_rng(3).permutation(120).tolist())
    found = order_followed([made])
    assert found is not None
    means = [np.mean(made.positives(query.id)) for query in made.queries]
    ranks = np.argsort(np.argsort(means))
    rho = abs(float(np.corrcoef(np.arange(20), ranks)[0, 1]))
    assert found.value == pytest.approx(rho, abs=0.01), "equal means share a rank"
    assert np.arctanh(found.high) - np.arctanh(found.value) == pytest.approx(1.959964 / np.sqrt(17))
    three = Qrels.from_judgments((q, d, g) for q, d, g in task.qrels if q in {"q0", "q1", "q2"})
    assert order_followed([Task("three", task.queries[:3], task.documents, three)]) is None


def test_mini_first_edition_is_given_away_by_its_style() -> None:
    """The figures of a clinician's review, within what another tokenizer would change."""
    (found,) = artefacts([load("mini@1/MedQA-Diag")]).tasks
    assert found.separations[0].parts["word length"].value > 0.9
    assert {f.check: f.verdict for f in found.findings} == {
        "classifier-judged": "fails",
        "classifier-bm25": "fails",
        "sort-by-word-length": "fails",
        "sort-by-length": "passes",
        "answer-as-query": "fails",
        "quoting": "fails",
        "twins": "passes",
        "order": "passes",
    }
    assert found.answers is not None
    assert found.answers.ndcg_at_10.value > 0.9 > 0.4 > found.answers.with_question
    assert found.quoting is not None
    assert found.quoting.negatives_rate > found.quoting.positives_rate


def test_several_tasks_have_findings_of_their_own_and_together() -> None:
    """Two tasks of one name stay two."""
    texts = passages()
    one, other = task_of(texts[:36], texts[36:72]), task_of(texts[72:108], texts[108:144])
    report = artefacts([one, other])
    alone = [artefacts([task]).tasks[0] for task in (one, other)]
    assert [t.fingerprint for t in report.tasks] == [one.fingerprint, other.fingerprint]
    assert [t.separations for t in report.tasks] == [t.separations for t in alone]
    both = finding(report.overall, "classifier-judged")
    assert both.queries == 24
    assert both.value == pytest.approx(np.mean([t.separations[0].auc.value for t in alone]))
    assert report.tasks[0].findings != report.tasks[1].findings
    assert not artefacts([one]).overall


@pytest.mark.parametrize(
    ("estimate", "options", "verdict"),
    [
        (Estimate(0.60, 0.5, 0.7, 30), {}, "passes"),
        (Estimate(0.61, 0.4, 0.7, 30), {}, "fails"),
        (Estimate(0.61, 0.4, 0.7, 30), {"chance": 0.5}, "cannot be told"),
        (Estimate(0.61, 0.51, 0.7, 30), {"chance": 0.5}, "fails"),
        (Estimate(0.9, 0.8, 1.0, 9), {}, "cannot be told"),
        (Estimate(0.9, 0.6, 1.0, 30), {"gain": True}, "passes"),
        (Estimate(0.9, 0.61, 1.0, 30), {"gain": True}, "fails"),
    ],
)
def test_verdicts(estimate: Estimate, options: dict[str, float], verdict: str) -> None:
    assert decide(estimate, 0.6, queries=estimate.n, **options).verdict == verdict  # type: ignore[arg-type]


@given(any_tasks())
@settings(max_examples=25)
def test_any_task_has_a_report(made: Task) -> None:
    if not made.qrels.positives:
        return
    report = artefacts([made, made])
    assert json.loads(json.dumps(_plain(report)))["tasks"][0]["findings"]
    assert all(len(lay_out(table.titles, table.rows, table.left, 80).blocks) == 1 for table in report.tables())


def _plain(report: ArtefactReport) -> object:
    import msgspec

    return msgspec.to_builtins(report)


def test_the_command_prints_every_figure_threshold_and_verdict() -> None:
    done = CliRunner().invoke(app, ["data", "audit", "mini@1/Biology", "mini@1/MedQA-Diag", "--artefacts", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    found = document["artefacts"]
    assert set(document["tasks"]) == {t["task"] for t in found["tasks"]} == {"mini@1/Biology", "mini@1/MedQA-Diag"}
    assert {check: t["most"] for check, t in found["thresholds"].items()} == {c: t.most for c, t in THRESHOLDS.items()}
    assert all(t["reason"] for t in found["thresholds"].values())
    for task in found["tasks"]:
        for one in task["findings"]:
            assert one["threshold"] == found["thresholds"][one["check"]]["most"]
            assert one["verdict"] in ("passes", "fails", "cannot be told")
            assert one["why"]
        assert task["separations"][0]["parts"].keys() == {
            "words", "length", "word length", "negation", "names", "layout"
        }  # fmt: skip
    assert {f["check"] for f in found["overall"]} == set(found["thresholds"])


def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "audit", "mini@1/Biology", "--artefacts"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    printed = done.stdout[done.stdout.index("mini@1/Biology: 5 of 8 checks fail") :]
    assert "word length alone" in printed
    assert all(len(line) <= 80 for line in printed.splitlines() if "─" in line or "to" in line[30:])
    assert [len(a) for a, b in pairwise(printed.splitlines()) if "─" in b]
    without = CliRunner().invoke(app, ["data", "audit", "mini@1/Biology"])
    assert "Classifier" not in without.stdout


def test_many_queries_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2med.pipeline.artefact_checks.MOST_QUERIES", 12)
    texts = passages()[:120]
    (found,) = artefacts([task_of(texts[:60], texts[60:])]).tasks
    assert [(s.queries, s.positives) for s in found.separations] == [(12, 36), (12, 20)]
    assert found.separations[0].negatives == 36
    assert finding(found, "twins").queries == 20
