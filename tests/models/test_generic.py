from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest

from r2med.core import ModelError, UnknownName, UsageError, fingerprint
from r2med.models import fetch, find_card, folder_card, generic_card, locate, ready

BERT = {"model_type": "bert", "hidden_size": 384, "max_position_embeddings": 512, "torch_dtype": "float16"}
POOLED = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]


def build(folder: Path, **files: Any) -> Path:
    """A model folder from JSON files; `__` in a name is a sub-folder."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def pooled(folder: Path, pooling: dict[str, Any], *more: dict[str, str], **files: Any) -> Path:
    return build(folder, config=BERT, modules=[*POOLED, *more], **{"1_Pooling__config": pooling}, **files)


def test_a_sentence_transformers_folder_describes_itself(tmp_path: Path) -> None:
    pooled(
        tmp_path,
        {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
        sentence_bert_config={"max_seq_length": 256},
        tokenizer_config={"model_max_length": 1e30},
        config_sentence_transformers={
            "prompts": {"query": "query: ", "passage": "passage: "},
            "similarity_fn_name": "dot",
        },
    )
    card = folder_card(tmp_path)
    assert (card.kind, card.pooling, card.normalize, card.similarity) == ("dense", "mean", True, "dot")
    assert (card.query_length, card.document_length, card.dimension, card.dtype) == (256, 256, 384, "float16")
    assert (card.query_text("x"), card.document_text("x")) == ("query: x", "passage: x")
    assert card.backend == "transformers"
    assert locate(card) == tmp_path
    assert ready(card)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": False}, "mean-after-instruction"),
    ],
)
def test_pooling(tmp_path: Path, pooling: dict[str, Any], expected: str) -> None:
    assert folder_card(pooled(tmp_path, pooling)).pooling == expected


@pytest.mark.parametrize(
    "pooling",
    [{"pooling_mode_max_tokens": True}, {}, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}],
)
def test_pooling_we_do_not_have_is_an_error(tmp_path: Path, pooling: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="is not one of cls, mean, lasttoken"):
        folder_card(pooled(tmp_path, pooling))


@pytest.mark.parametrize(("model_type", "expected"), [("bert", "mean"), ("mistral", "last"), ("qwen3", "last")])
def test_plain_transformers_folders(tmp_path: Path, model_type: str, expected: str) -> None:
    card = folder_card(build(tmp_path, config={"model_type": model_type, "hidden_size": 8}))
    assert (card.pooling, card.architecture, card.query_length) == (expected, model_type, 512)


def test_a_projection_changes_the_dimension(tmp_path: Path) -> None:
    dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
    folder = pooled(tmp_path, {"pooling_mode_mean_tokens": True}, dense, **{"2_Dense__config": {"out_features": 96}})
    card = folder_card(folder)
    assert (card.projection, card.dimension) == ("2_Dense", 96)


STEP = "sentence_transformers.models."


def test_several_projections_follow_each_other(tmp_path: Path) -> None:
    steps = [{"type": f"{STEP}Dense", "path": path} for path in ("2_Dense", "3_Dense")]
    sizes = {f"{path}__config": {"out_features": size} for path, size in (("2_Dense", 96), ("3_Dense", 24))}
    card = folder_card(pooled(tmp_path, {"pooling_mode_mean_tokens": True}, *steps, **sizes))
    assert (card.projection, card.dimension) == ("2_Dense+3_Dense", 24)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (["Transformer"], "lists Transformer; r2med runs"),
        (["StaticEmbedding", "Normalize"], "lists StaticEmbedding, Normalize; r2med runs"),
        (["Transformer", "Pooling", "LayerNorm"], "lists Transformer, Pooling, LayerNorm; r2med runs"),
        (["Transformer", "Pooling", "Normalize", "Dense"], "lists Transformer, Pooling, Normalize, Dense; r2med runs"),
        (["Transformer", "Pooling"], r"1_Pooling/config\.json is missing, so how the model pools is not known"),
        (
            ["Transformer", "Pooling", "Dense"],
            r"2_Dense/config\.json is missing, so the projection behind pooling is not",
        ),
    ],
)
def test_steps_that_are_not_run_or_not_described(tmp_path: Path, steps: list[str], said: str) -> None:
    """Nothing that a model's files list is left out in silence."""
    listed = [{"type": STEP + name, "path": f"{i}_{name}" if i else ""} for i, name in enumerate(steps)]
    with pytest.raises(ModelError, match=said) as caught:
        folder_card(build(tmp_path, config=BERT, modules=listed))
    assert "\n" not in str(caught.value)


def test_a_model_that_says_nothing_about_pooling_says_so(tmp_path: Path) -> None:
    assert folder_card(build(tmp_path / "a", config=BERT)).note == "its files state no pooling: mean is taken"
    assert folder_card(pooled(tmp_path / "b", {"pooling_mode_cls_token": True})).note == ""


@pytest.mark.parametrize(
    ("places", "stated", "length"), [(514, 512, 512), (130, 512, 128), (8194, 8192, 8192), (8194, 1e30, 8192)]
)
def test_positions_of_robertas_family_begin_at_two(tmp_path: Path, places: int, stated: float, length: int) -> None:
    """A model of 8,192 tokens was cut at 512, and one of 128 was given two more than it has."""
    config = {**BERT, "model_type": "xlm-roberta", "max_position_embeddings": places}
    build(tmp_path, config=config, tokenizer_config={"model_max_length": stated})
    assert folder_card(tmp_path).document_length == length


def test_a_decoder_that_reads_both_ways(tmp_path: Path) -> None:
    facts = {"model_type": "qwen2", "hidden_size": 8}
    assert folder_card(build(tmp_path / "a", config=facts)).architecture == "qwen2"
    assert (
        folder_card(build(tmp_path / "b", config={**facts, "is_causal": False})).architecture == "qwen2-bidirectional"
    )


@pytest.mark.parametrize(
    ("stored", "query", "document"),
    [
        ({"prompts": {"query": "q: ", "document": "d: "}, "default_prompt_name": "document"}, "q: ", "d: "),
        ({"prompts": {"document": "d: "}, "default_prompt_name": "document"}, "", "d: "),
        ({"prompts": {"search": "s: "}, "default_prompt_name": "search"}, "s: ", ""),
        ({"prompts": {"search": "s: "}, "default_prompt_name": None}, "", ""),
        ({"prompts": {"query": "", "document": ""}}, "", ""),
        ({}, "", ""),
    ],
)
def test_stored_prompts(tmp_path: Path, stored: dict[str, Any], query: str, document: str) -> None:
    """A default that is meant for documents is put before no query."""
    card = folder_card(build(tmp_path, config=BERT, config_sentence_transformers=stored))
    assert (card.query_text("x"), card.document_text("x")) == (f"{query}x", f"{document}x")


def test_a_similarity_that_is_not_searched_by(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="similarity 'euclidean' is not cosine or dot"):
        folder_card(build(tmp_path, config=BERT, config_sentence_transformers={"similarity_fn_name": "euclidean"}))


def test_other_kinds(tmp_path: Path) -> None:
    cross = build(tmp_path / "cross", config=BERT | {"architectures": ["BertForSequenceClassification"]})
    assert folder_card(cross).kind == "cross-encoder"
    markers = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "similarity_fn_name": "MaxSim"}
    steps = [POOLED[0], {"type": "pylate.Dense", "path": "1_Dense"}, {"type": "pylate.Dense", "path": "2_Dense"}]
    sizes = {f"{i}_Dense__config": {"out_features": 96 // i} for i in (1, 2)}
    given: dict[str, Any] = {"config_sentence_transformers": markers, **sizes}
    colbert = folder_card(build(tmp_path / "late", config=BERT, modules=steps, **given))
    assert (colbert.kind, colbert.pooling, colbert.projection) == ("late-interaction", "tokens", "1_Dense+2_Dense")
    assert (colbert.query_length, colbert.document_length, colbert.dimension) == (32, 180, 48)
    short = {**given, "config": BERT | {"max_position_embeddings": 64}}
    assert folder_card(build(tmp_path / "short", modules=steps, **short)).document_length == 64
    assert (colbert.interaction.query_marker, colbert.interaction.expansion) == ("[Q] ", True)
    assert colbert.interaction.skipped == list(string.punctuation)
    splade = build(tmp_path / "sparse", config=BERT, modules=[POOLED[0], {"type": "x.SpladePooling", "path": "1"}])
    assert folder_card(splade).kind == "sparse"


def test_a_folder_with_only_onnx_runs_without_torch(tmp_path: Path) -> None:
    build(tmp_path, config=BERT)
    (tmp_path / "model.safetensors").rename(tmp_path / "model.onnx")
    assert folder_card(tmp_path).backend == "onnx"


def test_the_revision_follows_the_content(tmp_path: Path) -> None:
    build(tmp_path, config=BERT)
    before = folder_card(tmp_path)
    assert folder_card(tmp_path).revision == before.revision
    (tmp_path / "model.safetensors").write_bytes(b"Weights")
    after = folder_card(tmp_path)
    assert before.revision != after.revision
    assert fingerprint("card", before.describe()) != fingerprint("card", after.describe())


def test_large_files_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, config=BERT)
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.truncate((256 << 20) + 5)  # sparse: takes no disk
    before = folder_card(tmp_path).revision
    with (tmp_path / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"x")
    assert folder_card(tmp_path).revision != before


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_a_broken_configuration_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json: ") as caught:
        folder_card(tmp_path)
    assert "\n" not in str(caught.value)


def test_not_a_model_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        find_card(str(tmp_path))
    with pytest.raises(ModelError, match="no such folder"):
        find_card("./does-not-exist")


def test_broken_modules(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a list of modules"):
        folder_card(build(tmp_path, config=BERT, modules=[{"no": "type"}]))


def test_a_hub_id_nobody_fetched() -> None:
    card = generic_card("org/name@abc")
    assert (card.source, card.revision, card.name) == ("org/name", "abc", "org/name@abc")
    assert not ready(card)


@pytest.mark.parametrize("spec", [f"{'a' * 500}/x", f"a/{'b' * 300}", f"a/b@{'c' * 300}", "a--b/c", "a/b..c", "ä/b"])
def test_names_that_no_hub_has(spec: str) -> None:
    """The cache of the hub, and ours, has a folder for each id: these would share one, or have a name too long."""
    with pytest.raises(UnknownName):
        find_card(spec)


def test_a_folder_has_nothing_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to fetch"):
        fetch(str(build(tmp_path, config=BERT)))
