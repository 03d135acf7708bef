from __future__ import annotations

import pytest

from r2med.core import ModelError, UnknownName, UsageError
from r2med.rerank import DEFAULT, get_reranker, split_depth
from r2med.rerank.llm.load import read_rest


def test_the_depth_behind_the_name() -> None:
    assert split_depth("bge-reranker@100") == ("bge-reranker", 100)
    assert split_depth("maxsim") == ("maxsim", 100)
    assert split_depth("org/model@v2.0@30", 7) == ("org/model@v2.0", 30)
    assert split_depth("org/model@main", 7) == ("org/model@main", 7)
    with pytest.raises(UsageError, match="1 or more"):
        split_depth("maxsim@0")


def test_unknown_names_and_parameters() -> None:
    with pytest.raises(UnknownName, match="did you mean bge-reranker"):
        get_reranker("bge-rerank")
    with pytest.raises(UsageError, match="no parameter 'speed'"):
        get_reranker("msmarco-minilm:speed=3")
    with pytest.raises(UsageError, match="must be a number"):
        get_reranker("msmarco-minilm:max_length=long")
    with pytest.raises(UsageError, match="no parameter 'model'"):
        get_reranker("msmarco-minilm:model=other")
    with pytest.raises(UsageError, match="rankgpt:gpt4"):
        get_reranker("rankgpt")
    with pytest.raises(UsageError, match="cannot move by"):
        get_reranker("rankgpt:local,window=5,step=9", llm=None, store=None)


@pytest.mark.parametrize("name", [DEFAULT, "msmarco-minilm", "bge-reranker", "rankllama"])
def test_what_is_not_here_says_how_to_get_it(name: str) -> None:
    with pytest.raises(ModelError, match="r2med models fetch"):
        get_reranker(name)


def test_a_function_by_its_address() -> None:
    assert get_reranker("tests.rerank.tiny:by_length").name == "by_length"
    with pytest.raises(UsageError):
        get_reranker("tests.rerank.tiny:nothing")


def test_models_and_parameters_of_llm_rerankers() -> None:
    assert read_rest("rankgpt", "openai:my/model:free,window=10,step=5,hints=yes") == (
        "openai:my/model:free",
        {"window": 10, "step": 5, "hints": True},
    )
    assert read_rest("yesno", "logits=no") == ("", {"logits": False})
    for bad in ("gpt4,depth=3", "gpt4,window", "gpt4,window=wide", "gpt4,hints=maybe"):
        with pytest.raises(UsageError):
            read_rest("rankgpt", bad)
