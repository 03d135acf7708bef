"""The vocabulary as one file: concepts, what each is called, and which diseases show which finding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from ...core import DataError
from ...core.atomic import write_bytes
from ..normalise import tokens
from .parsers import Annotation, Term, ancestors

FORMAT = 1
LONGEST = 8
# Words of the longest phrase that is looked up.
# Words that stand for a concept somewhere and mean nothing by themselves in a question.
TOO_GENERAL = frozenset(
    {
        "abnormality", "accident", "all", "cell", "child", "disease", "disorder", "drug", "emergency", "female", "gene",
        "good", "health", "human", "illness", "infection", "injury", "lead", "lesion", "male", "man", "onset",
        "patient", "protein", "solution", "symptom", "syndrome", "tablet", "therapy", "toxic", "water", "woman",
        "wound",
    }
)  # fmt: skip


class Concept(msgspec.Struct, frozen=True, array_like=True):
    """One meaning, with its names."""

    id: str
    kind: str
    # finding, disease, drug.
    name: str
    # Preferred, in natural word order.
    synonyms: tuple[str, ...]
    # In natural word order; none is a mere reordering of another.


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All concepts, and the ways they are written."""

    format: int
    sources: tuple[str, ...]
    concepts: tuple[Concept, ...]
    surfaces: dict[str, tuple[int, ...]]
    # Normalised phrase → positions in `concepts`.
    abbreviations: dict[str, str]
    # As written, upper case counts.
    diseases: tuple[str, ...]
    finding_ids: tuple[str, ...]
    # Findings that diseases are annotated with, ancestors included.
    starts: bytes
    # For each finding where its diseases begin (int64).
    shown_by: bytes
    # Positions in `diseases` (int32).
    percent: bytes
    # How often each of them shows it (uint8).

    @cached_property
    def _finding_rows(self) -> dict[str, int]:
        return {identifier: i for i, identifier in enumerate(self.finding_ids)}

    def diseases_with(self, finding: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], float]:
        """Diseases that show a finding, how often (0–1), and how much the finding tells (in nats)."""
        row = self._finding_rows.get(finding)
        if row is None:
            return np.zeros(0, np.int32), np.zeros(0), 0.0
        bounds = np.frombuffer(self.starts, dtype="<i8")
        span = slice(int(bounds[row]), int(bounds[row + 1]))
        which = np.frombuffer(self.shown_by, dtype="<i4")[span]
        often = np.frombuffer(self.percent, dtype="u1")[span] / 100.0
        return which, often, math.log(len(self.diseases) / len(which))

    def write(self, path: Path) -> None:
        """Keep it."""
        write_bytes(path, msgspec.msgpack.encode(self))


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a file that `write` made."""
    try:
        vocabulary = msgspec.msgpack.decode(path.read_bytes(), type=Vocabulary)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"is no vocabulary ({error})", path=path) from None
    if vocabulary.format != FORMAT:
        raise DataError(f"has format {vocabulary.format}, this version reads {FORMAT}", path=path)
    return vocabulary


def build_vocabulary(
    mesh: Iterable[Term],
    hpo: dict[str, Term],
    annotations: Iterable[Annotation],
    abbreviations: dict[str, str],
    sources: Iterable[str],
) -> Vocabulary:
    """Put the sources together."""
    concepts: list[Concept] = []
    surfaces: dict[str, list[int]] = {}
    for term in (*hpo.values(), *mesh):
        names = distinct_names([term.name, *term.synonyms])
        if not names:
            continue
        number = len(concepts)
        concepts.append(Concept(term.id, term.kind, names[0], tuple(names[1:])))
        for form in {" ".join(tokens(n)) for n in (term.name, *term.synonyms, *names)}:
            if searchable(form):
                surfaces.setdefault(form, []).append(number)
    diseases, findings, starts, shown_by, percent = _spread(annotations, hpo)
    return Vocabulary(
        format=FORMAT,
        sources=tuple(sources),
        concepts=tuple(concepts),
        surfaces={form: tuple(numbers) for form, numbers in surfaces.items()},
        abbreviations=abbreviations,
        diseases=diseases,
        finding_ids=findings,
        starts=starts,
        shown_by=shown_by,
        percent=percent,
    )


def searchable(form: str) -> bool:
    """Whether a phrase may be looked for: long enough, not too long, not a word that means everything."""
    words = form.split()
    if not 0 < len(words) <= LONGEST:
        return False
    if len(words) == 1:
        return len(form) >= 4 and form not in TOO_GENERAL and not form.isdigit()
    return True


def natural(name: str) -> str:
    """A heading in the order people write it: `Heart Failure, Systolic` → `Systolic Heart Failure`."""
    head, comma, rest = name.partition(", ")
    return f"{rest} {head}" if comma and "," not in rest else name


def distinct_names(names: Iterable[str]) -> list[str]:
    """Names in natural order, without those that only reorder or inflect the words of an earlier one."""
    kept: dict[frozenset[str], str] = {}
    for name in map(natural, names):
        words = frozenset(tokens(name))
        if words and len(words) <= LONGEST:
            kept.setdefault(words, name)
    return list(kept.values())


def _spread(
    annotations: Iterable[Annotation], hpo: dict[str, Term]
) -> tuple[tuple[str, ...], tuple[str, ...], bytes, bytes, bytes]:
    """A disease that shows a finding shows everything more general, too."""
    diseases: dict[str, int] = {}
    held: dict[str, dict[int, int]] = {}
    above = {i: [a for a in (i, *ancestors(i, hpo)) if a in hpo] for i in hpo}
    for disease, finding, percent in annotations:
        number = diseases.setdefault(disease, len(diseases))
        for general in above.get(finding, ()):
            row = held.setdefault(general, {})
            row[number] = max(percent, row.get(number, 0))
    findings = tuple(sorted(held))
    starts = np.concatenate(([0], np.cumsum([len(held[f]) for f in findings])))
    shown_by = np.array([d for f in findings for d in held[f]], dtype="<i4")
    percents = np.array([p for f in findings for p in held[f].values()], dtype="u1")
    return tuple(diseases), findings, starts.astype("<i8").tobytes(), shown_by.tobytes(), percents.tobytes()
