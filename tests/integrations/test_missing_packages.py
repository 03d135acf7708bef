"""A package that is not installed: one line that names the extra, and nothing is needed before it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import r2med
from r2med.core import MissingExtra
from r2med.integrations import to_ir_measures, to_mteb, to_pyterrier, to_ranx

TASK = r2med.load("mini@1/Biology")
NEEDS: list[tuple[str, Callable[[], object], str]] = [
    ("ranx", lambda: to_ranx(TASK.qrels), "interop"),
    ("ir_measures", lambda: to_ir_measures(TASK.qrels), "interop"),
    ("pandas", lambda: to_pyterrier(TASK.qrels), "interop"),
    ("mteb.abstasks.retrieval", lambda: to_mteb(TASK), "mteb"),
]


@pytest.mark.parametrize(("package", "call", "extra"), NEEDS, ids=[package for package, _, _ in NEEDS])
@pytest.mark.filterwarnings("ignore")
def test_a_missing_package_is_one_line(
    package: str, call: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'r2med\[{extra}\]'"):
        call()


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_evaluator_without_sentence_transformers() -> None:
    code = (
        "import sys; sys.modules['sentence_transformers'] = None\n"
        "from r2med.core import MissingExtra\n"
        "try:\n    import r2med.integrations.sentence_transformers\n"
        "except MissingExtra as error:\n    print(error)"
    )
    assert in_a_new_process(code).endswith("pip install 'r2med[torch]'")


def test_the_package_itself_needs_nothing() -> None:
    code = (
        "import sys, r2med.integrations, r2med.integrations.exporting, r2med.integrations.mteb, "
        "r2med.integrations.hub, r2med.cli.publish\n"
        "print(sorted({'torch', 'mteb', 'pandas', 'ranx', 'huggingface_hub', 'pyarrow'} & set(sys.modules)))"
    )
    assert in_a_new_process(code) == "[]"
