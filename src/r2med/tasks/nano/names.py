"""What Nano calls tasks and candidate lists."""

from __future__ import annotations

import re
from typing import Literal

from ...core import UsageError
from ..catalogue import entries
from ..formats.parquet import GENERIC_SPLITS
from ..load import TaskRef

Role = Literal["bm25", "dense", "hybrid"]
HYBRID = "reranking_hybrid"
RESERVED = {"corpus", "queries", "qrels", "default", "metadata", "pages", "bm25", HYBRID}


def split_name(ref: TaskRef, given: str = "") -> str:
    """The split of a Nano task: NanoR2MED's own name for a task of R2MED, else the task's name.

    The `datasets` library takes letters, digits and underscores only.
    """
    published = {e.name: e.split for e in entries("nano")}
    if given:
        name = given
    elif ref.collection == "r2med":
        name = published[ref.name]
    elif ref.entry is not None:
        name = f"Nano{ref.collection.capitalize()}{ref.name.replace('-', '')}"
    else:
        name = ref.split or ref.name
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if not name or name in GENERIC_SPLITS:
        raise UsageError(f"a Nano task cannot be called {given or ref.name!r}; give it a name with --name")
    return name


def config_name(retriever: str) -> str:
    """The config of a dense retriever's candidates: NanoR2MED's own for Harrier, else the retriever's name."""
    if retriever == "harrier":
        return "harrier_oss_v1_270m"
    name = re.sub(r"\W+", "_", retriever, flags=re.ASCII).strip("_").lower()
    return f"dense_{name}" if not name or name in RESERVED else name


def role_of(config: str) -> Role:
    """Which of the three profiles a candidate config is."""
    return "bm25" if config == "bm25" else "hybrid" if config == HYBRID else "dense"
