"""What the figures of a task say, in sentences: each is there only where a figure supports it.

A difference is called one only where its interval leaves out zero, and queries are named that show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from ..core.table import counted, share
from ..core.untrusted import printable
from ..tasks.nano.figures import Contrast, Inspected, Outcome, Slope

ROLE_NAMES = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}
LISTS = {"bm25": "BM25", "dense": "the dense list", "hybrid": "the hybrid list"}
"""The profiles as sentences name them."""
NAMED = 3  # queries given as examples
READ_BY_ENCODERS = 512  # tokens; a text of as many words has at least as many tokens
LEVEL = 0.00005  # a smaller difference prints as none
NOTICEABLE = 0.01  # difference of two recalls that is worth a sentence
MANY = 0.2  # share of queries with several positives from which training data should have them, too


def code(text: str) -> str:
    """A name out of data as Markdown's code."""
    return f"`{printable(' '.join(text.split())).replace('`', chr(39))}`"


def opening(role: str) -> str:
    """A profile's name at the beginning of a sentence."""
    return LISTS[role][0].upper() + LISTS[role][1:]


def joined(names: Sequence[str], word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def leaders(scores: Mapping[str, float]) -> list[str]:
    """The profiles that no other is better than, as far as the digits that are printed tell."""
    return [role for role, value in scores.items() if value > max(scores.values()) - LEVEL]


def named(outcomes: Iterable[Outcome]) -> str:
    """The first few queries, by id."""
    ids = [code(outcome.query) for outcome in outcomes]
    return ", ".join(ids[:NAMED]) + (f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else "")


def versus(contrast: Contrast) -> str:
    """A difference as half a sentence, with what its interval allows to say."""
    name = LISTS[contrast.worse]
    if contrast.difference < LEVEL:
        return f"level with {name}"
    interval = f"95 % interval {contrast.low:+.4f} to {contrast.high:+.4f}"
    if contrast.clear:
        return f"{contrast.difference:.4f} above {name} ({interval})"
    among = ", with all lists compared" if contrast.low > 0 else " on these queries"
    return f"{contrast.difference:.4f} above {name}, which is not significant{among} ({interval})"


def measures_reading(page: Inspected) -> list[str]:
    """What a system has to do here, as far as lengths, shared terms and BM25 tell."""
    shape, figures = page.tendencies, page.figures
    hits = sum(o.hit("bm25") for o in page.outcomes)
    asked, passages = shape.query_lengths, shape.document_lengths
    said = [
        f"Queries of {counted(round(asked.median), asked.unit)} in the median ask for passages of "
        f"{round(passages.median):,}; the positive that matches best holds {share(shape.overlap[1])} of a query's "
        f"terms. BM25, which only matches words, has a positive among the first ten for {hits:,} of "
        f"{counted(len(page.outcomes), 'query', 'queries')}."
    ]
    against = next((c for c in page.contrasts if c.worse == "bm25"), None)
    if against is not None and against.difference >= LEVEL:
        needs = "which does not need the same words" if against.better == "dense" else "which adds the dense list to it"
        said.append(f"{opening(against.better)}, {needs}, is {versus(against)}.")
    elif page.contrasts and figures.best == "bm25":
        said.append("No other list is better.")
    return said


def tendencies_reading(page: Inspected) -> str:
    """How queries are put, and what they share with their positives."""
    shape, queries = page.tendencies, page.figures.queries
    asked = {0.0: "No query holds", 1.0: "Every query holds" if queries > 1 else "The query holds"}
    questions = asked.get(shape.question_share, f"{share(shape.question_share)} of the queries hold")
    low, middle, high = shape.overlap
    return (
        f"{questions} a question mark; {_lengths(page)}. In the median, the positive that matches a query best holds "
        f"{share(middle)} of its terms (quartiles {share(low)} and {share(high)})."
    )


def _lengths(page: Inspected) -> str:
    low, middle, high, unit = page.tendencies.query_lengths
    least, most = math.floor(low), math.ceil(high)  # quartiles may lie between two queries
    if least == most:
        return f"{'at least half have' if page.figures.queries > 1 else 'it has'} {counted(least, unit)}"
    return f"at least half have {least:,} to {most:,} {unit}s, median {middle:g}"


def profile_reading(page: Inspected, role: str) -> list[str]:
    """What the figures of one profile say."""
    profile, queries = page.figures.profiles[role], len(page.outcomes)
    hits = [o for o in page.outcomes if o.hit(role)]
    said = [f"{len(hits):,} of {counted(queries, 'query', 'queries')} ({share(profile.hit_at_10)}) "
            f"{'has' if queries == 1 else 'have'} a positive among the first ten."]  # fmt: skip
    if profile.positives_covered is not None and profile.queries_covered is not None and profile.top_k:
        said.append(
            f"The whole list, {profile.top_k:,} deep at most, holds {share(profile.positives_covered)} of the "
            f"positives and at least one for {share(profile.queries_covered)} of the queries."
        )
    ranks = [rank for o in page.outcomes if (rank := o.first_rank[role]) is not None]
    if ranks:
        of = "the one query" if len(ranks) == 1 else f"the median of the {len(ranks):,} queries"
        said.append(f"The first positive stands at rank {median(ranks):g} in {of} whose list holds one.")
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
            return []
        alone = all(c.difference >= LEVEL for c in page.contrasts)
        best = "It is the best of the profiles" if alone else "None is better"
        return [f"{best}: {' and '.join(versus(c) for c in page.contrasts)}."]
    (against,) = (c for c in page.contrasts if c.worse == role)
    if against.difference < LEVEL:
        return [f"It is level with {LISTS[against.better]}."]
    doubt = "" if against.clear else ", which is not significant"
    return [f"It is {against.difference:.4f} below {LISTS[against.better]}{doubt}."]


def _slope(slope: Slope) -> str:
    return (
        f"Its nDCG@10 is {slope.fewest:.4f} in the third of the queries that share the fewest terms with their "
        f"positives and {slope.most:.4f} in the third that shares the most (difference {slope.difference:+.4f}, "
        f"95 % interval {slope.low:+.3f} to {slope.high:+.3f})."
    )


def _of_hybrid(page: Inspected) -> list[str]:
    parents = [role for role in page.figures.profiles if role != "hybrid"]
    lost = [o for o in page.outcomes if not o.hit("hybrid") and any(o.hit(role) for role in parents)]
    said = []
    if lost:
        said.append(
            f"For {counted(len(lost), 'query', 'queries')} it has no positive among the first ten although one of its "
            f"two lists does: {named(lost)}."
        )
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
        which = "The best nDCG@10" if len(figures.profiles) > 1 else "The nDCG@10"
        said.append(
            f"{which}, {best.ndcg_at_10:.4f} of {LISTS[role]}, has a 95 % interval from {low:.3f} to "
            f"{high:.3f} over {counted(len(page.outcomes), 'judged query', 'judged queries')}."
        )
    if hits:
        rest = len(page.outcomes) - len(hits)
        others = f"; the other {rest:,} {'counts' if rest == 1 else 'count'} as zero" if rest else ""
        over = f"Over the {len(hits):,} queries" if len(hits) > 1 else "Over the one query"
        said.append(f"{over} with a hit the mean nDCG@10 is {sum(hits) / len(hits):.4f}{others}.")
    if figures.positives_max == 1:
        said.append("No query has more than one positive, so hit@10 and recall@10 are the same.")
    else:
        said.append(
            f"{figures.multi_positive_queries:,} of {counted(figures.queries, 'query has', 'queries have')} several "
            f"positives, at most {figures.positives_max}: there, a hit at ten is not yet full recall."
        )
    grades = page.task.qrels.grades[page.task.qrels.grades > 0]
    low_grade, high_grade = int(grades.min()), int(grades.max())
    if low_grade < high_grade:
        highest = counted(int((grades == high_grade).sum()), "has", "have")
        said.append(
            f"Positives are graded from {low_grade} to {high_grade}, and {highest} the highest grade: nDCG@10 asks for "
            f"these first, hit@10 and recall@100 do not."
        )
    macro = best.recall_macro_at_100
    if macro is not None and abs(macro - best.recall_at_100) >= NOTICEABLE:
        which = "a smaller" if macro > best.recall_at_100 else "a larger"
        said.append(
            f"recall@100 of {LISTS[role]} is {best.recall_at_100:.4f} over judgments and {macro:.4f} over "
            f"queries: of queries with many positives {which} share is found."
        )
    return said


def missed_by_all(page: Inspected) -> list[Outcome]:
    """Queries without a positive among the first ten of any profile."""
    return [o for o in page.outcomes if not any(o.hit(role) for role in page.figures.profiles)]


def training_reading(page: Inspected) -> list[str]:
    """Training data whose lack the figures show: those of the dense list, whose model learns, where there is one."""
    figures, said = page.figures, list[str]()
    trained = "dense" if "dense" in figures.profiles else "bm25"
    slope = next((s for s in page.slopes if s.role == trained and s.clear and s.difference > 0), None)
    if slope is not None:
        said.append(
            f"Pairs of query and passage that share few words: {LISTS[trained]} scores {slope.difference:.4f} less "
            f"where queries share the fewest terms with their positives than where they share the most."
        )
    if page.trapped:
        traps = counted(page.trapped, "query", "queries")
        said.append(
            f"Hard negatives that share words with the query: for {traps} BM25's first document is not judged relevant "
            f"and holds more of the query's terms than any positive (for example {code(page.traps[0].query)})."
        )
    if figures.multi_positive_queries >= MANY * figures.queries:
        said.append(
            f"Examples with several positives each: {share(figures.multi_positive_queries / figures.queries)} of the "
            f"queries here have more than one, {figures.positives_per_query:.2f} in the mean."
        )
    return [*said, f"Queries of this length: {_lengths(page)}."]


def improvement_reading(page: Inspected) -> list[str]:
    """Where points are lost: to the order of the candidates, or to what is not among them."""
    figures, said = page.figures, []
    role = "hybrid" if "hybrid" in figures.profiles else figures.best
    profile = figures.profiles[role]
    ceiling = sum(o.best_order[role] for o in page.outcomes) / len(page.outcomes)
    by_order, by_lack = ceiling - profile.ndcg_at_10, 1 - ceiling
    listed = f"the {ROLE_NAMES[role]} list's {counted(profile.top_k, 'candidate')}"
    if by_order < LEVEL and by_lack < LEVEL:
        said.append(f"The order of {listed} is the best there is: neither reranking nor other documents can add to it.")
    else:
        more = ""
        if abs(by_order - by_lack) >= NOTICEABLE:
            more = f"; {'reranking' if by_order > by_lack else 'retrieval'} has more to give"
        said.append(
            f"The best order of {listed} would reach an nDCG@10 of {ceiling:.4f}: {by_order:.4f} can be gained by "
            f"reranking them, {by_lack:.4f} only by finding other documents{more}."
        )
    if {"bm25", "dense"} <= figures.profiles.keys():
        counts = hit_overlap(page.outcomes)
        said.append(
            f"Among the first ten, BM25 and the dense list both have a positive for "
            f"{counted(counts['both'], 'query', 'queries')}, BM25 alone for {counts['bm25']:,}, the dense list alone "
            f"for {counts['dense']:,}, neither for {counts['neither']:,}."
        )
    shape = page.tendencies
    for what, long in (("documents", shape.document_lengths), ("queries", shape.query_lengths)):
        if long.high > READ_BY_ENCODERS:
            said.append(
                f"A quarter of the {what} have more than {long.high:g} {long.unit}s: an encoder that reads "
                f"{READ_BY_ENCODERS} tokens cuts them."
            )
    return said


def hit_overlap(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many queries BM25, dense, both or neither have a positive for among the first ten."""
    counts = dict.fromkeys(("both", "bm25", "dense", "neither"), 0)
    for o in outcomes:
        lexical, dense = o.hit("bm25"), o.hit("dense")
        counts["both" if lexical and dense else "bm25" if lexical else "dense" if dense else "neither"] += 1
    return counts


def verdict(page: Inspected) -> str:
    """What the audit comes to, in one sentence."""
    audit, best = page.audit, page.figures.best
    if audit is None:
        return "Not audited yet: `r2med pages` looks for leaks and copies."
    if not audit.by_kind:
        none = f"none of the {audit.queries:,} queries is" if audit.queries > 1 else "the one query is not"
        return f"Verdict: {none} flagged."
    profile = page.figures.profiles[best]
    flagged = f"{audit.flagged_queries:,} of {counted(audit.queries, 'query', 'queries')}"
    said = f"Verdict: {flagged} {'is' if audit.flagged_queries == 1 else 'are'} flagged"
    said += ", by ids alone" if {flag.level for flag in audit.flags} == {"id"} else ""
    rest = next((s.without.get("any") for s in page.scores if s.system == profile.profile), None)
    if rest is None or rest.measures is None:
        return f"{said}; no other query is left."
    them = "it" if audit.flagged_queries == 1 else "them"
    return (
        f"{said}; without {them} {LISTS[best]} has an nDCG@10 of {rest.measures['ndcg_at_10']:.4f} instead of "
        f"{profile.ndcg_at_10:.4f}."
    )
