from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import DataError, UsageError, fingerprint
from r2med.models import get_card

PACK = """
[query]
default = "Find it"
"Clinical case" = "Find the twin"

[model.sfr.query]
default = "Only for sfr"

[model.inst-l.document]
default = "Doc: "
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PACK, "utf-8")
    return path


def test_a_pack_replaces_the_instructions(pack: Path) -> None:
    card = get_card("e5").with_prompts(pack)
    assert card.query_text("x", "Clinical case") == "Instruct: Find the twin\nQuery: x"
    assert card.query_text("x", "Q&A reference") == "Instruct: Find it\nQuery: x"
    assert card.prompts == "mine"
    assert get_card("e5").query_text("x") != card.query_text("x")


def test_one_model_can_be_told_apart(pack: Path) -> None:
    assert get_card("sfr").with_prompts(pack).query_text("x", "Clinical case") == "Instruct: Only for sfr\nQuery: x"
    instructor = get_card("inst-l").with_prompts(pack)
    assert instructor.query_text("x") == "Find itx"
    assert instructor.document_text("x") == "Doc: x"


def test_a_side_without_lines_keeps_its_own(pack: Path) -> None:
    assert get_card("inst-xl").with_prompts(pack).document_text("x") == get_card("inst-xl").document_text("x")


def test_the_fingerprint_follows_the_words_not_the_pack(pack: Path) -> None:
    before, after = get_card("e5"), get_card("e5").with_prompts(pack)
    assert fingerprint("card", before.describe()) != fingerprint("card", after.describe())
    copy = pack.with_name("copy.toml")
    copy.write_bytes(pack.read_bytes())
    assert after.describe() == get_card("e5").with_prompts(copy).describe()


def test_lines_that_a_model_has_no_place_for_are_refused(tmp_path: Path) -> None:
    """The model's name changed, and nothing that it reads."""
    path = tmp_path / "mine.toml"
    path.write_text('[document]\ndefault = "Doc: "\n', "utf-8")
    assert get_card("inst-l").with_prompts(path).document_text("x") == "Doc: x"
    with pytest.raises(UsageError, match="prompt pack mine has no instructions for e5"):
        get_card("e5").with_prompts(path)
    path.write_text('[query]\ndefault = "Find it"\n[model.e5.document]\ndefault = "Doc: "\n', "utf-8")
    with pytest.raises(UsageError, match="has a document instruction for e5, whose template has no place for it"):
        get_card("e5").with_prompts(path)
    path.write_text('[model.e5]\nwhole = true\ndocument.default = "Doc: "\n', "utf-8")
    assert get_card("e5").with_prompts(path).document_text("x") == "Doc: x"


def test_models_without_instructions_are_refused(pack: Path) -> None:
    """Their names changed, and nothing else."""
    with pytest.raises(UsageError, match=r"contriever takes no instructions: leave out the prompt pack mine\.toml"):
        get_card("contriever").with_prompts(pack)


WHOLE = """
[model.bge]
whole = true
query.default = "Look for: "

[model.e5]
whole = true
query.Biology = "Instruct: Look up the post\\nQuery: "
query.MedQA-Diag = "Instruct: Look up the exam\\nQuery: "
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("e5", "Instruct: Look up the exam\nQuery: "),
        ("reason-embed-8b", "Instruct: Look up the exam.\nQuery: "),
        ("qwen3-embed-8b", "Instruct: Look up the exam\nQuery:"),
        ("reasonir", "<|user|>\nLook up the exam\n<|embed|>\n"),
    ],
)
def test_sentences_for_one_model_serve_others_in_their_own_template(tmp_path: Path, name: str, told: str) -> None:
    """The paper's words for models that it did not run; ReasonEmbed ends every instruction in a full stop."""
    path = tmp_path / "paper.toml"
    path.write_text(WHOLE, "utf-8")
    card = get_card(name).with_prompts(path)
    assert card.query_text("x", "MedQA-Diag") == f"{told}x"
    assert card.prompts == "paper"
    with pytest.raises(UsageError, match="has no instructions for bge-small"):
        get_card("bge-small").with_prompts(path)
    with pytest.raises(UsageError, match="has no query instruction for IIYi-Clinical"):
        card.query_text("x", "IIYi-Clinical")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[query\n", "not a prompt pack"),
        (b'[quary]\ndefault = "x"', "not a prompt pack"),
        (b"[query]\ndefault = 3", "not a prompt pack"),
        (b'name = "empty"', "has no instructions"),
        (b"\xff\xfe", "cannot be read"),
        (b'[query]\ndefault = "x"\n[aliases]\nPMC-Treat = "PMC-Treatmnt"\n', "has no line for 'PMC-Treatmnt'"),
    ],
)
def test_a_broken_pack_is_one_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "pack.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        get_card("e5").with_prompts(path)


def test_a_missing_pack(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml: cannot be read"):
        get_card("e5").with_prompts(tmp_path / "none.toml")
