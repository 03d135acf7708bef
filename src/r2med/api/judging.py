"""From documents to a benchmark, as functions: projects are pooled, judged, compared, checked and finished."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..core import DataError, UsageError
from ..core.budget import Budget
from ..core.options import Options, Progress
from ..judge import GRADES, Asked, Rule, Settings, open_project
from ..scoring.holes import check_pool_name, read_pool, write_pool
from ..scoring.intervals import Settings as Intervals

if TYPE_CHECKING:
    from ..judge.chat_judge import ChatJudge, Judging
    from ..judge.check import Check
    from ..judge.finish import Metadata
    from ..judge.pool import PoolReport
    from ..judge.relabelling import Agreement
    from ..judge.server import Judge
    from ..judge.summary import Summary
    from ..llm import Cost

__all__ = [
    "judge_agree",
    "judge_check",
    "judge_finish",
    "judge_plan",
    "judge_pool",
    "judge_run",
    "judge_serve",
    "relabel",
]


def _quiet(what: str) -> None:
    """Say nothing."""


def judge_pool(
    source: str | Path,
    *systems: str,
    out: str | Path,
    queries: str | Path | None = None,
    runs: Sequence[str | Path] = (),
    depth: int = 20,
    sample: int = 0,
    near: float = 0.9,
    seed: int = 0,
    pool_known: bool = False,
    name: str = "",
    question: str = "",
    grades: Sequence[str] = GRADES,
    relevant_from: int = 1,
    reason: Asked = "optional",
    support: Asked = "optional",
    answer_first: bool = False,
    judges: int = 2,
    rule: Rule = "adjudicated",
    llm_counts: bool = False,
    terms: Sequence[str] = (),
    licence: str = "",
    language: str = "",
    description: str = "",
    options: Options | None = None,
    notify: Callable[[str], None] = _quiet,
) -> PoolReport:
    """Make a judging project: rank a corpus with unlike systems and pool the best `depth` passages of each query.

    `source` is a task, or documents alone (a folder with a `corpus.jsonl`, or such a file); `queries` is a file of JSON
    lines, by default the task's own. Systems are named as everywhere (`bm25+bge-small.rrf`), `runs` are stored TREC
    runs. `sample` adds that many passages at random; texts at least `near` alike are judged once. Judgments that come
    with the task are kept beside the pool, and `pool_known` has them judged again. With `llm_counts` the grades of LLM
    judges count like those of people.
    """
    from ..judge.pool import check_new, corpus_with_queries, make_project
    from ..pipeline import Builder
    from ..tasks.corpus import load_queries
    from .experiments import systems as parse_systems

    check_new(Path(out))
    given = {
        "question": question, "grades": list(grades), "relevant_from": relevant_from, "reason": reason,
        "support": support, "answer_first": answer_first, "judges_per_pair": judges, "rule": rule,
        "llm_counts": llm_counts, "terms": list(terms), "seed": seed, "depth": depth, "sample": sample, "near": near,
        "pool_known": pool_known, "licence": licence, "language": language, "description": description,
    }  # fmt: skip
    if not question:
        del given["question"]
    asked = load_queries(Path(queries)) if queries is not None else None
    corpus, task = corpus_with_queries(str(source), asked)
    try:
        settings = msgspec.convert(
            given | {"name": name or task.name, "source": str(source), "corpus_fingerprint": "", "documents": 0},
            Settings,
        )
    except ValueError as error:
        raise UsageError(f"the project cannot be made: {error}") from None
    with Builder(options) as builder:
        built = [builder.build(spec) for spec in parse_systems(*systems)] if systems else []
        for retriever in {r.name: r for system in built for r in system.retrievers}.values():
            retriever.check()
        return make_project(
            Path(out), settings, corpus=corpus, task=task, systems=built, runs=[Path(run) for run in runs],
            notify=notify,
        )  # fmt: skip


def judge_serve(
    project: str | Path, *, judges: Sequence[str] = (), adjudicator: str = "", port: int | None = None,
    host: str = "", allowed: Iterable[str] = (), browser: bool = True,
    announce: Callable[[Sequence[Judge]], None] = lambda judges: None,
) -> None:  # fmt: skip
    """Let people judge a project in the browser until interrupted.

    `announce` is given each judge with an address that lets only that judge in. Without names, the judge is the user
    of this machine. `host` listens elsewhere than on loopback, under the names `allowed`, and needs names of judges.
    """
    from ..judge.server import JudgingApp
    from ..report.web.app import ANYWHERE
    from ..report.web.server import HOST, serve

    if host and not judges and not adjudicator:
        raise UsageError("others can reach the server with --host: name each judge with --judge")
    names = list(judges) or ([] if adjudicator else [_login_name()])
    application = JudgingApp(open_project(Path(project)), names, adjudicator)
    alone = browser and len(application.desks) == 1
    known_as = list(allowed)

    def tell(where: str) -> None:
        shown = where.replace(HOST, known_as[0], 1) if known_as and host in ANYWHERE else where
        announce(application.judges(shown))

    serve(
        application.guarded(host=host, allowed=known_as), host=host, port=port, browser=alone,
        fragment=application.one_time_fragment(next(iter(application.desks))) if alone else "",
        announce=tell, warm=application.warm,
    )  # fmt: skip


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("this user has no name: name the judge with --judge") from None


def judge_run(
    project: str | Path,
    judge: str,
    *,
    name: str = "",
    prompt: str | Path | None = None,
    limit: int | None = None,
    concurrency: int = 16,
    max_cost: float | None = None,
    retry: Collection[str] = (),
    on_progress: Progress | None = None,
) -> Judging:
    """Let a chat model judge the pool of a project: `judge_run("my-project", "llm:gpt4")`.

    Its answers go into a journal under `name`, by default what was given as `judge`. Finished work is not done again;
    `limit` takes only the first queries. Answers without a grade that are `empty`, `failed`, `refused`, `truncated` or
    `unparsed` are asked for again where `retry` names that.
    """
    with _chat_judge(project, judge, name, prompt, retry, concurrency=concurrency, max_cost=max_cost) as made:
        return made.run(limit=limit, on_progress=on_progress)


def judge_plan(
    project: str | Path, judge: str, *, name: str = "", prompt: str | Path | None = None, limit: int | None = None,
    retry: Collection[str] = (),
) -> Cost:  # fmt: skip
    """What `judge_run` would take at most: calls, tokens, dollars. Nothing is asked or written."""
    with _chat_judge(project, judge, name, prompt, retry) as made:
        return made.plan(limit=limit)


@contextmanager
def _chat_judge(
    project: str | Path, judge: str, name: str, prompt: str | Path | None, retry: Collection[str], *,
    concurrency: int = 16, max_cost: float | None = None,
) -> Iterator[ChatJudge]:  # fmt: skip
    from ..judge.chat_judge import PREFIX, ChatJudge
    from ..llm import Retry, get_llm

    if not judge.startswith(PREFIX):
        raise UsageError(f"a judge that can be run is a chat model, as in {PREFIX}gpt4, not {judge!r}")
    opened = open_project(Path(project))
    budget = None if max_cost is None else Budget(max_cost)
    chat = get_llm(judge.removeprefix(PREFIX), Options(concurrency=concurrency, budget=budget))
    try:
        yield ChatJudge(opened, chat, name or judge, prompt=Path(prompt) if prompt else None, retry=Retry(retry))
    finally:
        chat.close()


def judge_agree(project: str | Path, *, unfinished: bool = False, intervals: Intervals | None = None) -> Summary:
    """How far the judges of a project are and agree: weighted κ, Krippendorff's α, disputed queries, what is open.

    Judges who have not finished are left out unless `unfinished`.
    """
    from ..judge.summary import summarise

    return summarise(open_project(Path(project)), unfinished=unfinished, intervals=intervals or Intervals())


def judge_check(project: str | Path, *, unfinished: bool = False, corpus: str | Path | None = None) -> Check:
    """How good the benchmark is that a project's final grades give: holes, depth, queries, power, artefacts, judges.

    Judges who have not finished count with `unfinished` only. `corpus` is where the documents lie now; where they are
    not found, nothing is said about artefacts.
    """
    from ..judge.check import check_project
    from ..judge.final import pooled_corpus

    opened, documents = open_project(Path(project)), None
    try:
        documents = pooled_corpus(opened, None if corpus is None else str(corpus))
    except (DataError, UsageError):
        if corpus is not None:
            raise
    return check_project(opened, unfinished=unfinished, documents=documents)


def judge_finish(
    project: str | Path,
    out: str | Path,
    *,
    corpus: str | Path | None = None,
    keep_empty: bool = False,
    partial: bool = False,
) -> Metadata:
    """Write the task that a project's final grades give, in R2MED's layout, with its datasheet.

    The documents come from where they lay when the project was made, or from `corpus`; they must be the same.
    `keep_empty` keeps queries without a relevant passage, `partial` those of which a passage has no final grade.
    """
    from ..judge.finish import finish_project

    where = None if corpus is None else str(corpus)
    return finish_project(open_project(Path(project)), Path(out), corpus=where, keep_empty=keep_empty, partial=partial)


class Relabelled(NamedTuple):
    """How far a judge agrees with the judgments, and what it was asked."""

    tasks: dict[str, Agreement]
    overall: Agreement
    judge: dict[str, object]
    notes: dict[str, int]
    usage: dict[str, Any]
    lost_calls: int
    warning: str
    pool_entries: int
    pool_without_answer: int


def relabel(
    llm: str,
    *,
    tasks: str | Iterable[str] = (),
    limit: int | None = None,
    negatives: int = 1,
    seed: int = 0,
    pool: str | Path | None = None,
    out: str | Path | None = None,
    prompt: Path | None = None,
    concurrency: int = 16,
    max_cost: float | None = None,
    retry: Collection[str] = (),
    notify: Callable[[str, str], None] = lambda task, what: None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Relabelled:
    """Let a chat model judge passages that people judged, and say how far they agree (Cohen's κ).

    `negatives` random passages for each positive are taken to be irrelevant. With `pool` the documents that nobody
    judged are labelled too, into `out`. Default tasks: those of the pool, else Mini. Stored answers of the statuses in
    `retry` are asked for again.
    """
    from ..judge.relabelling import LlmJudge, agreement, label_pool, relabel_task
    from ..llm import Retry, get_llm
    from .experiments import resolve_tasks

    if (pool is None) != (out is None):
        raise UsageError("pool names the pool to label and out where it goes: give both or neither")
    entries = []
    if pool is not None and out is not None:
        check_pool_name(Path(out))  # before the first paid call
        entries = read_pool(Path(pool))
        if not entries:
            raise UsageError(f"{pool}: has no entries")
        if not all(entry.query and entry.passage for entry in entries):
            raise UsageError(f"{pool}: has entries without texts; make it from stored results, not from run files")
    refs = resolve_tasks(tasks or list(dict.fromkeys(e.task for e in entries)) or ("mini",))
    chat = get_llm(llm, Options(concurrency=concurrency, budget=None if max_cost is None else Budget(max_cost)))
    try:
        judge = LlmJudge(chat, prompt=prompt, retry=Retry(retry))
        if chat.warning:
            notify("", chat.warning)
        labels = {}
        for ref in refs:
            notify(ref.full_name, "begun")
            labels[ref.full_name] = relabel_task(
                judge, ref.load(), negatives=negatives, limit=limit, seed=seed, on_progress=on_progress
            )
            notify(ref.full_name, "done")
        if out is not None:
            entries = label_pool(judge, entries, on_progress)
            write_pool(entries, Path(out))
    finally:
        chat.close()
    return Relabelled(
        tasks={name: agreement(of_task) for name, of_task in labels.items()},
        overall=agreement([label for of_task in labels.values() for label in of_task]),
        judge=judge.describe(),
        notes=dict(judge.notes),
        usage=chat.usage.snapshot(),
        lost_calls=int(judge.bill.get("lost_calls", 0)),
        warning=chat.warning,
        pool_entries=len(entries),
        pool_without_answer=sum(entry.grade is None for entry in entries),
    )
