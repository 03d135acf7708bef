"""The retriever as a whole, encoders people bring, and folders that are no models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.cache import EmbeddingCache
from r2med.core import Document, Documents, MissingExtra, ModelError, Qrels, Query, Task, UsageError
from r2med.core.identity import identify
from r2med.core.options import Options
from r2med.core.queries import Queries, QueryText, Side
from r2med.core.spec import Spec
from r2med.models import Instructions, folder_card, get_card
from r2med.retrieve import Retriever, as_retriever, get_retriever
from r2med.retrieve.dense import DenseRetriever, Variant
from r2med.retrieve.encoders import Batch, load_encoder
from r2med.retrieve.encoders.custom import CustomEncoder
from r2med.retrieve.encoders.torch_encoder import TorchEncoder
from r2med.retrieve.vectors import unit
from tests.builders import small_task
from tests.retrieve.encoders import tiny
from tests.retrieve.encoders.hashing import HashEncoder

CPU = Options(device="cpu", threads=1)
HASH = Spec("hash")


def task_of(texts: list[str], queries: list[str]) -> Task:
    return Task(
        "made",
        tuple(Query(f"q{i}", t) for i, t in enumerate(queries)),
        Documents.of(Document(f"d{i}", t) for i, t in enumerate(texts)),
        Qrels.from_judgments([("q0", "d0", 1), ("q0", "d2", 1), ("q0", "d1", 0)]),
    )


class Letters:
    """Counts letters: an encoder in three lines."""

    def encode(self, texts: list[str]) -> Any:
        return [[t.count(c) for c in "abcdefgh"] for t in texts]


class UnitHashes(HashEncoder):
    """The same vectors, of length one."""

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        for batch in super().stream(texts, side, instruction):
            yield batch._replace(vectors=unit(batch.vectors))


class TwoSides:
    revision = "7"

    def encode_queries(self, queries: list[str], **_: object) -> Any:
        return np.array([[len(q), 0.0] for q in queries])

    def encode_corpus(self, corpus: list[str], **_: object) -> Any:
        return np.array([[len(t), 1.0] for t in corpus])


def function(texts: list[str]) -> Any:
    return np.array([[len(t)] for t in texts])


def test_it_is_a_retriever_and_ranks() -> None:
    used = as_retriever(Letters())
    assert isinstance(used, Retriever)
    run = used.retrieve(task_of(["abc", "ddd", "hhh"], ["a b", "h"]))
    assert [hit.doc_id for hit in run.row(0)] == ["d0", "d2", "d1"]
    assert run.row(1)[0].doc_id == "d2"
    assert run.notes["cache"] == {"cached": 0, "encoded": 5, "damaged_shards": 0}


def test_equal_vectors_are_ordered_by_id() -> None:
    run = as_retriever(Letters()).retrieve(task_of(["ab", "ab", "ba", "c"], ["ab"]), depth=3)
    assert [hit.doc_id for hit in run.row(0)] == ["d2", "d1", "d0"]
    assert len({hit.score for hit in run.row(0)}) == 1


@pytest.mark.parametrize(
    "address", ["Letters", "TwoSides", "function", "nothing"], ids=["class", "two sides", "function", "absent"]
)
def test_addresses(address: str) -> None:
    where = f"{__name__}:{address}"
    if address == "nothing":
        with pytest.raises(UsageError, match="has no nothing"):
            get_retriever(where)
    else:
        assert get_retriever(where).retrieve(small_task()).depth == 3


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda texts: np.full((len(texts), 2), np.nan), "not finite"),
        (lambda texts: np.ones((1, 2)), "shape .1, 2. for 3 texts"),
        (lambda texts: [["x"]] * len(texts), "did not return an array"),
    ],
)
def test_nonsense_from_a_model_is_one_line(made: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        as_retriever(made).retrieve(small_task())


def test_what_does_not_encode_is_refused() -> None:
    with pytest.raises(UsageError, match="does not encode"):
        as_retriever(object())
    with pytest.raises(UsageError, match="unknown option 'speed'"):
        Options().changed({"speed": 9})
    with pytest.raises(UsageError, match="unknown retriever 'nowhere'"):
        get_retriever("nowhere")


def test_truncation_is_accounted_for() -> None:
    texts = ["w " * 20, "w " * 30, "w", "w " * 16]
    run = DenseRetriever(HashEncoder(limit=16), HASH).retrieve(task_of(texts, ["q " * 18]))
    assert run.notes["truncation"] == {
        "query": {"limit": 16, "texts": 1, "tokens": 18, "texts_cut": 1, "tokens_cut": 2, "longest": 18},
        "document": {
            "limit": 16,
            "texts": 4,
            "tokens": 67,
            "texts_cut": 2,
            "tokens_cut": 18,
            "longest": 30,
            "positives_cut": 1,
            "positive_judgments_cut": 1,
        },
    }


def test_a_cached_task_needs_no_model(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    first = DenseRetriever(HashEncoder(), HASH, cache=cache).retrieve(small_task())
    broken = HashEncoder()
    broken.fail_after = 0
    again = DenseRetriever(broken, HASH, cache=cache).retrieve(small_task())
    assert np.array_equal(first.docs, again.docs)
    assert np.array_equal(first.scores, again.scores)
    assert again.notes["truncation"] == first.notes["truncation"]
    checked = DenseRetriever(HashEncoder(), HASH, cache=cache, options=Options(verify=2)).retrieve(small_task())
    assert checked.notes["verified"] == {"checked": 2, "largest_difference": 0.0}


def test_only_what_can_be_told_apart_is_cached() -> None:
    for model, cached in ((Letters(), 0), (TwoSides(), 5)):
        for _ in range(2):
            run = as_retriever(model).retrieve(small_task())
        assert run.notes["cache"]["cached"] == cached  # type: ignore[index]


def test_cosine_and_dot_differ_by_length_only() -> None:
    task = task_of(["a", "aaaa", "b"], ["a"])
    encoder = CustomEncoder(Letters(), "letters", identify(Letters()))
    dot, cosine = (DenseRetriever(encoder, HASH, similarity=how).retrieve(task) for how in ("dot", "cosine"))
    assert [h.score for h in dot.row(0)] == [4, 1, 0]
    assert [h.score for h in cosine.row(0)] == [1, 1, 0]


@pytest.mark.parametrize("variant", [Variant("int8"), Variant("binary"), Variant("float16", 4)], ids=str)
def test_variants_are_part_of_what_it_is(variant: Variant) -> None:
    used = DenseRetriever(HashEncoder(), HASH, variant=variant)
    assert used.describe()["variant"] == str(variant)
    assert used.retrieve(small_task()).depth == 3


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_of_length_one_are_scaled_again_when_cut(normalize: bool) -> None:
    """Whether the model makes them so or they are made so for comparing."""
    encoder, task = HashEncoder(dimension=32), small_task()
    card = get_card("bge-small").replace(normalize=normalize, instructions=Instructions())
    given: Any = UnitHashes(dimension=32) if normalize else encoder
    cut = DenseRetriever(given, HASH, card=card, variant=Variant("float32", 4, 0), options=Options(cache=False))
    run = cut.retrieve(task)
    queries, documents = (
        unit(np.ascontiguousarray(encoder.encode(list(texts))[:, :4]))
        for texts in (task.query_texts, task.documents.contents)
    )
    wanted = np.sort(queries @ documents.T, axis=1)[:, ::-1]
    np.testing.assert_allclose(run.scores, wanted, atol=1e-6)


def test_an_unknown_device_is_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        as_retriever(Letters(), options=Options(device="tpu"))


def test_a_model_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(ModelError, match="contriever is not on this machine: r2med models fetch contriever"):
        get_retriever("contriever")
    with pytest.raises(UsageError, match="is a cross-encoder model"):
        get_retriever("monobert")
    with pytest.raises(UsageError, match="is a cross-encoder model"):
        load_encoder(get_card("monobert"))


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    card = tiny.card("bert", "cls")
    with pytest.raises(ModelError, match=r"no config\.json"):
        TorchEncoder(card, tmp_path)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 32}')
    with pytest.raises(ModelError, match="has no weights"):
        TorchEncoder(card, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="only pickled weights"):
        TorchEncoder(card, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="takes at most 32 tokens, not 64"):
        TorchEncoder(card, tmp_path)
    with pytest.raises(ModelError, match="allow it with trust_remote_code"):
        TorchEncoder(card.replace(remote_code=True), tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not readable as JSON"):
        TorchEncoder(card, tmp_path)


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """In a process where the libraries cannot be imported."""
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    code = f"""
import sys, json
for name in ("onnxruntime", "tokenizers", "torch", "transformers", "httpx"):
    sys.modules[name] = None
from pathlib import Path
from r2med.core import MissingExtra
from r2med.core.options import Options
from r2med.models import get_card
from r2med.retrieve.encoders.api import ApiEncoder
from r2med.retrieve.encoders.onnx import OnnxEncoder
from r2med.retrieve.encoders.torch_encoder import TorchEncoder
from tests.retrieve.encoders import tiny
folder = Path({str(tmp_path)!r})
made = [
    lambda: OnnxEncoder(get_card("bge-small"), folder).encode(["a"]),
    lambda: TorchEncoder(tiny.card("bert", "cls"), folder, Options(device="cpu", threads=1)).encode(["a"]),
    lambda: ApiEncoder(get_card("openai"), Options(base_url="http://127.0.0.1:9")).encode(["a"]),
]
for call in made:
    try:
        call()
    except MissingExtra as error:
        print(error.extra)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.stdout.split() == ["onnx", "torch", "api"], done.stderr
    assert MissingExtra("x", "onnx").exit_code == 1


def test_importing_the_retriever_loads_nothing_heavy() -> None:
    code = "import sys, json, r2med.retrieve.dense; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & {"torch", "transformers", "onnxruntime", "tokenizers", "httpx"}


class TestTorch:
    """Folders as people have them."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="the torch extra is not installed")
        pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")

    def test_a_sentence_transformers_folder(self, tmp_path: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules

        tiny.save_model(tmp_path / "plain", "bert")
        tiny.save_tokenizer(tmp_path / "plain", "bert")
        base = modules.Transformer(str(tmp_path / "plain"), max_seq_length=24)
        peer = SentenceTransformer(modules=[base, modules.Pooling(32, "mean"), modules.Normalize()], device="cpu")
        peer.save(str(tmp_path / "st"))
        texts = tiny.texts(20)
        card = folder_card(tmp_path / "st")
        assert (card.pooling, card.normalize, card.document_length) == ("mean", True, 24)
        encoder = load_encoder(card, CPU)
        assert np.abs(encoder.encode(texts) - peer.encode(texts)).max() < 1e-5

    def test_code_of_the_models_own_runs_only_when_allowed(self, tmp_path: Path) -> None:
        tiny.save_model(tmp_path, "bert")
        tiny.save_tokenizer(tmp_path, "bert")
        code = (
            "import torch\nfrom transformers import BertModel\n"
            "from transformers.modeling_outputs import BaseModelOutput\n"
            "class Own(BertModel):\n"
            "    def forward(self, input_ids, attention_mask=None):\n"
            "        return BaseModelOutput(last_hidden_state=torch.full((*input_ids.shape, 3), 7.0))\n"
        )
        (tmp_path / "own.py").write_text(code)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "own.Own"}}))
        card = folder_card(tmp_path)
        with pytest.raises(ModelError, match="trust_remote_code"):
            TorchEncoder(card, tmp_path, CPU)
        used = TorchEncoder(card, tmp_path, CPU.changed({"trust_remote_code": True}))
        assert used.encode(["fever", "liver"]).tolist() == [[7, 7, 7], [7, 7, 7]]

    def test_pickled_weights_are_taken_when_the_user_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch

        monkeypatch.setenv("R2MED_HOME", str(tmp_path))
        folder = tmp_path / "models" / "contriever"
        made = tiny.save_model(folder, "bert")
        tiny.save_tokenizer(folder, "bert")
        (folder / "model.safetensors").unlink()
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
        with pytest.raises(
            ModelError, match="allow them with --allow-pickle, or in a spec, contriever:allow_pickle=yes"
        ):
            get_retriever("contriever:max_length=16")
        run = get_retriever("contriever:max_length=16,allow_pickle=yes", CPU).retrieve(small_task())
        assert run.depth == 3
        with pytest.raises(UsageError, match="must be yes or no, not 'maybe'"):
            get_retriever("contriever:allow_pickle=maybe")

    def test_a_whole_run_through_a_card(self, tmp_path: Path) -> None:
        tiny.save_model(tmp_path, "bert")
        tiny.save_tokenizer(tmp_path, "bert")
        card = tiny.card("bert", "mean", normalize=True)
        used = DenseRetriever(TorchEncoder(card, tmp_path, CPU), Spec(card.name), card=card, options=CPU)
        run = used.retrieve(task_of(tiny.texts(12), tiny.texts(2, seed=1)))
        assert run.notes["cache"]["encoded"] == 14  # type: ignore[index]
        assert used.retrieve(task_of(tiny.texts(12), tiny.texts(2, seed=1))).notes["cache"]["cached"] == 14  # type: ignore[index]

    def test_unknown_devices_are_refused(self, tmp_path: Path) -> None:
        tiny.save_model(tmp_path, "bert")
        for device, words in (("tpu", "unknown device"), ("cuda:99", "there is no device cuda:99")):
            with pytest.raises(UsageError, match=words):
                TorchEncoder(tiny.card("bert", "cls"), tmp_path, Options(device=device))
            # A model of another backend is searched on that device too.
            with pytest.raises(UsageError, match=words):
                as_retriever(Letters(), options=Options(device=device))


def test_a_dense_score_is_not_explained_by_words() -> None:
    index = as_retriever(Letters()).prepare(task_of(["abc", "ddd"], ["a b"]))
    found = index.explain(Queries.typed(["a b"]), [0, 1])  # type: ignore[attr-defined]
    assert [one.shares for one in found] == [(), ()]
    assert "cosine of two vectors (8 numbers each)" in found[0].note
    assert "does not say what single words add" in found[0].note


def test_queries_need_not_be_kept(tmp_path: Path) -> None:
    """Neither the vector of a query, nor those of texts that stand for it, whatever side encodes them."""
    cache = EmbeddingCache(tmp_path)
    private = DenseRetriever(HashEncoder(), HASH, options=Options(keep_queries=False), cache=cache)
    task = task_of(["abc", "ddd"], ["a b"])
    index = private.prepare(task)

    def held() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "speed.json"}

    before = held()
    assert before
    texts = [(QueryText("typed"), QueryText("an expansion", 1.0, "document"))]
    asked = Queries(task.query_ids, task.query_texts, texts)
    private_run, plain = index.search(asked, 2), index.search(Queries.typed(["typed"]), 2)
    assert held() == before
    usual = DenseRetriever(HashEncoder(), HASH, cache=cache).prepare(task)
    assert usual.search(asked, 2).scores.tolist() == private_run.scores.tolist()
    assert usual.search(Queries.typed(["typed"]), 2).scores.tolist() == plain.scores.tolist()
    assert held() != before
