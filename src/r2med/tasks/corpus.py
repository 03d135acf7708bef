"""Documents and queries that are no task yet: a corpus without judgments, a file of queries."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..core import DataError, IdTable, Qrels, Query, Task, TextColumn, UsageError
from ..core.files import exists, typed_path
from ..core.stores import SUFFIXES, FileStore, Store, open_store
from ..core.untrusted import component
from .formats import detect
from .formats.jsonlines import only
from .load import TaskRef, check_texts, resolve
from .records import line_of, read_documents, read_queries

QUERY_FILES = ("query.jsonl", "queries.jsonl")


def load_corpus(spec: str) -> Task:
    """A task by name or path, or documents alone: a folder with a `corpus.jsonl`, or such a file.

    Where there are no judgments, or no queries, the task has none.
    """
    path = typed_path(spec)
    if exists(path) and path.is_file() and path.suffix.lower() != ".zip":
        return _without_judgments(FileStore(path), path, path.name, None)
    try:
        refs = resolve(spec)
    except DataError:
        store = open_store(path)
        corpus = only(store.names(), "corpus.jsonl")
        if corpus is None:
            raise
        return _without_judgments(store, path, corpus, None)
    if len(refs) != 1:
        names = ", ".join(ref.full_name for ref in refs)
        raise UsageError(f"{spec!r} stands for {len(refs)} tasks ({names}); name one of them")
    return _load(refs[0])


def _load(ref: TaskRef) -> Task:
    store = ref.store()
    layout, _ = detect(store)
    names = store.names()
    corpus = only(names, "corpus.jsonl")
    if layout.has_task(names, ref.split) or corpus is None:
        return ref.load()
    return _without_judgments(store, ref.present(), corpus, only(names, *QUERY_FILES))


def _without_judgments(store: Store, path: Path, corpus: str, queries: str | None) -> Task:
    documents = read_documents(store, corpus)
    if not len(documents):
        raise DataError("there are no documents", path=store.label(corpus))
    check_texts("document", documents.ids, (documents.texts, documents.titles), partial(_place, store, corpus))
    return Task(
        name=component(_stem(path.resolve().name), "task", path=path),
        queries=_queries(store, queries) if queries is not None else (),
        documents=documents,
        qrels=Qrels.from_judgments([]),
        source=str(path),
        extra={"path": str(path)},
    )


def load_queries(path: Path) -> tuple[Query, ...]:
    """The queries of a file of JSON lines, in either of our spellings; each has an id of its own and a text."""
    found = _queries(FileStore(path), path.name)
    if not found:
        raise DataError("there are no queries", path=path)
    return found


def _queries(store: Store, name: str) -> tuple[Query, ...]:
    found, place = read_queries(store, name), partial(_place, store, name)
    check_texts("query", IdTable(q.id for q in found), (TextColumn.from_texts(q.text for q in found),), place)
    for query in found:
        if not query.text.strip():
            label, line = place("query", query.id, 1)
            raise DataError(f"query {query.id!r} has no text", path=label, line=line)
    return found


def _place(store: Store, name: str, kind: str, identifier: str, occurrence: int) -> tuple[str, int | None]:
    del kind
    return store.label(name), line_of(store, name, identifier, occurrence=occurrence)


def _stem(name: str) -> str:
    """The name of a corpus: that of its folder, or of its file without the endings."""
    for ending in (*filter(None, SUFFIXES), ".zip", ".jsonl"):
        name = name.removesuffix(ending)
    return name
