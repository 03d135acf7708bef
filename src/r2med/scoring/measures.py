"""Measures as values: `nDCG@10` and `R(rel=2)@100` parse, print and name their column.

    nDCG@10    nDCG(dcg=exp)@10    R(rel=2)@100    AP(rel=2)       printed: name, parameters, cut-off
    ndcg_at_10    ndcg_dcg_exp_at_10    recall_rel_2_at_100        the key in JSON: the same, joined by _

Parameters at their defaults are left out, so every measure has one text and one key, and both read back. Definitions
and arithmetic are trec_eval's, order of tied documents included. To add a measure, add a function here: its docstring
and its annotated parameters become the help of `--measure`, the reference page and the error messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core import DataError, UnknownName, UsageError
from ..core.options import declared_parameters
from ..core.registry import Entry, Registry, first_sentence
from ..core.spec import Value, show
from .hits import Float64, HitsAt, Int64

CUTOFFS = (1, 3, 5, 10, 20, 25, 50, 100, 1000)
SPELLINGS = {"exp-log2": "exp"}  # Values as ir_measures spells them, and ours.
LARGEST_EXPONENT = 1000  # of two, that a float can hold with room for a sum

Cutoff = Literal["optional", "required", "never"]
Rel = Annotated[int, Meta(ge=1, description="least grade of a relevant document")]
Dcg = Annotated[
    Literal["log2", "exp"], Meta(description="gain of a document: its grade (log2) or 2 to its grade, minus 1 (exp)")
]


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
