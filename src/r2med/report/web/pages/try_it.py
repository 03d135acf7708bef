"""Try it: a typed query, up to three systems side by side, what their scores are made of, what an expansion changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ....core import Document, R2MedError, Task, UnknownName, UsageError
from ....core.queries import Explanation, Ranked, Share, Tried, Typed
from ....scoring import MAIN, rescored
from ...collection import Behind
from ..failures import TOP
from ..render import Links, Page, PageRequest, marked, terms_of
from ..site import Site
from ..trying import Busy
from .query import SNIPPET

SYSTEMS = 3
LONGEST = 16_000  # Characters of a query, and of an expansion.
SHOWN, SHARES, NAMED, RANKED = 2_000, 12, 4, 40
BAR = 60  # Pixels of the longest bar.


class Asked(NamedTuple):
    """What the form holds."""

    task: str = ""
    systems: tuple[str, ...] = ()
    text: str = ""
    expansion: str = ""
    instead: bool = False

    @classmethod
    def read(cls, site: Site, asked: PageRequest, tasks: Sequence[str]) -> Asked:
        """From a form that was sent, or from a link: that names a query of the task, and holds no text."""
        if asked.form is not None:
            fields = dict(asked.form)
            systems = tuple(dict.fromkeys(value.strip() for name, value in asked.form if name == "s" and value.strip()))
            text, expansion = (fields.get(name, "").replace("\r\n", "\n") for name in ("text", "expansion"))
            return cls(fields.get("task", ""), systems[:SYSTEMS], text, expansion, fields.get("use") == "instead")
        name = asked.get("task") or (tasks[0] if tasks else "")
        query = None
        if asked.get("query") and name in tasks and (task := find_task(site, name).task) is not None:
            query = task.query(asked.get("query"))
        return cls(name, tuple(asked.all("s")[:SYSTEMS]), query.text if query else "")

    def check(self) -> None:
        """Refuse what is not searched for."""
        if not self.text.strip():
            raise UsageError("type a query")
        for what, text in (("query", self.text), ("expansion", self.expansion)):
            if len(text) > LONGEST:
                raise UsageError(f"the {what} has {len(text):,} characters; at most {LONGEST:,} are taken")
        if not self.systems:
            raise UsageError("name a system")


def task_names(site: Site) -> list[str]:
    """The tasks that can be searched: those with results first, then the others that are on this machine."""
    held = [f"{slug}/{task}" for slug, results in site.held.items() for task in results.tasks]
    return list(dict.fromkeys([*held, *site.texts.names()]))


def find_task(site: Site, name: str) -> Behind:
    """A task by its name; one with results is the one that these were made on."""
    slug, _, task = name.partition("/")
    results = site.held.get(slug)
    if results is not None and task in results.infos:
        return site.texts.of(results.infos[task])
    return site.texts.named(name)


def try_it(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    if site.trying is None:
        raise UsageError("queries can be tried only where the app listens on this machine alone (no --host)")
    tasks = task_names(site)
    form = Asked.read(site, asked, tasks)
    slug, _, name = form.task.partition("/")
    systems = site.trying.search.systems(list(site.held[slug].systems) if slug in site.held else [])
    if asked.form is None:  # a link may name systems that do not run here
        form = form._replace(systems=tuple(s for s in form.systems if s in systems) or tuple(systems[:SYSTEMS]))
    answer: dict[str, Any] = {"error": "", "waiting": "", "tried": []}
    if asked.form is not None:
        try:
            answer |= _answer(site, form, tasks, url)
        except R2MedError as error:
            answer |= {"error": str(error), "busy": isinstance(error, Busy)}
    context = {
        "form": form,
        "tasks": tasks,
        "systems": systems,
        "most": SYSTEMS,
        "longest": LONGEST,
        "href": url("try"),
        "slug": slug,
        "name": name,
        **answer,
    }
    return Page("try.html", "Try it", context, "try")


def _answer(site: Site, form: Asked, tasks: Sequence[str], url: Links) -> dict[str, Any]:
    form.check()
    if form.task not in tasks:
        raise UnknownName("task", form.task, tasks)
    behind = find_task(site, form.task)
    if behind.task is None:
        raise UsageError(f"the texts of {form.task} are not here. {behind.why}")
    assert site.trying is not None
    tried = site.trying.ask(behind.task, form.systems, Typed(form.text, form.expansion, form.instead))
    if tried is None:
        return {"waiting": site.trying.search.doing or "waiting for other searches"}
    return _shown(site, form, behind.task, tried, url)


def _shown(site: Site, form: Asked, task: Task, tried: list[Tried], url: Links) -> dict[str, Any]:
    slug, _, name = form.task.partition("/")
    has_pages = slug in site.held and name in site.held[slug].infos
    query_id = tried[0].alone.run.query_ids[0]
    own = task.query(query_id)
    grades = task.qrels.of(query_id) if own else {}
    positives = [d for d, grade in grades.items() if grade > 0]
    terms = terms_of(form.text)
    more = terms_of(form.expansion) - terms

    def link(doc_id: str) -> str:
        return url("document", slug, name, doc_id, query=query_id if own else "") if has_pages else ""

    return {
        "tried": [_column(one, task, grades, terms, more, link) for one in tried],
        "query": own,
        "query_href": url("query", slug, name, query_id) if own and has_pages else "",
        "judged": bool(grades),
        "measure": MAIN,
        "scores": [_scores(one, task, query_id) for one in tried] if grades else [],
        "ranks": _ranks(tried, positives, grades, link),
        "positives": len(positives),
    }


def _scores(tried: Tried, task: Task, query_id: str) -> list[float]:
    """The measure of the query alone, and with its expansion."""
    rankings = [ranked.run for ranked in (tried.alone, tried.expanded) if ranked is not None]
    return [rescored(run, task.qrels, MAIN).get(query_id, 0.0) for run in rankings]


class Hit(NamedTuple):
    """One place of a ranking."""

    rank: int
    before: int | None  # its rank without the expansion; None: it was not found, or there is no expansion
    doc_id: str
    href: str
    score: float
    grade: int | None
    title: str
    short: Markup
    rest: Markup | None
    shares: list[tuple[Share, Markup]]
    left: int
    left_adds: float
    note: str


def _column(
    tried: Tried, task: Task, grades: Mapping[str, int], terms: frozenset[str], more: frozenset[str], link: Any
) -> dict[str, Any]:
    """One system: its ranking with the expansion, where there is one."""
    ranked = tried.expanded or tried.alone
    before = tried.alone.ranks if tried.expanded is not None else {}
    hits = []
    for rank, found in enumerate(ranked.run.top(TOP).row(0), 1):
        document = task.documents.get(found.doc_id)
        assert document is not None
        explanation = ranked.explanations.get(found.doc_id, Explanation(""))
        shares = explanation.shares
        longest = max((abs(share.adds) for share in shares), default=1.0) or 1.0
        hits.append(
            Hit(
                rank, before.get(found.doc_id), found.doc_id, link(found.doc_id), found.score, grades.get(found.doc_id),
                document.title, *_text(document, terms, more),
                [(share, _bar(share.adds / longest)) for share in shares[:SHARES]],
                len(shares[SHARES:]), sum(share.adds for share in shares[SHARES:]), explanation.note,
            )
        )  # fmt: skip
    notes = {hit.note for hit in hits}
    return {
        "system": tried.system,
        "hits": hits,
        "note": notes.pop() if len(notes) == 1 else "",
        "policies": tried.policies,
        "expanded": tried.expanded is not None,
        "found": int(ranked.run.lengths()[0]),
    }


def _text(document: Document, terms: frozenset[str], more: frozenset[str]) -> tuple[Markup, Markup | None]:
    long = len(document.text) > SNIPPET
    short = marked(document.text, terms, more=more, most=SNIPPET)
    return short, marked(document.text, terms, more=more, most=SHOWN) if long else None


def _bar(share: float) -> Markup:
    """A bar whose length is a share of the longest; numbers only, so there is nothing to escape."""
    width = max(1.0, BAR * abs(share))
    kind = "bar" if share >= 0 else "bar less"
    return Markup(
        f'<svg class="{kind}" width="{BAR}" height="8" aria-hidden="true"><rect width="{width:.0f}" height="8"/></svg>'
    )


def _ranks(tried: Sequence[Tried], positives: Iterable[str], grades: Mapping[str, int], link: Any) -> list[Any]:
    """Where documents stand in each ranking: the positives, and the first ten of every one."""
    rankings: list[Ranked] = [r for one in tried for r in (one.alone, one.expanded) if r is not None]
    ranks = [ranked.ranks for ranked in rankings]
    first = [doc_id for ranked in rankings for doc_id in list(ranked.ranks)[:TOP]]
    names = dict.fromkeys([*positives, *first])
    best = {name: min((of[name] for of in ranks if name in of), default=1 << 30) for name in names}
    ordered = sorted(names, key=lambda name: (-(grades.get(name) or 0), best[name], name))
    return [(name, link(name), grades.get(name), [of.get(name) for of in ranks]) for name in ordered[:RANKED]]
