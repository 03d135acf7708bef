"""`r2med doctor` as a user calls it: real processes, real folders, a real broken model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from r2med.doctor.here import extras, native_extensions, size_of
from r2med.pipeline.experiment import BEST_OFFLINE

WEIGHTS = Path(os.environ.get("R2MED_HOME", "")) / "models" / "bge-small"
KEY = "sk-test-0123456789abcdefXYZ"
PASSWORD = "hunter2"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_FILE",
        "OPENAI_BASE_URL",
        "VOYAGE_API_KEY",
        "VOYAGE_API_KEY_FILE",
        "COHERE_API_KEY",
        "GEMINI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def doctor(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", "doctor", *arguments],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def found(folder: Path, /, *, code: int = 0, **environment: str) -> Any:
    done = doctor(folder, "--json", **environment)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def status(document: Any, name: str) -> Any:
    return next(check for check in document["checks"] if check["name"] == name)


def test_a_bare_machine_is_fine_and_says_what_is_missing(tmp_path: Path) -> None:
    document = found(tmp_path)
    assert document["ok"] is True
    assert document["schema"] == 1
    assert document["versions"].keys() >= {"python", "r2med", "numpy"}
    assert document["tasks"]["mini@1"]["ready"][0] == "Biology"
    assert document["tasks"]["r2med"] == {"ready": [], "total": 8}
    assert status(document, "bm25")["status"] == "ok"
    assert status(document, "embedded model")["status"] == "warning"
    assert "r2med models fetch bge-small" in status(document, "embedded model")["advice"]
    assert document["ready"][0].startswith("`r2med run` will run bm25")
    assert not any(key["present"] for key in document["keys"])
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_it_loads_no_torch(tmp_path: Path) -> None:
    """Which alone takes longer than the two seconds that the doctor may take."""
    code = "import sys; from r2med.doctor import diagnose; diagnose(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_keys_are_named_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "voyage.key"
    file.write_text(KEY)
    file.chmod(0o600)
    token = tmp_path / "token"
    token.write_text("hf_secret")
    settings = {
        "OPENAI_API_KEY": KEY, "VOYAGE_API_KEY_FILE": str(file), "HF_TOKEN_PATH": str(token),
        "OPENAI_BASE_URL": f"http://me:{PASSWORD}@127.0.0.1:9/v1?key={KEY}", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    document = found(tmp_path, code=0, **settings)
    where = {key["name"]: key["where"] for key in document["keys"]}
    absent = {"COHERE_API_KEY": "", "GEMINI_API_KEY": ""}
    assert where == {**absent, "OPENAI_API_KEY": "environment", "VOYAGE_API_KEY": "file", "HF_TOKEN": "file"}
    assert document["settings"]["OPENAI_BASE_URL"] == "http://127.0.0.1:9"
    assert document["settings"]["HF_HUB_OFFLINE"] == "1"
    for answer in (json.dumps(document), doctor(tmp_path, **settings).stdout):
        for secret in (KEY, PASSWORD, "hf_secret"):
            assert secret not in answer


def test_what_is_broken_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    home = found(tmp_path, code=1, R2MED_HOME=str(tmp_path / "file" / "home"))
    assert status(home, "write to home")["status"] == "broken"
    for variable in ("OPENAI_API_KEY_FILE", "VOYAGE_API_KEY_FILE"):
        key = found(tmp_path, code=1, **{variable: str(tmp_path / "none")})
        assert "cannot be read" in status(key, "key file")["detail"]
    both = {"OPENAI_API_KEY_FILE": str(tmp_path / "none"), "R2MED_HOME": str(tmp_path / "file")}
    done = doctor(tmp_path, "--json", "--results", str(tmp_path / "file"), **both)
    assert json.loads(done.stdout)["ready"] == ["`r2med run` cannot run: write to results (see the checks)"]
    text = doctor(tmp_path, OPENAI_API_KEY_FILE=str(tmp_path / "none"))
    assert text.returncode == 1
    assert "BROKEN" in text.stdout
    assert "Traceback" not in text.stderr


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="bge-small is not in R2MED_HOME")
def test_the_embedded_model_is_tried(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "bge-small").symlink_to(WEIGHTS)
    document = found(tmp_path, R2MED_HOME=str(home))
    assert status(document, "embedded model")["status"] == "ok"
    assert f"bm25, bge-small, their fusion and {BEST_OFFLINE}" in document["ready"][0]
    broken = tmp_path / "broken" / "models" / "bge-small"
    broken.mkdir(parents=True)
    for file in WEIGHTS.iterdir():
        (broken / file.name).write_bytes(file.read_bytes() if file.suffix != ".onnx" else b"half a file")
    document = found(tmp_path, code=1, R2MED_HOME=str(broken.parents[1]))
    assert status(document, "embedded model")["status"] == "broken"
    assert "r2med run -r bm25" in document["ready"][0]


def test_the_text_names_every_section(tmp_path: Path) -> None:
    text = doctor(tmp_path).stdout
    for heading in ("Machine", "Checks", "Extras", "Keys", "Folders", "Ready"):
        assert f"\n{heading}" in f"\n{text}"


def test_every_extension_is_looked_for() -> None:
    assert {"_bert", "_dots", "_fast", "_maxsim", "_sparse"} <= native_extensions().keys()


def test_extras_are_those_of_the_package() -> None:
    named = {extra.name: extra for extra in extras()}
    assert {"onnx", "torch", "api", "hub", "view"} <= named.keys()
    for extra in named.values():
        assert extra.installed == all(extra.packages.values())
        assert bool(extra.get) != extra.installed


def test_sizes_count_a_file_once_and_give_up_on_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path)
    assert size_of(tmp_path) == (1000, True)
    assert size_of(tmp_path, patience=-1) == (0, False)
    assert size_of(tmp_path / "none") == (0, True)
