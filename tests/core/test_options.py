from __future__ import annotations

import pytest

from r2med.core import UsageError
from r2med.core.options import Options


@pytest.mark.parametrize("name", ["threads", "batch_tokens", "concurrency", "tokens_per_minute", "timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_what_cannot_be_is_refused_where_it_is_typed(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be above 0, not {value}"):
        Options().changed({name: value})


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="unknown option 'colour'; there are allow_pickle, "):
        Options().changed({"colour": "red"})
    assert Options().changed({"threads": 2}) == Options(threads=2)
