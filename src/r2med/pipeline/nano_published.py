"""NanoR2MED's own figures, from the ledger: facts we did not compute, and marked so."""

from __future__ import annotations

from ..results.ledger import ledger
from ..tasks.catalogue import entries
from ..tasks.nano.figures import NanoProfile, ProfileFigures, TaskFigures, group
from ..tasks.nano.names import HYBRID, config_name
from ..tasks.nano.shape import published_shapes
from .nano_profiles import DEPTH, HYBRID_DEPTH

PROTOCOL = "nano-profile"
SYSTEMS = {"bm25": "bm25", "dense": "harrier", "hybrid": "hybrid"}
CONFIGS = {"bm25": "bm25", "dense": config_name("harrier"), "hybrid": HYBRID}


def published_profile() -> NanoProfile:
    """The published per-task figures, and the group figures made from them by the code that makes ours."""
    found = {role: ledger().find(system, "nano", PROTOCOL) for role, system in SYSTEMS.items()}
    source, shapes = found["bm25"].source, published_shapes()
    positives = dict(zip(source.tasks, source.positives, strict=True))
    queries = dict(zip(source.tasks, source.queries, strict=True))
    tasks = []
    for entry in entries("nano"):
        shape = shapes[entry.name]
        profiles = {
            role: ProfileFigures(
                profile=CONFIGS[role],
                top_k=HYBRID_DEPTH if role == "hybrid" else DEPTH,
                ndcg_at_10=figure.tasks("ndcg_at_10")[entry.name],
                hit_at_10=figure.tasks("hit_at_10")[entry.name],
                recall_at_100=figure.tasks("recall_micro_at_100")[entry.name],
                safeguard_rows=shape.safeguards if role == "hybrid" else 0,
                measured=False,
            )
            for role, figure in found.items()
        }
        low, median, high = shape.positives
        tasks.append(
            TaskFigures(
                task=entry.name,
                split=entry.split,
                queries=queries[entry.name],
                documents=entry.documents,
                positives=positives[entry.name],
                positives_per_query=positives[entry.name] / queries[entry.name],
                positives_min=low,
                positives_median=median,
                positives_max=high,
                multi_positive_queries=shape.multiple,
                query_chars_mean=shape.query_chars,
                document_chars_mean=shape.document_chars,
                profiles=profiles,
            )
        )
    return group(tasks, source=source.title)
