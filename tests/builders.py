"""Small tasks: one to write by hand, and strategies for arbitrary ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st

from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.tasks import write_task
from r2med.tasks.load import from_path

# Any Unicode that a text may hold: no half characters, no NUL.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(CHARACTERS, max_size=40) | st.sampled_from(
    [
        "two\nlines\r\n",
        'a "quoted" \\ text',
        "line\u2028and\u2029paragraph\x85",
        "𝔘𝔫𝔦 🧬🫀",
        "\ufeffBOM",
        " edge ",
        "\x1f",
    ]
)
ANY_ID = st.text(CHARACTERS, min_size=1, max_size=8)
TSV_ID = ANY_ID.filter(lambda i: i.strip() == i and i[0] != '"' and not set(i) & set("\t\r\n"))
TREC_ID = ANY_ID.filter(lambda i: i.split() == [i])
ids_of = {"beir": TSV_ID}


@st.composite
def tasks(draw: st.DrawFn, ids: st.SearchStrategy[str] = ANY_ID) -> Task:
    """A task with at least one judgment, titles or none, answers and body systems or none."""
    titled = draw(st.booleans())
    doc_ids = draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    query_ids = draw(st.lists(ids, min_size=1, max_size=4, unique=True))
    maybe = st.none() | TEXTS.filter(bool)
    judgments = [
        (query_id, doc_id, draw(st.integers(-1, 3)))
        for number, query_id in enumerate(query_ids)
        for doc_id in draw(st.lists(st.sampled_from(doc_ids), min_size=not number, max_size=3, unique=True))
    ]
    return Task(
        "made",
        tuple(Query(i, draw(TEXTS), draw(maybe), draw(maybe)) for i in query_ids),
        Documents.of(Document(i, draw(TEXTS), draw(TEXTS) if titled else "") for i in doc_ids),
        Qrels.from_judgments(judgments),
    )


def small_task() -> Task:
    """Two queries over three documents."""
    return Task(
        "small",
        (Query("q1", "why does it hurt", "inflammation", "Nervous"), Query("q2", "what is this")),
        Documents.of([Document("d1", "a first text"), Document("d2", "β-blockers"), Document("d3", "third\none")]),
        Qrels.from_judgments([("q1", "d1", 1), ("q1", "d2", 2), ("q2", "d3", 1), ("q2", "d1", 0)]),
    )


def lines(records: Iterable[object]) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


CORPUS = [{"id": "d1", "text": "one"}, {"id": "d2", "text": "two"}]
QUERIES = [{"id": "q1", "text": "first"}, {"id": "q2", "text": "second"}]
QRELS = [{"q_id": "q1", "p_id": "d1", "score": 1}, {"q_id": "q2", "p_id": "d2", "score": 1}]


def r2med_folder(
    folder: Path, *, corpus: bytes | None = None, queries: bytes | None = None, qrels: bytes | None = None
) -> Path:
    """A folder in R2MED's layout, with some of its files given as bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_bytes(lines(CORPUS) if corpus is None else corpus)
    (folder / "query.jsonl").write_bytes(lines(QUERIES) if queries is None else queries)
    (folder / "qrels.jsonl").write_bytes(lines(QRELS) if qrels is None else qrels)
    return folder


def other_folder(folder: Path, word: str = "other") -> Path:
    """A folder in R2MED's layout with other queries than that of `r2med_folder`."""
    return r2med_folder(folder, queries=lines([{**query, "text": f"{query['text']} {word}"} for query in QUERIES]))


def beir_folder(folder: Path, **judgments: str) -> Path:
    """The small task in BEIR's layout, with judgments by split: `dev="q1\\td1\\t1\\n"`."""
    write_task(small_task(), folder, to="beir")
    (folder / "qrels" / "test.tsv").unlink()
    for split, text in judgments.items():
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{text}")
    return folder


def load_path(path: Path) -> Task:
    """The one task at a path."""
    (ref,) = from_path(path)
    return ref.load()
