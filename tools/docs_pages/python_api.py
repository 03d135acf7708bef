"""The public Python API: signatures and docstrings of what `r2med.__all__` names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import r2med

INTRODUCTION = """# Python

`import r2med` is light; each name below is imported when it is first used. Tasks, runs, evaluations, scores and
comparisons show themselves as tables in a notebook.
"""
ORDER = (
    *("run", "compare", "Scores", "load", "load_all", "evaluate", "BM25"),
    *("Task", "Query", "Document", "Documents", "Qrels", "Run", "Measure"),
    *("read_run", "write_run", "read_qrels", "R2MedError"),
)


def pages() -> dict[str, str]:
    """`python.md`."""
    names = [n for n in r2med.__all__ if n != "__version__"]
    names.sort(key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))
    lines = [INTRODUCTION]
    for name in names:
        value = getattr(r2med, name)
        lines += _class(name, value) if inspect.isclass(value) else _function(name, value)
    return {"python.md": "\n".join(lines)}


def _function(name: str, value: Any) -> list[str]:
    return [f"## r2med.{name}", "", *_code(f"r2med.{name}", value), *_words(value), ""]


def _class(name: str, value: type) -> list[str]:
    lines = [f"## r2med.{name}", "", *_code(f"r2med.{name}", value), *_words(value), ""]
    for key, member in vars(value).items():
        if key.startswith("_") or isinstance(member, type):
            continue
        if isinstance(member, staticmethod | classmethod):
            lines += [f"### {name}.{key}", "", *_code(f"{name}.{key}", getattr(value, key)), *_words(member), ""]
        elif inspect.isfunction(member):
            lines += [f"### {name}.{key}", "", *_code(f".{key}", member, bound=True), *_words(member), ""]
        elif (of := _computed(member)) is not None:
            lines += [f"### {name}.{key}", "", *_words(of), ""]
    return lines


def _computed(member: Any) -> Any:
    """The function behind a property, cached or not."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "func", None) if type(member).__name__ == "cached_property" else None


def _code(name: str, value: Any, *, bound: bool = False) -> list[str]:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    shown, starred = [], False
    for parameter in list(signature.parameters.values())[1 if bound else 0 :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    gives = "" if signature.return_annotation in (signature.empty, "None", None) else signature.return_annotation
    arrow = f" -> {_type(gives)}" if gives and not inspect.isclass(value) else ""
    one_line = f"{name}({', '.join(shown)}){arrow}"
    if len(one_line) > 90:
        one_line = "\n".join([f"{name}(", *(f"    {text}," for text in shown), f"){arrow}"])
    return ["```{ .python .signature }", one_line, "```", ""]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (1 * (parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
    kind = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def _type(annotation: object) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"\b(r2med|typing|collections|pathlib)(\.\w+)*\.(\w+)", r"\3", text)


def _default(value: object) -> str:
    if isinstance(value, r2med.Measure):
        return f'"{value}"'
    text = repr(value).replace("'", '"')
    return text if len(text) < 60 and " object at " not in text else "…"


def _words(value: Any) -> list[str]:
    text = inspect.getdoc(value) or ""
    if text.startswith(("Alias for", "dict(", f"{getattr(value, '__name__', '')}(")):
        return []
    return [text.replace("<", "&lt;")] if text else []
