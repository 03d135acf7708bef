"""What the evaluators share: the base class of sentence-transformers, the measures' names, and the CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core import MissingExtra, UsageError
from ..scoring import Measure

try:
    from sentence_transformers.base.evaluation import BaseEvaluator
except ImportError:  # before version 6 it was called so
    try:
        from sentence_transformers.evaluation import SentenceEvaluator as BaseEvaluator
    except ImportError:
        raise MissingExtra("evaluating during training", "torch") from None

__all__ = ["BaseEvaluator", "Cutoffs", "append_csv"]


class Cutoffs(NamedTuple):
    """The cut-offs of each measure, as NanoBEIREvaluator takes them."""

    accuracy: Sequence[int]
    precision_recall: Sequence[int]
    mrr: Sequence[int]
    ndcg: Sequence[int]
    map: Sequence[int]

    @property
    def depth(self) -> int:
        """How many documents of a ranking are looked at."""
        return max(k for ks in self for k in ks)

    @property
    def primary(self) -> Measure:
        """The measure that chooses the best model."""
        return Measure("ndcg", max(self.ndcg))

    def check(self) -> None:
        """Refuse what cannot be a cut-off."""
        if not self.ndcg or any(not isinstance(k, int) or k < 1 for ks in self for k in ks):
            raise UsageError("cut-offs are whole numbers from 1 on, and nDCG needs at least one")

    def measures(self) -> Iterator[tuple[str, Measure]]:
        """Their names and ours, in the order of the CSV file."""
        yield from ((f"accuracy@{k}", Measure("hit", k)) for k in self.accuracy)
        for k in self.precision_recall:
            yield f"precision@{k}", Measure("precision", k)
            yield f"recall@{k}", Measure("recall", k)
        yield from ((f"mrr@{k}", Measure("mrr", k)) for k in self.mrr)
        yield from ((f"ndcg@{k}", Measure("ndcg", k)) for k in self.ndcg)
        yield from ((f"map@{k}", Measure("map", k)) for k in self.map)


TITLES = {
    "accuracy": "Accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "mrr": "MRR",
    "ndcg": "NDCG",
    "map": "MAP",
}


def csv_headers(score_functions: Sequence[str], cutoffs: Cutoffs) -> list[str]:
    """`epoch`, `steps` and a column for each measure, titled as in sentence-transformers."""
    columns = []
    for score in score_functions:
        for name, _ in cutoffs.measures():
            family, _, k = name.partition("@")
            columns.append(f"{score}-{TITLES[family]}@{k}")
    return ["epoch", "steps", *columns]


def append_csv(path: Path, epoch: int, steps: int, scores: Mapping[str, Mapping[str, float]], cutoffs: Cutoffs) -> None:
    """Add a line to the CSV file, which is begun where there is none."""
    row: list[Any] = [epoch, steps]
    row += [of_function[name] for of_function in scores.values() for name, _ in cutoffs.measures()]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.is_file()
    with path.open("a", encoding="utf-8") as stream:
        if new:
            stream.write(",".join(csv_headers(list(scores), cutoffs)) + "\n")
        stream.write(",".join(map(str, row)) + "\n")
