from __future__ import annotations

import pytest

from r2med.core import ModelError, UnknownName, UsageError
from r2med.core.spec import Spec
from r2med.pipeline import Builder
from r2med.rerank import DEFAULT, rerankers


@pytest.mark.parametrize(
    ("text", "name", "depth"),
    [
        ("bge-reranker@100", "bge-reranker", 100),
        ("maxsim", "maxsim", 100),
        ("org/model@v2.0@30", "org/model@v2.0", 30),
        ("org/model@main", "org/model@main", 100),
        ("org/model@7", "org/model", 7),
    ],
)
def test_the_depth_behind_the_name(text: str, name: str, depth: int) -> None:
    spec = rerankers.parse(text)
    assert (spec.name, spec.depth) == (name, depth)
    assert rerankers.parse(str(spec)) == spec


def test_a_depth_has_plain_digits() -> None:
    """Digits of other scripts were a depth of 50."""
    with pytest.raises(UsageError):
        rerankers.parse("maxsim@５０")


@pytest.mark.parametrize("text", ["maxsim@0", "maxsim@00"])
def test_a_depth_is_one_or_more(text: str) -> None:
    with pytest.raises(UsageError, match="1 or more"):
        rerankers.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("msmarco-minilm:speed=3", "no parameter 'speed'"),
        ("msmarco-minilm:max_length=long", "must be a number of at least 1, not 'long'"),
        ("msmarco-minilm:max_length=0", "must be a number of at least 1"),
        ("msmarco-minilm:model=other", "no parameter 'model'"),
        ("msmarco-minilm:max_lenght=9", "did you mean max_length"),
        ("maxsim:rest=forget", "must be keep or drop"),
        ("rankgpt", "rankgpt:LLM"),
        ("", "an empty text names no reranker"),
        ("msmarco-minilm:", "msmarco-minilm"),
        ("msmarco-minilm:max_length", "cannot read"),
        ("msmarco-minilm:max_length=8,max_length=9", "cannot read"),
        ("bm25", "unknown reranker"),
    ],
)
def test_wrong_parameters(text: str, words: str) -> None:
    if text == "msmarco-minilm:":
        assert rerankers.parse(text) == rerankers.parse("msmarco-minilm")
        return
    with pytest.raises(UsageError, match=words):
        rerankers.parse(text)


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match="did you mean bge-reranker"):
        rerankers.parse("bge-rerank")


@pytest.mark.parametrize("name", [DEFAULT, "msmarco-minilm", "bge-reranker", "rankllama"])
def test_what_is_not_here_says_how_to_get_it(name: str) -> None:
    with pytest.raises(ModelError, match="r2med models fetch"):
        Builder().reranker(name)


def test_a_function_by_its_address() -> None:
    made = Builder().reranker("tests.rerank.tiny:by_length@7")
    assert made.name == "tests.rerank.tiny:by_length"
    with pytest.raises(UsageError):
        Builder().reranker("tests.rerank.tiny:nothing")


def test_rest_and_depth_make_no_second_model() -> None:
    builder = Builder()
    one, other = "tests.rerank.tiny:by_length@7", "tests.rerank.tiny:by_length,rest=drop@9"
    assert builder.reranker(one) is builder.reranker(other)
    assert rerankers.parse(other) == Spec("tests.rerank.tiny:by_length", None, (("rest", "drop"),), 9)


@pytest.mark.parametrize(
    ("text", "argument", "parameters"),
    [
        (
            "rankgpt:openai:my/model:free,window=10,step=5,hints=yes",
            Spec("openai", "my/model:free"),
            {"window": 10, "step": 5, "hints": True},
        ),
        ("yesno:gpt4,logits=no", Spec("gpt4"), {"logits": False}),
    ],
)
def test_models_and_parameters_of_llm_rerankers(text: str, argument: Spec, parameters: dict[str, object]) -> None:
    spec = rerankers.parse(text)
    assert spec.argument == argument
    assert dict(spec.parameters) == parameters
    assert rerankers.parse(str(spec)) == spec


@pytest.mark.parametrize("bad", ["gpt4,depth=3", "gpt4,window", "gpt4,window=wide", "gpt4,hints=maybe"])
def test_wrong_parameters_of_llm_rerankers(bad: str) -> None:
    with pytest.raises(UsageError):
        rerankers.parse(f"rankgpt:{bad}")


def test_a_window_moves_within_itself() -> None:
    with pytest.raises(UsageError, match="cannot move by"):
        Builder().reranker("rankgpt:smollm2,window=5,step=9")
