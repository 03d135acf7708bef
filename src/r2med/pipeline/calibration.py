"""Whether a benchmark can tell systems apart: how much words alone find, and what its queries can show.

Looked at are the rankings that ship with a task, in `rankings.jsonl` beside its queries: the first ten documents of
systems that not every machine can run. They are scored here, against the judgments of the task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np

from ..core import DataError, Run, Task
from ..core.files import open_file
from ..core.untrusted import printable
from ..scoring import MAIN, Evaluation, Measure, score
from ..scoring.compare import compare
from ..scoring.evaluation import ScoreSet, TaskScores
from ..scoring.intervals import Settings
from .artefact_report import SYSTEM_THRESHOLDS, Calibration, Check, Finding, PairCalibration, SystemCalibration

FILE = "rankings.jsonl"
JUDGED = Measure.parse("judged@10")
WORDS_ALONE = "bm25"


class Made(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of `rankings.jsonl`: the content of the task that was ranked."""

    fingerprint: str


class Ranking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first documents of a system for a query: a line of `rankings.jsonl`."""

    system: str
    query_id: str
    docs: list[str]
    compared: bool = False  # one of the systems that the benchmark has to tell apart


def calibrate(tasks: Sequence[Task], *, seed: int = 0) -> Calibration | None:
    """The figures of systems whose rankings ship with every task; None where there are no two to tell apart."""
    shipped = [read_rankings(task) for task in tasks]
    compared = [name for name, lines in shipped[0].items() if lines[0].compared]
    names = [name for name in shipped[0] if all(name in of_task for of_task in shipped)]
    if len(compared) < 2 or not set(compared) <= set(names):
        return None
    scores = [
        {name: score(_run(of_task[name]), task, [MAIN, JUDGED]) for name in names}
        for task, of_task in zip(tasks, shipped, strict=True)
    ]
    systems = [_system(name, tasks, [of_task[name] for of_task in scores]) for name in names]
    settings = Settings(seed=seed)
    pairs = [_pair(pair, tasks, scores, settings) for pair in combinations(compared, 2)]
    return Calibration(systems=systems, pairs=pairs, findings=_findings(systems, pairs, tasks))


def read_rankings(task: Task) -> dict[str, list[Ranking]]:
    """The rankings that ship with a task, by system; nothing where there are none."""
    folder = str(task.extra.get("path") or "")
    path = Path(folder, FILE)
    found: dict[str, list[Ranking]] = {}
    seen: set[tuple[str, str]] = set()
    if not folder or not path.is_file():  # a task without a folder does not take what lies in the current one
        return found
    with open_file(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                if number == 1:
                    _check_content(msgspec.json.decode(line, type=Made), task, path)
                    continue
                ranking = msgspec.json.decode(line, type=Ranking)
            except (ValueError, RecursionError) as error:
                raise DataError(f"cannot be read ({error})", path=path, line=number) from None
            if wrong := _wrong(ranking, task, seen):
                raise DataError(wrong, path=path, line=number)
            found.setdefault(ranking.system, []).append(ranking)
    return found


def _check_content(made: Made, task: Task, path: Path) -> None:
    if made.fingerprint != task.fingerprint:
        raise DataError(
            f"ranks other content than {task.full_name} has (fingerprint {printable(made.fingerprint[:8])}, here "
            f"{task.fingerprint[:8]}): remove it, or rank again",
            path=path,
        )


def _wrong(ranking: Ranking, task: Task, seen: set[tuple[str, str]]) -> str:
    """What is wrong with a line; nothing where it is a ranking of this task's documents for one of its queries."""
    if ranking.query_id not in task.query_ids:
        return f"ranks {printable(ranking.query_id)!r}, which is no query of {task.full_name}"
    if strange := next((doc_id for doc_id in ranking.docs if doc_id not in task.documents.ids), None):
        return f"ranks {printable(strange)!r}, which is no document of {task.full_name}"
    if len(set(ranking.docs)) < len(ranking.docs):
        return f"ranks a document twice for {printable(ranking.query_id)!r}"
    if (key := (ranking.system, ranking.query_id)) in seen:
        return f"ranks {printable(ranking.query_id)!r} by {printable(ranking.system)} twice"
    seen.add(key)
    return ""


def _run(lines: Sequence[Ranking]) -> Run:
    return Run.from_rankings(
        {line.query_id: [(doc_id, -float(rank)) for rank, doc_id in enumerate(line.docs)] for line in lines}
    )


def _system(name: str, tasks: Sequence[Task], scores: Sequence[Evaluation]) -> SystemCalibration:
    unjudged = [1.0 - of_task.mean(JUDGED) for of_task in scores]
    worst = int(np.argmax(unjudged))
    means = [of_task.mean(MAIN) for of_task in scores]
    return SystemCalibration(
        system=name,
        ndcg_at_10=float(np.mean(means)),
        tasks={task.full_name: mean for task, mean in zip(tasks, means, strict=True)},
        unjudged_at_10=unjudged[worst],
        most_unjudged=tasks[worst].full_name,
    )


def _pair(
    pair: tuple[str, str], tasks: Sequence[Task], scores: Sequence[dict[str, Evaluation]], settings: Settings
) -> PairCalibration:
    rows = [
        TaskScores(
            task.full_name,
            tuple(of_task[pair[0]].query_ids),
            np.stack([of_task[name].per_query[MAIN] for name in pair]),
        )
        for task, of_task in zip(tasks, scores, strict=True)
    ]
    (found,) = compare(ScoreSet(pair, tuple(rows), len(rows)), settings).pairs
    return PairCalibration(
        systems=pair,
        difference=found.macro.difference,
        low=found.macro.low,
        high=found.macro.high,
        apart=found.macro.low > 0.0 or found.macro.high < 0.0,
        detectable=found.macro.detectable,
        detectable_by_query=found.query_weighted.detectable,
    )


def _findings(
    systems: Sequence[SystemCalibration], pairs: Sequence[PairCalibration], tasks: Sequence[Task]
) -> list[Finding]:
    queries = sum(len(task.queries) for task in tasks)
    unjudged = max(systems, key=lambda of: of.unjudged_at_10)
    hardest = max(pairs, key=lambda pair: math.inf if pair.detectable is None else pair.detectable)
    apart = sum(pair.apart for pair in pairs)
    found = [
        _finding("pairs-apart", apart, queries, f"of {len(pairs)}, those whose difference has an interval without 0"),
        _finding("detectable", hardest.detectable, queries, f"of {' and '.join(hardest.systems)}, the most"),
        _finding(
            "unjudged", unjudged.unjudged_at_10, queries, f"of {unjudged.system} on {unjudged.most_unjudged}, the most"
        ),
    ]
    words = [of.ndcg_at_10 for of in systems if of.system == WORDS_ALONE]
    return [*(_finding("words-alone", value, queries, f"{WORDS_ALONE}, mean of the tasks") for value in words), *found]


def _finding(check: Check, value: float | None, queries: int, why: str) -> Finding:
    limit = SYSTEM_THRESHOLDS[check]
    least, most = (math.inf if of is None else of for of in (limit.least, limit.most))
    inside = value is not None and value <= most and (limit.least is None or value >= least)
    return Finding(
        check=check,
        verdict="passes" if inside else "fails",
        value=value,
        low=None,
        high=None,
        queries=queries,
        threshold=least if limit.most is None else most,
        why=why,
    )
