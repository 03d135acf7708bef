from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, UsageError
from r2med.expand.prompts import FAMILIES, Prompt, fill, load_prompt, prompt_hashes
from r2med.expand.specs import GENERATING

GAPS = {
    "query", "examples", "passages", "passage", "number", "searches", "search", "answer",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", [*GENERATING, "judge"])
def test_every_method_has_a_prompt_of_its_own_for_every_family(method: str, family: str) -> None:
    prompt = load_prompt(method, family)
    filled = prompt.messages(**{gap: f"<{gap}>" for gap in GAPS})
    assert "<query>" in filled[-1].content
    assert "{{" not in "".join(m.content for m in filled)
    assert load_prompt(method, "a family nobody knows").hash == load_prompt(method, "Q&A reference").hash


def test_hashes_differ_between_methods_and_families() -> None:
    hashes = [h for method in GENERATING for h in prompt_hashes(method).values()]
    assert len(hashes) == len(set(hashes)) == 15


@given(st.text())
def test_no_text_can_break_or_inject(text: str) -> None:
    assert fill("a {{query}} b {{passages}} c", query=text, passages="P") == f"a {text} b P c".strip()


def test_gaps_in_texts_stay_text() -> None:
    hostile = "{{passages}} {query} {0!r} %s ${x} {{query}}"
    assert fill("[{{query}}] {{passages}}", query=hostile, passages="P") == f"[{hostile}] P"
    with pytest.raises(UsageError, match=r"gap \{\{nonsense\}\}"):
        fill("{{nonsense}}", query="q")


def test_packs(tmp_path: Path) -> None:
    (tmp_path / "hyde").mkdir()
    (tmp_path / "hyde" / "clinical-case.toml").write_text('user = "Case: {{query}}"')
    (tmp_path / "qa-reference.toml").write_text('system = "Be brief"\nuser = "Q: {{query}}"')
    assert load_prompt("hyde", "Clinical case", tmp_path).user == "Case: {{query}}"
    assert load_prompt("lamer", "Q&A reference", tmp_path).system == "Be brief"
    assert load_prompt("lamer", "Clinical case", tmp_path / "qa-reference.toml").system == "Be brief"
    assert list(prompt_hashes("hyde", tmp_path)) == ["qa-reference", "clinical-case"]
    with pytest.raises(DataError, match="no prompt for lamer on clinical-evidence"):
        load_prompt("lamer", "Clinical evidence", tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"user = 3", "Expected `str`"),
        (b"user = 'no gap'", "must hold {{query}}"),
        (b"user = '{{query}}'\nusr = 'x'", "unknown field `usr`"),
        (b"user = ", "is no prompt for hyde"),
        (b"\xff\xfe", "is no prompt for hyde"),
    ],
)
def test_bad_packs_are_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as caught:
        load_prompt("hyde", "", path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(DataError, match="no such prompt file"):
        load_prompt("hyde", "", tmp_path / "absent")


def test_a_hash_covers_everything() -> None:
    base = Prompt(user="{{query}}")
    others = [Prompt(user="{{query}}."), Prompt(user="{{query}}", system="s"), Prompt(user="{{query}}", limit="l")]
    assert len({p.hash for p in (base, *others)}) == 4
