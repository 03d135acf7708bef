"""What MTEB calls our tasks and measures, both ways."""

from __future__ import annotations

import re

from ..scoring import Measure
from ..tasks import entries

PREFIX = {"r2med": "", "nano": "Nano", "mini": "Mini"}
CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
FAMILIES = {
    "ndcg": "ndcg",
    "map": "map",
    "recall": "recall",
    "precision": "precision",
    "mrr": "mrr",
    "hit": "hit_rate",
}


def mteb_name(collection: str, task: str) -> str:
    """MTEB's own name for a task of R2MED; a name it has not taken for every other.

    Mini, Nano and folders of one's own hold other data, so they never go under the names of R2MED's tasks.
    """
    official = {e.name: alias for e in entries("r2med") for alias in e.aliases if alias.endswith("Retrieval")}
    if collection in PREFIX and task in official:
        return PREFIX[collection] + official[task]
    parts = re.findall(r"[A-Za-z0-9]+", f"{collection} {task}")
    return "Own" + "".join(part[0].upper() + part[1:] for part in parts) + "Retrieval"


def task_of(name: str) -> tuple[str, str] | None:
    """Collection and task that an MTEB name stands for; None for tasks that are not in the catalogue."""
    for collection in PREFIX:
        for entry in entries(collection):
            if mteb_name(collection, entry.name) == name:
                return collection, entry.name
    return None


def mteb_measure(key: str) -> str | None:
    """MTEB's key of one of our measures, None where MTEB has no such measure or cut-off."""
    measure = Measure.parse(key) if not key.startswith("recall_micro") else None
    if measure is None or measure.parameters or measure.family not in FAMILIES or measure.cutoff not in CUTOFFS:
        return None
    return f"{FAMILIES[measure.family]}_at_{measure.cutoff}"


def our_measure(key: str) -> str | None:
    """Our key of one of MTEB's measures, None for those we do not compute (nAUC and the like)."""
    family, _, cutoff = key.rpartition("_at_")
    ours = {theirs: own for own, theirs in FAMILIES.items()}.get(family)
    return f"{ours}_at_{cutoff}" if ours and cutoff.isdigit() else None
