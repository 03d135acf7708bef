"""Every layout a task may have on disk."""

from ...core import DataError, UnknownName
from ...core.stores import Store
from ..parts import Format
from .beir import BeirFormat
from .parquet import HUB, MTEB, NANO, ParquetFormat, candidate_configs, read_candidates, write_candidates
from .r2med import R2MedFormat

FORMATS: dict[str, Format] = {
    f.name: f for f in (R2MedFormat(), BeirFormat(), ParquetFormat(HUB), ParquetFormat(MTEB), ParquetFormat(NANO))
}

SHOWN = 5  # files named in a message


def get_format(name: str) -> Format:
    """The format called `name`."""
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS, hint=f"(known: {', '.join(FORMATS)})")
    return FORMATS[name]


def detect(store: Store) -> tuple[Format, list[str]]:
    """The format of a store and the tasks in it."""
    names = store.names()
    for candidate in FORMATS.values():
        if splits := candidate.splits(names):
            return candidate, splits
    expected = "; ".join(f"{f.name}: {f.summary}" for f in FORMATS.values())
    few = sorted(names)[:SHOWN]
    held = ", ".join(few) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "") if few else "no files"
    raise DataError(f"is in no layout r2med knows ({expected}); it holds {held}", path=store.path)


__all__ = ["FORMATS", "candidate_configs", "detect", "get_format", "read_candidates", "write_candidates"]
