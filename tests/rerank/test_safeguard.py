from __future__ import annotations

from r2med.core import Run
from r2med.rerank import safeguards, without


def test_the_safeguard_is_found_and_taken_out() -> None:
    long = {f"d{i:03d}": float(200 - i) for i in range(101)}
    run = Run.from_rankings({"a": list(long.items()), "b": list(long.items())[:50]})
    found = safeguards(run)
    assert run.doc_ids[int(found[0])] == "d100"
    assert found[1] == -1
    reranked = Run.from_rankings({"a": [("d100", 3.0), ("d001", 2.0)], "b": [("d002", 1.0)]}, doc_ids=run.doc_ids)
    cleared = without(reranked, found)
    assert [h.doc_id for h in cleared.of("a")] == ["d001"]
    assert cleared.of("b") == reranked.of("b")
    assert (safeguards(run, {"b"}) == [-1, run.doc_ids.position("d049")]).all()
    assert (without(run, found).docs[1] == run.docs[1]).all()
