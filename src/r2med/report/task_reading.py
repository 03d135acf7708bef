"""What the figures of a task say, in sentences: each is there only where a figure supports it.

A difference is called one only where its interval leaves out zero, and queries are named that show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from ..core.table import counted, share
from ..core.untrusted import printable
from ..tasks.nano.figures import Contrast, Inspected, Outcome, Slope

ROLE_NAMES = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}
NAMED = 3  # queries given as examples
READ_BY_ENCODERS = 512  # tokens; a text of as many words has at least as many tokens
LEVEL = 0.0005  # a smaller difference prints as none
NOTICEABLE = 0.01  # difference of two recalls that is worth a sentence


def code(text: str) -> str:
    """A name out of data as Markdown's code."""
    return f"`{printable(' '.join(text.split())).replace('`', chr(39))}`"


def named(outcomes: Iterable[Outcome]) -> str:
    """The first few queries, by id."""
    ids = [code(outcome.query) for outcome in outcomes]
    return ", ".join(ids[:NAMED]) + (f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else "")


def versus(contrast: Contrast) -> str:
    """A difference as half a sentence, with what its interval allows to say."""
    name = ROLE_NAMES[contrast.worse]
    if contrast.difference < LEVEL:
        return f"level with {name}"
    interval = f"95 % interval {contrast.low:+.3f} to {contrast.high:+.3f}"
    if contrast.clear:
        return f"{contrast.difference:.3f} above {name} ({interval})"
    return f"{contrast.difference:.3f} above {name}, which is not significant on these queries ({interval})"


def profile_reading(page: Inspected, role: str) -> list[str]:
    """What the figures of one profile say."""
    profile, queries = page.figures.profiles[role], len(page.outcomes)
    hits = [o for o in page.outcomes if o.hit(role)]
    said = [f"{len(hits):,} of {counted(queries, 'query', 'queries')} ({share(profile.hit_at_10)}) "
            f"{'has' if queries == 1 else 'have'} a positive among the first ten."]  # fmt: skip
    if profile.positives_covered is not None and profile.queries_covered is not None:
        said.append(
            f"The whole list, {profile.top_k:,} deep at most, holds {share(profile.positives_covered)} of the "
            f"positives and at least one for {share(profile.queries_covered)} of the queries."
        )
    ranks = [rank for o in page.outcomes if (rank := o.first_rank[role]) is not None]
    if ranks:
        of = "that one query" if len(ranks) == 1 else f"the median of the {len(ranks):,} queries whose list holds one"
        said.append(f"The first positive stands at rank {median(ranks):g} in {of}.")
    said += _standing(page, role)
    said += [_slope(slope) for slope in page.slopes if slope.role == role and slope.clear]
    others = [r for r in page.figures.profiles if r != role]
    alone = [o for o in hits if not any(o.hit(other) for other in others)]
    if others and alone:
        queries_alone = counted(len(alone), "query", "queries")
        said.append(f"It alone has a positive among the first ten for {queries_alone}: {named(alone)}.")
    if empty := page.empty.get(role, 0):
        said.append(f"{counted(empty, 'query has', 'queries have')} no candidate at all from it.")
    return said + (_of_hybrid(page) if role == "hybrid" else [])


def _standing(page: Inspected, role: str) -> list[str]:
    """The profile against the best, or the best against the others."""
    if role == page.figures.best:
        if not page.contrasts:
            return ["There is no other profile to compare it with."]
        return [f"It is the best of the profiles: {' and '.join(versus(c) for c in page.contrasts)}."]
    (against,) = (c for c in page.contrasts if c.worse == role)
    if against.difference < LEVEL:
        return [f"It is level with {ROLE_NAMES[against.better]}."]
    doubt = "" if against.clear else ", which is not significant on these queries"
    return [f"It is {against.difference:.3f} below {ROLE_NAMES[against.better]}{doubt}."]


def _slope(slope: Slope) -> str:
    moves = "rises" if slope.difference > 0 else "falls"
    return (
        f"Its nDCG@10 {moves} from {slope.fewest:.3f} in the third of the queries that share the fewest terms with "
        f"their positives to {slope.most:.3f} in the third that shares the most (difference {slope.difference:+.3f}, "
        f"95 % interval {slope.low:+.3f} to {slope.high:+.3f})."
    )


def _of_hybrid(page: Inspected) -> list[str]:
    parents = [role for role in page.figures.profiles if role != "hybrid"]
    lost = [o for o in page.outcomes if not o.hit("hybrid") and any(o.hit(role) for role in parents)]
    said = []
    if lost:
        queries = counted(len(lost), "query that one of its two lists has", "queries that one of its two lists has")
        said.append(f"It loses from the first ten the positives of {queries} there: {named(lost)}.")
    if rows := page.figures.profiles["hybrid"].safeguard_rows:
        said.append(f"{counted(rows, 'query needs', 'queries need')} the appended positive, which no figure counts.")
    return said


def metric_reading(page: Inspected) -> list[str]:
    """What the measures mean on this task."""
    figures = page.figures
    best, role = figures.profiles[figures.best], figures.best
    hits = [o.ndcg_at_10[role] for o in page.outcomes if o.hit(role)]
    said = []
    if best.ndcg_at_10_interval is not None:
        low, high = best.ndcg_at_10_interval
        said.append(
            f"The best nDCG@10, {best.ndcg_at_10:.4f} of {ROLE_NAMES[role]}, has a 95 % interval from {low:.4f} to "
            f"{high:.4f} over {counted(len(page.outcomes), 'judged query', 'judged queries')}."
        )
    if hits:
        rest = len(page.outcomes) - len(hits)
        others = f"; the other {rest:,} {'counts' if rest == 1 else 'count'} as zero" if rest else ""
        said.append(
            f"Over the {counted(len(hits), 'query', 'queries')} with a hit the mean nDCG@10 is "
            f"{sum(hits) / len(hits):.3f}{others}."
        )
    if figures.positives_max == 1:
        said.append("Every query has one positive, so hit@10 and recall@10 are the same.")
    else:
        said.append(
            f"{figures.multi_positive_queries:,} of {figures.queries:,} queries have several positives, at most "
            f"{figures.positives_max}: for them a hit at ten is not yet full recall."
        )
    macro = best.recall_macro_at_100
    if macro is not None and abs(macro - best.recall_at_100) >= NOTICEABLE:
        which = "fewer of their positives" if macro > best.recall_at_100 else "more of their positives"
        said.append(
            f"recall@100 of {ROLE_NAMES[role]} is {best.recall_at_100:.4f} over judgments and {macro:.4f} over "
            f"queries: queries with many positives have {which} found."
        )
    return said


def missed_by_all(page: Inspected) -> list[Outcome]:
    """Queries without a positive among the first ten of any profile."""
    return [o for o in page.outcomes if not any(o.hit(role) for role in page.figures.profiles)]


def training_reading(page: Inspected) -> list[str]:
    """Training data whose lack the figures show."""
    figures, shape = page.figures, page.tendencies
    said = []
    steepest = max((s for s in page.slopes if s.clear and s.difference > 0), key=lambda s: s.difference, default=None)
    if steepest is not None:
        said.append(
            f"Pairs of query and passage that share few words: {ROLE_NAMES[steepest.role]} scores "
            f"{steepest.difference:.3f} less where queries share the fewest terms with their positives."
        )
    if page.trapped:
        traps = counted(page.trapped, "query", "queries")
        said.append(
            f"Hard negatives that share words with the query: for {traps} BM25's first document is wrong and holds "
            f"more of the query's terms than any positive (first {code(page.traps[0].query)})."
        )
    if figures.multi_positive_queries:
        said.append(
            f"Examples with several positives each: {share(figures.multi_positive_queries / figures.queries)} of the "
            f"queries here have more than one, {figures.positives_per_query:.2f} in the mean."
        )
    low, middle, high = shape.query_words
    said.append(f"Queries of this length: half of them have between {low:g} and {high:g} words, median {middle:g}.")
    return said


def improvement_reading(page: Inspected) -> list[str]:
    """Where points are lost: to the order of the candidates, or to what is not among them."""
    figures, said = page.figures, []
    role = "hybrid" if "hybrid" in figures.profiles else figures.best
    profile = figures.profiles[role]
    ceiling = sum(o.best_order[role] for o in page.outcomes) / len(page.outcomes)
    by_order, by_lack = ceiling - profile.ndcg_at_10, 1 - ceiling
    more = ""
    if abs(by_order - by_lack) >= NOTICEABLE:
        more = f"; {'reranking' if by_order > by_lack else 'retrieval'} has more to give"
    said.append(
        f"The best order of the {ROLE_NAMES[role]} list's {profile.top_k:,} candidates would reach an nDCG@10 of "
        f"{ceiling:.3f}: {by_order:.3f} can be gained by reranking it, {by_lack:.3f} only by finding other "
        f"documents{more}."
    )
    if {"bm25", "dense"} <= figures.profiles.keys():
        counts = hit_overlap(page)
        said.append(
            f"Among the first ten, BM25 and dense both have a positive for {counts['both']:,} queries, BM25 alone for "
            f"{counts['bm25']:,}, dense alone for {counts['dense']:,}, neither for {counts['neither']:,}."
        )
    for what, words in (("documents", page.tendencies.document_words), ("queries", page.tendencies.query_words)):
        if words[2] > READ_BY_ENCODERS:
            said.append(
                f"A quarter of the {what} have more than {words[2]:g} words: an encoder that reads "
                f"{READ_BY_ENCODERS} tokens cuts them."
            )
    return said


def hit_overlap(page: Inspected) -> dict[str, int]:
    """How many queries BM25, dense, both or neither have a positive for among the first ten."""
    counts = dict.fromkeys(("both", "bm25", "dense", "neither"), 0)
    for o in page.outcomes:
        lexical, dense = o.hit("bm25"), o.hit("dense")
        counts["both" if lexical and dense else "bm25" if lexical else "dense" if dense else "neither"] += 1
    return counts


def verdict(page: Inspected) -> str:
    """What the audit comes to, in one sentence."""
    audit, best = page.audit, page.figures.best
    if audit is None:
        return "Not audited yet: `r2med pages` looks for leaks and copies."
    if not audit.by_kind:
        return f"Verdict: none of the {audit.queries:,} queries is flagged."
    profile = page.figures.profiles[best]
    flagged = f"{audit.flagged_queries:,} of {counted(audit.queries, 'query', 'queries')}"
    said = f"Verdict: {flagged} {'is' if audit.flagged_queries == 1 else 'are'} flagged"
    rest = next((s.without.get("any") for s in page.scores if s.system == profile.profile), None)
    if rest is None or rest.measures is None:
        return f"{said}; no query is left without them."
    return (
        f"{said}; without them {ROLE_NAMES[best]} has an nDCG@10 of {rest.measures['ndcg_at_10']:.4f} instead of "
        f"{profile.ndcg_at_10:.4f}."
    )
