from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import r2med
from r2med.core import ResultError, UnknownName, UsageError
from r2med.pipeline.system import SystemSpec
from r2med.report.leaderboard import HERE, as_json, board, board_caption, board_table, conflict_lines
from r2med.report.scores import score_table
from r2med.results import ResultStore, SystemInfo
from r2med.results.protocols import protocol_of
from r2med.scoring import MAIN, Measure, score
from r2med.tasks import load, resolve, write_task

NOWHERE = "no-such-folder"


def test_published_first_raw_retriever_and_best_expansion() -> None:
    rows = board(NOWHERE, published=True).rows
    assert (rows[0].system, round(100 * (rows[0].macro or 0), 2)) == ("query2doc:gpt4+nv", 41.65)
    raw = next(r for r in rows if r.kind == "retriever")
    assert (raw.label, round(100 * (raw.macro or 0), 2)) == ("NV-Embed-v2", 31.43)
    assert raw.also == ["r2med-board", "r2med-article"]  # the headline's 31.4 is the same number
    assert {r.protocol for r in rows} == {"r2med-paper"}
    assert not any(r.measured for r in rows)
    assert len(rows) == 71 + 21  # of the board's 68, 46 are the repository's and one is the ReasonRank paper's
    macros = [r.macro for r in rows if r.macro is not None]
    assert macros == sorted(macros, reverse=True)


def test_all_protocols_and_one_source() -> None:
    everything = board(NOWHERE, published=True, protocol="all")
    first = everything.rows[0]
    assert (first.system, round(100 * (first.macro or 0), 1)) == ("diver-4b+grouprank:grouprank-32b@100", 52.3)
    assert len(everything.rows) == 92 + 26 + 15 + 11 + 18 + 8 + 9
    assert len({row.system for row in everything.rows}) > 150
    assert len({(r.system, r.source) for r in everything.rows}) == len(everything.rows)
    assert "not comparable" in board_caption(everything.rows, MAIN)
    assert len(board(NOWHERE, published=True, protocol="mteb").rows) == 26
    assert len(board(NOWHERE, published=True, source="mteb-results").rows) == 26
    assert "other protocols" in board(NOWHERE, published=True).notes[0]


def test_the_same_figure_at_two_places_is_one_row() -> None:
    """The board repeats the repository's figures with fewer digits; MedCPT alone has others."""
    rows = board(NOWHERE, published=True, protocol="all").rows
    repeated = [r for r in rows if r.source == "r2med-repository" and "r2med-board" in r.also]
    assert len(repeated) == 46
    assert {r.system for r in rows if r.source == "r2med-board"}.isdisjoint({r.system for r in repeated})
    (paper,) = [r for r in rows if r.system == "e5+reasonrank:reasonrank-32b@100"]
    assert (paper.source, paper.also) == ("reasonrank-article", ["r2med-board"])
    medcpt = sorted((r.source, r.conflicts[0].differs) for r in rows if r.system == "medcpt")
    assert medcpt == [("r2med-board", "source"), ("r2med-repository", "source")]


def test_figures_that_conflict_are_marked_with_both_values_and_protocols() -> None:
    rows = board(NOWHERE, published=True, protocol="all").rows
    own = {r.protocol: r for r in rows if r.system == "diver-4b"}
    (other,) = own["grouprank-article"].conflicts
    assert (other.protocol, other.differs) == ("reasonembed-article", "protocol")
    assert round(100 * (own["grouprank-article"].macro or 0), 1) == 42.9
    assert (round(100 * other.macro, 2), round(100 * other.difference, 1)) == (32.23, 10.7)
    assert "512 tokens" in other.settings
    assert "16,384" in other.caution
    assert own["grouprank-article"].marks == "≠"
    stages = next(r for r in rows if r.system == "diver-4b+rank-k-32b@100").conflicts
    assert [(c.system, c.differs) for c in stages] == [("e5+rank-k-32b@100", "first stage")]
    alone = board(NOWHERE, published=True, protocol="grouprank-article").rows  # marked whatever else is shown
    assert next(r for r in alone if r.system == "diver-4b").conflicts == own["grouprank-article"].conflicts
    assert not next(r for r in rows if r.system == "reason-embed-8b").conflicts
    assert len(conflict_lines(rows)) == len(set(conflict_lines(rows))) == 24


def test_averages_say_what_they_are_of() -> None:
    rows = {(r.system, r.source): r for r in board(NOWHERE, published=True, protocol="all").rows}
    slip = rows["rader", "reasonembed-article"]
    assert [round(100 * (v or 0), 3) for v in (slip.stated, slip.macro)] == [35.19, 35.215]
    assert slip.marks == "!"
    assert [r.system for r in rows.values() if r.slip] == ["rader"]
    stated = rows["insertrank:deepseek-r1", "insertrank-article"]
    assert (stated.average_of, stated.marks, stated.tasks_of, stated.parameters) == ("statement", "*", (0, 8), None)
    three = rows["lamer-mv:qwen3-8b+bm25+bge", "health-copilot"]
    assert (three.macro, three.complete, three.scope) == (None, False, "3 of 8")
    partial = [r for r in rows.values() if r.macro is None]
    assert {r.tasks_of[0] for r in partial} == {1, 3}
    ordered = [r.macro is None for r in board(NOWHERE, published=True, protocol="all").rows]
    assert ordered == sorted(ordered)
    (document,) = as_json([slip])
    assert (document["stated"], document["slip"]) == (35.19, True)


def test_every_published_row_says_where_it_comes_from_and_how_it_was_made() -> None:
    for row in board(NOWHERE, published=True, protocol="all").rows:
        assert row.url.startswith("https://")
        assert row.settings
    facts = {r.system: (r.parameters, r.terms) for r in board(NOWHERE, published=True, protocol="all").rows}
    assert facts["diver-4b+grouprank:grouprank-32b@100"] == (36_021_774_336, "open")
    assert facts["bm25"] == (0, "none")
    assert facts["hyde:gpt4+nv"] == (None, "proprietary")


def test_collections_are_kept_apart() -> None:
    nano = board(NOWHERE, published=True, collection="nano").rows
    assert [r.system for r in nano] == ["harrier", "hybrid", "bm25"]
    assert {r.collection for r in nano} == {"nano"}
    assert [round(100 * (r.query_weighted or 0), 2) for r in nano] == [29.80, 28.99, 21.10]
    assert all(name.startswith("nano/") for row in nano for name in row.tasks)


def test_ours_stand_beside_and_incomplete_ones_last(mini_results: Path) -> None:
    found = board(mini_results)
    assert found.tasks[0] == "mini@1/Biology"
    ours = [r for r in found.rows if r.measured]
    assert [r.system for r in ours] == ["bm25", "bm25-lucene", "bm25:b=0.75,k1=1.2"]
    assert [r.tie_group for r in ours] == [1, 2, None]
    assert ours[-1].macro is None
    assert ours[-1].query_weighted is None
    assert ours[-1].tasks_of == (1, 8)
    assert found.rows[-1] is ours[-1]
    references = [r for r in found.rows if not r.measured]
    assert {r.origin for r in references} == {"our reference"}
    for reference in references:
        same = next(r for r in ours if r.system == reference.system)
        assert reference.macro == pytest.approx(same.macro, abs=1e-5)
    result = ResultStore(mini_results).find("bm25", "mini@1", "Biology")
    assert result is not None
    assert ours[0].tasks["mini@1/Biology"] == result.measures["ndcg_at_10"]
    assert [r.measured for r in board(mini_results, measured=True).rows] == [True] * 3


def test_the_table_never_shows_an_incomplete_average(mini_results: Path) -> None:
    found = board(mini_results)
    table = board_table(found.rows, found.tasks, MAIN)
    assert all(len(row) == len(table.titles) for row in table.rows)
    assert table.titles[:6] == ["System", "Letters", "Rank", "Best", "Macro", "Biology"]
    assert table.rows[-1][1:5] == ["–", "–", "–", "1 of 8"]
    assert table.rows[-1][-1] == HERE
    assert "do not differ significantly" in table.caption


def test_a_number_is_rounded_once(mini_results: Path) -> None:
    """24.674996 was 24.67 where `run` printed it and, by way of 24.675, 24.68 on the leaderboard."""
    store = ResultStore(mini_results)
    (result,) = [r for r in store if (r.system.name, r.task.name) == ("bm25", "Biology")]
    run, judged = store.run(result), load("mini@1/Biology").qrels
    changed = score(run, judged)
    values = changed.per_query["ndcg_at_10"]
    values += 0.24674996 - values.mean()
    name = "rounding"
    system = msgspec.structs.replace(result.system, name=name)
    measures = result.measures | {"ndcg_at_10": float(values.mean())}
    made = ResultStore(mini_results.parent / "rounding")
    made.write(msgspec.structs.replace(result, system=system, measures=measures), run, changed)
    printed = score_table(list(made)).table().rows[0]
    found = board(made.root, measured=True)
    assert printed[1] == "24.67"
    assert board_table(found.rows, found.tasks, MAIN).rows[0][2] == "24.67"
    assert as_json(found.rows)[0]["tasks"]["mini@1/Biology"] == pytest.approx(24.674996, abs=1e-9)


def test_results_elsewhere_are_mentioned(mini_results: Path) -> None:
    found = board(mini_results, collection="r2med", published=False)
    assert all(not r.measured for r in found.rows)
    assert board(mini_results, published=True).rows[0].collection == "r2med"


def test_folders_of_ones_own_have_nothing_published(tmp_path: Path) -> None:
    write_task(load("mini@1/Biology"), tmp_path / "mine", to="r2med")
    r2med.run("bm25", tasks=resolve(str(tmp_path / "mine")), results=tmp_path / "results")
    found = board(tmp_path / "results")
    assert [(r.system, r.collection, r.complete) for r in found.rows] == [("bm25", "", True)]
    assert found.tasks == ["mine"]


def test_other_measures(mini_results: Path) -> None:
    rows = board(NOWHERE, published=True, measure=Measure.parse("R@100")).rows
    assert len(rows) == 71
    with pytest.raises(ResultError, match="nothing has P@3"):
        board(NOWHERE, published=True, measure=Measure.parse("P@3"))
    assert board(mini_results, measured=True, measure=Measure.parse("P@3")).rows[0].complete


def test_json_holds_what_scripts_rely_on() -> None:
    (first, *_), scale = as_json(board(NOWHERE, published=True).rows), 100
    assert {"system", "source", "measured", "tasks", "macro"} <= first.keys()
    assert first["scale"] == scale
    assert set(first["tasks"]) == {f"r2med/{t}" for t in SHORT_TASKS}


SHORT_TASKS = (
    "Biology", "Bioinformatics", "Medical-Sciences", "MedXpertQA-Exam", "MedQA-Diag", "PMC-Treatment", "PMC-Clinical",
    "IIYi-Clinical",
)  # fmt: skip


def test_mistakes() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        board(NOWHERE, published=True, measured=True)
    with pytest.raises(ResultError, match="no such folder"):
        board(NOWHERE)
    assert board(NOWHERE, default_folder=True).rows
    with pytest.raises(UnknownName, match="did you mean mteb-results"):
        board(NOWHERE, published=True, source="mteb-result")
    with pytest.raises(UnknownName, match="unknown protocol"):
        board(NOWHERE, published=True, protocol="none")
    with pytest.raises(UnknownName, match="there are: expansion"):
        board(NOWHERE, published=True, kind="magic")


def test_kinds_of_ours_answer_to_the_names_of_the_ledger(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1/Biology"), fuse="rrf", results=store.root)
    made = next(r for r in store if r.system.name == "bm25")
    kinds = {"bm25+maxsim@50": "reranked", "hyde:gpt4+bm25,policy=r2med": "expanded", "bm25@mteb": "lexical"}
    for name, kind in kinds.items():
        policy = {"policy": "r2med"} if "policy" in name else {}
        described = made.system.description | policy
        info = msgspec.structs.replace(made.system, name=name, kind=kind, description=described, spec={})
        scored = score(store.run(made), load("mini@1/Biology").qrels)
        store.write(msgspec.structs.replace(made, system=info), store.run(made), scored)
    shown = {k: {r.system for r in board(store.root, measured=True, kind=k).rows} for k in ("reranker", "expansion")}
    assert shown == {"reranker": {"bm25+maxsim@50"}, "expansion": {"hyde:gpt4+bm25,policy=r2med"}}
    rows = board(store.root, measured=True, kind="retriever").rows
    assert {r.system: r.protocol for r in rows} == {"bm25": "default", "bm25-lucene": "default", "bm25@mteb": "mteb"}
    assert board(store.root, measured=True, kind="expansion").rows[0].protocol == "custom"
    assert len(board(store.root, measured=True, kind="fused").rows) == 1


def test_a_measure_nobody_stored_is_refused(mini_results: Path) -> None:
    with pytest.raises(ResultError, match="nothing has R@7 on mini@1"):
        board(mini_results, measured=True, measure=Measure.parse("R@7"))


def test_the_protocol_is_read_from_the_spec_inside_the_result() -> None:
    paper = SystemSpec.parse("nv:protocol=r2med-paper")
    info = SystemInfo(name=str(paper), kind="dense", description={}, spec=paper.data())
    assert protocol_of(info) == "r2med-paper"
    plain = SystemInfo(name="folder@mteb", kind="dense", description={}, spec=SystemSpec.parse("bm25").data())
    assert protocol_of(plain) == "default"
    assert protocol_of(SystemInfo(name="nv@r2med-paper", kind="dense", description={})) == "r2med-paper"


@pytest.mark.parametrize(
    ("name", "prompts", "protocol"),
    [
        ("e5", "", "default"),
        ("e5@r2med-paper", "", "r2med-paper"),
        ("e5:protocol=r2med-paper", "r2med-paper~1234", "r2med-paper"),
        ("e5:protocol=r2med-paper", "r2med's own", "custom"),
    ],
)
def test_a_protocol_without_its_instructions_is_not_that_protocol(name: str, prompts: str, protocol: str) -> None:
    described: dict[str, object] = {"retrievers": [{"kind": "dense", **({"prompts": prompts} if prompts else {})}]}
    spec = {} if "@" in name else SystemSpec.parse(name).data()
    assert protocol_of(SystemInfo(name=name, kind="dense", description=described, spec=spec)) == protocol
