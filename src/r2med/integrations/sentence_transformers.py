"""During training: `NanoR2MEDEvaluator`, to be used where `NanoBEIREvaluator` is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core import UsageError
from ..scoring.intervals import Bootstrap, Settings
from .st_base import BaseEvaluator, Cutoffs, append_csv
from .st_task import Options, ScoreFunctions, TaskEvaluator, primary_metric
from .st_tasks import group, prompts_for, tasks_for

__all__ = ["NanoR2MEDEvaluator"]

logger = logging.getLogger(__name__)


class NanoR2MEDEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Reasoning-driven medical retrieval as a check during training.

    Mini takes a few minutes at most with a small model on a CPU, NanoR2MED (80,000 passages) wants a GPU.

    Arguments, CSV files and keys are those of `NanoBEIREvaluator`: `MiniR2MEDBiology_cosine_ndcg@10` for each task,
    `MiniR2MED_mean_cosine_ndcg@10` for their mean, which is the `primary_metric`. Beside the mean stands its 95 %
    interval over queries (`…_ndcg@10_low`, `…_ndcg@10_high`): two checkpoints whose intervals overlap widely are not
    told apart by so few queries.

    Args:
        dataset_names: Tasks of `dataset_id` (`["Biology", "MedQA-Diag"]`), full names or folders. None: all.
        dataset_id: `mini` (built in), `nano`, `r2med`, or a folder that `r2med nano build` wrote.
        mrr_at_k: Cut-offs of the reciprocal rank.
        ndcg_at_k: Cut-offs of nDCG; the largest one is the primary metric.
        accuracy_at_k: Cut-offs of "any relevant document among the first k".
        precision_recall_at_k: Cut-offs of precision and recall.
        map_at_k: Cut-offs of average precision.
        show_progress_bar: Whether encoding shows a bar.
        batch_size: Texts encoded at a time.
        write_csv: Whether figures are appended to CSV files in the output folder.
        truncate_dim: Keep only so many dimensions of each vector.
        score_functions: Functions of query and document vectors. None: the model's own similarity.
        main_score_function: Which of them decides; None: the better one.
        aggregate_fn: How the figures of tasks become one.
        aggregate_key: What that one is called.
        query_prompts: Put before queries: one for all tasks, or one by task name. None: the model's own.
        corpus_prompts: The same for documents.
        write_predictions: Whether rankings are written as JSON lines.
        intervals: Whether the interval of the mean is computed.

    """

    def __init__(
        self,
        dataset_names: Sequence[str] | None = None,
        dataset_id: str = "mini",
        mrr_at_k: Sequence[int] = (10,),
        ndcg_at_k: Sequence[int] = (10,),
        accuracy_at_k: Sequence[int] = (1, 3, 5, 10),
        precision_recall_at_k: Sequence[int] = (1, 3, 5, 10),
        map_at_k: Sequence[int] = (100,),
        show_progress_bar: bool = False,
        batch_size: int = 32,
        write_csv: bool = True,
        truncate_dim: int | None = None,
        score_functions: ScoreFunctions | None = None,
        main_score_function: Any = None,
        aggregate_fn: Callable[[list[float]], Any] = np.mean,
        aggregate_key: str = "mean",
        query_prompts: str | Mapping[str, str] | None = None,
        corpus_prompts: str | Mapping[str, str] | None = None,
        write_predictions: bool = False,
        *,
        intervals: bool = True,
    ) -> None:
        super().__init__()
        cutoffs = Cutoffs(accuracy_at_k, precision_recall_at_k, mrr_at_k, ndcg_at_k, map_at_k)
        cutoffs.check()
        main = getattr(main_score_function, "value", main_score_function) or None
        if score_functions and main and main not in score_functions:
            raise UsageError(f"main_score_function {main!r} is not among {', '.join(score_functions)}")
        self.options = Options(
            cutoffs, batch_size, show_progress_bar, write_csv, write_predictions, truncate_dim, score_functions, main
        )
        tasks = tasks_for(dataset_names, dataset_id)
        self.dataset_id, self.dataset_names = dataset_id, [one.asked for one in tasks]
        self.query_prompts, self.corpus_prompts = query_prompts, corpus_prompts
        self.aggregate_fn, self.aggregate_key, self.intervals = aggregate_fn, aggregate_key, intervals
        self.truncate_dim = truncate_dim
        suffix = f"_{truncate_dim}" if truncate_dim else ""
        self.name = f"{group(tasks)}_{aggregate_key}{suffix}"
        self.csv_file = f"{group(tasks)}_evaluation_{aggregate_key}_results.csv"
        of_query, of_corpus = prompts_for(query_prompts, tasks, "query"), prompts_for(corpus_prompts, tasks, "corpus")
        self.evaluators = [
            TaskEvaluator(
                one.task, one.label + suffix, self.options, query_prompt=of_query[one.label],
                corpus_prompt=of_corpus[one.label],
            )
            for one in tasks
        ]  # fmt: skip

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Figures of every task and their mean."""
        found: dict[str, float] = {}
        for evaluator in self.evaluators:
            found |= evaluator(model, output_path, epoch, steps)
        functions = list(self.evaluators[0].evaluations)
        scores = {f: self._aggregated(f) for f in functions}
        if output_path is not None and self.options.write_csv:
            append_csv(Path(output_path) / self.csv_file, epoch, steps, scores, self.options.cutoffs)
        metrics = {f"{f}_{key}": value for f, of_function in scores.items() for key, value in of_function.items()}
        self.primary_metric = primary_metric(metrics, functions, self.options)
        named: dict[str, float] = self.prefix_name_to_metrics(metrics, self.name)
        if len(self.evaluators) > 1:  # the figures of a single task are in the card already
            self.store_metrics_in_model_card_data(model, named, epoch, steps)
        if self.intervals and self.aggregate_fn is np.mean:
            named |= self.prefix_name_to_metrics(self._intervals(functions), self.name)
        logger.info("%s: %.4f", self.primary_metric, named[self.primary_metric])
        return found | named

    def _aggregated(self, function: str) -> dict[str, float]:
        per_task = [e.scores(e.evaluations[function]) for e in self.evaluators]
        return {key: float(self.aggregate_fn([scores[key] for scores in per_task])) for key in per_task[0]}

    def _intervals(self, functions: list[str]) -> dict[str, float]:
        measure = self.options.cutoffs.primary
        tasks = [np.stack([e.evaluations[f].per_query[measure.key] for f in functions]) for e in self.evaluators]
        drawn = Bootstrap(tasks, Settings(resamples=2000))
        bounds = drawn.bounds(np.eye(len(functions)), np.full(len(tasks), 1 / len(tasks)))
        found = {}
        for function, low, high in zip(functions, bounds.low.tolist(), bounds.high.tolist(), strict=True):
            found[f"{function}_ndcg@{measure.cutoff}_low"] = low
            found[f"{function}_ndcg@{measure.cutoff}_high"] = high
        return found

    def get_config_dict(self) -> dict[str, Any]:
        """What a model card says of the settings."""
        chosen = {
            "dataset_names": self.dataset_names,
            "dataset_id": self.dataset_id,
            "truncate_dim": self.truncate_dim,
            "query_prompts": self.query_prompts,
            "corpus_prompts": self.corpus_prompts,
        }
        return {key: value for key, value in chosen.items() if value is not None}
