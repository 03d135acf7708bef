from typing import Any

def postings(
    indptr: Any, terms: Any, counts: Any, norms: Any, idf: Any, term_ptr: Any, docs: Any, impacts: Any, /
) -> None: ...
def search(
    term_ptr: Any,
    docs: Any,
    impacts: Any,
    query_ptr: Any,
    query_terms: Any,
    weights: Any,
    tie_rank: Any,
    out_docs: Any,
    out_scores: Any,
    single: bool = False,
    /,
) -> None: ...
def topk(scores: Any, tie_rank: Any, out_docs: Any, out_scores: Any, /) -> None: ...
