"""What MTEB hands its models, without MTEB: batches of texts, a task's facts, the side a text is on.

The classes here have the faces of `torch.utils.data.DataLoader`, `datasets.Dataset` and mteb's `TaskMetadata` as far
as models look at them. Where mteb is loaded already, sides are its own `PromptType`, so that `is` comparisons hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..core import Task
from ..core.queries import Side

SPLIT, SUBSET = "test", "default"
BATCH = 32
PREFIXES = {"r2med": "", "nano": "Nano", "mini": "Mini", "mini-dev": "MiniDev", "mini@1": "Mini1"}
"""Other data than R2MED's never go under the names of its tasks."""


class PromptType(str, Enum):
    """Which side a text is on; equal to mteb's member of the same name."""

    query = "query"
    document = "document"

    def __str__(self) -> str:
        return self.value


def prompt_type(side: Side) -> Any:
    """A side as mteb spells it."""
    theirs = getattr(sys.modules.get("mteb.types"), "PromptType", None)
    return (theirs or PromptType)(side)


class Columns:
    """Columns of equal length, read by name or by position."""

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self.columns = dict(columns)

    @property
    def column_names(self) -> list[str]:
        """The names."""
        return list(self.columns)

    @property
    def features(self) -> dict[str, str]:
        """Name and type of each column."""
        return dict.fromkeys(self.columns, "string")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, str]]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}

    def select(self, positions: Sequence[int]) -> Columns:
        """Some of the rows."""
        return Columns({name: [column[i] for i in positions] for name, column in self.columns.items()})


class Loader:
    """Batches of rows: dictionaries of lists."""

    num_workers = 0

    def __init__(self, dataset: Columns, batch_size: int = BATCH) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.collate_fn: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return (len(self.dataset) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, list[str]]]:
        for begin in range(0, len(self.dataset), self.batch_size):
            rows = slice(begin, begin + self.batch_size)
            yield {name: list(column[rows]) for name, column in self.dataset.columns.items()}


def loader(texts: Sequence[str], side: Side) -> Loader:
    """Texts of one side under the names mteb gives them; it strips documents, so they are stripped here."""
    if side == "query":
        return Loader(Columns({"text": texts, "query": texts}))
    stripped = [text.strip() for text in texts]
    return Loader(Columns({"text": stripped, "body": stripped}))


@dataclass(frozen=True)
class TaskFacts:
    """The metadata that models pick prompts, languages and modalities by."""

    name: str = "R2MED"
    type: str = "Retrieval"
    description: str = "Reasoning-driven medical retrieval"
    prompt: str | None = None
    category: str = "t2t"
    main_score: str = "ndcg_at_10"
    simplified_task_type: str = "retrieval"
    modalities: list[str] = field(default_factory=lambda: ["text"])
    eval_langs: list[str] = field(default_factory=lambda: ["eng-Latn"])
    languages: list[str] = field(default_factory=lambda: ["eng"])
    eval_splits: list[str] = field(default_factory=lambda: [SPLIT])
    domains: list[str] = field(default_factory=lambda: ["Medical"])
    task_subtypes: list[str] = field(default_factory=list)
    dataset: dict[str, str] = field(default_factory=dict)
    is_multilingual: bool = False

    def get_modalities(self, prompt_type: object = None) -> list[str]:
        """Texts on both sides."""
        del prompt_type
        return self.modalities

    @property
    def hf_subsets(self) -> list[str]:
        """There is one."""
        return [SUBSET]


def task_facts(task: Task | None) -> TaskFacts:
    """Facts of a task; R2MED's own tasks go by their name in mteb, which prompts may be written for."""
    # What mteb falls back to for its own retrieval tasks.
    general = getattr(
        getattr(sys.modules.get("mteb.abstasks.retrieval"), "AbsTaskRetrieval", None), "abstask_prompt", None
    )
    if task is None:
        return TaskFacts(prompt=general)
    name = mteb_name(task.collection, task.name) or task.name
    return TaskFacts(name=name, prompt=general, dataset={"path": task.source, "revision": task.revision})


def mteb_name(collection: str, task: str) -> str | None:
    """MTEB's name for a task of R2MED, and a like one for the same task of Mini and Nano; None for all other tasks."""
    prefix = PREFIXES.get(collection)
    return None if prefix is None else f"{prefix}R2MED{task.replace('-', '')}Retrieval"
