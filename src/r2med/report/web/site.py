"""All that pages are made from, in one place: results, the texts behind them, and what is worked out of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from ...core import R2MedError, Task, UnknownName
from ...core.untrusted import component
from ...results import ResultIndex, StoredResult, TaskInfo
from ...results.index import Kept
from ...results.ledger import ledger
from ...results.schema import Progress, read_progress
from ...scoring import MAIN, Measure
from ...scoring.compare import Comparison, compare
from ...scoring.evaluation import ScoreSet
from ...tasks import Stats, Tendencies, collections, list_tasks, resolve, stats, tendencies
from ...tasks.audit import audit
from ...tasks.audit.findings import TaskAudit
from ...tasks.load import every_part
from ..collection import MEASURES, ORDER, Behind, CollectionResults, all_collections, task_behind
from ..costs import Facts, unknown_facts
from ..leaderboard import Standing, standing, usual_settings
from ..page_html import written_pictures
from ..submissions import Submitted
from .background import Background, Searcher, Trying
from .failures import failures, reading_limit

P = ParamSpec("P")
T = TypeVar("T")
BUDGET = 160 << 20  # Bytes of text kept.
LIST_EVERY = 10.0  # Seconds.
AUDIT_UP_TO = 500  # Documents: larger tasks are audited by the command.
WAIT = 0.25
LARGEST_PAGE = 8 << 20  # Bytes of a written page or its data: more would keep a reader waiting.
FAILURES_UP_TO = 2_000  # Queries: of larger tasks, only single queries are looked at for failures.


class TaskFacts(NamedTuple):
    """Figures about a task that do not depend on results; one with few documents is audited, too."""

    stats: Stats
    tendencies: Tendencies
    audit: TaskAudit | None

    @classmethod
    def of(cls, task: Task) -> TaskFacts:
        small = len(task.documents) <= AUDIT_UP_TO
        return cls(stats(task), tendencies(task), audit([task]).tasks[0] if small else None)


class TaskTexts:
    """Loads tasks when they are looked at and keeps the latest."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._listed: tuple[float, list[str]] = (-LIST_EVERY, [])
        self._kept: Kept[str, Behind] = Kept(BUDGET, lambda b: b.task.documents.texts.nbytes if b.task else 0)

    def of(self, info: TaskInfo) -> Behind:
        """The task that a result was made on, if it is here and unchanged."""
        return self._kept.get(info.fingerprint, lambda: self._load(info))

    def names(self) -> list[str]:
        """The tasks that r2med knows by name and that are on this machine, looked for again after a while."""
        now = time.monotonic()
        if now - self._listed[0] > LIST_EVERY:
            self._listed = (now, [f"{task.collection}/{task.name}" for task in list_tasks() if task.available])
        return self._listed[1]

    def named(self, name: str) -> Behind:
        """A task that r2med knows by name, whether or not there are results on it."""

        def read() -> Behind:
            try:
                return Behind(resolve(name)[0].load(), "")
            except R2MedError as error:
                return Behind(None, str(error))

        return self._kept.get(f"name {name}", read)

    def written_page(self, info: TaskInfo) -> str:
        """The Markdown page that `r2med pages` wrote beside the texts of a task; empty where none is of these."""
        pages = (data.decode("utf-8", "replace") for data in self._written(info, ".md"))
        return next((text for text in pages if info.fingerprint in text), "")

    def written_pictures(self, info: TaskInfo) -> dict[str, str]:
        """The pictures of that page, by heading, from the JSON file beside it."""
        drawn = (written_pictures(data, info.fingerprint) for data in self._written(info, ".json"))
        return next((pictures for pictures in drawn if pictures), {})

    def _written(self, info: TaskInfo, suffix: str) -> Iterator[bytes]:
        """Files of that name beside the texts of tasks of that name."""
        task = self.of(info).task
        if task is None:
            return
        named = [(folder, ref) for folder in self._folders if folder.is_dir() for ref in every_part(folder)]
        places = [(folder, ref.split or ref.name) for folder, ref in named if ref.name == info.name]
        places.append((Path(task.extra.get("path", "")), task.extra.get("split") or info.name))
        for folder, name in places:
            page = folder / "pages" / component(f"{name}{suffix}", "page", path=folder)
            inside = page.resolve().is_relative_to(folder.resolve())
            if inside and page.is_file() and page.stat().st_size <= LARGEST_PAGE:
                yield page.read_bytes()

    def _load(self, info: TaskInfo) -> Behind:
        found = task_behind(info, self._folders)
        if found.task is None and info.collection not in collections():
            where = f" (they were in {info.source})" if info.source else ""
            advice = f"If the data lie elsewhere, name their folder when starting: --tasks FOLDER{where}."
            return Behind(None, f"{found.why} {advice}")
        return found


class Site:
    """Some results folders, looked at."""

    def __init__(
        self, roots: Sequence[Path], *, task_folders: Sequence[Path] = (), model_facts: Facts = unknown_facts,
        search: Searcher | None = None,
    ) -> None:  # fmt: skip
        self.index = ResultIndex(roots)
        self.texts = TaskTexts(task_folders)
        self.submitted: Mapping[str, Submitted] = {}
        """On a public board, the submission that each system came with."""
        self.model_facts = model_facts
        self.background = Background()
        self.trying = Trying(search) if search is not None else None  # typed queries, where they may be tried
        self.wait: float | None = WAIT
        """Seconds that a page waits for what is worked out in the background; None: until it is there."""
        self._collections: tuple[int, dict[str, CollectionResults]] = (-1, {})
        self._failures: Kept[StoredResult, dict[str, frozenset[str]]] = Kept(64)
        self._lock = threading.Lock()

    @property
    def held(self) -> dict[str, CollectionResults]:
        return {slug: results for slug, results in self._all().items() if results.systems}

    def _all(self) -> dict[str, CollectionResults]:
        self.index.refresh()
        with self._lock:
            if self._collections[0] != self.index.version:
                self._collections = (self.index.version, all_collections(self.index))
            return self._collections[1]

    def results(self, slug: str) -> CollectionResults:
        """What there is of one collection; nothing of a collection that only others have figures for."""
        known = self.held
        if slug in known:
            return known[slug]
        if slug not in self.collections():
            raise UnknownName("collection", slug, self.collections(), hint=f"(there are {', '.join(known) or 'none'})")
        whole = tuple(entry.name for entry in collections()[slug].tasks)
        return CollectionResults(slug, whole, whole, {}, {})

    def collections(self) -> list[str]:
        """Collections with results, then those with published figures only."""
        published = {figure.collection for figure in ledger()}
        return [*self.held, *(c for c in ORDER if c in published and c not in self.held)]

    def default_collection(self) -> str:
        """Where to start: the largest that has results, else R2MED's published figures."""
        return next(iter(self.held), "r2med")

    def measure(self, key: str) -> Measure:
        """A measure that pages show."""
        measure = Measure.parse(key) if key else MAIN
        if measure not in MEASURES:
            known = [str(m) for m in MEASURES]
            raise UnknownName("measure", key, known, hint=f"(shown here: {', '.join(known)})")
        return measure

    def standing(self, results: CollectionResults, measure: Measure, *, patient: bool = False) -> Standing | None:
        """Intervals and tie groups; None where they are not there yet."""
        key, wait = ("standing", results.slug, measure), None if patient else self.wait
        return self.background.get(key, results, lambda: standing(results, measure), wait=wait)

    def comparison(self, results: CollectionResults, scores: ScoreSet) -> Comparison | None:
        """Two systems against each other; None where the statistics are not there yet."""
        key = ("comparison", results.slug, scores.systems, scores.measure)
        return self.background.get(key, results, lambda: compare(scores, usual_settings(results)), wait=self.wait)

    def facts(self, results: CollectionResults, name: str) -> TaskFacts | None:
        """Figures about a task; None without its texts, or where they are not there yet."""
        task = self.texts.of(results.infos[name]).task
        if task is None:
            return None
        return self.background.get(("facts", task.fingerprint), None, lambda: TaskFacts.of(task), wait=self.wait)

    def failures(self, stored: StoredResult) -> dict[str, frozenset[str]] | None:
        """How each query fails under one system on one task; None without the texts, or for too many queries."""
        task = self.texts.of(stored.result.task).task
        if task is None or stored.result.task.queries > FAILURES_UP_TO:
            return None
        limit = reading_limit(stored.result.notes)
        return self._failures.get(stored, lambda: failures(stored.run(), task, limit, task.qrels.query_ids))

    def failures_of(self, stored: StoredResult, query_id: str) -> frozenset[str]:
        """How one query fails; nothing without the texts. Where every page is written, all queries are looked at."""
        if self.wait is None and (known := self.failures(stored)) is not None:
            return known.get(query_id, frozenset())
        task = self.texts.of(stored.result.task).task
        if task is None:
            return frozenset()
        return failures(stored.run(), task, reading_limit(stored.result.notes), [query_id])[query_id]

    def progress(self) -> Progress | None:
        """The run that is under way or was the last, over all folders."""
        states = [state for root in self.index.roots if (state := read_progress(root)) is not None]
        return max(states, key=lambda s: (s.running, s.updated), default=None)

    def problems(self) -> list[str]:
        of_collections = [p for r in self._all().values() for p in (*r.problems, *r.unread.values())]
        return [*(problem.message for problem in self.index.problems), *of_collections]

    def warm(self) -> None:
        """Read what the first pages need, before anybody asks."""
        for results in self.held.values():
            self.standing(results, MAIN, patient=True)


def readable(problems: list[str], read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What can be read; None where it cannot, and why goes to `problems`."""
    try:
        return read(*args, **kwargs)
    except R2MedError as error:
        problems.append(str(error))
        return None


def like(name: str, known: Sequence[str]) -> list[str]:
    """Some of many known names that a mistyped one may have meant: those that begin as it does."""
    for length in (24, 12, 6, 3, 1):
        if found := list(islice((k for k in known if k.startswith(name[:length])), 100)):
            return found
    return []
