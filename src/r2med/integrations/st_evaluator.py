"""One task as an evaluator of sentence-transformers, scored as r2med scores everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import ModelError, Run, Task
from ..core.columns import Int32
from ..core.run import Float32
from ..scoring import Evaluation, evaluate_run
from .st_base import BaseEvaluator, Cutoffs, append_csv

ScoreFunctions = dict[str, Callable[[Any, Any], Any]]


class Options(NamedTuple):
    """What all tasks of an evaluator share."""

    cutoffs: Cutoffs
    batch_size: int
    show_progress_bar: bool
    write_csv: bool
    write_predictions: bool
    truncate_dim: int | None
    score_functions: ScoreFunctions | None
    main_score_function: str | None


class TaskEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Retrieves with a model from the documents of one task.

    Grades count and equal scores stand as in trec_eval, so that figures are those of `r2med.evaluate`.
    """

    def __init__(
        self, task: Task, name: str, options: Options, *, query_prompt: str | None = None,
        corpus_prompt: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.task, self.name, self.options = task, name, options
        self.query_prompt, self.corpus_prompt = query_prompt, corpus_prompt
        self.csv_file = f"Information-Retrieval_evaluation_{name}_results.csv"

    @property
    def description(self) -> str:
        """What a model card calls it."""
        return "Information Retrieval"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        evaluations = self.evaluate(model, output_path)
        scores = {f: self.scores(evaluation) for f, evaluation in evaluations.items()}
        if output_path is not None and self.options.write_csv:
            append_csv(Path(output_path) / self.csv_file, epoch, steps, scores, self.options.cutoffs)
        metrics = {f"{f}_{key}": value for f, of_function in scores.items() for key, value in of_function.items()}
        self.primary_metric = primary_metric(metrics, list(scores), self.options)
        named: dict[str, float] = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        self.evaluations = evaluations
        return named

    def scores(self, evaluation: Evaluation) -> dict[str, float]:
        """Means under the names of sentence-transformers."""
        return {name: evaluation.mean(measure) for name, measure in self.options.cutoffs.measures()}

    def evaluate(self, model: Any, output_path: str | None = None) -> dict[str, Evaluation]:
        """Per-query scores for each score function."""
        functions = self.options.score_functions or {model.similarity_fn_name: model.similarity}
        queries = self._embed(model.encode_query, list(self.task.query_texts), self.query_prompt)
        documents = self._embed(model.encode_document, list(self.task.documents.contents), self.corpus_prompt)
        measures = [measure for _, measure in self.options.cutoffs.measures()]
        found = {}
        for name in sorted(functions):
            run = self._run(functions[name](queries, documents), name)
            if output_path is not None and self.options.write_predictions:
                self._write_predictions(Path(output_path), name, run)
            found[name] = evaluate_run(run, self.task.qrels, measures)
        return found

    def _embed(self, encode: Callable[..., Any], texts: list[str], prompt: str | None) -> Any:
        return encode(
            texts,
            prompt=prompt,
            batch_size=self.options.batch_size,
            show_progress_bar=self.options.show_progress_bar,
            convert_to_tensor=True,
            truncate_dim=self.options.truncate_dim,
        )

    def _run(self, similarities: Any, function: str) -> Run:
        scores: Float32 = similarities.detach().float().cpu().numpy()
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            raise ModelError(
                f"{self.name}: the model's {function} scores of query {self.task.queries[row].id!r} are not finite "
                "numbers; has the training diverged?"
            )
        docs, top = best(scores, self.task.documents.ids.tie_rank, self.options.cutoffs.depth)
        return Run(self.task.query_ids, self.task.documents.ids, docs, top, name=function)

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
            "truncate_dim": self.options.truncate_dim,
            "query_prompt": self.query_prompt,
            "corpus_prompt": self.corpus_prompt,
        }
        return {key: value for key, value in chosen.items() if value is not None}


def best(scores: Float32, tie_rank: Int32, depth: int) -> tuple[Int32, Float32]:
    """The best `depth` columns of each row, equal scores by tie rank; no more than that is sorted."""
    depth = min(depth, scores.shape[1])
    docs = np.empty((len(scores), depth), dtype=np.int32)
    for i, row in enumerate(scores):
        least = np.partition(row, -depth)[-depth]
        candidates = np.flatnonzero(row >= least)  # more than `depth` where the last place is tied
        order = np.lexsort((tie_rank[candidates], -row[candidates]))
        docs[i] = candidates[order[:depth]]
    return docs, np.take_along_axis(scores, docs, axis=1).astype(np.float32, copy=False)


def primary_metric(metrics: dict[str, float], functions: list[str], options: Options) -> str:
    """The nDCG at its largest cut-off, by the main score function or else the better one."""
    measure = f"ndcg@{max(options.cutoffs.ndcg)}"
    function = options.main_score_function or max(functions, key=lambda f: metrics[f"{f}_{measure}"])
    return f"{function}_{measure}"
