"""From a folder of documents to a benchmark: pools, judgments, agreement, checks, and the finished task.

A judging project is one folder of plain files that several people can share through a repository.

    project.json       what is asked, of whom, and where the documents come from
    queries.jsonl      the queries
    passages.jsonl     the texts that are judged
    pool.jsonl         which passage is judged for which query, who found it at which rank, and its copies
    runs/*.trec        the rankings behind the pool
    judgments/*.jsonl  a journal per judge, written by that judge alone

All but the journals are written once, when the project is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from ..core import DataError, Document, Query, Run, UsageError, fingerprint
from ..core.files import atomic_folder, open_file
from ..core.run import read_run, write_run
from ..core.untrusted import file_name, inside, printable
from .journal import Entry, Header, Journal, JudgeKind, read_header

__all__ = ["Entry", "Journal", "JudgeKind", "Pooled", "Project", "Settings", "create_project", "open_project"]

MOST = 1 << 31  # counts and ranks that a file may name
Asked = Literal["no", "optional", "required"]
Rank = Annotated[int, msgspec.Meta(ge=1, lt=MOST)]
Rule = Literal["adjudicated", "majority", "median", "lowest", "highest"]
Record = TypeVar("Record", bound=msgspec.Struct)

SCHEMA = 1
GRADES = (
    "does not help",
    "background only",
    "supports a step towards the answer",
    "answers the question or supports its conclusion",
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A system behind the pool: its spec, and the file of its ranking."""

    name: str
    run: str


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `project.json` holds."""

    schema: int = SCHEMA
    name: str
    question: str = "How far does this passage help to answer the query?"
    grades: tuple[str, ...] = GRADES  # what each grade means, from 0
    relevant_from: int = 1  # the lowest grade that counts as relevant
    reason: Asked = "optional"
    support: Asked = "optional"  # the sentence of the passage that supports a grade above 0
    answer_first: bool = False  # ask for the judge's own answer before any passage is shown
    judges_per_pair: int = 2
    rule: Rule = "adjudicated"  # how the final grade comes from several
    known_counts: bool = False  # whether grades that came with the data count as those of a judge called `known`
    llm_counts: bool = False  # whether LLM judges count like people; the datasheet says so
    fill: str = ""  # an LLM judge whose grades stand where no person judged, once it agrees with people
    terms: tuple[str, ...] = ()  # words that are marked in passages beside those of the query
    seed: int = 0
    depth: int
    sample: int = 0  # passages drawn at random for each query
    pool_known: bool = False  # passages that came with judgments are judged again, whoever found them
    near: float = 0.9  # passages at least this alike are one group
    systems: tuple[System, ...] = ()
    source: str  # where the corpus lay when the project was made
    corpus_fingerprint: str
    documents: int
    licence: str = ""
    language: str = ""
    description: str = ""
    created: str = ""

    def __post_init__(self) -> None:
        if len(self.grades) < 2 or not 1 <= self.relevant_from < len(self.grades):
            raise ValueError("needs at least two grades, and relevance from a grade above 0")
        if not (1 <= self.depth < MOST and 0 <= self.sample < MOST and 1 <= self.judges_per_pair < MOST):
            raise ValueError("depth, sample and judges_per_pair are counts")


class Pooled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A passage to be judged for a query."""

    query_id: str
    doc_id: str
    copies: tuple[str, ...] = ()  # documents of the corpus with the same text, or nearly: they get the same grade
    systems: dict[str, Rank] = {}  # rank, from 1, of the passage or its best copy in each system that found it
    sampled: bool = False
    known: int | None = None  # the grade that came with the data


class _Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    text: str
    answer: str | None = None
    body_system: str | None = None


class _Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    text: str
    title: str = ""


class Project:
    """A judging project on disk. Texts and pool are read once; journals are opened as they are asked for."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings

    @cached_property
    def queries(self) -> dict[str, Query]:
        """The queries by their ids, in order."""
        held = _read(self.folder / "queries.jsonl", _Query, lambda query: query.id)
        return {q.id: Query(q.id, q.text, q.answer, q.body_system) for q in held}

    @cached_property
    def passages(self) -> dict[str, Document]:
        """The texts that are judged, by their ids."""
        held = _read(self.folder / "passages.jsonl", _Passage, lambda passage: passage.id)
        return {p.id: Document(p.id, p.text, p.title) for p in held}

    @cached_property
    def pool(self) -> dict[str, list[Pooled]]:
        """What is judged for each query, in the order of the file; every query has a list."""
        found: dict[str, list[Pooled]] = {query_id: [] for query_id in self.queries}
        for pooled in _read(self.folder / "pool.jsonl", Pooled, lambda pooled: (pooled.query_id, pooled.doc_id)):
            if pooled.query_id not in found or pooled.doc_id not in self.passages:
                raise DataError(
                    f"names {pooled.query_id!r} and {pooled.doc_id!r}, which the project does not have",
                    path=self.folder / "pool.jsonl",
                )
            found[pooled.query_id].append(pooled)
        return found

    @cached_property
    def identity(self) -> str:
        """Hash of what is judged; a journal belongs to the project whose identity it names."""
        what = {
            "name": self.settings.name,
            "grades": self.settings.grades,
            "queries": [(q.id, q.text) for q in self.queries.values()],
            "passages": [(p.id, p.title, p.text) for p in self.passages.values()],
            "pool": [(pooled.query_id, pooled.doc_id) for of_query in self.pool.values() for pooled in of_query],
        }
        return fingerprint("judging project", what)

    def runs(self) -> dict[str, Run]:
        """The rankings behind the pool, by system."""
        return {system.name: read_run(_run_path(self.folder, system)) for system in self.settings.systems}

    def shown_to(self, judge: str, query_id: str) -> list[Pooled]:
        """What a judge sees for a query, in an order of that judge's own that tells nothing of systems or ranks."""

        def place(pooled: Pooled) -> bytes:
            key = "\0".join((str(self.settings.seed), judge, query_id, pooled.doc_id))
            return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()

        return sorted(self.pool[query_id], key=place)

    def check_entry(self, entry: Entry) -> None:
        """Refuse an entry that is about nothing in this project, or lacks what the project asks for."""
        settings = self.settings
        if entry.query_id and entry.query_id not in self.queries:
            raise UsageError(f"there is no query {printable(entry.query_id)!r}")
        if entry.doc_id and not any(p.doc_id == entry.doc_id for p in self.pool.get(entry.query_id, [])):
            raise UsageError(f"{printable(entry.doc_id)!r} is not in the pool of this query")
        if entry.grade is None:
            return
        if not entry.doc_id:
            raise UsageError("a grade needs a passage")
        if not 0 <= entry.grade < len(settings.grades):
            raise UsageError(f"a grade is between 0 and {len(settings.grades) - 1}, not {entry.grade}")
        if settings.reason == "required" and not entry.reason.strip():
            raise UsageError("this project asks for a reason")
        if entry.support and entry.support not in self.passages[entry.doc_id].contents:
            raise UsageError("the supporting sentence does not stand in the passage")
        if settings.support == "required" and entry.grade > 0 and not entry.support.strip():
            raise UsageError("this project asks for the sentence that supports a grade above 0")

    def journal_path(self, judge: str) -> Path:
        """Where the journal of a judge lies."""
        if not judge.strip() or len(judge) > 200 or not judge.isprintable():
            raise UsageError(f"{printable(judge)!r} cannot be the name of a judge")
        return self.folder / "judgments" / f"{file_name(judge)}.jsonl"

    def journal(self, judge: str, kind: JudgeKind = "person", *, spec: str = "") -> Journal:
        """The journal of a judge, begun where there is none."""
        return Journal(self.journal_path(judge), Header(project=self.identity, judge=judge, kind=kind, spec=spec))

    def journals(self, *kinds: JudgeKind) -> Iterator[Journal]:
        """All journals that there are, for reading, or those of some kinds."""
        for path in sorted((self.folder / "judgments").glob("*.jsonl")):
            header = read_header(path)
            if header.project != self.identity:
                raise DataError("belongs to another project, or to an earlier state of this one", path=path)
            if not kinds or header.kind in kinds:
                yield Journal(path, header, read_only=True)


def create_project(
    folder: Path,
    settings: Settings,
    *,
    queries: Iterable[Query],
    passages: Iterable[Document],
    pool: Sequence[Pooled],
    runs: Mapping[str, Run],
) -> Project:
    """Write a new project; the folder appears whole or not at all. `runs` are named as in the settings."""
    with atomic_folder(folder) as made:
        _write(made / "queries.jsonl", (_Query(**q._asdict()) for q in queries))
        _write(made / "passages.jsonl", (_Passage(**p._asdict()) for p in passages))
        _write(made / "pool.jsonl", pool)
        (made / "runs").mkdir()
        for system in settings.systems:
            write_run(runs[system.name], _run_path(made, system))
        (made / "judgments").mkdir()
        (made / ".gitignore").write_text("*.lock\n", "utf-8")
        document = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        (made / "project.json").write_bytes(document + b"\n")
    return open_project(folder)


def open_project(folder: Path) -> Project:
    """Read a project that is there."""
    path = folder / "project.json"
    try:
        with open_file(path) as stream:
            settings = msgspec.json.decode(stream.read(1 << 24), type=Settings)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not the description of a judging project ({error})", path=path) from None
    if settings.schema > SCHEMA:
        raise DataError(f"was written by a newer r2med (schema {settings.schema})", path=path)
    return Project(folder, settings)


def _run_path(folder: Path, system: System) -> Path:
    return inside(folder / "runs", system.run, "the run")


def _write(path: Path, records: Iterable[msgspec.Struct]) -> None:
    with path.open("wb") as stream:
        stream.writelines(msgspec.json.encode(record) + b"\n" for record in records)


def _read(path: Path, record: type[Record], key: Callable[[Record], object]) -> list[Record]:
    """The records of a file; two of one key are refused, since one of them would be lost."""
    found: dict[object, Record] = {}
    with open_file(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                read = msgspec.json.decode(line, type=record)
            except (ValueError, RecursionError) as error:
                raise DataError(f"cannot be read ({error})", path=path, line=number) from None
            if found.setdefault(key(read), read) is not read:
                raise DataError(f"has {printable(str(key(read)))} a second time", path=path, line=number)
    return list(found.values())
