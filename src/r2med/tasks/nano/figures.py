"""The figures of Nano tasks as data: of a task, of a group, as published, and all that a task page tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...core import IdTable, Task, UsageError
from ...core.files import parse_toml
from ..audit.findings import SystemAudit, TaskAudit
from ..stats import LexicalTrap, Tendencies

if TYPE_CHECKING:
    from .folder import Metadata

ROLES = ("bm25", "dense", "hybrid")


class ProfileFigures(msgspec.Struct, kw_only=True):
    """How well one list of candidates holds the positives.

    `recall_at_100` is micro, the share of all positive judgments, as NanoR2MED publishes it; `recall_macro_at_100` is
    the mean over queries. The positive that is appended to a hybrid list without one counts in neither.
    """

    profile: str
    top_k: int
    ndcg_at_10: float
    hit_at_10: float
    recall_at_100: float
    recall_macro_at_100: float | None = None
    ndcg_at_10_interval: tuple[float, float] | None = None
    positives_covered: float | None = None
    queries_covered: float | None = None
    safeguard_rows: int = 0
    measured: bool = True


class TaskFigures(msgspec.Struct, kw_only=True):
    """One row of the group table."""

    task: str
    split: str
    queries: int
    documents: int
    positives: int
    positives_per_query: float
    positives_min: int
    positives_median: float
    positives_max: int
    multi_positive_queries: int
    query_chars_mean: float
    document_chars_mean: float
    profiles: dict[str, ProfileFigures]
    best: str = ""

    def __post_init__(self) -> None:
        self.best = max(self.profiles, key=lambda role: self.profiles[role].ndcg_at_10, default="")


class Contrast(NamedTuple):
    """The difference of two profiles over the same queries, with its interval."""

    better: str
    worse: str
    difference: float
    low: float
    high: float
    clear: bool  # Whether it is significant at 5 %, corrected for all pairs of profiles; the interval is not.


class GroupFigures(msgspec.Struct, kw_only=True):
    """A profile over all tasks: query-weighted means, recall over all judgments; `tasks` of `of_tasks` have it."""

    ndcg_at_10: float
    hit_at_10: float
    recall_at_100: float
    recall_macro_at_100: float | None
    recall_at_100_query_weighted: float
    """The mean of the tasks' recalls by their queries, which is what NanoR2MED's group page prints."""
    ndcg_at_10_task_mean: float
    safeguard_rows: int
    tasks: int
    of_tasks: int
    complete: bool


class NanoProfile(msgspec.Struct, kw_only=True):
    """The document that `r2med nano profile --json` prints."""

    source: str
    queries: int
    documents: int
    positives: int
    tasks: dict[str, TaskFigures]
    group: dict[str, GroupFigures | None]


def group(tasks: Sequence[TaskFigures], *, source: str) -> NanoProfile:
    """The figures of a group of tasks; two tasks of one name are refused."""
    if repeated := IdTable(t.task for t in tasks).duplicates():
        raise UsageError(f"two of the tasks are called {repeated[0]!r}; a group holds each task once")
    return NanoProfile(
        source=source,
        queries=sum(t.queries for t in tasks),
        documents=sum(t.documents for t in tasks),
        positives=sum(t.positives for t in tasks),
        tasks={t.task: t for t in tasks},
        group={role: _group_one(tasks, role) for role in ROLES},
    )


def _group_one(tasks: Sequence[TaskFigures], role: str) -> GroupFigures | None:
    have = [(t, t.profiles[role]) for t in tasks if role in t.profiles]
    if not have:
        return None
    queries, positives = sum(t.queries for t, _ in have), sum(t.positives for t, _ in have)

    def weighted(value: Callable[[ProfileFigures], float]) -> float:
        return sum(t.queries * value(p) for t, p in have) / queries

    macro = [p.recall_macro_at_100 for _, p in have]
    return GroupFigures(
        ndcg_at_10=weighted(lambda p: p.ndcg_at_10),
        hit_at_10=weighted(lambda p: p.hit_at_10),
        recall_at_100=sum(t.positives * p.recall_at_100 for t, p in have) / positives,
        recall_macro_at_100=None if None in macro else weighted(lambda p: p.recall_macro_at_100 or 0.0),
        recall_at_100_query_weighted=weighted(lambda p: p.recall_at_100),
        ndcg_at_10_task_mean=sum(p.ndcg_at_10 for _, p in have) / len(have),
        safeguard_rows=sum(p.safeguard_rows for _, p in have),
        tasks=len(have),
        of_tasks=len(tasks),
        complete=len(have) == len(tasks),
    )


def published_shapes() -> dict[str, dict[str, Any]]:
    """What NanoR2MED's pages say about each task beside its scores, by its name in the catalogue."""
    data = parse_toml(files(__package__).joinpath("published.toml").read_text("utf-8"))
    return msgspec.convert(data, dict[str, dict[str, int | float]])


class Tercile(NamedTuple):
    """A third of the queries, by the words they share with their positives, and each profile's nDCG@10 on it."""

    name: str
    queries: int
    low: float
    high: float
    ndcg_at_10: dict[str, float]


class Outcome(msgspec.Struct, frozen=True):
    """One query, by profile: its nDCG@10, the rank of its first positive, the nDCG@10 of its list in the best order."""

    query: str
    ndcg_at_10: dict[str, float]
    first_rank: dict[str, int | None]
    best_order: dict[str, float]

    def hit(self, role: str) -> bool:
        """Whether a positive stands among the first ten."""
        rank = self.first_rank.get(role)
        return rank is not None and rank <= 10


class Slope(NamedTuple):
    """nDCG@10 of a profile where queries share the fewest terms with their positives, and where the most."""

    role: str
    fewest: float
    most: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """The most over the fewest; `low` and `high` bound it."""
        return self.most - self.fewest

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference leaves out zero."""
        return self.low > 0 or self.high < 0


class Inspected(NamedTuple):
    """All figures and findings that the page of a task shows."""

    task: Task
    split: str
    figures: TaskFigures
    contrasts: list[Contrast]
    audit: TaskAudit | None
    """None where the task was not audited."""
    audit_settings: dict[str, float | int | str]
    scores: list[SystemAudit]
    traps: list[LexicalTrap]
    tendencies: Tendencies
    terciles: list[Tercile]
    slopes: list[Slope]
    outcomes: list[Outcome]
    trapped: int
    """Queries whose first BM25 document is wrong and shares more terms than any positive."""
    empty: dict[str, int]
    """Queries without a single candidate, by profile."""
    made_by: dict[str, str]
    """The retriever behind each config, where it is known."""
    columns: dict[str, list[str]]
    """Of its files, by config; empty where it is not a Nano folder."""
    metadata: Metadata | None
