"""Every field of the files people write and read, in the words of the comments beside or below the fields."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec

from r2med.core.table import Table
from r2med.doctor.here import Check, Counted, Diagnosis, Extra, Machine, Place, Secret
from r2med.judge import Pooled, Settings, System
from r2med.judge.journal import Entry, Header
from r2med.models.card import Card, Carrier, CarrierFile, ChatCard, Paper, Price
from r2med.models.prompts import Instructions
from r2med.pipeline.experiment import Experiment, SystemTable
from r2med.results.schema import QueryScores, SystemInfo, TaskInfo, TaskResult
from r2med.tasks.catalogue import Collection, TaskEntry

SECTIONS: tuple[tuple[str, str, tuple[type[msgspec.Struct], ...]], ...] = (
    (
        "Experiment file",
        "`r2med run experiment.toml` reads this. A field that does not exist is refused. A system may name "
        "`module:attr`, which is imported: run only experiment files you trust.",
        (Experiment, SystemTable),
    ),
    (
        "Result files",
        "`results/<system>/<collection>/<task>.json`; beside it `<task>.run.gz`, a TREC run, and "
        "`<task>.queries.jsonl`, a line a query. Measures have names like `ndcg_at_10` and lie in 0–1.",
        (TaskResult, SystemInfo, TaskInfo, QueryScores),
    ),
    (
        "Judging projects",
        "`project.json`; beside it `pool.jsonl`, a line a passage and query, and `judgments/<judge>.jsonl`, which "
        "begins with a `Header` and goes on with an `Entry` a line.",
        (Settings, System, Pooled, Header, Entry),
    ),
    (
        "Model cards",
        "`src/r2med/models/cards/<name>.toml`: every fact that decides what numbers a model gives.",
        (Card, ChatCard, Instructions, Paper, Price, Carrier, CarrierFile),
    ),
    ("Collections", "`src/r2med/tasks/collections/<name>.toml`.", (Collection, TaskEntry)),
    (
        "`r2med doctor --json`",
        "One document.",
        (Diagnosis, Extra, Machine, Secret, Place, Counted, Check),
    ),
)


def pages() -> dict[str, str]:
    """`files.md`."""
    lines = ["# Files", ""]
    for title, words, types in SECTIONS:
        lines += [f"## {title}", "", words, ""]
        for number, struct in enumerate(types):
            if number:
                lines += [f"### {struct.__name__}", "", f"{_first_line(struct)}", ""]
            lines += [*fields(struct), ""]
    return {"files.md": "\n".join(lines)}


def fields(struct: type[msgspec.Struct]) -> list[str]:
    """A row per field."""
    said = comments(struct)
    rows = [
        [f"`{f.encode_name}`", f"`{type_name(f.type)}`", default(f), said.get(f.name, "")]
        for f in msgspec.structs.fields(struct)
    ]
    if missing := [row[0] for row in rows if not row[3] and struct in (Experiment, SystemTable, TaskResult)]:
        raise SystemExit(f"{struct.__name__}: nobody says what {', '.join(missing)} is (a comment beside the field)")
    return [Table(["Field", "Type", "Default", "Meaning"], rows, left=4).markdown(ready=True)]


def comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The comments beside and below each field in the source, inherited ones included."""
    found: dict[str, str] = {}
    for kind in reversed([k for k in struct.__mro__ if issubclass(k, msgspec.Struct) and k is not msgspec.Struct]):
        found |= {name: words for name, words in _own_comments(kind).items() if words}
    return found


def _own_comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    lines, _ = inspect.getsourcelines(struct)
    tree = ast.parse("".join(lines))
    found = {}
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno:
            beside = lines[node.end_lineno - 1].partition("  # ")[2].strip()
            words = [beside] if beside else []
            for line in lines[node.end_lineno :]:
                if not line.strip().startswith("# "):
                    break
                words.append(line.strip()[2:])
            found[node.target.id] = " ".join(words).strip().replace("|", "\\|").replace("<", "&lt;")
    return found


def default(field: msgspec.structs.FieldInfo) -> str:
    """The default as it would be written."""
    if field.required:
        return "required"
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct) or value is None:
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value)}`".replace("'", '"')


def type_name(kind: Any) -> str:
    """A type in short words."""
    text = kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", None) else str(kind)
    for old, new in (("typing.", ""), ("NoneType", "None")):
        text = text.replace(old, new)
    return Path(text).name if text.startswith("r2med.") else _without_modules(text)


def _without_modules(text: str) -> str:
    return re.sub(r"\br2med(\.\w+)+\.(\w+)", r"\2", text)


def _first_line(struct: type) -> str:
    return (inspect.getdoc(struct) or "").splitlines()[0]
