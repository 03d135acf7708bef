"""A table of what was injected, at the end of `make faults`; a home with real weights for every test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.runs import Place, linked_home
from tests.retrieve.encoders.weights import real_model

COUNT = "count: "


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Notes a number for the table."""
    return lambda name, value: record_property(COUNT + name, value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty home with real weights linked into it, and a results folder."""
    for name in ("bge-small", "msmarco-minilm"):
        real_model(name, "model.onnx")
    return Place(linked_home(tmp_path / "home"), tmp_path / "results")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line a number."""
    if "faults" not in (config.option.markexpr or "").replace("not faults", ""):
        return
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, []) if r.when == "call"]
    rows = [
        (r.nodeid.rpartition("::")[2], name.removeprefix(COUNT), value)
        for r in reports
        for name, value in r.user_properties
        if name.startswith(COUNT)
    ]
    if not rows:
        return
    terminalreporter.section("counts")
    width = max(len(f"{test}  {name}") for test, name, _ in rows)
    for test, name, value in sorted(rows):
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        terminalreporter.write_line(f"{f'{test}  {name}':<{width}}  {shown:>12}")
    fuzzed = sum(v for _, name, v in rows if name.startswith("inputs") and isinstance(v, int))
    terminalreporter.write_line(f"{'inputs in total':<{width}}  {fuzzed:>12,}")
