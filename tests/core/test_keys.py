"""Keys: where they come from, and that they are hidden."""

from __future__ import annotations

import os
import stat
import time
import warnings
from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.core.keys import Secrets, key_place, key_problem, keys_in_environment, read_key

KEY = "sk-test-0123456789abcdefXYZ"


def test_a_key_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(path))
    assert read_key("OPENAI_API_KEY") == KEY
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert read_key("OPENAI_API_KEY") == "sk-other"
    monkeypatch.delenv("OPENAI_API_KEY")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_key("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="absent cannot be read"):
        read_key("OPENAI_API_KEY")


def test_all_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    monkeypatch.setenv("SOME_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("OTHER_TOKEN", "hf_0123456789")
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("LOST_KEY_FILE", str(tmp_path / "absent"))
    found = keys_in_environment()
    assert {name: found.get(name) for name in ("SOME_API_KEY", "OTHER_TOKEN", "SHORT_KEY", "LOST_KEY", "PATH")} == {
        "SOME_API_KEY": KEY,
        "OTHER_TOKEN": "hf_0123456789",
        "SHORT_KEY": None,
        "LOST_KEY": None,
        "PATH": None,
    }


@pytest.mark.parametrize(
    "spelling",
    [
        KEY,
        "".join(f"\\u{ord(c):04x}" for c in KEY),
        "".join(f"\\\\u{ord(c):04X}" if i % 3 else c for i, c in enumerate(KEY)),
        "".join(f"%{ord(c):02X}" for c in KEY),
        KEY.replace("-", "%2d"),
    ],
)
def test_a_secret_is_hidden_however_it_is_spelled(spelling: str) -> None:
    secrets = Secrets(KEY)
    assert secrets.hide(f"before {spelling} after") == "before [key] after"
    raw = f'{{"a": ["{spelling}"], "{spelling}": 1}}'.encode()
    assert secrets.hide_in({"a": [spelling, 1.5], spelling: {"b": spelling}}, raw) == {
        "a": ["[key]", 1.5],
        "[key]": {"b": "[key]"},
    }
    assert KEY not in repr(secrets)


def test_hiding_takes_linear_time() -> None:
    secrets = Secrets("s" * 40)
    begun = time.process_time()  # a busy machine is not the expression's fault
    for text in ("\\" * 2_000_000, "s" * 39 + "\\", "%7" * 1_000_000):
        secrets.hide(text)
    assert time.process_time() - begun < 8


def test_nothing_is_hidden_where_there_is_no_secret() -> None:
    assert Secrets("", "abc").hide("abc") == "abc"
    assert Secrets().hide_in({"a": 1}, b"{}") == {"a": 1}


@pytest.mark.skipif(os.name != "posix", reason="permissions as Unix has them")
def test_a_key_file_that_everybody_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2med.core.keys._warned", set())
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(file))
    with pytest.warns(UserWarning, match="everybody on this machine can read the key in .*chmod 600"):
        assert read_key("OPENAI_API_KEY") == KEY
    file.chmod(stat.S_IRUSR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_key("OPENAI_API_KEY") == KEY
    assert (key_place("OPENAI_API_KEY"), key_problem("OPENAI_API_KEY")) == ("file", "")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "none"))
    assert key_place("OPENAI_API_KEY") == ""
    assert "cannot be read" in key_problem("OPENAI_API_KEY")
