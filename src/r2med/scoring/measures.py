"""Measures as values: `nDCG@10` and `R(rel=2)@100` parse, print and name their column; and the hits they are made of.

    nDCG@10    nDCG(dcg=exp)@10    R(rel=2)@100    AP(rel=2)       printed: name, parameters, cut-off
    ndcg_at_10    ndcg_dcg_exp_at_10    recall_rel_2_at_100        the key in JSON: the same, joined by _

Parameters at their defaults are left out, so every measure has one text and one key, and both read back. Definitions
and arithmetic are trec_eval's, order of tied documents included. To add a measure, add a function here: its docstring
and its annotated parameters become the help of `--measure`, the reference page and the error messages.

A measure asks for the hits at a grade, which say where a run put the documents that are relevant: `hits(2)` holds those
judged 2 or higher. `exact_hits` takes rankings as they are; `aware.tied_hits` takes every order of equally scored
documents as equally likely: a document then has an entry at each rank that it may take, with its chance, and a sum over
entries becomes its mean over all orders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..core import DataError, Qrels, Run, UnknownName, UsageError
from ..core.columns import Int32, Int64
from ..core.options import declared_parameters
from ..core.registry import Entry, Registry, first_sentence
from ..core.spec import Value, show

Float64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CUTOFFS = (1, 3, 5, 10, 20, 25, 50, 100, 1000)
SPELLINGS = {"exp-log2": "exp"}  # Values as ir_measures spells them, and ours.
UNJUDGED = -2
EMPTY = -3
LARGEST_EXPONENT = 1000  # of two, that a float can hold with room for a sum

Cutoff = Literal["optional", "required", "never"]
Rel = Annotated[int, Meta(ge=1, description="least grade of a relevant document")]
Dcg = Annotated[
    Literal["log2", "exp"], Meta(description="gain of a document: its grade (log2) or 2 to its grade, minus 1 (exp)")
]


@dataclass(frozen=True)
class Entries:
    """Documents at ranks: one entry each, as parallel arrays."""

    queries: int
    row: Int64  # the query, by its position in the judgments
    rank: Int64  # from 0
    grade: Float64

    def sum(self, values: Float64, cutoff: float) -> Float64:
        """The sum of the entries above the cut-off, for each query."""
        inside = self.rank < cutoff
        return np.bincount(self.row[inside], values[inside], self.queries).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Hits(Entries):
    """Relevant documents that were retrieved."""

    chance: Float64  # that such a document stands here; 1 unless scores are tied
    above: Float64  # relevant documents above it
    first: Float64  # the chance that it stands here and is the first relevant document
    ideal: Entries  # all relevant documents in the best order
    relevant: Int64  # how many of them each query has
    judging: Callable[[], Judging] | None = None  # Gives what is judged and not relevant; None where scores are tied.

    judged_in_ten: Float64 | None = None  # The share of each query's first ten that is judged.

    def judged(self) -> Judging:
        """All judged documents; only rankings as they are have them."""
        if self.judging is None:
            raise UsageError("judged@k and bpref are not averaged over ties")
        return self.judging()


@dataclass(frozen=True)
class Judging:
    """The judged documents that were retrieved, and how many irrelevant ones each query has."""

    retrieved: Entries
    shown: Int64  # documents that each query retrieved
    irrelevant: Int64

    def irrelevant_above(self, hits: Hits, rel: int) -> Int64:
        """The judged documents of a lower grade that stand above each hit; negative grades do not count."""
        lower = (self.retrieved.grade >= 0) & (self.retrieved.grade < rel)
        width = max(int(self.retrieved.rank.max(initial=0)), int(hits.rank.max(initial=0))) + 1
        places = self.retrieved.row[lower] * width + self.retrieved.rank[lower]
        return np.searchsorted(places, hits.row * width + hits.rank) - np.searchsorted(places, hits.row * width)


HitsAt = Callable[[int], Hits]  # Gives the hits of at least this grade.


@dataclass(frozen=True)
class Definition(Entry[Float64]):
    """How a measure is named and computed."""

    key: str = ""  # Its name in JSON.
    cutoff: Cutoff = "optional"
    usual: tuple[int, ...] = ()
    """Cut-offs that tables show unless told otherwise; a measure with any is stored at all of `CUTOFFS`."""

    @property
    def shape(self) -> str:
        """How it is typed, with its defaults: `nDCG(dcg=log2)@k`."""
        inside = ",".join(f"{p.name}={p.default}" for p in self.parameters.values())
        name = f"{self.name}({inside})" if inside else self.name
        return name if self.cutoff == "never" else f"{name}@k"


_registry: Registry[Float64] = Registry("measure")


def definitions() -> list[Definition]:
    """Every measure there is."""
    return [entry for entry in _registry if isinstance(entry, Definition)]


def register(
    name: str, key: str, *aliases: str, cutoff: Cutoff = "optional", usual: tuple[int, ...] = ()
) -> Callable[[Callable[..., Float64]], Callable[..., Float64]]:  # fmt: skip
    """Register a function of hits, cut-off and parameters that gives one value per query."""

    def add(compute: Callable[..., Float64]) -> Callable[..., Float64]:
        about, parameters = first_sentence(compute), declared_parameters(compute)
        definition = Definition(name, compute, about, parameters, key=key, cutoff=cutoff, usual=usual)
        _registry.add(definition, aliases=(name.casefold(), key, *aliases))
        return compute

    return add


@register("nDCG", "ndcg", "ndcg-cut", usual=(10,))
def ndcg(hits: HitsAt, cutoff: float, *, dcg: Dcg = "log2") -> Float64:
    """Gain, discounted by the logarithm of the rank, over that of the ideal ranking."""
    found = hits(1)
    ideal = found.ideal
    ours = found.sum(found.chance * _gains(found.grade, dcg) / np.log2(found.rank + 2.0), cutoff)
    return _ratio(ours, ideal.sum(_gains(ideal.grade, dcg) / np.log2(ideal.rank + 2.0), cutoff))


@register("AP", "map", "map-cut", usual=(10,))
def average_precision(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Average precision: the sum of the precisions at relevant documents over their number."""
    found = hits(rel)
    return _ratio(found.sum(found.chance * (found.above + 1) / (found.rank + 1), cutoff), found.relevant)


@register("R", "recall", usual=(10, 100))
def recall(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Recall: the share of the relevant documents that were found."""
    found = hits(rel)
    return _ratio(found.sum(found.chance, cutoff), found.relevant)


@register("P", "precision", cutoff="required", usual=(10,))
def precision(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Precision: the share of the first k ranks that hold a relevant document."""
    found = hits(rel)
    return found.sum(found.chance, cutoff) / cutoff


@register("RR", "mrr", "recip-rank", usual=(10,))
def reciprocal_rank(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Reciprocal rank: 1 over the rank of the first relevant document, or 0."""
    found = hits(rel)
    return found.sum(found.first / (found.rank + 1), cutoff)


@register("hit", "hit", "success", cutoff="required", usual=(10,))
def hit(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Success: 1 where a relevant document was found, or 0."""
    found = hits(rel)
    return found.sum(found.first, cutoff)


@register("judged", "judged", cutoff="required")
def judged(hits: HitsAt, cutoff: float) -> Float64:
    """The share of the first k retrieved documents that somebody judged."""
    found = hits(1).judged()
    return _ratio(found.retrieved.sum(np.ones(len(found.retrieved.rank)), cutoff), np.minimum(found.shown, cutoff))


@register("bpref", "bpref", cutoff="never")
def binary_preference(hits: HitsAt, cutoff: float, *, rel: Rel = 1) -> Float64:
    """Binary preference: how seldom judged irrelevant documents stand above relevant ones; unjudged do not count."""
    found = hits(rel)
    judging = found.judged()
    most = np.minimum(found.relevant, judging.irrelevant)[found.row]
    above = np.minimum(judging.irrelevant_above(found, rel), found.relevant[found.row])
    passed = np.divide(above, most, out=np.zeros(len(above)), where=most > 0)
    return _ratio(found.sum(1.0 - passed, cutoff), found.relevant)


def _gains(grades: Float64, dcg: str) -> Float64:
    if dcg == "log2":
        return grades
    if (highest := grades.max(initial=0.0)) > LARGEST_EXPONENT:
        raise DataError(f"grade {highest:g} is too high for nDCG(dcg=exp): 2 to that power is not a number here")
    return np.ldexp(1.0, grades.astype(np.int64)) - 1.0


def _ratio(numerator: Float64, denominator: Float64 | Int64) -> Float64:
    """Zero where there is nothing to find, as trec_eval has it."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=np.asarray(denominator) > 0)


@dataclass(frozen=True)
class Measure:
    """A measure with its cut-off (None: the whole ranking) and the parameters that are not at their defaults."""

    family: str
    cutoff: int | None = None
    parameters: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        definition = self.definition
        spec = _registry.spec(definition.name, None, **dict(self.parameters))
        object.__setattr__(self, "family", definition.key)
        object.__setattr__(self, "parameters", spec.parameters)
        missing = self.cutoff is None and definition.cutoff == "required"
        if self.cutoff is not None and definition.cutoff == "never":
            raise UsageError(f"measure {definition.name} takes no cut-off")
        if missing or (self.cutoff is not None and self.cutoff < 1):
            raise UsageError(f"measure {definition.name} needs a cut-off of 1 or more, as in {definition.name}@10")

    @classmethod
    def parse(cls, text: str | Measure) -> Measure:
        """Read `nDCG@10`, `R(rel=2)@100`, a key such as `ndcg_at_10`, or trec_eval's `ndcg_cut_10`, `recip_rank`."""
        return text if isinstance(text, Measure) else _parsed(text)

    @property
    def definition(self) -> Definition:
        found = _registry.find(self.family)
        if not isinstance(found, Definition):
            raise _unknown(self.family if self.cutoff is None else f"{self.family}@{self.cutoff}")
        return found

    def __str__(self) -> str:
        inside = ",".join(f"{name}={show(value)}" for name, value in self.parameters)
        name = self.definition.name + (f"({inside})" if inside else "")
        return name if self.cutoff is None else f"{name}@{self.cutoff}"

    @property
    def key(self) -> str:
        pairs = [word for name, value in self.parameters for word in (name, show(value))]
        cutoff = [] if self.cutoff is None else ["at", str(self.cutoff)]
        return "_".join([self.family, *pairs, *cutoff])

    def compute(self, hits: HitsAt) -> Float64:
        cutoff = float("inf") if self.cutoff is None else self.cutoff
        return self.definition.make(hits, cutoff, **dict(self.parameters))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Measure:
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\)\s*)?(?:@\s*([0-9]{1,9})\s*)?", text, re.ASCII)
    if match is None:
        raise _unknown(text)
    name, inside, cutoff = match.groups()
    if inside is not None or cutoff is not None or _registry.find(name):
        parameters = _pairs(inside or "", text)
    else:
        name, parameters, cutoff = _split_key(name)
    return Measure(name, int(cutoff) if cutoff else None, tuple(parameters.items()))


def _pairs(inside: str, text: str) -> dict[str, str]:
    """The parameters between parentheses; values may be quoted, as ir_measures prints them."""
    pairs: dict[str, str] = {}
    for part in inside.split(",") if inside.strip() else []:
        match = re.fullmatch(r"""\s*(\w+)\s*=\s*(['"]?)([^'"\s]+)\2\s*""", part)
        if match is None or match[1] in pairs:
            raise UsageError(f"cannot read {part.strip()!r} in {text!r}: measures look like nDCG(dcg=exp)@10")
        pairs[match[1]] = SPELLINGS.get(match[3], match[3])
    return pairs


def _split_key(key: str) -> tuple[str, dict[str, str], str | None]:
    """Name, parameters and cut-off of a key: words joined by _, of which the first few may be the name."""
    words = key.split("_")
    end = next((n for n in range(len(words), 0, -1) if _registry.find("_".join(words[:n]))), 0)
    match = re.fullmatch(r"((?:_[A-Za-z]+_[^_]+)*?)(?:(?:_at)?_([0-9]{1,9}))?", key[len("_".join(words[:end])) :])
    if not end or match is None:
        raise _unknown(key)
    pairs = match[1].split("_")[1:]
    return "_".join(words[:end]), dict(zip(pairs[::2], pairs[1::2], strict=True)), match[2]


def _unknown(text: str) -> UnknownName:
    shapes = ", ".join(definition.shape for definition in definitions())
    return UnknownName(
        "measure",
        text,
        [f"{d.name}{'' if d.cutoff == 'never' else '@10'}" for d in definitions()],
        hint=f"(measures: {shapes})",
    )


def parse_measures(texts: Iterable[str | Measure]) -> tuple[Measure, ...]:
    """Several measures, each once."""
    return tuple(dict.fromkeys(map(Measure.parse, texts)))


USUAL = tuple(Measure(d.key, k) for d in definitions() for k in d.usual)
STANDARD = tuple(Measure(d.key, k) for d in definitions() if d.usual for k in CUTOFFS)
MAIN = Measure("ndcg", 10)
JUDGED = Measure("judged", 10)


class Graded(NamedTuple):
    """One ranking as grades: negative ones are -1, `UNJUDGED` is a document without a judgment, `EMPTY` no document."""

    query: int
    row: int
    grades: Int32


def grades_along(run: Run, qrels: Qrels) -> Iterator[Graded]:
    """The grades along the ranking of each judged query that the run holds.

    Each query writes its grades into one table over all documents, reads the table along its ranking and wipes it:
    no sorting, no dictionary.
    """
    judged = run.doc_ids.positions(qrels.doc_ids)[qrels.docs]
    grades, bounds = np.maximum(qrels.grades, -1), qrels.indptr.tolist()
    table = np.full(len(run.doc_ids) + 1, UNJUDGED, dtype=np.int32)
    for query, row in enumerate(run.query_ids.positions(qrels.query_ids).tolist()):
        if row < 0:
            continue
        docs = judged[bounds[query] : bounds[query + 1]]
        table[docs] = grades[bounds[query] : bounds[query + 1]]
        table[-1] = EMPTY  # position -1: no document, or one that the run does not know
        yield Graded(query, row, table[run.docs[row]])
        table[docs] = UNJUDGED


def exact_hits(run: Run, qrels: Qrels) -> HitsAt:
    """The hits of rankings as they are."""
    sizes = np.zeros(len(qrels.query_ids), dtype=np.int64)
    judged_in_ten = np.zeros(len(sizes))
    ranks: list[Int64] = [np.empty(0, dtype=np.int64)]
    grades: list[Int32] = [np.empty(0, dtype=np.int32)]
    for query, _, along in grades_along(run, qrels):
        found = (along > 0).nonzero()[0]
        sizes[query] = len(found)
        top = along[:10]
        judged_in_ten[query] = int((top >= -1).sum()) / max(int((top != EMPTY).sum()), 1)
        ranks.append(found)
        grades.append(along[found])
    row, rank, grade = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(ranks), np.concatenate(grades)

    @cache
    def judged() -> tuple[Entries, Int64]:
        shown = np.zeros(len(sizes), dtype=np.int64)
        found = [(query, (along >= -1).nonzero()[0], along) for query, _, along in grades_along(run, qrels)]
        rows = np.repeat([query for query, _, _ in found], [len(ranks) for _, ranks, _ in found]).astype(np.int64)
        places = np.concatenate([np.empty(0, dtype=np.int64), *(ranks for _, ranks, _ in found)])
        values = np.concatenate([np.empty(0), *(along[ranks] for _, ranks, along in found)])
        for query, _, along in found:
            shown[query] = np.count_nonzero(along != EMPTY)
        return Entries(len(sizes), rows, places, values.astype(np.float64)), shown

    def judging(rel: int) -> Judging:
        lower = (qrels.grades >= 0) & (qrels.grades < rel)
        owner = np.repeat(np.arange(len(sizes)), np.diff(qrels.indptr))
        return Judging(*judged(), np.bincount(owner[lower], minlength=len(sizes)))

    @cache
    def at_least(rel: int) -> Hits:
        kept, ideal = grade >= rel, ideal_ranking(qrels, rel)
        above = place_in_query(row[kept], ideal.queries)
        return Hits(
            ideal.queries,
            row[kept],
            rank[kept],
            grade[kept].astype(np.float64),
            chance=np.ones(len(above)),
            above=above.astype(np.float64),
            first=(above == 0).astype(np.float64),
            ideal=ideal,
            relevant=np.bincount(ideal.row, minlength=ideal.queries),
            judging=lambda: judging(rel),
            judged_in_ten=judged_in_ten,
        )

    return at_least


def ideal_ranking(qrels: Qrels, rel: int) -> Entries:
    """The documents of at least this grade, highest grade first."""
    queries = len(qrels.query_ids)
    row = np.repeat(np.arange(queries), np.diff(qrels.indptr))
    kept = qrels.grades >= rel
    row, grade = row[kept], qrels.grades[kept].astype(np.float64)
    order = np.lexsort((-grade, row))
    return Entries(queries, row[order], place_in_query(row[order], queries), grade[order])


def place_in_query(row: Int64, queries: int) -> Int64:
    """The number of earlier entries of the same query; entries are ordered by query."""
    return np.arange(len(row)) - np.searchsorted(row, np.arange(queries))[row]
