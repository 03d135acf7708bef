"""A vocabulary of a few words in the files' real formats, and the wheels that carry them."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from pathlib import Path

from r2med.expand.vocabulary import Source
from r2med.models import Carrier, CarrierFile

MESH = [
    ("D006333", "Heart Failure", "Cardiac Failure|Failure, Heart|Heart Failures", "C14.280.434"),
    ("D054143", "Heart Failure, Systolic", "Systolic Heart Failure", "C14.280.434.676"),
    ("D014652", "Vascular Diseases", "Vascular Disease", "C14.907"),
    ("D005334", "Fever", "Pyrexia|Hyperthermia", "C23.888.119.344"),
    ("D001241", "Aspirin", "Acetylsalicylic Acid", "D02.455.426.559.389.657.410.595.176"),
    ("D011471", "Abbreviations as Topic", "", "L01.559.598.400.556.131"),
]
OBO = """format-version: 1.2

[Term]
id: HP:0000001
name: All

[Term]
id: HP:0000118
name: Phenotypic abnormality
is_a: HP:0000001 ! All

[Term]
id: HP:0002094
name: Dyspnea
synonym: "Breathing difficulty" EXACT layperson []
synonym: "Trouble \\\\"breathing\\\\"" EXACT []
synonym: "Air hunger" RELATED []
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0002875
name: Exertional dyspnea
is_a: HP:0002094 ! Dyspnea

[Term]
id: HP:0000969
name: Edema
synonym: "Oedema" EXACT uk_spelling []
synonym: "Swelling" EXACT layperson []
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0012823
name: Clinical modifier
is_a: HP:0000001 ! All

[Term]
id: HP:0009999
name: Old swelling
is_obsolete: true
"""
HPOA = """#version: 2025-01-16
database_id\tdisease_name\tqualifier\thpo_id\treference\tevidence\tonset\tfrequency\tsex\tmodifier\taspect\tbiocuration
ORPHA:1\tMadeup cardiomyopathy\t\tHP:0002875\tx\tTAS\t\tHP:0040281\t\t\tP\tx
ORPHA:1\tMadeup cardiomyopathy\t\tHP:0000969\tx\tTAS\t\tHP:0040282\t\t\tP\tx
ORPHA:2\tMadeup lung disease\t\tHP:0002094\tx\tTAS\t\tHP:0040284\t\t\tP\tx
ORPHA:2\tMadeup lung disease\tNOT\tHP:0000969\tx\tTAS\t\t\t\t\tP\tx
ORPHA:3\tMadeup skin disease\t\tHP:0012823\tx\tTAS\t\t\t\t\tC\tx
ORPHA:4\tSwollen legs disease\t\tHP:0000969\tx\tTAS\t\t3/4\t\t\tP\tx
OMIM:5\tNumbered disease 96\t\tHP:0000969\tx\tTAS\t\t\t\t\tP\tx
"""
ABBREVIATIONS = {
    "HTN": ["Hypertension"],
    "MS": ["multiple sclerosis", "mitral stenosis"],
    "ok": ["fine"],
    "_version": "1",
}


def contents() -> dict[str, bytes]:
    mesh = "".join("\t".join((*row, "")) + "\n" for row in MESH)
    return {
        "mesh_id_label_mappings.tsv": mesh.encode(),
        "hp.obo": OBO.encode(),
        "phenotype.hpoa": HPOA.encode(),
        "abbrv.json.gz": gzip.compress(json.dumps(ABBREVIATIONS).encode(), mtime=0),
    }


def write_files(folder: Path) -> Path:
    for name, data in contents().items():
        (folder / name).write_bytes(data)
    return folder


def build_wheels(folder: Path) -> tuple[Source, ...]:
    """One wheel a source, as pip wants them."""
    files = contents()
    groups = {
        "tinymesh": ["mesh_id_label_mappings.tsv"],
        "tinyhpo": ["hp.obo", "phenotype.hpoa"],
        "tinyabbr": ["abbrv.json.gz"],
    }
    made = []
    for package, names in groups.items():
        path = folder / f"{package}-1.0-py3-none-any.whl"
        info = f"{package}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(f"{package}/{name}", files[name])
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        carrier = Carrier(
            package=package,
            version="1.0",
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            root=package,
            files=tuple(CarrierFile(name=n, sha256=hashlib.sha256(files[n]).hexdigest()) for n in names),
        )
        made.append(Source(name=package, title=package, licence="test", carrier=carrier))
    return tuple(made)
