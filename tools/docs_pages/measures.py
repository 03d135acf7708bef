"""The measures, from their registry."""

from __future__ import annotations

from r2med.scoring import CUTOFFS, USUAL, Measure
from r2med.scoring.measures import Definition, definitions

INTRODUCTION = """# Measures

A measure is written as its name, its parameters in parentheses where they differ from the defaults, and its cut-off:
`nDCG@10`, `R(rel=2)@100`, `AP(rel=2)`. The spellings of ir_measures (`nDCG(dcg='exp-log2')@10`, `Success@10`) and of
trec_eval (`ndcg_cut_10`, `recip_rank`) are read too. In JSON a measure has a key, made of the same parts joined by `_`.

```text
nDCG@10           ndcg_at_10
nDCG(dcg=exp)@10  ndcg_dcg_exp_at_10
R(rel=2)@100      recall_rel_2_at_100
```

Without a cut-off the whole ranking counts. Documents are ordered by score, equal scores by document id descending, as
trec_eval does; scores are compared in single precision. A judged query that the run lacks scores 0 and stays in the
mean (trec_eval's `-c`). A query without relevant documents scores 0. Documents without a judgment count as irrelevant.
A mean is over all judged queries; `recall_micro_at_k` is the share of all relevant documents, whichever query they
belong to.
"""

NOTES = """
- The gain of a document at rank *i* is divided by log2(*i* + 1). The ideal ranking holds all judged documents of the
  query, highest grade first, cut at the same rank.
- AP@k divides by the number of relevant documents of the query, also where that is larger than *k*.
- P@k divides by *k*, also where fewer documents were retrieved.
- RR@k of ir_measures is MS MARCO's by default, which orders equal scores another way; without equal scores both agree.
"""


def pages() -> dict[str, str]:
    """`measures.md`."""
    cutoffs, shown = ", ".join(map(str, CUTOFFS)), ", ".join(map(str, USUAL))
    stored = ", ".join(definition.name for definition in definitions() if definition.usual)
    rows = [row for definition in definitions() for row in _rows(definition)]
    lines = [
        INTRODUCTION,
        "| Measure | Key of an example | What it is |",
        "|:---|:---|:---|",
        *rows,
        NOTES,
        f"`r2med run` stores {stored} with default parameters at the cut-offs {cutoffs}. `r2med score` shows {shown}.",
    ]
    return {"measures.md": "\n".join(lines)}


def _rows(definition: Definition) -> list[str]:
    example = Measure(definition.key, None if definition.cutoff == "never" else 10)
    return [
        f"| `{definition.shape}` | `{example.key}` | {definition.summary}. |",
        *(f"| | | `{p.name}`: {p.help}; {p.wanted}. |" for p in definition.parameters.values()),
    ]
