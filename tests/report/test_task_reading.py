"""Interpretive sentences follow the figures: two tasks that are not alike are not described alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from r2med.core import Qrels
from r2med.core.options import Options
from r2med.pipeline.audit import inspect
from r2med.pipeline.nano_build import build_nano
from r2med.report.group_page import group_page
from r2med.report.task_page import task_page
from r2med.report.task_reading import (
    hit_overlap,
    improvement_reading,
    joined,
    leaders,
    measures_reading,
    metric_reading,
    missed_by_all,
    profile_reading,
    tendencies_reading,
    training_reading,
    verdict,
)
from r2med.retrieve.bm25 import BM25Nano
from r2med.retrieve.custom import as_retriever
from r2med.tasks.audit.findings import Flag
from r2med.tasks.load import from_path
from r2med.tasks.nano import PoolSettings
from r2med.tasks.nano.figures import Inspected, Slope, group
from tests.builders import lines

QUERIES, SEMANTIC = 18, 15


@dataclass
class Concepts:
    """An encoder that knows which words mean the same: `ache3` and `dolor3` are one direction."""

    name: str = "concepts"

    def encode(self, texts: list[str], **_: object) -> npt.NDArray[np.float32]:
        out = np.zeros((len(texts), QUERIES + 1), dtype=np.float32)
        for row, text in enumerate(texts):
            for number in re.findall(r"(?:ache|dolor)(\d+)", text):
                out[row, int(number)] += 1
            out[row, QUERIES] = 0.1
        return out


def written(folder: Path, documents: Sequence[str], queries: Sequence[str], qrels: Sequence[tuple[int, int]]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(lines([{"_id": f"d{i}", "text": t} for i, t in enumerate(documents)]))
    (folder / "queries.jsonl").write_bytes(lines([{"_id": f"q{i}", "text": t} for i, t in enumerate(queries)]))
    judged = "".join(f"q{q}\td{d}\t1\n" for q, d in qrels)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


def looked_at(folder: Path) -> Inspected:
    dense = as_retriever(Concepts(), options=Options(cache=False))
    out = folder.with_name(f"nano-{folder.name}")
    build_nano(from_path(folder), out, PoolSettings(docs=200), bm25=BM25Nano(), dense=dense)
    (ref,) = from_path(out)
    return inspect(ref)


@pytest.fixture(scope="module")
def lexical(tmp_path_factory: pytest.TempPathFactory) -> Inspected:
    """Every positive repeats the words of its query; meaning, as the encoder has it, is no help."""
    documents = [f"rare{i} sign{i} of illness number {i}" for i in range(QUERIES)]
    documents += [f"something about topic{i} and other matters" for i in range(60)]
    queries = [f"what is rare{i} sign{i}?" for i in range(QUERIES)]
    folder = tmp_path_factory.mktemp("lexical") / "words"
    return looked_at(written(folder, documents, queries, [(i, i) for i in range(QUERIES)]))


@pytest.fixture(scope="module")
def semantic(tmp_path_factory: pytest.TempPathFactory) -> Inspected:
    """Positives say it in other words, and wrong documents repeat those of the query."""
    documents = [f"dolor{i} is explained here in its own terms part {p}" for i in range(SEMANTIC) for p in (1, 2)]
    documents += [f"patient with strange case{i} and story{i} of pain" for i in range(SEMANTIC) for _ in range(1)]
    documents += [
        f"patient with strange case{i} and story{i} told again {n}" for i in range(SEMANTIC) for n in range(11)
    ]
    queries = [f"patient with strange case{i} and story{i} and ache{i}" for i in range(SEMANTIC)]
    folder = tmp_path_factory.mktemp("semantic") / "meaning"
    judged = [(i, 2 * i + p) for i in range(SEMANTIC) for p in (0, 1)]
    return looked_at(written(folder, documents, queries, judged))


def sentences(page: Inspected) -> set[tuple[str, str]]:
    """Every interpretive sentence with what it is about."""
    said = {(role, line) for role in page.figures.profiles for line in profile_reading(page, role)}
    return said | {
        ("task", line)
        for line in (
            *measures_reading(page),
            tendencies_reading(page),
            *metric_reading(page),
            *training_reading(page),
            *improvement_reading(page),
        )
    }


def test_no_sentence_is_true_of_both(lexical: Inspected, semantic: Inspected) -> None:
    assert (lexical.figures.best, semantic.figures.best) == ("bm25", "dense")
    assert not sentences(lexical) & sentences(semantic)


def test_the_words_of_the_lexical_task(lexical: Inspected) -> None:
    bm25, dense = (" ".join(profile_reading(lexical, role)) for role in ("bm25", "dense"))
    assert f"{QUERIES} of {QUERIES} queries (100 %) have a positive among the first ten." in bm25
    assert "None is better: " in bm25
    assert "and level with the hybrid list." in bm25
    gap = lexical.figures.profiles["bm25"].ndcg_at_10 - lexical.figures.profiles["dense"].ndcg_at_10
    assert f"It is {gap:.4f} below BM25." in dense
    assert "No query has more than one positive" in " ".join(metric_reading(lexical))
    assert not missed_by_all(lexical)
    assert lexical.trapped == 0
    assert not any("Hard negatives" in line for line in training_reading(lexical))


def test_the_words_of_the_semantic_task(semantic: Inspected) -> None:
    bm25, dense = (" ".join(profile_reading(semantic, role)) for role in ("bm25", "dense"))
    assert f"0 of {SEMANTIC} queries (0 %) have a positive among the first ten." in bm25
    assert "It is the best of the profiles" in dense
    assert semantic.trapped == SEMANTIC
    assert f"for {SEMANTIC} queries BM25's first document is not judged relevant" in " ".join(
        training_reading(semantic)
    )
    assert f"{SEMANTIC} of {SEMANTIC} queries have several positives, at most 2" in " ".join(metric_reading(semantic))
    counts = hit_overlap(semantic.outcomes)
    assert counts == {"both": 0, "bm25": 0, "dense": SEMANTIC, "neither": 0}
    assert f"the dense list alone for {counts['dense']}" in " ".join(improvement_reading(semantic))


def test_named_queries_are_what_they_are_named_for(semantic: Inspected) -> None:
    for role in semantic.figures.profiles:
        for line in profile_reading(semantic, role):
            for query in re.findall(r"`(q\d+)`", line):
                (outcome,) = (o for o in semantic.outcomes if o.query == query)
                if "It alone" in line:
                    assert outcome.hit(role)
                    assert not any(outcome.hit(other) for other in semantic.figures.profiles if other != role)
                else:
                    assert "although one of its two lists does" in line
                    assert not outcome.hit("hybrid")


def test_headroom_is_the_best_order_of_the_list(lexical: Inspected, semantic: Inspected) -> None:
    for page in (lexical, semantic):
        ceiling = np.mean([o.best_order["hybrid"] for o in page.outcomes])
        now = page.figures.profiles["hybrid"].ndcg_at_10
        said = " ".join(improvement_reading(page))
        gained = f"would reach an nDCG@10 of {ceiling:.4f}: {ceiling - now:.4f} can be gained by reranking"
        assert (gained if now < 1 else "The order of the hybrid list's") in said
        assert all(o.best_order[role] >= o.ndcg_at_10[role] - 1e-9 for o in page.outcomes for role in o.ndcg_at_10)


def test_the_verdict_counts_what_the_audit_flagged(lexical: Inspected, semantic: Inspected) -> None:
    for page in (lexical, semantic):
        assert page.audit is not None
        flagged, queries = page.audit.flagged_queries, page.figures.queries
        assert verdict(page).startswith(
            f"Verdict: {flagged:,} of {queries} queries" if flagged else f"Verdict: none of the {queries} queries"
        )
        assert verdict(page) in task_page(page)


def test_what_the_data_measures_follows_from_which_list_is_best(lexical: Inspected, semantic: Inspected) -> None:
    words, meaning = (" ".join(measures_reading(page)) for page in (lexical, semantic))
    assert f"has a positive among the first ten for {QUERIES} of {QUERIES} queries." in words
    assert "No other list is better." in words
    fused = [c._replace(better="hybrid") for c in semantic.contrasts]
    assert "The hybrid list, which adds the dense list to it, is" in " ".join(
        measures_reading(semantic._replace(contrasts=fused))
    )
    assert f"for 0 of {SEMANTIC} queries." in meaning
    assert "The dense list, which does not need the same words, is" in meaning
    assert "not significant" not in meaning
    unclear = [c._replace(low=-1.0, clear=False) for c in semantic.contrasts]
    assert "not significant" in " ".join(measures_reading(semantic._replace(contrasts=unclear)))


def test_level_profiles_share_the_first_place(lexical: Inspected) -> None:
    """BM25 was called the best of the profiles, and the hybrid level with it, in two sentences side by side."""
    assert leaders({"bm25": 0.5, "dense": 0.2, "hybrid": 0.50001}) == ["bm25", "hybrid"]
    assert leaders({"bm25": 0.5, "hybrid": 0.5001}) == ["hybrid"]
    assert "It is level with BM25." in profile_reading(lexical, "hybrid")
    assert "The best of its candidate lists are BM25 and the hybrid list, each with an nDCG@10 of" in task_page(lexical)
    whole = group_page("words", group([lexical.figures], source=""), [lexical])
    assert "Over all queries BM25 and the hybrid list are level at an nDCG@10 of 1.0000." in whole
    assert "| BM25, hybrid |" in whole
    assert whole.count("It shares the first place on 1 task: `words`.") == 2
    assert "It is the best profile of" not in whole


def test_names_are_joined_as_in_a_sentence() -> None:
    assert [joined("abc"[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert joined("ab", "or") == "a or b"


def test_training_data_is_named_where_the_model_that_learns_falls_short(lexical: Inspected) -> None:
    """BM25's fall was given as a reason to train, on a task where the dense list did not fall."""
    slopes = {role: Slope(role, 0.2, 0.6, 0.3, 0.5) for role in ("bm25", "dense")}
    assert not any("share few words" in line for line in training_reading(lexical._replace(slopes=[slopes["bm25"]])))
    (said,) = (line for line in training_reading(lexical._replace(slopes=[*slopes.values()])) if "few words" in line)
    assert "the dense list scores 0.4000 less" in said
    alone = msgspec.structs.replace(lexical.figures, profiles={"bm25": lexical.figures.profiles["bm25"]})
    found = training_reading(lexical._replace(figures=alone, slopes=[slopes["bm25"]]))
    assert any("BM25 scores 0.4000 less" in line for line in found)


def test_grades_are_told_where_there_are_several(lexical: Inspected) -> None:
    assert "graded" not in " ".join(metric_reading(lexical))
    judged = [(q, d, 1 + 2 * (row < 3)) for row, (q, d, _) in enumerate(lexical.task.qrels)]
    graded = lexical._replace(task=replace(lexical.task, qrels=Qrels.from_judgments(judged)))
    assert "Positives are graded from 1 to 3, and 3 have the highest grade" in " ".join(metric_reading(graded))


def test_queries_that_only_ids_give_away_are_told_apart(lexical: Inspected) -> None:
    """A group was said to have 192 flagged queries, of which 153 were so by their ids alone."""
    assert lexical.audit is not None
    by_text, by_id = (Flag(query, kind, level, "") for query, kind, level in
                      (("q0", "query-in-document", "text"), ("q1", "same-id", "id")))  # fmt: skip
    audit = msgspec.structs.replace(
        lexical.audit, flags=[by_text, by_id], flagged_queries=2, by_kind={"query-in-document": 1, "same-id": 1}
    )
    whole = group_page("words", group([lexical.figures], source=""), [lexical._replace(audit=audit)])
    assert f"2 of {QUERIES} queries are flagged, 1 of them by ids alone." in whole
