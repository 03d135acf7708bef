"""One contender of `dense.py` per process: prints what it measured as JSON.

The peers are written as their own documentation or published code calls them, with their defaults.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from common import seconds


def passages(path: str) -> list[str]:
    """The texts to encode."""
    texts: list[str] = json.loads(Path(path).read_text("utf-8"))
    return texts


def best(work: Callable[[], object]) -> float:
    """The best of two times by the clock: the machine is not ours alone."""
    return min(seconds(work, 2, clock=time.perf_counter))


def encode_ours(texts: list[str], folder: Path) -> float:
    """The ONNX backend of r2med."""
    from r2med.models import get_card
    from r2med.retrieve.encoders.onnx import OnnxEncoder

    encoder = OnnxEncoder(get_card("bge-small"), folder)
    encoder.encode(texts[:2])
    return best(lambda: encoder.encode(texts))


def encode_plain(texts: list[str], folder: Path) -> float:
    """ONNX Runtime with its defaults: batches of 32 in input order, padded to their longest."""
    import onnxruntime as ort
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])

    def work() -> None:
        for begin in range(0, len(texts), 32):
            batch = tokenizer.encode_batch(texts[begin : begin + 32])
            ids = np.array([e.ids for e in batch])
            mask = np.array([e.attention_mask for e in batch])
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            first = np.asarray(session.run(None, feed)[0])[:, 0]
            first / np.linalg.norm(first, axis=1, keepdims=True)

    return best(work)


def encode_sentence_transformers(texts: list[str], folder: Path) -> float:
    """SentenceTransformer.encode in float32 with its defaults.

    The model has bge-small's shape and tokenizer and random weights: its float32 weights are not on the package index,
    and speed does not depend on what they are.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import AutoTokenizer, BertConfig, BertModel

    with tempfile.TemporaryDirectory() as made:
        BertModel(BertConfig.from_pretrained(folder)).save_pretrained(made)
        AutoTokenizer.from_pretrained(folder).save_pretrained(made)
        base = modules.Transformer(made, max_seq_length=512)
        model = SentenceTransformer(modules=[base, modules.Pooling(384, "cls"), modules.Normalize()], device="cpu")
    model.encode(texts[:2])
    torch.manual_seed(0)
    return best(lambda: model.encode(texts))


def search_data() -> tuple[Any, Any, Any]:
    """120 queries, 61,379 documents, 1,024 dimensions: PMC-Treatment's size with a large model."""
    rng = np.random.default_rng(0)
    documents = rng.standard_normal((61_379, 1024), dtype=np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries = rng.standard_normal((120, 1024), dtype=np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return queries, documents, rng.permutation(len(documents)).astype(np.int32)


class Vectors:
    """A model for BEIR that has its vectors already."""

    def __init__(self, queries: Any, documents: Any) -> None:
        import torch

        self._queries, self._documents = torch.from_numpy(queries), torch.from_numpy(documents)
        self._at = 0

    def encode_queries(self, queries: list[str], **_: object) -> Any:
        """All of them."""
        del queries
        self._at = 0
        return self._queries

    def encode_corpus(self, corpus: list[Any], **_: object) -> Any:
        """The next chunk."""
        begin, self._at = self._at, self._at + len(corpus)
        return self._documents[begin : self._at]


def beir_search(queries: Any, documents: Any) -> Callable[[], Any]:
    """BEIR's exact search by cosine, with its defaults: chunks of 50,000, torch top-k, a heap per query."""
    beir: Any = import_module("beir.retrieval.search.dense")
    peer = beir.DenseRetrievalExactSearch(Vectors(queries, documents))
    corpus = {f"d{i}": {"title": "", "text": "x"} for i in range(len(documents))}
    asked = {f"q{i}": "x" for i in range(len(queries))}
    return lambda: peer.search(corpus, asked, 1000, "cos_sim")


def search() -> dict[str, float]:
    """CPU seconds of the product alone, ours, and BEIR's, in one process on the same arrays, taking turns."""
    from r2med.retrieve.rows import ArrayRows
    from r2med.retrieve.vectors import search as ours

    queries, documents, ties = search_data()
    works: dict[str, Callable[[], Any]] = {
        "blas": lambda: queries @ documents.T,
        "ours": lambda: ours(queries, ArrayRows(documents), ties, 1000),
    }
    try:
        import torch

        torch.set_num_threads(1)
        works["beir"] = beir_search(queries, documents)
    except ImportError:
        pass
    fastest = dict.fromkeys(works, float("inf"))
    for _ in range(7):
        for name, work in works.items():
            fastest[name] = min(fastest[name], *seconds(work, 1))
    exact = (queries.astype(np.float64) @ documents.T.astype(np.float64)).astype(np.float32)
    order = np.lexsort((np.broadcast_to(ties, exact.shape), -exact), axis=1)[:, :1000]
    fastest["wrong"] = float((ours(queries, ArrayRows(documents), ties, 1000).docs != order).sum())
    return fastest


def memory() -> dict[str, float]:
    """Peak memory of a search beyond the vectors, in MB."""
    from r2med.retrieve.rows import ArrayRows
    from r2med.retrieve.vectors import search as ours

    def status(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024

    queries, documents, ties = search_data()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    ours(queries, ArrayRows(documents), ties, 1000)
    return {"megabytes": status("VmHWM") - before}


class Remembered:
    """An encoder whose vectors are cheap to make, for filling a cache of 61,379 × 1,024."""

    revision = "1"

    def encode(self, texts: list[str]) -> Any:
        """Random vectors of length one, as most models make them."""
        made = np.random.default_rng(len(texts[0])).standard_normal((len(texts), 1024), dtype=np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def cached(home: Path) -> dict[str, float]:
    """CPU seconds of a task whose vectors are all in the cache; the first process fills it."""
    from r2med.cache import EmbeddingCache
    from r2med.core import Document, Documents, Qrels, Query, Task
    from r2med.core.identity import identify
    from r2med.core.spec import Spec
    from r2med.retrieve.dense import DenseRetriever
    from r2med.retrieve.encoders.custom import CustomEncoder
    from r2med.scoring import score

    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(2000)])
    texts = [" ".join(words[row]) for row in rng.integers(0, 2000, (61_379, 130))]
    task = Task(
        "made",
        tuple(Query(f"q{i}", f"query {i}") for i in range(120)),
        Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts)),
        Qrels.from_judgments([(f"q{i}", f"d{7 * i}", 1) for i in range(120)]),
    )
    begin, wall = time.process_time(), time.perf_counter()
    model = Remembered()
    encoder = CustomEncoder(model, "remembered", identify(model))
    spec = Spec("remembered")
    run = DenseRetriever(encoder, spec, similarity="dot", cache=EmbeddingCache(home)).retrieve(task)
    score(run, task.qrels)
    spent = time.process_time() - begin
    return {"cpu": spent, "wall": time.perf_counter() - wall, "encoded": float(run.notes["cache"]["encoded"])}  # type: ignore[index]


def main() -> None:
    what, *given = sys.argv[1:]
    result: dict[str, float]
    if what.startswith("encode"):
        work = {"encode-ours": encode_ours, "encode-plain": encode_plain, "encode-st": encode_sentence_transformers}
        result = {"seconds": work[what](passages(given[0]), Path(given[1]))}
    elif what == "cached":
        result = cached(Path(given[0]))
    else:
        result = search() if what == "search" else memory()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
