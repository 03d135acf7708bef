"""Every reader of r2med, by the name the counts are printed under."""

from __future__ import annotations

from tests.fuzz.cases import Case, Maker
from tests.fuzz.data_readers import DATA
from tests.fuzz.native_readers import NATIVE
from tests.fuzz.store_readers import STORES
from tests.fuzz.text_readers import TEXTS

READERS: dict[str, Maker] = {**DATA, **STORES, **TEXTS, **NATIVE}

__all__ = ["READERS", "Case"]
