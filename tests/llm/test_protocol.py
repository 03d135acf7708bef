"""Prompts as data: what may stand in them, and that no text can break out of its gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import DataError, UsageError
from r2med.llm.protocol import Prompt, built_in, fill, read_prompt


@given(st.text())
def test_no_text_can_break_or_inject(text: str) -> None:
    assert fill("a {{query}} b {{passages}} c", query=text, passages="P") == f"a {text} b P c".strip()


def test_gaps_in_texts_stay_text() -> None:
    hostile = "{{passages}} {query} {0!r} %s ${x} {{query}}"
    assert fill("[{{query}}] {{passages}}", query=hostile, passages="P") == f"[{hostile}] P"
    with pytest.raises(UsageError, match=r"gap \{\{nonsense\}\}"):
        fill("{{nonsense}}", query="q")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"user = 3", "Expected `str`"),
        (b"user = 'no gap'", "does not hold {{query}}"),
        (b"user = '{{query}}'", "does not hold {{passages}}"),
        (b"user = '{{query}} {{passages}}'\nusr = 'x'", "unknown field `usr`"),
        (b"user = '{{query}} {{passages}}'\npassage = '[{{number}}]'", "must hold {{passage}}"),
        (b"user = '{{query}} {{passages}}'\nhint = '{{score}}'", "must hold {{passage}}"),
        (b"user = ", "Invalid value"),
        (b"not toml", "Expected '='"),
        (b"\xff\xfe", "can't decode"),
    ],
)
def test_files_that_are_no_prompt_are_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as caught:
        read_prompt(path, gaps=("query", "passages"))
    assert str(caught.value).startswith(f"{path}: is no prompt")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        read_prompt(tmp_path / "absent")


def test_a_hash_covers_everything() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"user": "{{query}}."},
        {"system": "s"},
        {"limit": "l"},
        {"passage": "{{passage}}"},
        {"hint": "{{passage}}"},
        {"max_tokens": 9},
    ]
    prompts = [Prompt(**{"user": "{{query}}", **change}) for change in changes]  # type: ignore[arg-type]
    assert len({prompt.hash for prompt in prompts}) == len(changes)


@pytest.mark.parametrize(
    "method", [p.stem for p in (Path(r2med.__file__).parent / "rerank" / "prompts").glob("*.toml")]
)
def test_our_prompts_for_reranking(method: str) -> None:
    prompt = built_in("r2med.rerank", method, gaps=("query", "passages"))
    numbered = prompt.numbered(["first {{query}}", "second"])
    *_, user = prompt.messages(query="why {{passages}}?", passages=numbered, count="2", scale="10")
    assert "why {{passages}}?" in user.content  # what comes in is never read as a template
    assert "first {{query}}" in user.content
    assert "{{" not in user.content.replace("why {{passages}}?", "").replace("first {{query}}", "")
    assert "87 of 100" in prompt.numbered(["first"], [87])
    assert prompt.system
    assert prompt.hash == built_in("r2med.rerank", method).hash
