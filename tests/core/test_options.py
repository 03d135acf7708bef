from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import r2med
from r2med.core import UsageError
from r2med.core.options import Options, parse_size, show_size

ROOT = Path(r2med.__file__).parent


@pytest.mark.parametrize("name", ["threads", "batch_tokens", "concurrency", "tokens_per_minute", "timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_what_cannot_be_is_refused_where_it_is_typed(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be above 0, not {value}"):
        Options().changed({name: value})


def test_every_option_is_read_by_somebody() -> None:
    """One that nobody reads would be a promise that nobody keeps."""
    rooms = [file.read_text("utf-8") for file in ROOT.rglob("*.py") if file.name != "options.py"]
    read = {name for text in rooms for name in re.findall(r"\boptions\.(\w+)", text)}
    assert {field.name for field in fields(Options)} - {"on_progress"} <= read  # which `Options.progress` calls
    assert "progress" in read


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="unknown option 'colour'; there are allow_pickle, "):
        Options().changed({"colour": "red"})
    assert Options().changed({"threads": 2}) == Options(threads=2)


def test_the_number_of_a_device_is_in_plain_digits() -> None:
    assert Options(device="cuda:0,cuda:13").device == "cuda:0,cuda:13"
    with pytest.raises(UsageError, match="unknown device 'cuda:٣'"):
        Options(device="cuda:٣")


def test_one_kind_of_gigabyte() -> None:
    assert parse_size("2GB") == parse_size("2 gib") == parse_size("2G") == 2 << 30
    assert [parse_size(t) for t in ("7", "64k", "500MB", "1.5GiB")] == [7, 64 << 10, 500 << 20, 3 << 29]
    assert [show_size(n) for n in (0, 1, 1 << 20, 3 << 29)] == ["0KB", "1KB", "1MB", "1.5GB"]
    for wrong in ("", "x", "-1", "0", "1.2.3GB", "5 parsecs", "٣GB"):
        with pytest.raises(UsageError, match="as a size: write 500MB or 2GB"):
            parse_size(wrong)
    assert parse_size("0", least=0) == 0
