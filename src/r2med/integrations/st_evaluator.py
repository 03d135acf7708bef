"""One task as an evaluator of sentence-transformers: its names, CSV files and model cards around our scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import MissingExtra, ModelError, Run, Task, UsageError
from ..core.run import Float32
from ..retrieve.sparse import top_k
from ..scoring import Evaluation, Measure, evaluate_run

try:
    from sentence_transformers.base.evaluation import BaseEvaluator
except ImportError:  # the name before version 6
    try:
        from sentence_transformers.evaluation import SentenceEvaluator as BaseEvaluator
    except ImportError:
        raise MissingExtra("evaluating during training", "torch") from None

ScoreFunctions = dict[str, Callable[[Any, Any], Any]]
"""Functions of query and document vectors by name."""
OURS = {"accuracy": "hit", "precision": "precision", "recall": "recall", "mrr": "mrr", "ndcg": "ndcg", "map": "map"}
TITLES = {name: name.title() for name in ("accuracy", "precision", "recall")}
"""Families in the header of a CSV file; the others are written in capitals."""


class Settings(NamedTuple):
    """What all tasks of an evaluator share."""

    measures: dict[str, Measure]
    """By the names of sentence-transformers, in the order of its CSV files."""
    batch_size: int
    show_progress_bar: bool
    write_csv: bool
    write_predictions: bool
    truncate_dim: int | None
    score_functions: ScoreFunctions | None
    main_score_function: str | None

    @property
    def primary(self) -> str:
        """The measure that chooses the best model: nDCG at its largest cut-off."""
        return max((name for name in self.measures if name.startswith("ndcg@")), key=_cutoff)

    @property
    def depth(self) -> int:
        """How many documents of a ranking are looked at."""
        return max(map(_cutoff, self.measures))


def _cutoff(name: str) -> int:
    return int(name.partition("@")[2])


def measures_at(
    accuracy: Sequence[int],
    precision_recall: Sequence[int],
    mrr: Sequence[int],
    ndcg: Sequence[int],
    average: Sequence[int],
) -> dict[str, Measure]:
    """Measures at the cut-offs that NanoBEIREvaluator takes."""
    wanted = [
        *(("accuracy", k) for k in accuracy),
        *((family, k) for k in precision_recall for family in ("precision", "recall")),
        *(("mrr", k) for k in mrr),
        *(("ndcg", k) for k in ndcg),
        *(("map", k) for k in average),
    ]
    if not ndcg or any(not isinstance(k, int) or k < 1 for _, k in wanted):
        raise UsageError("cut-offs are whole numbers from 1 on, and nDCG needs at least one")
    return {f"{family}@{k}": Measure(OURS[family], k) for family, k in wanted}


class Evaluator(BaseEvaluator):  # type: ignore[misc]
    """What sentence-transformers wants to be done with scores."""

    def __init__(self, name: str, settings: Settings, csv_file: str) -> None:
        super().__init__()
        self.name, self.settings, self.csv_file = name, settings, csv_file

    def publish(
        self, scores: Mapping[str, Mapping[str, float]], output_path: str | None, epoch: int, steps: int
    ) -> dict[str, float]:
        """Append scores, by score function and measure, to the CSV file; returns them under their full names."""
        if output_path is not None and self.settings.write_csv:
            self._append(Path(output_path), [epoch, steps], scores)
        metrics = {f"{f}_{key}": value for f, of_function in scores.items() for key, value in of_function.items()}
        measure = self.settings.primary
        best = self.settings.main_score_function or max(scores, key=lambda f: scores[f][measure])
        self.primary_metric = f"{best}_{measure}"
        named: dict[str, float] = self.prefix_name_to_metrics(metrics, self.name)
        return named

    def _append(self, folder: Path, begin: list[object], scores: Mapping[str, Mapping[str, float]]) -> None:
        titles = ["epoch", "steps"]
        for function in scores:
            for family, _, k in (name.partition("@") for name in self.settings.measures):
                titles.append(f"{function}-{TITLES.get(family, family.upper())}@{k}")
        values = [of_function[name] for of_function in scores.values() for name in self.settings.measures]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.csv_file
        header = "" if path.is_file() else ",".join(titles) + "\n"
        with path.open("a", encoding="utf-8") as stream:
            stream.write(header + ",".join(map(str, [*begin, *values])) + "\n")


class TaskEvaluator(Evaluator):
    """Retrieves with a model from the documents of one task.

    Grades count and equal scores stand as in trec_eval, so that figures are those of `r2med.evaluate`.
    """

    def __init__(
        self, task: Task, name: str, settings: Settings, *, query_prompt: str | None = None,
        corpus_prompt: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, settings, f"Information-Retrieval_evaluation_{name}_results.csv")
        self.task = task
        self.query_prompt, self.corpus_prompt = query_prompt, corpus_prompt
        self.evaluations: dict[str, Evaluation] = {}
        """Per-query scores of the last model, for each score function."""

    @property
    def description(self) -> str:
        """What a model card calls it."""
        return "Information Retrieval"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Score a model."""
        self.evaluations = self.evaluate(model, output_path)
        named = self.publish({f: self.scores(f) for f in self.evaluations}, output_path, epoch, steps)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return named

    def scores(self, function: str) -> dict[str, float]:
        """Means of the last model under the names of sentence-transformers."""
        return {name: self.evaluations[function].mean(measure) for name, measure in self.settings.measures.items()}

    def evaluate(self, model: Any, output_path: str | None = None) -> dict[str, Evaluation]:
        """Per-query scores for each score function."""
        functions = self.settings.score_functions or {model.similarity_fn_name: model.similarity}
        queries = self._embed(model.encode_query, list(self.task.query_texts), self.query_prompt)
        documents = self._embed(model.encode_document, list(self.task.documents.contents), self.corpus_prompt)
        found = {}
        for name in sorted(functions):
            run = self._run(functions[name](queries, documents), name)
            if output_path is not None and self.settings.write_predictions:
                self._write_predictions(Path(output_path), name, run)
            found[name] = evaluate_run(run, self.task.qrels, list(self.settings.measures.values()))
        return found

    def _embed(self, encode: Callable[..., Any], texts: list[str], prompt: str | None) -> Any:
        return encode(
            texts,
            prompt=prompt,
            batch_size=self.settings.batch_size,
            show_progress_bar=self.settings.show_progress_bar,
            convert_to_tensor=True,
            truncate_dim=self.settings.truncate_dim,
        )

    def _run(self, similarities: Any, function: str) -> Run:
        scores: Float32 = similarities.detach().float().cpu().contiguous().numpy()
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            raise ModelError(
                f"{self.name}: the model's {function} scores of query {self.task.queries[row].id!r} are not finite "
                "numbers; has the training diverged?"
            )
        ids = self.task.documents.ids
        return Run(self.task.query_ids, ids, *top_k(scores, ids.tie_rank, self.settings.depth), name=function)

    def _write_predictions(self, folder: Path, function: str, run: Run) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"Information-Retrieval_evaluation_{self.name}_predictions_{function}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for query in self.task.queries:
                hits = [{"corpus_id": hit.doc_id, "score": hit.score} for hit in run.of(query.id)]
                stream.write(json.dumps({"query_id": query.id, "query": query.text, "results": hits}) + "\n")

    def get_config_dict(self) -> dict[str, Any]:
        """What a model card says of the settings."""
        chosen = {
            "truncate_dim": self.settings.truncate_dim,
            "query_prompt": self.query_prompt,
            "corpus_prompt": self.corpus_prompt,
        }
        return {key: value for key, value in chosen.items() if value is not None}
