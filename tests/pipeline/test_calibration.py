"""What rankings that ship with tasks say about the benchmark: written out by hand, and refused where damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from r2med.core import DataError
from r2med.pipeline.artefacts import artefacts
from r2med.pipeline.calibration import FILE, calibrate, read_rankings
from r2med.tasks import load

QUERIES, DOCUMENTS = 24, 40


def make_task(folder: Path, rankings: Mapping[str, Sequence[Sequence[int]]], compared: Sequence[str]) -> str:
    """A task in which document i answers query i, and is the only judged one beside its neighbour."""
    folder.mkdir()
    lines: dict[str, list[dict[str, object]]] = {
        "corpus": [{"id": f"d{i}", "text": f"passage number {i} on subject {i}"} for i in range(DOCUMENTS)],
        "query": [{"id": f"q{i}", "text": f"what about {i}"} for i in range(QUERIES)],
        "qrels": [
            {"q_id": f"q{i}", "p_id": f"d{i + further}", "score": 1 - further}
            for i in range(QUERIES)
            for further in (0, 1)
        ],
        "rankings": [
            {"system": name, "query_id": f"q{i}", "docs": [f"d{at}" for at in docs], "compared": name in compared}
            for name, of_queries in rankings.items()
            for i, docs in enumerate(of_queries)
        ],
    }  # fmt: skip
    for name, records in lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    with_content = {"fingerprint": load(str(folder)).fingerprint}
    rankings_file = folder / FILE
    rankings_file.write_text(json.dumps(with_content) + "\n" + rankings_file.read_text("utf-8"), "utf-8")
    return str(folder)


def test_rankings_of_other_content_are_refused(tmp_path: Path) -> None:
    """The ids are the same, and so are the documents: the figures would be those of judgments that nobody gave."""
    folder = Path(make_task(tmp_path / "a", {"one": FIRST, "two": SECOND}, ("one", "two")))
    qrels = folder / "qrels.jsonl"
    qrels.write_text(qrels.read_text("utf-8").replace('"score": 0', '"score": 2'), "utf-8")
    with pytest.raises(DataError, match="ranks other content"):
        calibrate([load(str(folder))])


FIRST = [[i, i + 1] for i in range(QUERIES)]
SECOND = [[i + 1, i] for i in range(QUERIES)]
UNJUDGED = [[i + 2, i, i + 3, i + 4] for i in range(QUERIES)]
HALF = [FIRST[i] if i % 2 else SECOND[i] for i in range(QUERIES)]


def test_figures_by_hand(tmp_path: Path) -> None:
    systems = {"bm25": SECOND, "good": FIRST, "half": HALF, "outside": UNJUDGED}
    tasks = [load(make_task(tmp_path / name, systems, ("bm25", "good", "half"))) for name in ("a", "b")]
    found = calibrate(tasks)
    assert found is not None
    second = 0.6309297535714575  # 1 / log2(3)
    by_name = {of.system: of for of in found.systems}
    assert by_name["bm25"].ndcg_at_10 == pytest.approx(second)
    assert by_name["good"].tasks == {"a": 1.0, "b": 1.0}
    assert by_name["half"].ndcg_at_10 == pytest.approx((1 + second) / 2)
    assert by_name["outside"].unjudged_at_10 == pytest.approx(3 / 4)
    assert [pair.systems for pair in found.pairs] == [("bm25", "good"), ("bm25", "half"), ("good", "half")]
    assert all(pair.apart for pair in found.pairs)
    assert found.pairs[0].difference == pytest.approx(1 - second)
    verdicts = {finding.check: finding for finding in found.findings}
    assert verdicts["words-alone"].value == pytest.approx(second)
    assert verdicts["words-alone"].verdict == "fails", "more than 0.40"
    assert verdicts["pairs-apart"].value == 3
    assert verdicts["pairs-apart"].verdict == "passes"
    assert verdicts["unjudged"].verdict == "fails"
    assert "outside on a" in verdicts["unjudged"].why


def test_the_pair_that_needs_most_decides_what_is_detectable(tmp_path: Path) -> None:
    near = [[i + 2, i] if i % 4 == 0 else [i, i + 2] for i in range(QUERIES)]
    far = [[i + 2 + other for other in range(i * 5 % 9)] + [i] for i in range(QUERIES)]
    further = [[i + 2 + other for other in range(i * 7 % 9)] + [i] for i in range(QUERIES)]
    systems = {"near": near, "far": far, "further": further}
    found = calibrate([load(make_task(tmp_path / "a", systems, list(systems)))])
    assert found is not None
    needed = {pair.systems: pair.detectable or 0 for pair in found.pairs}
    hardest = max(needed, key=lambda pair: needed[pair])
    assert needed[hardest] > 1.05 * min(needed.values()) > 0
    (finding,) = (finding for finding in found.findings if finding.check == "detectable")
    assert finding.value == needed[hardest]
    assert " and ".join(hardest) in finding.why


def test_equal_systems_are_not_apart(tmp_path: Path) -> None:
    task = load(make_task(tmp_path / "a", {"one": FIRST, "two": FIRST}, ("one", "two")))
    found = calibrate([task])
    assert found is not None
    verdicts = {finding.check: finding.verdict for finding in found.findings}
    assert verdicts == {"pairs-apart": "fails", "detectable": "fails", "unjudged": "passes"}
    assert found.pairs[0].detectable is None, "where nothing varies, nothing can be said"


def test_the_audit_has_them_where_they_ship(tmp_path: Path) -> None:
    with_rankings = load(make_task(tmp_path / "a", {"one": FIRST, "two": SECOND}, ("one", "two")))
    without = load(make_task(tmp_path / "b", {}, ()))
    report = artefacts([with_rankings])
    assert report.calibration is not None
    assert {finding.check for finding in report.calibration.findings} <= set(report.thresholds)
    assert artefacts([without]).calibration is None
    assert artefacts([with_rankings, without]).calibration is None, "not those of one task for all"
    assert "detectable" not in artefacts([without]).thresholds


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"system": "one"}', "query_id"),
        ("[", "cannot be read"),
        ('{"system": "one", "query_id": "q0", "docs": ["d0", "d0"]}', "twice"),
        ('{"system": "one", "query_id": "q0", "docs": ["nowhere"]}', "'nowhere'"),
        ('{"system": "one", "query_id": "nobody", "docs": []}', "'nobody'"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    folder = Path(make_task(tmp_path / "a", {"two": FIRST}, ("two",)))
    task = load(str(folder))
    with (folder / FILE).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    with pytest.raises(DataError, match=said) as caught:
        read_rankings(task)
    assert FILE in str(caught.value)


def test_a_query_without_a_ranking_counts_as_zero(tmp_path: Path) -> None:
    task = load(make_task(tmp_path / "a", {"one": FIRST, "two": FIRST[: QUERIES // 2]}, ("one", "two")))
    found = calibrate([task])
    assert found is not None
    assert found.systems[1].ndcg_at_10 == pytest.approx(0.5)
