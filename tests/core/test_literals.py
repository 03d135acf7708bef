from __future__ import annotations

import pytest

from r2med.core import DataError
from r2med.core.literals import plain_gaps, read_tables
from tests.paper_files import KEYS, example_file, instruction_file


def test_tables_are_what_python_makes_of_the_file() -> None:
    """The files are our own: running them here is how the reading is checked."""
    shown: dict[str, object] = {}
    exec(example_file(), shown)
    made: dict[str, object] = {"Example": shown["Example"]}
    exec(instruction_file().replace("from example import Example", ""), made)
    examples = read_tables(example_file().encode(), "example.py")
    tables = read_tables(instruction_file().encode(), "own.py", {"example": examples})
    assert {name: made[name] for name in tables} == tables
    assert set(tables["bare"]) == {*KEYS, "Elsewhere"}
    assert tables["nv"] is tables["told"], "a second name is the same table"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("import os", "an import"),
        ("from os import system", "an import"),
        ("x = open('/etc/passwd').read()", "a call"),
        ("x = __import__('os').system('true')", "a call"),
        ("x = 'a'.upper()", "a call"),
        ("x = f'{1 + 1}'", "a computed text"),
        ("x = [a for a in 'ab']", "a loop"),
        ("x = {k: v for k, v in t.items() if k}", "a loop"),
        ("x = lambda: 1", "a function"),
        ("def x(): pass", "a function"),
        ("print('x')", "a statement"),
        ("x = 'a' * 9", "code"),
        ("x = missing", "not given before"),
        ("x = t['nothing']", "not there"),
        ("x = {**t}", "unpacks"),
        ("x = 'a' + 1", "a int where a text belongs"),
        ("x = '{a.b}'.format(a='x')", "a gap"),
        ("x = '{a:>99}'.format(a='x')", "a gap"),
        ("x = '{b}'.format(a='x')", "a gap"),
        ("t['k'] = eval('1')", "a call"),
    ],
)
def test_what_is_no_literal_is_refused_with_its_line(line: str, why: str) -> None:
    with pytest.raises(DataError, match=rf"own\.py:2: .*{why}.*nothing is run"):
        read_tables(f"t = {{'a': 'b'}}\n{line}\n".encode(), "own.py")


def test_files_that_are_no_python_or_too_much() -> None:
    with pytest.raises(DataError, match=r"own\.py:1: is not Python"):
        read_tables(b"x = (", "own.py")
    with pytest.raises(DataError, match="is not Python"):
        read_tables(b"x = 1\0", "own.py")
    with pytest.raises(DataError):
        read_tables(b"x = " + b"(" * 3000 + b")" * 3000, "own.py")
    doubling = "x = 'ab'\n" + "x = x + x\n" * 40
    with pytest.raises(DataError, match="makes a text of more than"):
        read_tables(doubling.encode(), "own.py")


def test_gaps_are_names_and_nothing_more() -> None:
    assert plain_gaps("a {{x}} {TEXT} b") == [("a {", None), ("x}", None), (" ", "TEXT"), (" b", None)]
    for text in ("{0}", "{}", "{a[0]}", "{a!r}"):
        with pytest.raises(ValueError, match="more than a name"):
            plain_gaps(text)
