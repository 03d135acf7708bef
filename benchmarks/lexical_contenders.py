"""One contender of `lexical.py` in a process of its own: NAME CORPUS QUERIES, both JSON lines with id and text."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.core import Task


def read(path: str) -> tuple[list[str], list[str]]:
    import orjson

    with Path(path).open("rb") as lines:
        records = [orjson.loads(line) for line in lines]
    return [r["id"] for r in records], [r["text"] for r in records]


def as_task(corpus: str, queries: str) -> Task:
    from r2med.core import Qrels, Query, Task
    from r2med.core.stores import FolderStore
    from r2med.tasks.records import PlainQuery, read_documents, read_records

    store = FolderStore(Path(corpus).parent)
    asked = tuple(Query(q.id, q.text) for _, q in read_records(store, Path(queries).name, PlainQuery))
    return Task("bench", asked, read_documents(store, Path(corpus).name), Qrels.from_judgments([]))


def ours(corpus: str, queries: str, name: str = "bm25") -> None:
    """From the files to a ranking; nothing is taken from an earlier run or kept for the next."""
    from r2med.core.options import Options
    from r2med.retrieve import get_retriever

    get_retriever(name, Options(cache=False)).retrieve(as_task(corpus, queries), depth=1000)


def nano(corpus: str, queries: str) -> None:
    ours(corpus, queries, "bm25-nano")


def kept(corpus: str, queries: str) -> None:
    """Print the CPU seconds until an index is ready; a second process finds it in R2MED_HOME."""
    from r2med.retrieve import get_retriever

    task = as_task(corpus, queries)
    start = time.process_time()
    get_retriever("bm25").prepare(task)
    print(json.dumps({"seconds": time.process_time() - start}))


def gensim(corpus: str, queries: str) -> None:
    """R2MED's script. Its analyzer (Lucene behind a Java bridge) is replaced by our faster equal, in its favour."""
    from gensim.corpora import Dictionary
    from gensim.models import LuceneBM25Model
    from gensim.similarities import SparseMatrixSimilarity

    from r2med import _fast

    ids, texts = read(corpus)
    tokens = [_fast.analyze(t.encode()) for t in texts]
    dictionary = Dictionary(tokens)
    model = LuceneBM25Model(dictionary=dictionary, k1=0.9, b=0.4)
    weighted = model[list(map(dictionary.doc2bow, tokens))]
    index = SparseMatrixSimilarity(
        weighted, num_docs=len(tokens), num_terms=len(dictionary), normalize_queries=False, normalize_documents=False
    )
    for text in read(queries)[1]:
        scores = index[model[dictionary.doc2bow(_fast.analyze(text.encode()))]].tolist()
        sorted(zip(ids, scores, strict=True), key=lambda pair: pair[1], reverse=True)[:1000]


def bm25s(corpus: str, queries: str) -> None:
    import bm25s as peer
    import Stemmer

    stemmer = Stemmer.Stemmer("porter")
    _, texts = read(corpus)
    model = peer.BM25(method="lucene", k1=0.9, b=0.4)
    model.index(peer.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    asked = peer.tokenize(read(queries)[1], stopwords="en", stemmer=stemmer, show_progress=False)
    model.retrieve(asked, k=1000, show_progress=False)


def tantivy(corpus: str, queries: str) -> None:
    import tantivy as peer

    builder = peer.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="en_stem")
    builder.add_unsigned_field("number", stored=True)
    index = peer.Index(builder.build())
    writer = index.writer(heap_size=256_000_000, num_threads=1)
    for number, text in enumerate(read(corpus)[1]):
        writer.add_document(peer.Document(text=text, number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    for text in read(queries)[1]:
        words = " ".join(w for w in text.split() if w.isalnum())
        searcher.search(index.parse_query(words.lower(), ["text"]), limit=1000)


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    {"r2med": ours, "nano": nano, "kept": kept, "gensim": gensim, "bm25s": bm25s, "tantivy": tantivy}[name](*paths)
