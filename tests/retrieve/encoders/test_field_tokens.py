"""Late interaction and learned sparse models by their names: the files their authors published, in small.

Each is loaded from R2MED_HOME as a user's own copy would be, and compared with sentence-transformers or with plain
torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import Document, Documents, ModelError, Qrels, Query, Task, UsageError
from r2med.core.options import Options
from r2med.core.queries import Queries
from r2med.models import cards, folder_card, get_card
from r2med.retrieve import Explains, get_retriever, retrievers
from r2med.retrieve.encoders import Float32, token_encoder
from r2med.retrieve.late_interaction import MaxSimRetriever
from r2med.retrieve.splade import SpladeRetriever

from . import tiny, tiny_field

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

CPU = Options(device="cpu", threads=1, allow_pickle=True)
TEXTS = [
    *tiny.texts(12, longest=60),
    "fever, rash; and pain!",
    " begins with a space",
    "fever\n\nand rash (acute)",
    "Morbus Crohn: naïve",
    "...",
    "",
]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    return tmp_path / "models"


def states(spec: str, side: Any, texts: Sequence[str] = TEXTS) -> list[Float32]:
    """Vectors of length one of the tokens of each text."""
    retriever = get_retriever(spec, CPU)
    assert isinstance(retriever, MaxSimRetriever)
    made: dict[int, Float32] = {}
    for batch in retriever.encoder.stream_states(texts, side):
        made |= dict(zip(batch.rows.tolist(), batch.states, strict=True))
    return [made[i] / np.linalg.norm(made[i], axis=1, keepdims=True) for i in range(len(texts))]


def terms(spec: str, side: Any) -> Float32:
    """Weights of all terms of each text."""
    retriever = get_retriever(spec, CPU)
    assert isinstance(retriever, SpladeRetriever)
    made: Any = None
    for batch in retriever.encoder.stream_terms(TEXTS, side):
        made = np.zeros((len(TEXTS), batch.size), np.float32) if made is None else made
        for row, held, weights in zip(batch.rows, batch.terms, batch.weights, strict=True):
            made[row, held] = weights
    return np.asarray(made)


def alike(ours: Sequence[Float32], theirs: Sequence[Any]) -> bool:
    pairs = [(a, np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    return all(a.shape == b.shape and np.abs(a - b).max() < 1e-5 for a, b in pairs)


def of(count: int) -> Task:
    """A task of the texts."""
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(TEXTS))
    return Task("made", tuple(Query(f"q{i}", TEXTS[i]) for i in range(count)), documents, Qrels.from_judgments([]))


def test_splade_v3(models: Path) -> None:
    """The largest log(1 + relu(logit)) over a text's tokens, for every word piece."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    import transformers as tf
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    folder = models / "splade-v3"
    size = tiny_field.save_bert_tokenizer(folder)
    torch.manual_seed(0)
    made: Any = tf.BertForMaskedLM(
        tf.BertConfig(vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      intermediate_size=64, max_position_embeddings=512, initializer_range=0.5)
    ).eval()  # fmt: skip
    made.save_pretrained(folder)
    peer = library.SparseEncoder(
        modules=[MLMTransformer(str(folder), max_seq_length=24), SpladePooling("max")], device="cpu"
    )
    theirs = peer.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    for side in ("query", "document"):
        ours = terms("splade-v3:max_length=24", side)
        assert np.abs(ours - theirs).max() < 1e-5
    run = get_retriever("splade-v3:max_length=24", CPU).retrieve(of(3))
    for i in range(3):
        scores = {hit.doc_id: hit.score for hit in run.of(f"q{i}")}
        wanted = {f"d{j}": float(theirs[i] @ theirs[j]) for j in range(len(TEXTS))}
        assert scores == pytest.approx({doc: score for doc, score in wanted.items() if score > 0}, rel=1e-4)


MODERN: dict[str, dict[str, Any]] = {
    "reason-moderncolbert": {"query_length": 128, "document_length": 8192},
    "gte-moderncolbert": {"query_length": 32, "document_length": 300, "do_query_expansion": None},
}


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("name", MODERN)
def test_moderncolbert(models: Path, name: str, seen: bool) -> None:
    """Markers behind the first token, queries filled up with masks, documents without punctuation, a projection."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    folder, length = models / name, get_card(name).query_length
    given = {**MODERN[name], "attend_to_expansion_tokens": seen, "document_length": 48}
    tiny_field.save_pylate(folder, **{key: value for key, value in given.items() if value is not None})
    peer = library.MultiVectorEncoder(str(folder), device="cpu")
    spec = f"{name}:max_length=48,query_length={length}"
    queries, documents = states(spec, "query"), states(spec, "document")
    assert alike(queries, [peer.encode_query(text, convert_to_numpy=True) for text in TEXTS])
    assert alike(documents, [peer.encode_document(text, convert_to_numpy=True) for text in TEXTS])
    assert {len(query) for query in queries} == {length}
    assert [len(documents[TEXTS.index(text)]) for text in ("...", "")] == [3, 3]  # first, marker and last
    assert max(len(document) for document in documents) == 48
    run = get_retriever(spec, CPU).retrieve(of(3))
    for i in range(3):
        scores = {hit.doc_id: hit.score for hit in run.of(f"q{i}")}
        wanted = {f"d{j}": float((queries[i] @ d.T).max(axis=1).sum()) for j, d in enumerate(documents)}
        assert scores == pytest.approx(wanted, abs=2e-5 * length)
    assert run.notes["vectors"] == sum(map(len, documents))
    index = get_retriever(spec, CPU).prepare(of(1))
    assert isinstance(index, Explains)
    (found,) = index.explain(Queries.of(of(1)), [TEXTS.index("fever, rash; and pain!")])
    assert sum(share.adds for share in found.shares) == pytest.approx(
        {hit.doc_id: hit.score for hit in run.of("q0")}["d12"], rel=1e-6
    )
    assert "[Q] " in {share.part for share in found.shares}
    assert len(found.shares) == length
    assert not {share.match for share in found.shares} & {",", ";", "!", "[MASK]"}


def test_a_query_may_be_longer_than_the_model_was_trained_for(models: Path) -> None:
    tiny_field.save_pylate(models / "gte-moderncolbert")
    assert {len(q) for q in states("gte-moderncolbert:query_length=70", "query")} == {70}
    assert str(retrievers.parse("gte-moderncolbert:query_length=32")) == "gte-moderncolbert"
    assert str(retrievers.parse("gte-moderncolbert:query_length=32,max_length=64")) != "gte-moderncolbert:max_length=64"
    long, usual = (get_retriever(f"gte-moderncolbert{given}", CPU) for given in (":query_length=70", ""))
    assert long.describe() != usual.describe()


@pytest.mark.parametrize(
    ("config", "queries", "dots"),
    [
        ({"do_query_expansion": False}, [5, 3], 3),
        ({"skiplist_words": []}, [32, 32], 4),
        ({"query_prefix": "", "document_prefix": ""}, [32, 32], 2),
        ({"query_length": 40}, [40, 40], 3),
    ],
)
def test_any_folder_of_pylate(tmp_path: Path, config: dict[str, Any], queries: list[int], dots: int) -> None:
    """As its files say, compared with sentence-transformers; what its files say is part of its name."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    for name, given in (("model", config), ("usual", {})):
        tiny_field.save_pylate(tmp_path / name / "model", **given)
    folder = tmp_path / "model" / "model"
    peer = library.MultiVectorEncoder(str(folder), device="cpu")
    some = ["fever rash", ""]
    made = states(str(folder), "query", some)
    assert [len(vectors) for vectors in made] == queries
    assert alike(made, [peer.encode_query(text, convert_to_numpy=True) for text in some])
    assert alike(states(str(folder), "document"), [peer.encode_document(t, convert_to_numpy=True) for t in TEXTS])
    assert len(states(str(folder), "document", ["."])[0]) == dots
    other, usual = (get_retriever(str(tmp_path / name / "model"), CPU) for name in ("model", "usual"))
    assert other.name != usual.name
    assert other.describe() != usual.describe()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lost": "1_Dense/config.json"}, r"config\.json is missing, so the projection of the tokens is not known"),
        ({"lost": "1_Dense/model.safetensors"}, "1_Dense: no weights"),
        ({"lost": "config_sentence_transformers.json"}, "names no query_prefix and document_prefix, so which tokens"),
        ({"lost": "modules.json"}, r"has no modules\.json, so it does not say how it pools"),
        ({"query_prefix": "[Query]"}, r"has no token '\[Query\]', which marks its texts"),
    ],
)  # fmt: skip
def test_files_that_do_not_say_enough(models: Path, change: dict[str, Any], said: str) -> None:
    folder = models / "reason-moderncolbert"
    tiny_field.save_pylate(folder, **{key: value for key, value in change.items() if key != "lost"})
    if "lost" in change:
        (folder / change["lost"]).unlink()
    with pytest.raises(ModelError, match=said) as caught:
        states("reason-moderncolbert:max_length=48", "query")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"query_length": -3}, "query_length and document_length must be whole numbers above 0"),
        ({"document_length": "long"}, "query_length and document_length must be whole numbers above 0"),
    ],
)
def test_lengths_that_are_none(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    tiny_field.save_pylate(tmp_path, **config)
    with pytest.raises(ModelError, match=said):
        folder_card(tmp_path)


def test_steps_of_late_interaction_that_are_not_run(tmp_path: Path) -> None:
    tiny_field.save_pylate(tmp_path)
    steps = json.loads((tmp_path / "modules.json").read_text())
    (tmp_path / "modules.json").write_text(json.dumps([*steps, {"type": "x.MultiVectorMask", "path": "2_Mask"}]))
    with pytest.raises(ModelError, match="lists Transformer, Dense, MultiVectorMask; r2med runs Transformer and Dense"):
        folder_card(tmp_path)


@pytest.mark.parametrize(
    ("steps", "pooling", "said"),
    [
        (("MLMTransformer", "SpladePooling"), {"pooling_strategy": "sum"}, "sum of relu is not run here"),
        (("Transformer", "SpladePooling"), {"activation_function": "log1p_relu"}, "max of log1p_relu is not run here"),
        (("Transformer", "SpladePooling", "Dense"), {}, "lists Transformer, SpladePooling, Dense; r2med runs"),
    ],
)
def test_learned_sparse_models_that_are_not_run(
    tmp_path: Path, steps: tuple[str, ...], pooling: dict[str, str], said: str
) -> None:
    tiny.save_masked_lm(tmp_path)
    listed = [{"type": f"x.{name}", "path": f"{i}_{name}" if i else ""} for i, name in enumerate(steps)]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "1_SpladePooling").mkdir()
    (tmp_path / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ModelError, match=said):
        folder_card(tmp_path)


def test_markers_need_transformers(tmp_path: Path) -> None:
    card = get_card("colbert-small-backbone").replace(interaction=get_card("bge-m3-multi").interaction)
    with pytest.raises(UsageError, match="markers and projections of tokens run in transformers"):
        token_encoder(card, tmp_path, CPU)


def save_m3(folder: Path) -> tuple[Any, Any]:
    """BGE-M3's files: pickled weights, and two pickled layers for its tokens."""
    model = tiny_field.save_model(folder, "xlm-roberta", tiny_field.save_xlm_roberta_tokenizer(folder))
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.manual_seed(8)
    heads = torch.nn.Linear(32, 1), torch.nn.Linear(32, 32)
    for name, head in zip(("sparse_linear", "colbert_linear"), heads, strict=True):
        torch.save(head.state_dict(), folder / f"{name}.pt")
    return model, dict(zip(("sparse", "multi"), heads, strict=True))


def m3_ids(folder: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(24)
    return list(tokenizer.encode(text).ids)


def test_bge_m3_sparse(models: Path) -> None:
    """Each token weighs relu(layer), the largest where it stands twice; marks weigh nothing (FlagEmbedding)."""
    folder = models / "bge-m3-sparse"
    model, heads = save_m3(folder)
    ours = terms("bge-m3-sparse:max_length=24", "query")
    assert np.array_equal(ours, terms("bge-m3-sparse:max_length=24", "document"))
    for row, text in enumerate(TEXTS):
        ids = m3_ids(folder, text)
        hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        wanted: dict[int, float] = {}
        for token, weight in zip(ids, torch.relu(heads["sparse"](hidden)).squeeze(-1).tolist(), strict=True):
            if token not in (0, 1, 2, 3) and weight > 0:
                wanted[token] = max(weight, wanted.get(token, 0))
        held = {int(term): float(ours[row, term]) for term in np.flatnonzero(ours[row])}
        assert held == pytest.approx(wanted, abs=1e-5)
    assert (ours > 0).any()


def test_bge_m3_multi(models: Path) -> None:
    """All tokens but the first, through a layer, of length one (FlagEmbedding)."""
    folder = models / "bge-m3-multi"
    model, heads = save_m3(folder)
    wanted = []
    for text in TEXTS:
        hidden = model(input_ids=torch.tensor([m3_ids(folder, text)])).last_hidden_state[0, 1:]
        wanted.append(torch.nn.functional.normalize(heads["multi"](hidden), dim=-1).numpy())
    for side in ("query", "document"):
        assert alike(states("bge-m3-multi:max_length=24", side), wanted)
    run = get_retriever("bge-m3-multi:max_length=24", CPU).retrieve(of(2))
    scores = {hit.doc_id: hit.score for hit in run.of("q1")}
    assert scores == pytest.approx(
        {f"d{j}": float((wanted[1] @ d.T).max(axis=1).sum()) for j, d in enumerate(wanted)}, rel=1e-4
    )


def test_the_outputs_of_bge_m3_share_no_name_and_no_vectors(models: Path) -> None:
    """One repository, three retrievers: one folder serves all, and each key differs."""
    for name in ("bge-m3", "bge-m3-sparse", "bge-m3-multi"):
        save_m3(models / name)
    made = [
        get_retriever(f"{name}:max_length=24", CPU).describe() for name in ("bge-m3", "bge-m3-sparse", "bge-m3-multi")
    ]
    assert len({json.dumps(facts, sort_keys=True, default=str) for facts in made}) == 3


@pytest.mark.parametrize("damage", ["lost", "cut", "other"])
def test_a_layer_that_is_missing_or_none(models: Path, damage: str) -> None:
    folder = models / "bge-m3-multi"
    save_m3(folder)
    path = folder / "colbert_linear.pt"
    if damage == "lost":
        path.unlink()
        with pytest.raises(ModelError, match="bge-m3-multi is not on this machine"):
            get_retriever("bge-m3-multi", CPU)
        return
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    else:
        torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(ModelError, match=r"colbert_linear\.pt(: the weights lack weight| cannot be loaded)") as caught:
        states("bge-m3-multi:max_length=24", "query")
    assert "\n" not in str(caught.value)


def test_a_layer_as_safetensors_is_preferred(models: Path) -> None:
    from safetensors.torch import save_file

    folder = models / "bge-m3-multi"
    _, heads = save_m3(folder)
    before = states("bge-m3-multi:max_length=24", "query")
    save_file(heads["multi"].state_dict(), folder / "colbert_linear.safetensors")
    (folder / "colbert_linear.pt").write_bytes(b"not read")
    assert alike(states("bge-m3-multi:max_length=24", "query"), before)


def test_every_model_of_tokens_and_terms_says_how_it_was_proven() -> None:
    assert [c.name for kind in ("late-interaction", "sparse") for c in cards(kind) if not c.proven] == []
