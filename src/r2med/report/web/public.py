"""A public board: the pages over submissions as a folder of plain files, for any web server.

Every page needs nothing but the folder. Dates are those of the submissions, so the same submissions give the same site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from ..._version import __version__
from ...core import DataError, ResultError
from ...core.files import scratch_folder
from ...core.table import Table
from ...core.untrusted import file_name, inside
from ...results import TaskInfo
from ...results.store import indented_json
from ...scoring import MAIN, Measure
from ...tasks import collections
from ..collection import Behind, CollectionResults, TaskMatrix
from ..costs import AXES, Facts, cost_of
from ..leaderboard import ALL, Row, as_json, ranked
from ..submissions import Gathered
from .app import STATIC, find_page
from .pages import board_filters
from .pages.board import own_rows
from .pages.compare import best_systems
from .pages.details import all_submissions, submission, submissions
from .render import Links, Page, PageRequest, environment, page_html, static_file
from .site import Site, TaskTexts

SHOWN = (MAIN, Measure.parse("R@100"), Measure.parse("hit@10"))
PAIRS = 4  # Best systems of a collection of which every pair is compared.
MARK = "data/board.json"  # What a folder that was written here has, and another has not.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"
)
PAGES = {"submissions": submissions, "submission": submission}
NO_TEXTS = "They were not at hand when this site was made, or are not public."


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    folder: str
    pages: int
    submissions: int
    systems: int
    verified: int  # Submissions of which every result was verified.
    false: int  # Results that are not shown because their scores are not true.
    left_out: list[str]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a board is called, and where it will be found."""

    title: str = "Leaderboard"
    url: str = ""  # Where the site will lie, for the feed.
    texts: bool = False  # Whether texts of tasks that are not in the catalogue may be shown.


class PublicSite(Site):
    """The results of submissions, and what is known about these."""

    def __init__(self, gathered: Gathered, about: About, folders: Sequence[Path], model_facts: Facts) -> None:
        super().__init__(gathered.results.roots, task_folders=folders, model_facts=model_facts)
        self.index, self.submitted, self.gathered = gathered.results, gathered.systems, gathered
        self.texts = PublicTexts(folders, own=about.texts)
        self.wait = None

    def begin_standings(self) -> None:
        """Have intervals and ranks worked out in the background, which takes a core of its own for some seconds."""
        self.wait = 0.0
        for results in self.held.values():
            for measure in SHOWN:
                self.standing(results, measure)
        self.wait = None

    def problems(self) -> list[str]:
        return [*self.gathered.left_out, *super().problems()]


class PublicTexts(TaskTexts):
    """Texts of the catalogue's tasks, which are public; those of others only where that was asked for."""

    def __init__(self, folders: Sequence[Path], *, own: bool) -> None:
        super().__init__(folders)
        self._own = own

    def _load(self, info: TaskInfo) -> Behind:
        allowed = self._own or info.collection in collections()
        task = super()._load(info).task if allowed else None
        return Behind(task, "" if task else NO_TEXTS)  # why says what is on this machine, which is nobody's business


class SiteLinks(Links):
    """Addresses inside the folder, as seen from one of its pages; empty for a page that is not there."""

    brief = True

    def __init__(self, files: Mapping[str, str], root: str) -> None:
        self.files, self.root = files, root

    def __call__(self, page: str, *parts: str, **params: str | Sequence[str]) -> str:
        file = self.files.get(super().__call__(page, *parts, **params))
        return f"{self.root}{file}" if file else ""


def write_site(site: PublicSite, out: Path, about: About) -> Written:
    """Write the site; a board that was written there before is replaced, anything else stays."""
    if not site.held:
        raise ResultError("there is nothing to show: " + ("; ".join(site.problems()[:3]) or "no results"))
    if out.exists() and any(out.iterdir()) and not inside(out, MARK, "file").is_file():
        raise DataError("is neither empty nor a board that was written before", path=out)
    urls, data = list(dict.fromkeys(_urls(site, Links()))), list(_data(site, about))
    files = {url: _file(url) for url in urls} | {file.url: file.name for file in data}
    site.begin_standings()
    with scratch_folder(out) as scratch:
        new = scratch / "new"
        for name in sorted(set(STATIC) - {"try.js"}):
            _write(new, f"static/{name}", static_file(name))
        for url in sorted(urls, key=lambda url: not url.startswith("/query/")):  # these need no intervals
            _write(new, files[url], _html(site, url, SiteLinks(files, "../"), about))
        first = Links()("board", site.default_collection())
        _write(new, "index.html", _html(site, first, SiteLinks(files, ""), about))
        for file in data:
            _write(new, file.name, file.content())
        if out.exists():
            out.replace(scratch / "old")
        new.replace(out)
    made = all_submissions(site)
    return Written(
        folder=str(out),
        pages=len(urls) + 1,
        submissions=len(made),
        systems=len(site.submitted),
        verified=sum(one.status == "verified" for one in made),
        false=site.gathered.false,
        left_out=site.problems(),
    )


def _write(folder: Path, name: str, content: bytes) -> None:
    path = inside(folder, name, "file")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _file(url: str) -> str:
    """The file of a page; two pages never share one, on any file system."""
    page, _, rest = url.lstrip("/").partition("/")
    return f"{page}/{file_name(rest) if rest else 'all'}.html"


def _html(site: PublicSite, url: str, links: SiteLinks, about: About) -> bytes:
    asked = PageRequest.from_url(url)
    page: Page = PAGES[asked.page](site, asked, links) if asked.page in PAGES else find_page(site, asked, links)
    more: dict[str, Any] = {"submitted": site.submitted, "about": about, "policy": POLICY, "version": __version__}
    more |= {"home": site.default_collection()}
    newest = max(made.manifest.date for made in all_submissions(site))
    html = page_html(page, links, layout="public.html", live=False, root=links.root, newest=newest, **more)
    return html.encode("utf-8", "replace")


def _urls(site: PublicSite, make: Links) -> Iterator[str]:
    """Every page."""
    for slug, results in site.held.items():
        yield from _board_urls(site, slug, make)
        yield make("tradeoffs", slug)
        yield from (make("tradeoffs", slug, against=axis) for axis in list(AXES)[1:])
        best = best_systems(results, MAIN)
        if len(best) > 1:
            yield make("compare", slug)
            yield from (make("compare", slug, s=pair) for pair in combinations(sorted(best[:PAIRS]), 2))
        for task in results.tasks:
            yield make("task", slug, task)
            matrix = results.matrix(task, MAIN)
            yield from (make("query", slug, task, query_id) for query_id in (matrix.query_ids if matrix else ()))
        yield from (make("system", slug, system) for system in results.systems)
    yield make("submissions")
    yield from (make("submission", made.slug) for made in all_submissions(site))


def _board_urls(site: PublicSite, slug: str, make: Links) -> Iterator[str]:
    """The leaderboard by measure and average, and by each filter alone: for readers without script."""
    for measure in SHOWN:
        key = "" if measure == MAIN else measure.key
        yield from (make("board", slug, measure=key, average=average) for average in ("", "query"))
    rows = own_rows(site, site.results(slug), MAIN, None)
    for family in dict.fromkeys(row.family for row in rows):
        yield make("board", slug, kind=family)
    for choice in board_filters.choices(rows, site.submitted):
        yield from (make("board", slug, **{choice.name: value}) for value, _ in choice.values if value)
    if slug in collections():
        yield make("board", slug, show=ALL)


class DataFile(NamedTuple):
    """A file to download."""

    url: str  # The address that pages know it under.
    name: str
    content: Callable[[], bytes]


def _data(site: PublicSite, about: About) -> Iterator[DataFile]:
    """Files to download."""
    make = Links()
    for slug, results in site.held.items():
        name = file_name(slug)
        yield DataFile(make("data", slug, format="csv"), f"data/{name}.csv", partial(_csv, site, results))
        yield DataFile(make("data", slug, format="json"), f"data/{name}.json", partial(_json, site, results))
        for task in results.tasks:
            matrix = results.matrix(task, MAIN)
            if matrix is not None:
                place = f"data/{file_name(f'{slug}/{task}')}.csv"
                yield DataFile(make("data", slug, task), place, partial(_task_csv, matrix))
    yield DataFile(make("data"), MARK, partial(_board, site, about))
    yield DataFile(make("feed"), "feed.xml", partial(_feed, site, about))


def _task_csv(matrix: TaskMatrix) -> bytes:
    """Every score of every query of a task."""
    scores = zip(matrix.query_ids, matrix.scores.T.tolist(), strict=True)
    lines = [[query, *(f"{value:.6f}" for value in values)] for query, values in scores]
    return Table(["query_id", *matrix.systems], lines).csv().encode()


def _board(site: PublicSite, about: About) -> bytes:
    """All submissions, and what became of each result."""
    made = [
        msgspec.structs.asdict(one.manifest)
        | {"id": one.id, "name": one.name, "file": one.file, "status": one.status, "results": one.verdicts}
        for one in all_submissions(site)
    ]
    for one in made:
        del one["members"]
    return indented_json({"format": "r2med board", "schema": 1, "title": about.title, "submissions": made})


def _rows(site: PublicSite, results: CollectionResults) -> Iterable[tuple[Measure, Row]]:
    """Every system by every measure shown, best first."""
    for measure in SHOWN:
        rows = own_rows(site, results, measure, site.standing(results, measure))
        yield from ((measure, row) for row in ranked(rows))


def _json(site: PublicSite, results: CollectionResults) -> bytes:
    rows = [_row(site, results, row, measure) for measure, row in _rows(site, results)]
    return indented_json({"schema": 1, "collection": results.slug, "rows": rows})


def _row(site: PublicSite, results: CollectionResults, row: Row, measure: Measure) -> dict[str, Any]:
    entry = site.submitted[row.system]
    costs = {name: cost_of(results.results(row.system), name, site.model_facts) for name in AXES}
    return {
        **as_json([row])[0],
        "measure": measure.key,
        "intervals": {name: [100 * low, 100 * high] for name, (low, high) in row.intervals.items()},
        "status": row.origin,
        "submission": entry.submission.name,
        "submission_id": entry.submission.id,
        "costs": costs,
    }


def _csv(site: PublicSite, results: CollectionResults) -> bytes:
    tasks = list(dict.fromkeys((*results.whole, *results.tasks)))
    costs = {name: axis.unit.replace(" ", "_").replace(",", "") for name, axis in AXES.items()}
    titles = [
        "system", "submission", "submission_id", "status", "protocol", "date", "kind", "measure", "letters", "rank",
        "rank_low", "rank_high", "macro", "macro_low", "macro_high", "by_query", *tasks, "judged_at_10",
        *costs.values(),
    ]  # fmt: skip
    cells = []
    for measure, row in _rows(site, results):
        document = _row(site, results, row, measure)
        low, high = document["intervals"].get("macro", (None, None))
        place = [row.rank.rank, row.rank.low, row.rank.high] if row.rank else [None] * 3
        scores = [document["tasks"].get(f"{results.collection}/{t}" if results.collection else t) for t in tasks]
        judged = None if row.judged_at_10 is None else 100 * row.judged_at_10
        cells.append([
            row.system, row.source, document["submission_id"], row.origin, row.protocol, row.date, row.family,
            measure.key, row.letters, *place, document["macro"], low, high, document["query_weighted"], *scores, judged,
            *(document["costs"][name] for name in costs),
        ])  # fmt: skip
    return Table(titles, [[_cell(value) for value in line] for line in cells]).csv().encode()


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _feed(site: PublicSite, about: About) -> bytes:
    """The submissions as an RSS feed, newest first; it holds links where it is known where the site will lie."""
    entries = [
        (made, quote(_file(Links()("submission", made.slug))), _moment(made.manifest.date))
        for made in reversed(all_submissions(site))
    ]
    about_feed = {"about": about, "home": about.url.rstrip("/") + "/" if about.url else "", "entries": entries}
    newest = next((day for _, _, day in entries if day), "")
    return environment().get_template("feed.xml").render(about_feed, newest=newest).encode()


def _moment(day: str) -> str:
    """The beginning of a day as RSS writes it; empty where no day is stated."""
    return format_datetime(datetime.fromisoformat(day).replace(tzinfo=timezone.utc), usegmt=True) if day else ""
