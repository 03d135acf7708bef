from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Hasher, Judgment, Qrels

IDS = st.text("abß🧬", min_size=1, max_size=2)
JUDGMENTS = st.dictionaries(st.tuples(IDS, IDS), st.integers(-2, 3), max_size=12)


def make(judged: dict[tuple[str, str], int]) -> Qrels:
    return Qrels.from_judgments((q, d, g) for (q, d), g in judged.items())


@given(JUDGMENTS)
def test_the_fingerprint_is_that_of_the_sorted_judgments(judged: dict[tuple[str, str], int]) -> None:
    """Results and caches on disk carry it: a faster way to compute it must give the same."""
    ordered, hasher = sorted((q, d, g) for (q, d), g in judged.items()), Hasher("qrels")
    hasher.texts(query_id for query_id, _, _ in ordered)
    hasher.texts(doc_id for _, doc_id, _ in ordered)
    hasher.data(np.array([grade for _, _, grade in ordered], dtype="<i4"))
    assert make(judged).fingerprint == hasher.digest()


@given(JUDGMENTS)
def test_judgments_go_in_and_come_out(judged: dict[tuple[str, str], int]) -> None:
    qrels = make(judged)
    assert len(qrels) == len(judged)
    assert {(j.query_id, j.doc_id): j.grade for j in qrels} == judged
    for query_id in qrels.query_ids:
        assert qrels.of(query_id) == {d: g for (q, d), g in judged.items() if q == query_id}
    assert qrels.positives == sum(g > 0 for g in judged.values())
    per_query = dict(zip(qrels.query_ids, qrels.positives_per_query().tolist(), strict=True))
    assert per_query == {q: sum(g > 0 for (p, _), g in judged.items() if p == q) for q, _ in judged}


@given(JUDGMENTS, st.randoms())
def test_order_does_not_matter(judged: dict[tuple[str, str], int], random: Random) -> None:
    shuffled = list(judged.items())
    random.shuffle(shuffled)
    one, other = make(judged), make(dict(shuffled))
    assert one == other
    assert one.fingerprint == other.fingerprint


@given(JUDGMENTS)
def test_positives_only_keeps_the_queries(judged: dict[tuple[str, str], int]) -> None:
    qrels = make(judged)
    positives = qrels.positives_only()
    assert list(positives.query_ids) == list(qrels.query_ids)
    assert list(positives) == [j for j in qrels if j.grade > 0]
    assert positives.positives_per_query().tolist() == qrels.positives_per_query().tolist()


def test_a_pair_may_be_repeated_but_not_contradicted() -> None:
    assert len(Qrels.from_judgments([("q", "d", 1), ("q", "d", 1)])) == 1
    with pytest.raises(DataError, match="query 'q' judges document 'd' twice, as 1 and 2"):
        Qrels.from_judgments([("q", "d", 1), ("q", "d", 2)])


def test_queries_come_in_order_of_appearance() -> None:
    qrels = Qrels.from_judgments([("b", "x", 1), ("a", "x", 0), Judgment("b", "y", 2)])
    assert list(qrels.query_ids) == ["b", "a"]
    assert repr(qrels) == "Qrels(2 queries, 3 judgments, 2 positive)"


def test_an_unknown_query_has_no_judgments() -> None:
    assert Qrels.from_judgments([]).of("q") == {}


@given(JUDGMENTS, JUDGMENTS)
def test_fingerprints_tell_judgments_apart(one: dict[tuple[str, str], int], other: dict[tuple[str, str], int]) -> None:
    assert (make(one).fingerprint == make(other).fingerprint) == (one == other)
