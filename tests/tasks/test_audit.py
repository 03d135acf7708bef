from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Task, TextColumn
from r2med.pipeline.audit import built_in_examples, score_audit
from r2med.retrieve import BM25
from r2med.tasks import load, load_all, tendencies
from r2med.tasks.audit import AuditSettings, OutsideTexts, article, audit, read_outside
from r2med.tasks.audit.findings import TaskAudit
from r2med.tasks.stats import clearest_traps, lexical_traps

LONG = "A man of sixty has had a dull ache behind the breastbone on climbing stairs for two months"
OTHER = "A girl of six has been drinking and passing water without end and has lost four kilograms"


def task(
    queries: list[tuple[str, str]],
    documents: list[tuple[str, str]],
    judgments: list[tuple[str, str, int]],
    name: str = "t",
) -> Task:
    return Task(
        name,
        tuple(Query(i, t) for i, t in queries),
        Documents.of(Document(i, t) for i, t in documents),
        Qrels.from_judgments(judgments),
    )


def kinds(found: TaskAudit) -> dict[str, set[str]]:
    return {kind: found.flagged(kind=kind) for kind in found.by_kind}


def test_a_clean_task_has_no_flag() -> None:
    clean = task([("q1", LONG)], [("d1", "Angina is relieved by nitrates."), ("d2", OTHER)], [("q1", "d1", 1)])
    found = audit([clean]).tasks[0]
    assert found.flags == []
    assert found.flagged_queries == 0
    assert found.exact_copies.groups == found.near_copies.groups == 0


def test_a_query_inside_a_document_and_a_document_inside_a_query() -> None:
    leaky = task(
        [("q1", LONG), ("q2", f"{OTHER} What is the first thing to do for her in the emergency room tonight?")],
        [("d1", f"Case report. {LONG}. He was given nitrates."), ("d2", OTHER), ("d3", "Short.")],
        [("q1", "d1", 1), ("q2", "d3", 1)],
    )
    found = audit([leaky]).tasks[0]
    assert kinds(found) == {"query-in-document": {"q1"}, "document-in-query": {"q2"}}
    first, second = found.flags
    assert (first.others, first.value) == (["d1"], 1.0)
    assert "a positive" in first.evidence
    assert "not judged relevant" in second.evidence


def test_short_texts_stand_anywhere_without_being_leaks() -> None:
    short = task(
        [("q1", "chest pain on exertion today")], [("d1", f"{LONG} chest pain on exertion today")], [("q1", "d1", 1)]
    )
    assert audit([short]).tasks[0].flags == []


def test_duplicate_queries_and_unjudged_copies() -> None:
    doubled = task(
        [("q1", LONG), ("q2", LONG.upper()), ("q3", "something else entirely is asked here")],
        [("d1", OTHER), ("d2", f"{OTHER}."), ("d3", "Nitrates."), ("d4", OTHER)],
        [("q1", "d1", 1), ("q2", "d3", 1), ("q3", "d3", 1)],
    )
    found = audit([doubled]).tasks[0]
    assert kinds(found) == {"duplicate-query": {"q1", "q2"}, "unjudged-copy": {"q1"}}
    copies = next(f for f in found.flags if f.kind == "unjudged-copy")
    assert (copies.count, copies.others) == (2, ["d2", "d4"])
    assert (found.exact_copies.groups, found.exact_copies.documents) == (1, 2)
    assert (found.near_copies.groups, found.near_copies.documents) == (1, 3)


def test_a_copy_judged_for_the_same_query_is_no_hole() -> None:
    judged = task([("q1", LONG)], [("d1", OTHER), ("d2", OTHER)], [("q1", "d1", 1), ("q1", "d2", 1)])
    assert audit([judged]).tasks[0].flags == []


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("PMC101395_3", "PMC101395"),
        ("pmc-101395", "PMC101395"),
        ("mb0_1", "mb0"),
        ("ADAM_0003147_Sec1", "ADAM_0003147"),
        ("doc#12", "doc"),
        ("17741440", "17741440"),
        ("plain", "plain"),
    ],
)
def test_the_article_of_an_id(identifier: str, expected: str) -> None:
    assert article(identifier) == expected


def test_ids_that_give_the_answer_away() -> None:
    told = task(
        [("PMC777-1", "what was given"), ("mb5", "what is it"), ("7", "why so"), ("q9", "See PMC888 for the case")],
        [("PMC777_4", "a"), ("mb5_0", "b"), ("mb5_1", "bb"), ("7", "c"), ("PMC888_1", "d")],
        [("PMC777-1", "mb5_0", 1), ("mb5", "mb5_0", 1), ("7", "mb5_0", 1), ("q9", "PMC888_1", 1)],
    )
    found = audit([told]).tasks[0]
    # Document "7" is not judged for query "7": two numberings, met by chance.
    assert kinds(found) == {"same-article": {"PMC777-1", "q9"}, "same-id": {"mb5"}}
    assert {f.level for f in found.flags} == {"id"}


def test_bright_ids_carry_the_question() -> None:
    bright = task(
        [("0", "Why are insects attracted to light at night?"), ("1", "How do whales sleep under water?")],
        [("insects_attracted_to_light/Phototaxis_1.txt", "Phototaxis."), ("insects_attracted_to_light/Moth_2.txt", "m"),
         ("other_topic_here/Whale_0.txt", "Whales.")],
        [("0", "insects_attracted_to_light/Phototaxis_1.txt", 1), ("1", "other_topic_here/Whale_0.txt", 1)],
    )  # fmt: skip
    found = audit([bright]).tasks[0]
    assert kinds(found) == {"slug": {"0"}}
    assert "2 ids begin with 'insects_attracted_to_light'" in found.flags[0].evidence
    assert "1 of these documents are positives" in found.flags[0].evidence
    assert any(note.startswith("bright-biology") for note in found.notes)


def test_training_data_and_few_shot_examples(tmp_path: Path) -> None:
    mine = task([("q1", LONG), ("q2", "an unseen question about the knee")], [("d1", OTHER), ("d2", "x")],
                [("q1", "d2", 1), ("q2", "d1", 1)])  # fmt: skip
    path = tmp_path / "train.jsonl.gz"
    records = [
        {"id": 1, "query": f"Question: {LONG}", "pos": ["nothing at all here"]},
        {"nested": {"pos": [{"t": OTHER}]}},
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    found = audit(
        [mine], against=[read_outside(path)], few_shot=[OutsideTexts("shots", TextColumn.from_texts([LONG]), ["1"])]
    )
    assert kinds(found.tasks[0]) == {
        "query-in-training": {"q1"}, "positive-in-training": {"q2"}, "few-shot": {"q1"},
    }  # fmt: skip
    flag = next(f for f in found.tasks[0].flags if f.kind == "positive-in-training")
    assert flag.others == ["train.jsonl.gz, line 2, nested, pos, t"]


def test_training_data_in_other_shapes(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(f"1\t{LONG}\tyes\n\n")
    (tmp_path / "a.json").write_text(json.dumps([{"q": LONG}]))
    assert list(read_outside(tmp_path / "a.tsv").texts) == [LONG]
    assert list(read_outside(tmp_path / "a.json").texts) == [LONG]


def test_training_data_in_a_folder_is_that_of_all_its_splits(tmp_path: Path) -> None:
    """Loading the folder takes the queries of dev: those that a model was trained on were compared with nothing."""
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one text"}\n')
    (folder / "queries.jsonl").write_text(f'{{"_id": "q1", "text": "{OTHER}"}}\n{{"_id": "q2", "text": "{LONG}"}}\n')
    for split, query in (("dev", "q1"), ("train", "q2")):
        (folder / "qrels" / f"{split}.tsv").write_text(f"{query}\td1\t1\n")
    assert list(read_outside(folder).texts) == [OTHER, LONG, "one text"]
    mine = task([("q1", LONG)], [("d1", "x")], [("q1", "d1", 1)])
    assert kinds(audit([mine], against=[read_outside(folder)]).tasks[0]) == {"query-in-training": {"q1"}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"query": "one two three"}\n{"query": \n', r"x.jsonl:2: broken JSON"),
        ("x.txt", b"\xff\xfe broken text here\n", r"x.txt:1: is not valid UTF-8"),
        ("x.jsonl", b'{"id": 5}\n', "holds no text of 3 words or more"),
        ("x.parquet", b"PAR1", "parquet is not read here"),
    ],
)
def test_unusable_training_data_is_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_outside(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_outside(tmp_path / "absent.jsonl")


def test_what_two_tasks_share() -> None:
    one = task([("q1", LONG)], [("d1", OTHER), ("d2", "x")], [("q1", "d2", 1)], "one")
    two = task([("k1", LONG)], [("e1", "y"), ("e2", OTHER)], [("k1", "e1", 1)], "two")
    (pair,) = audit([one, two]).across
    assert (pair.tasks, pair.documents_exact, pair.documents_near, pair.queries) == (("one", "two"), 1, 0, 1)
    assert pair.examples == ["query q1 = k1", "document d1 = e2"]


def test_scores_with_and_without_the_flagged() -> None:
    mixed = task(
        [("q1", LONG), ("q2", "unrelated words about knees")],
        [("d1", f"He: {LONG}."), ("d2", "Elbows hurt."), ("d3", "Knees about unrelated things")],
        [("q1", "d1", 1), ("q2", "d2", 1)],
    )
    found = audit([mixed]).tasks[0]
    (scores,) = score_audit(mixed, found, [BM25().retrieve(mixed)])
    assert scores.all.measures is not None
    assert scores.all.measures["ndcg_at_10"] == 0.5
    assert set(scores.without) == {"any", "any-text", "query-in-document"}
    left = scores.without["any"]
    assert (left.left_out, left.queries) == (1, 1)
    assert left.measures is not None
    assert left.measures["ndcg_at_10"] == 0.0


def test_no_query_left_is_no_score() -> None:
    all_leaky = task([("q1", LONG)], [("d1", LONG)], [("q1", "d1", 1)])
    (scores,) = score_audit(all_leaky, audit([all_leaky]).tasks[0], [BM25().retrieve(all_leaky)])
    assert scores.without["any"].queries == 0
    assert scores.without["any"].measures is None


def test_a_trap_shares_words_and_is_wrong() -> None:
    trapped = task(
        [("q1", "crushing chest pain sweating nausea"), ("q2", "fever rash")],
        [("d1", "crushing chest pain with sweating and nausea in panic"), ("d2", "myocardial infarction causes pain"),
         ("d3", "fever rash measles")],
        [("q1", "d2", 1), ("q2", "d3", 1)],
    )  # fmt: skip
    (trap,) = clearest_traps(trapped, BM25().retrieve(trapped))
    assert (trap.query, trap.document, trap.positive, trap.positive_rank) == ("q1", "d1", "d2", 2)
    assert trap.words == ["crushing", "chest", "sweating", "nausea"]
    assert (trap.share, trap.positive_share, trap.shared) == (1.0, 0.2, 5)


def test_traps_of_any_system_by_what_it_put_first() -> None:
    trapped = task(
        [("q1", "crushing chest pain"), ("q2", "fever"), ("q3", "of the and"), ("q4", "rash")],
        [("d1", "crushing chest pain"), ("d2", "pain"), ("d3", "fever")],
        [("q1", "d2", 1), ("q1", "gone", 1), ("q2", "d3", 1), ("q3", "d2", 1), ("q4", "gone", 1)],
    )
    assert list(lexical_traps(trapped, {"q1": "d1", "q2": "d1", "q3": "d1", "q4": "d1"})) == ["q1"]
    assert lexical_traps(trapped, {"q1": "d2", "q2": "d3", "unknown": "d1"}) == {}
    assert lexical_traps(trapped, {"q1": "gone"}) == {}
    assert lexical_traps(trapped, {}) == {}


def test_tendencies_count_words() -> None:
    shape = tendencies(load("mini@1/MedQA-Diag"))
    assert shape.question_share > 0.5
    assert 0 < shape.overlap[0] <= shape.overlap[1] <= shape.overlap[2] < 1
    assert len(shape.overlap_of_query) == len(load("mini@1/MedQA-Diag").queries)


def test_our_own_prompts_hold_no_query_of_mini() -> None:
    examples = built_in_examples()
    assert len(examples[0].texts) > 10
    for found in audit(load_all("mini@1"), few_shot=examples).tasks:
        assert not found.flagged(kind="few-shot")


def test_a_real_collection(shared_data: Path) -> None:
    found = audit([load(shared_data / "scifact")]).tasks[0]
    assert kinds(found) == {"query-in-document": {"845"}}
    assert found.exact_copies.documents == 0


def test_the_threshold_counts_for_training_data_too() -> None:
    """`--threshold 0.5` was shown in the report and not looked at here."""
    words = [f"word{i}" for i in range(40)]
    other = [*words[:30], *(f"another{i}" for i in range(10))]  # 26 of 46 runs of five words are shared
    mine = task([("q1", " ".join(words)), ("q2", OTHER)], [("d1", " ".join(words)), ("d2", "x")],
                [("q1", "d2", 1), ("q2", "d1", 1)])  # fmt: skip
    outside = OutsideTexts("train", TextColumn.from_texts([" ".join(other)]), ["1"])
    loose = audit([mine], against=[outside], settings=AuditSettings(threshold=0.5)).tasks[0]
    assert loose.flagged("query-in-training") == {"q1"}
    assert loose.flagged("positive-in-training") == {"q2"}
    assert not audit([mine], against=[outside]).tasks[0].flagged("query-in-training")


def test_the_evidence_stands_beside_the_document_it_is_about() -> None:
    """Where a weaker match came first, its document was printed behind the evidence of a stronger one."""
    most = " ".join(LONG.split()[:-2])  # 12 of 14 runs of five words
    copies = [(f"d{i}", most) for i in range(6)]
    leaky = task([("q1", LONG)], [*copies, ("d6", LONG), ("p", "x")], [("q1", "p", 1)])
    (flag,) = audit([leaky]).tasks[0].flags
    assert (flag.value, flag.evidence[:5], flag.count) == (1.0, "100% ", 7)
    assert flag.others == ["d6", "d0", "d1", "d2", "d3"]
