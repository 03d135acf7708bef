from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import ModelError
from r2med.models import get_card
from r2med.rerank.cross_encoder import OnnxCrossEncoder, PairTokenizer, Text, document_floor
from tests.retrieve.encoders.weights import real_model

tokenizers = pytest.importorskip("tokenizers", reason="the extra `onnx` is not installed")


def tokenizer(pair: str) -> object:
    words = ["[CLS]", "[SEP]", "<s>", "</s>", "[UNK]", *"abcdef"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = [(w, i) for i, w in enumerate(words[:4])]
    single = "$A"
    made.post_processor = tokenizers.processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
    return made


TEMPLATES = ["[CLS] $A [SEP] $B:1 [SEP]:1", "<s> $A </s> </s> $B </s>", "<s> $A <s>:1 $B:1", "$A $B"]


@pytest.mark.parametrize("template", TEMPLATES)
@given(st.lists(st.sampled_from("abcdef"), max_size=8), st.lists(st.sampled_from("abcdef"), max_size=8))
def test_pairs_are_those_of_the_tokenizer(template: str, query: list[str], document: list[str]) -> None:
    made = tokenizer(template)
    ours = PairTokenizer(made, 64, "tiny")
    left, right = " ".join(query), " ".join(document)
    pair = ours.pair(*ours.texts([left, right]))
    expected = made.encode(left, right)  # type: ignore[attr-defined]
    assert pair.ids == expected.ids
    assert pair.types == expected.type_ids
    assert pair.cut == (0, 0)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(20, 80))
def test_the_query_is_kept_whole_and_the_document_gives_way(query: int, document: int, limit: int) -> None:
    ours = PairTokenizer(tokenizer(TEMPLATES[0]), limit, "tiny")
    pair = ours.pair(Text([5] * min(query, limit), query), Text([6] * min(document, limit), document))
    cut_document, cut_query = pair.cut
    shown_query, shown_document = pair.ids.count(5), pair.ids.count(6)
    assert (shown_query, shown_document) == (query - cut_query, document - cut_document)
    assert len(pair) <= limit
    if cut_document or cut_query:
        assert len(pair) == limit
    floor = min(document_floor(limit), document)
    if query + floor + 3 <= limit:
        assert cut_query == 0
    elif cut_query:
        assert shown_document >= min(floor, limit - 4)


@pytest.mark.parametrize("template", TEMPLATES)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(8, 50))
def test_longest_first_is_that_of_the_tokenizer(template: str, query: int, document: int, limit: int) -> None:
    made = tokenizer(template)
    ours = PairTokenizer(made, limit, "tiny", "longest-first")
    pair = ours.pair(*ours.texts(["a " * query, "b " * document]))
    made.enable_truncation(limit, strategy="longest_first")  # type: ignore[attr-defined]
    expected = made.encode("a " * query, "b " * document)  # type: ignore[attr-defined]
    assert (pair.ids, pair.types) == (expected.ids, expected.type_ids)
    assert pair.cut == (document - pair.ids.count(6), query - pair.ids.count(5))


def test_longest_first_is_that_of_transformers_on_a_real_tokenizer() -> None:
    """200 random pairs at 512 tokens, as the R2MED repository's scripts give them to a reranker."""
    transformers = pytest.importorskip("transformers", reason="the torch extra is not installed")
    folder = real_model("msmarco-minilm", "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = PairTokenizer(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), 512, "real", "longest-first")
    kept = PairTokenizer(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), 512, "real")
    rng = random.Random(0)
    words = [
        "patient",
        "with",
        "acute",
        "intermittent",
        "porphyria,",
        "3-day",
        "fever;",
        "128",
        "mmol/L",
        "(naïve)",
        "β",
    ]
    cut = other = 0
    for _ in range(200):
        query, document = (" ".join(rng.choices(words, k=rng.randint(0, 400))) for _ in range(2))
        expected = theirs(query, document, truncation=True, max_length=512)
        pair = ours.pair(*ours.texts([query, document]))
        assert pair.ids == expected["input_ids"]
        assert pair.types == expected["token_type_ids"]
        cut += pair.cut != (0, 0)
        other += kept.pair(*kept.texts([query, document])).ids != pair.ids
    assert cut > 50
    assert other > 20, "the two ways of cutting must differ"


def test_refusals() -> None:
    with pytest.raises(ModelError, match="no room"):
        PairTokenizer(tokenizer(TEMPLATES[0]), 4, "tiny")
    with pytest.raises(ModelError, match="does not make pairs"):
        PairTokenizer(tokenizer("$B:1 [SEP] $A"), 64, "tiny")


def test_pairs_longer_than_an_onnx_model_reads_are_refused_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 512}')
    card = get_card("msmarco-minilm")
    assert OnnxCrossEncoder(card, tmp_path).max_length() == 512
    with pytest.raises(ModelError, match="msmarco-minilm takes at most 512 tokens, not 513"):
        OnnxCrossEncoder(card.replace(document_length=513), tmp_path)


def test_leftover_padding_and_truncation_are_undone(tmp_path: Path) -> None:
    made = tokenizer(TEMPLATES[0])
    made.enable_truncation(5)  # type: ignore[attr-defined]
    made.enable_padding(length=64)  # type: ignore[attr-defined]
    ours = PairTokenizer(made, 64, "tiny")
    assert len(ours.pair(*ours.texts(["a b c d", "e f a b"]))) == 11
