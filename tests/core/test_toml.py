"""TOML that would keep the parser busy for minutes is refused at once; TOML that looks like it is read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from r2med.core.toml import DEEPEST, LARGEST, loads

DOTS = ".".join(["a"] * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{DOTS} = 1",
        f"[{DOTS}]",
        f"[[{DOTS}]]",
        f"x = {{{DOTS} = 1}}",
        " . ".join(['"a b"'] * 60_000) + " = 1",
        ".".join(["'a.b'"] * 60_000) + " = 1",
    ],
)
def test_a_key_of_many_parts_is_refused_at_once(text: str) -> None:
    """In a process of its own with little memory: the parser would take minutes and gigabytes."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from r2med.core.toml import loads\n"
        "try:\n    loads(sys.stdin.read())\n"
        "except ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"holds a key with more than {DEEPEST} dots"


def test_a_document_has_a_size() -> None:
    with pytest.raises(ValueError, match="is longer than"):
        loads("#" * (LARGEST + 1))


def test_dots_that_are_no_keys() -> None:
    text = "\n".join(
        [
            "numbers = [" + ", ".join(["0.5"] * 200) + "]",
            'leader = "Dose ' + "." * 200 + ' 5 mg"',
            "path = 'a" + ".b" * 200 + "'",
            '"""quoted"""'.replace('"""', "") + ' = """',
            "Sentences. " * 200,
            'and a \\""" in between ' + ".x" * 200,
            '"""',
            "# " + "a." * 200,
            ".".join(["k"] * (DEEPEST + 1)) + " = 1",
        ]
    )
    read = loads(text)
    assert len(read["numbers"]) == 200
    assert "." * 200 in read["leader"]
    assert read["quoted"].count("Sentences") == 200


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "{a=" * 100_000, 'x = """', "x = '''" + "'" * 9])
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        loads(text)
