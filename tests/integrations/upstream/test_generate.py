from __future__ import annotations

import pytest

from r2med.cli.upstream import METHODS
from r2med.core import UnknownName, UsageError
from r2med.expand import Expansion, expanders
from r2med.expand.replay import as_recorded
from r2med.integrations.upstream.generate import OPEN_LLMS, as_written, expander_spec


@pytest.mark.parametrize("marking", ["none", "think", "think-optional", "final-response", "answer", "hidden"])
def test_what_is_written_is_read_back(marking: str) -> None:
    item = Expansion(query_id="q", original="?", texts=("Wilson disease.",), reasoning=("Copper, then.",))
    assert as_recorded(as_written(item, marking), marking).texts == ("Wilson disease.",)


@pytest.mark.parametrize("method", METHODS)
def test_answers_are_sampled_as_in_the_scripts(method: str) -> None:
    declared = {name: parameter.default for name, parameter in expanders[method].parameters.items()}
    sampled = {llm: declared | dict(expander_spec(method, llm).parameters) for llm in (*OPEN_LLMS, "gpt4", "o3-mini")}
    assert sampled.pop("gpt4") == declared | {"temperature": 0.8, "top_p": 0.8}
    assert sampled.pop("o3-mini") == declared
    for parameters in sampled.values():
        assert parameters == declared | {"temperature": 0.7, "seed": 42, "max_tokens": 10_240}


def test_an_unknown_llm_is_refused() -> None:
    with pytest.raises((UnknownName, UsageError), match="qwen-77b"):
        expander_spec("hyde", "qwen-77b")
