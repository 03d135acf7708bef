"""During training: `NanoR2MEDEvaluator`, to be used where `NanoBEIREvaluator` is."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import Task, UnknownName, UsageError
from ..scoring.intervals import Bootstrap
from ..scoring.intervals import Settings as BootstrapSettings
from ..tasks import TaskRef, collections, resolve
from .st_evaluator import Evaluator, ScoreFunctions, Settings, TaskEvaluator, measures_at

__all__ = ["NanoR2MEDEvaluator"]

PREFIX = {"nano": "NanoR2MED", "mini": "MiniR2MED", "r2med": "R2MED"}
logger = logging.getLogger(__name__)


class NanoR2MEDEvaluator(Evaluator):
    """Reasoning-driven medical retrieval as a check during training.

    Mini takes a few minutes at most with a small model on a CPU, NanoR2MED (80,000 passages) wants a GPU.

    Arguments, CSV files and keys are those of `NanoBEIREvaluator`: `MiniR2MEDBiology_cosine_ndcg@10` for each task,
    `MiniR2MED_mean_cosine_ndcg@10` for their mean, which is the `primary_metric`. Beside the mean stands its 95 %
    interval over queries (`…_ndcg@10_low`, `…_ndcg@10_high`): so few queries cannot tell two checkpoints apart whose
    intervals overlap widely.

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
        measures = measures_at(accuracy_at_k, precision_recall_at_k, mrr_at_k, ndcg_at_k, map_at_k)
        main = getattr(main_score_function, "value", main_score_function) or None
        if score_functions and main and main not in score_functions:
            raise UsageError(f"main_score_function {main!r} is not among {', '.join(score_functions)}")
        settings = Settings(
            measures, batch_size, show_progress_bar, write_csv, write_predictions, truncate_dim, score_functions, main
        )
        tasks = tasks_for(dataset_names, dataset_id)
        # After their collection, for figures of Mini are not those of NanoR2MED.
        prefixes = {PREFIX.get(one.task.collection, "own") for one in tasks}
        group = prefixes.pop() if len(prefixes) == 1 else "mixed"
        suffix = f"_{truncate_dim}" if truncate_dim else ""
        super().__init__(
            f"{group}_{aggregate_key}{suffix}", settings, f"{group}_evaluation_{aggregate_key}_results.csv"
        )
        self.dataset_id, self.dataset_names = dataset_id, [one.asked for one in tasks]
        self.query_prompts, self.corpus_prompts = query_prompts, corpus_prompts
        self.aggregate_fn, self.aggregate_key, self.intervals = aggregate_fn, aggregate_key, intervals
        self.truncate_dim = truncate_dim
        of_query, of_corpus = prompts_for(query_prompts, tasks, "query"), prompts_for(corpus_prompts, tasks, "corpus")
        self.evaluators = [
            TaskEvaluator(one.task, one.label + suffix, settings, query_prompt=query, corpus_prompt=corpus)
            for one, query, corpus in zip(tasks, of_query, of_corpus, strict=True)
        ]

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Figures of every task and their mean."""
        found: dict[str, float] = {}
        for evaluator in self.evaluators:
            found |= evaluator(model, output_path, epoch, steps)
        functions = list(self.evaluators[0].evaluations)
        named = self.publish({f: self._aggregated(f) for f in functions}, output_path, epoch, steps)
        if len(self.evaluators) > 1:  # the figures of a single task are in the card already
            self.store_metrics_in_model_card_data(model, named, epoch, steps)
        if self.intervals and self.aggregate_fn is np.mean:
            named |= self.prefix_name_to_metrics(self._intervals(functions), self.name)
        logger.info("%s: %.4f", self.primary_metric, named[self.primary_metric])
        return found | named

    def _aggregated(self, function: str) -> dict[str, float]:
        per_task = [evaluator.scores(function) for evaluator in self.evaluators]
        return {key: float(self.aggregate_fn([scores[key] for scores in per_task])) for key in per_task[0]}

    def _intervals(self, functions: list[str]) -> dict[str, float]:
        primary = self.settings.primary
        key = self.settings.measures[primary].key
        tasks = [np.stack([e.evaluations[f].per_query[key] for f in functions]) for e in self.evaluators]
        drawn = Bootstrap(tasks, BootstrapSettings(resamples=2000))
        bounds = drawn.bounds(np.eye(len(functions)), np.full(len(tasks), 1 / len(tasks)))
        found = {}
        for function, low, high in zip(functions, bounds.low.tolist(), bounds.high.tolist(), strict=True):
            found[f"{function}_{primary}_low"], found[f"{function}_{primary}_high"] = low, high
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


class NamedTask(NamedTuple):
    """A task, the name it was asked for by, and the name in front of its figures."""

    asked: str
    label: str
    task: Task


def tasks_for(dataset_names: Sequence[str] | None, dataset_id: str) -> list[NamedTask]:
    """All tasks of `dataset_id` (a collection or a folder), or those named: within it, or by full name or path."""
    if isinstance(dataset_names, str):
        raise UsageError(f"dataset_names is a list of names: [{dataset_names!r}]")
    if dataset_names is not None and not dataset_names:
        raise UsageError("dataset_names is empty; None stands for all tasks")
    if dataset_names is None:
        refs = [(ref.name, ref) for ref in resolve(dataset_id)]
    else:
        refs = [(name, ref) for name in dataset_names for ref in _references(name, dataset_id)]
    found = [NamedTask(name, label(ref), ref.load()) for name, ref in refs]
    labels = [one.label for one in found]
    if twice := next((one for one in labels if labels.count(one) > 1), None):
        raise UsageError(f"two of the tasks would both be called {twice!r}")
    return found


def _references(name: str, dataset_id: str) -> list[TaskRef]:
    if dataset_id not in collections():
        inside = [ref for ref in resolve(dataset_id) if ref.name == name]
        return inside or resolve(name)
    try:
        return resolve(f"{dataset_id}/{name}")
    except UnknownName:
        return resolve(name)  # the whole name of a task elsewhere, or a folder


def label(ref: TaskRef) -> str:
    """`NanoR2MEDBiology`, `MiniR2MEDBiology`, or a folder's own name in letters, digits and underscores."""
    if ref.collection in PREFIX:
        return PREFIX[ref.collection] + ref.name.replace("-", "")
    return re.sub(r"\W+", "_", ref.name).strip("_") or "task"


def prompts_for(prompts: str | Mapping[str, str] | None, tasks: Sequence[NamedTask], kind: str) -> list[str | None]:
    """The prompt of each task: one for all, or a dict by the names that were asked for."""
    if prompts is None or isinstance(prompts, str):
        return [prompts] * len(tasks)
    if missing := [one.asked for one in tasks if one.asked not in prompts and one.label not in prompts]:
        raise UsageError(f"no {kind} prompt for {', '.join(missing)}")
    return [prompts[one.asked if one.asked in prompts else one.label] for one in tasks]
