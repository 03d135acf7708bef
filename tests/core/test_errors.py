from __future__ import annotations

import re

import pytest

from r2med import core
from r2med.core import errors
from r2med.core.errors import DataError, MissingExtra, R2MedError, UnknownName, UsageError, nearest


def subclasses(cls: type[Exception]) -> set[type[Exception]]:
    return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))


def test_the_drawing_lists_every_class_under_its_parent() -> None:
    drawn = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            drawn[match[2]] = path[depth - 1] if depth else "Exception"
    real = {
        cls.__name__: cls.__bases__[0].__name__ for cls in subclasses(R2MedError) if cls.__module__ == errors.__name__
    }
    assert drawn == real


def test_core_exports_every_error() -> None:
    ours = {cls.__name__ for cls in subclasses(R2MedError) if cls.__module__ == errors.__name__}
    assert ours <= set(core.__all__)
    assert core.__all__ == sorted(core.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))


def test_a_place_is_named() -> None:
    assert str(DataError("broken")) == "broken"
    assert str(DataError("broken", path="a/b")) == "a/b: broken"
    assert str(DataError("broken", path="a/b", line=3)) == "a/b:3: broken"


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = UnknownName("task", "Biolgy", ["Biology", "Bioinformatics", "PMC-Clinical"], hint="(see the list)")
    assert str(error) == "unknown task 'Biolgy'; did you mean Biology? (see the list)"
    assert error.suggestions == ["Biology"]
    assert str(UnknownName("task", "zzz", ["Biology"])) == "unknown task 'zzz'"


def test_nearest_looks_through_case_and_stops_at_three() -> None:
    assert nearest("MEDQA-DIAG", ["MedQA-Diag", "Biology"]) == ["MedQA-Diag"]
    assert len(nearest("aaaa", ["aaab", "aaac", "aaad", "aaae"])) == 3
    assert nearest("", ["a"]) == []


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra("reading .zst files", "zstd")
    assert str(error) == "reading .zst files needs an optional dependency: pip install 'r2med[zstd]'"
    assert error.extra == "zstd"


@pytest.mark.parametrize("cls", sorted(subclasses(R2MedError), key=str))
def test_every_error_ends_the_command_with_a_failure(cls: type[R2MedError]) -> None:
    assert cls.exit_code in ({2} if issubclass(cls, UsageError) else {1, 3})  # 3: a budget is spent
