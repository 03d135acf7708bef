"""Reading the vocabularies as their wheels hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...core import DataError
from ...core.compression import gunzip

PHENOTYPE_ROOT = "HP:0000118"
# How often a disease shows a finding, in per cent: HPO's five words, each at the middle of its range.
FREQUENCY = {"HP:0040280": 100, "HP:0040281": 90, "HP:0040282": 55, "HP:0040283": 17, "HP:0040284": 2}
UNSTATED_FREQUENCY = 50
_SYNONYM = re.compile(r'"((?:[^"\\]|\\.)*)" (EXACT|RELATED|NARROW|BROAD)')
# MeSH branches that name what is wrong with a patient or what is given to one; the deeper, the more specific.
MESH_KINDS = {"C23": "finding", "C": "disease", "F03": "disease", "D": "drug"}
MESH_DEPTH = 3


class Term(NamedTuple):
    """A concept of a source vocabulary."""

    id: str
    kind: str
    name: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...] = ()


class Annotation(NamedTuple):
    """A disease that shows a finding."""

    disease: str
    finding: str
    percent: int


def read_mesh(path: Path) -> Iterator[Term]:
    """Descriptors for diseases, findings and drugs; broad headings (`Vascular Diseases`) are left out."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 4:
            raise DataError("is no line of MeSH terms", path=path, line=number)
        identifier, name, synonyms, trees = fields[:4]
        deep = [t for t in trees.split("|") if t.count(".") + 1 >= MESH_DEPTH]
        kinds = [k for k in MESH_KINDS if any(t.startswith(k) for t in deep)]
        if kinds:
            # A disease that is also filed under signs (C23) is a disease.
            kind = next((MESH_KINDS[k] for k in ("C", "F03", "D") if k in kinds and _beyond(k, deep)), "finding")
            yield Term(f"MESH:{identifier}", kind, name, tuple(filter(None, synonyms.split("|"))))


def _beyond(branch: str, trees: list[str]) -> bool:
    return any(t.startswith(branch) and not t.startswith("C23") for t in trees)


def read_hpo(path: Path) -> dict[str, Term]:
    """Phenotypic abnormalities with exact synonyms and parents; modifiers and inheritance are left out."""
    terms: dict[str, Term] = {}
    for block in path.read_text("utf-8").split("\n\n"):
        if not block.lstrip().startswith("[Term]") or "\nis_obsolete: true" in block:
            continue
        identifier, name, synonyms, parents = "", "", [], []
        for line in block.splitlines():
            key, _, value = line.partition(": ")
            if key == "id":
                identifier = value
            elif key == "name":
                name = value
            elif key == "is_a":
                parents.append(value.split(" ", 1)[0])
            elif key == "synonym" and (found := _SYNONYM.match(value)) and found[2] == "EXACT":
                synonyms.append(found[1].replace('\\"', '"'))
        terms[identifier] = Term(identifier, "finding", name, tuple(synonyms), tuple(parents))
    if PHENOTYPE_ROOT not in terms:
        raise DataError("does not hold the Human Phenotype Ontology", path=path)
    return {i: t for i, t in terms.items() if PHENOTYPE_ROOT in ancestors(i, terms)}


def ancestors(identifier: str, terms: dict[str, Term]) -> set[str]:
    """A term's parents, their parents and so on; not the term itself."""
    seen: set[str] = set()
    open_ends = [identifier]
    while open_ends:
        term = terms.get(open_ends.pop())
        for parent in term.parents if term else ():
            if parent not in seen:
                seen.add(parent)
                open_ends.append(parent)
    return seen


def read_annotations(path: Path) -> Iterator[Annotation]:
    """Findings of Orphanet's diseases: their names are a clinician's, while OMIM counts genetic subtypes."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            fields = line.rstrip("\n").split("\t")
            if len(fields) >= 11 and fields[0].startswith("ORPHA:") and fields[10] == "P" and fields[2] != "NOT":
                yield Annotation(fields[1], fields[3], FREQUENCY.get(fields[7], UNSTATED_FREQUENCY))


def read_abbreviations(path: Path) -> dict[str, str]:
    """Abbreviations that have one meaning; an ambiguous one would add the wrong disease as often as the right one."""
    try:
        table = msgspec.json.decode(gunzip(path.read_bytes(), str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"is no table of abbreviations ({error})", path=path) from None
    return {
        short: meanings[0].strip()
        for short, meanings in table.items()
        if isinstance(meanings, list) and len(meanings) == 1 and sum(c.isupper() for c in short) >= 2
    }
