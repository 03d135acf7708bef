"""Every layout a task may have on disk."""

from .base import Expansion, Format, Parts, detect, formats, get_format, layouts
from .parquet import candidate_configs, read_candidates, write_candidates

__all__ = [
    "Expansion",
    "Format",
    "Parts",
    "candidate_configs",
    "detect",
    "formats",
    "get_format",
    "layouts",
    "read_candidates",
    "write_candidates",
]
