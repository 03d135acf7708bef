"""During training: `NanoR2MEDEvaluator`, to be used where `NanoBEIREvaluator` is.

Scores are computed here, so that figures are those of `r2med.evaluate`: grades count, and equal scores stand as in
trec_eval. Names, CSV files and model cards are left to the evaluator of sentence-transformers that these are made of.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import IdTable, MissingExtra, ModelError, Run, Task, UnknownName, UsageError
from ..core.run import Float32
from ..core.untrusted import inside
from ..retrieve.sparse import top_k
from ..scoring import Evaluation, Measure, score
from ..scoring.evaluation import ScoreSet
from ..scoring.intervals import Settings, score_intervals
from ..tasks import TaskRef, collections, resolve

try:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
except ImportError:
    try:  # where it lay before version 6
        from sentence_transformers.evaluation import InformationRetrievalEvaluator
    except ImportError:
        raise MissingExtra("evaluating during training", "torch") from None

__all__ = ["NanoR2MEDEvaluator"]

PREFIX = {
    "nano": "NanoR2MED", "mini": "MiniR2MED", "mini-dev": "MiniDevR2MED", "mini@1": "Mini1R2MED", "r2med": "R2MED"
}  # fmt: skip
FAMILIES = {"accuracy": "hit", "precision": "precision", "recall": "recall", "mrr": "mrr", "ndcg": "ndcg", "map": "map"}
"""Measures of sentence-transformers and ours."""
Scores = dict[str, dict[str, dict[int, float]]]  # Means by score function, measure (`ndcg@k`) and cut-off.
logger = logging.getLogger(__name__)


class Evaluator(InformationRetrievalEvaluator):  # type: ignore[misc]
    """An evaluator of sentence-transformers that takes its scores from `compute_scores`."""

    def __init__(self, name: str, *, main_score_function: str | None = None, **settings: Any) -> None:
        super().__init__({}, {}, {}, name=name, **settings)
        shared = dict.fromkeys(("precision", "recall"), "precision_recall")
        self.cutoffs: dict[str, Sequence[int]] = {f: getattr(self, f"{shared.get(f, f)}_at_k") for f in FAMILIES}
        if not self.ndcg_at_k or any(not isinstance(k, int) or k < 1 for ks in self.cutoffs.values() for k in ks):
            raise UsageError("cut-offs are whole numbers from 1 on, and nDCG needs at least one")
        if main_score_function:
            self.primary_metric = f"{main_score_function}_{self.primary_measure}"
        self.scores: Scores = {}  # Of the last model.

    @property
    def primary_measure(self) -> str:
        """The measure that chooses the best model: nDCG at its largest cut-off."""
        return f"ndcg@{max(self.ndcg_at_k)}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        self.scores = {}
        named: dict[str, float] = super().__call__(model, output_path, epoch, steps)
        if not self.scores:
            raise ModelError("this version of sentence-transformers does not ask its evaluators for scores as it did")
        return named

    def compute_all_metrics(self, model: Any, output_path: str | None = None) -> Scores:
        self.scores = self.compute_scores(model, output_path)
        return self.scores

    compute_metrices = compute_all_metrics  # what versions before 6 call

    def compute_scores(self, model: Any, output_path: str | None) -> Scores:
        raise NotImplementedError


class TaskEvaluator(Evaluator):
    """Retrieves with a model from the documents of one task."""

    def __init__(self, task: Task, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.task = task
        self.evaluations: dict[str, Evaluation] = {}  # Per-query scores of the last model by score function.

    @property
    def description(self) -> str:
        return "Information Retrieval"

    def compute_scores(self, model: Any, output_path: str | None) -> Scores:
        measures = {f: {k: Measure(FAMILIES[f], k) for k in ks} for f, ks in self.cutoffs.items()}
        wanted = [measure for of_family in measures.values() for measure in of_family.values()]
        texts, passages = list(self.task.query_texts), list(self.task.documents.contents)
        queries = self.embed_inputs(model, texts, encode_fn_name="query", prompt=self.query_prompt)
        documents = self.embed_inputs(model, passages, encode_fn_name="document", prompt=self.corpus_prompt)
        scores: Scores = {}
        for name in sorted(self.score_functions):
            run = self._run(self.score_functions[name](queries, documents), name)
            if output_path is not None and self.write_predictions:
                file = self.predictions_file.replace(".jsonl", f"_{name}.jsonl")
                self._write(inside(Path(output_path), file, "file of predictions"), run)
            found = self.evaluations[name] = score(run, self.task.qrels, wanted)
            scores[name] = {f"{f}@k": {k: found.mean(m) for k, m in of.items()} for f, of in measures.items()}
        return scores

    def _run(self, similarities: Any, function: str) -> Run:
        scores: Float32 = similarities.detach().float().cpu().contiguous().numpy()
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            raise ModelError(
                f"{self.name}: the model's {function} scores of query {self.task.queries[row].id!r} are not finite "
                "numbers; has the training diverged?"
            )
        ids, depth = self.task.documents.ids, max(k for ks in self.cutoffs.values() for k in ks)
        return Run(self.task.query_ids, ids, *top_k(scores, ids.tie_rank, depth), name=function)

    def _write(self, path: Path, run: Run) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as stream:
            for query in self.task.queries:
                hits = [{"corpus_id": hit.doc_id, "score": hit.score} for hit in run.of(query.id)]
                stream.write(json.dumps({"query_id": query.id, "query": query.text, "results": hits}) + "\n")


class NanoR2MEDEvaluator(Evaluator):
    """Reasoning-driven medical retrieval as a check during training.

    Mini takes a few minutes at most with a small model on a CPU, NanoR2MED (80,000 passages) wants a GPU.

    Arguments, CSV files and keys are those of `NanoBEIREvaluator`: `MiniDevR2MEDBiology_cosine_ndcg@10` for each
    task, `MiniDevR2MED_mean_cosine_ndcg@10` for their mean, which is the `primary_metric`. Beside the mean stands its
    95 % interval over queries (`…_ndcg@10_low`, `…_ndcg@10_high`): so few queries cannot tell two checkpoints
    apart whose intervals overlap widely.

    Args:
        dataset_names: Tasks of `dataset_id` (`["Biology", "MedQA-Diag"]`), full names or folders. None: all.
        dataset_id: `mini-dev` (built in, for choosing checkpoints), `mini` (to report), `nano`, `r2med`, or a folder
            that `r2med nano build` wrote.
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
        dataset_id: str = "mini-dev",
        mrr_at_k: Sequence[int] = (10,),
        ndcg_at_k: Sequence[int] = (10,),
        accuracy_at_k: Sequence[int] = (1, 3, 5, 10),
        precision_recall_at_k: Sequence[int] = (1, 3, 5, 10),
        map_at_k: Sequence[int] = (100,),
        show_progress_bar: bool = False,
        batch_size: int = 32,
        write_csv: bool = True,
        truncate_dim: int | None = None,
        score_functions: dict[str, Callable[[Any, Any], Any]] | None = None,
        main_score_function: Any = None,
        aggregate_fn: Callable[[list[float]], Any] = np.mean,
        aggregate_key: str = "mean",
        query_prompts: str | Mapping[str, str] | None = None,
        corpus_prompts: str | Mapping[str, str] | None = None,
        write_predictions: bool = False,
        *,
        intervals: bool = True,
    ) -> None:
        main = getattr(main_score_function, "value", main_score_function) or None
        if score_functions and main and main not in score_functions:
            raise UsageError(f"main_score_function {main!r} is not among {', '.join(score_functions)}")
        tasks = tasks_for(dataset_names, dataset_id)
        # After their collection, for figures of Mini are not those of NanoR2MED.
        prefixes = {PREFIX.get(one.task.collection, "own") for one in tasks}
        group = prefixes.pop() if len(prefixes) == 1 else "mixed"
        suffix = f"_{truncate_dim}" if truncate_dim else ""
        settings: dict[str, Any] = {
            "mrr_at_k": mrr_at_k,
            "ndcg_at_k": ndcg_at_k,
            "accuracy_at_k": accuracy_at_k,
            "precision_recall_at_k": precision_recall_at_k,
            "map_at_k": map_at_k,
            "show_progress_bar": show_progress_bar,
            "batch_size": batch_size,
            "write_csv": write_csv,
            "truncate_dim": truncate_dim,
            "score_functions": score_functions,
            "main_score_function": main,
            "write_predictions": write_predictions,
        }
        super().__init__(f"{group}_{aggregate_key}{suffix}", **settings)
        self.csv_file = f"{group}_evaluation_{aggregate_key}_results.csv"
        self.dataset_id, self.dataset_names = dataset_id, [one.asked for one in tasks]
        self.query_prompts, self.corpus_prompts = query_prompts, corpus_prompts
        self.aggregate_fn, self.aggregate_key, self.intervals = aggregate_fn, aggregate_key, intervals
        of_query, of_corpus = prompts_for(query_prompts, tasks, "query"), prompts_for(corpus_prompts, tasks, "corpus")
        self.evaluators = [
            TaskEvaluator(one.task, one.label + suffix, query_prompt=query, corpus_prompt=corpus, **settings)
            for one, query, corpus in zip(tasks, of_query, of_corpus, strict=True)
        ]

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        found: dict[str, float] = {}
        for evaluator in self.evaluators:
            found |= evaluator(model, output_path, epoch, steps)
        named = super().__call__(model, output_path, epoch, steps)
        if self.intervals and self.aggregate_fn is np.mean:
            named |= self.prefix_name_to_metrics(self._intervals(), self.name)
        logger.info("%s: %.4f", self.primary_metric, named[self.primary_metric])
        return found | named

    def compute_scores(self, model: Any, output_path: str | None) -> Scores:
        """The mean, or whatever else is asked for, of the tasks' scores."""
        del model, output_path
        first, per_task = self.evaluators[0].scores, [evaluator.scores for evaluator in self.evaluators]
        return {
            function: {
                family: {k: float(self.aggregate_fn([scores[function][family][k] for scores in per_task])) for k in ks}
                for family, ks in families.items()
            }
            for function, families in first.items()
        }

    def store_metrics_in_model_card_data(self, *given: Any, **more: Any) -> None:
        """Add figures to the model's card; those of a single task are in it already."""
        if len(self.evaluators) > 1:
            super().store_metrics_in_model_card_data(*given, **more)

    def _intervals(self) -> dict[str, float]:
        measure = Measure("ndcg", max(self.ndcg_at_k))
        evaluations = {f: {e.name: e.evaluations[f] for e in self.evaluators} for f in self.scores}
        found = {}
        for system in score_intervals(ScoreSet.of_evaluations(evaluations, measure), Settings(resamples=2000)):
            name = f"{system.name}_{self.primary_measure}"
            found[f"{name}_low"], found[f"{name}_high"] = system.macro.low, system.macro.high
        return found

    def get_config_dict(self) -> dict[str, Any]:
        names = ("dataset_names", "dataset_id", "truncate_dim", "query_prompts", "corpus_prompts")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


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
    if repeated := IdTable(label(ref) for _, ref in refs).duplicates():
        raise UsageError(f"two of the tasks would both be called {repeated[0]!r}")
    return [NamedTask(name, label(ref), ref.load()) for name, ref in refs]


def _references(name: str, dataset_id: str) -> list[TaskRef]:
    if "/" in name:  # the whole name of a task of any collection, or a path
        return resolve(name)
    if dataset_id in collections():
        return resolve(f"{dataset_id}/{name}")
    within = resolve(dataset_id)
    if not (found := [ref for ref in within if name in (ref.name, ref.split)]):
        raise UnknownName(f"task of {dataset_id}", name, [ref.name for ref in within])
    return found


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
