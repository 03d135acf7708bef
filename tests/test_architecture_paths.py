"""Only `core.untrusted` makes a part of a path of a name that comes from data.

Everywhere else what stands right of a path is a text of ours: a literal, a constant in capitals, a hash, what a
function of `core.untrusted` gave, or a local name for one of these. Other joins stand in a table with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import r2med

ROOT = Path(r2med.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "untrusted.py")
MAKES_SAFE = {"component", "file_name", "inside", "fingerprint"}
HASHES = {"digest", "fingerprint"}
"""Attributes that hold a hash of ours."""
COMPUTES = {"len", "sum", "max", "min", "float", "int", "abs"}
LISTED = "a name that the file system listed, below the folder that was listed"
PACKAGED = "a file of the package, whose name is checked against those there are or is ours"
NUMBERS = "a division of numbers"
EXCEPTIONS = {
    "cache/admin.py": {"Path(folder) / name": LISTED},
    "cache/arrays.py": {
        "home() / self.place": "a constant of the class",
        "folder / (UNLIMITED if max_length is None else str(max_length))": "a number",
        "shards.folder.parent / str(n)": "a number",
        "tokens / seconds": NUMBERS,
    },
    "cache/shards.py": {
        "folder / f'{time.time_ns():016x}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}'": "numbers of this moment",
    },
    "core/files.py": {"Path(place, name)": LISTED},
    "core/stores.py": {"self.path / name": "what leads out of the folder is refused when it is opened"},
    "llm/protocol.py": {"files(package).joinpath('prompts', *f'{name}.toml'.split('/'))": PACKAGED},
    "models/fetch.py": {"folder / bad[0]": "for a message"},
    "models/locate.py": {"folder / wrong[0]": "for a message"},
    "models/prompts.py": {"files(__package__).joinpath(f'packs/{name}.toml')": PACKAGED},
    "pipeline/nano_build.py": {"sums / matrix.shape[1]": NUMBERS, "sums / shared": NUMBERS},
    "pipeline/nano_profile.py": {"positives[entry.name] / queries[entry.name]": NUMBERS},
    "pipeline/quickstart.py": {"_tokens(entries, card) / rates().corpus_tokens(card.document_length)": NUMBERS},
    "rerank/chat_scorer.py": {"(grade.value if weighed is None else weighed) / self.scale": NUMBERS},
    "report/group_page.py": {
        "several / queries": NUMBERS,
        "profile.positives / profile.queries": NUMBERS,
    },
    "report/web/render.py": {"files(package).joinpath('static', name)": PACKAGED},
    "results/ledger/__init__.py": {"value / self.scale": NUMBERS},
    "results/protocols/__init__.py": {"files(__package__).joinpath(f'{name}.toml')": PACKAGED},
    "retrieve/stored.py": {"path.with_name(f'{stem}.json')": "the beginning of the file's own name"},
    "tasks/catalogue.py": {
        "files(__package__).joinpath(f'collections/{name}.toml')": PACKAGED,
    },
    "tasks/load.py": {"path / wrong[0]": "for a message"},
}


class Join(NamedTuple):
    """A place where something is joined to a path."""

    text: str
    parts: list[ast.expr]
    scope: ast.AST


def scopes(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every node with the function around it."""
    for child in ast.iter_child_nodes(node):
        yield child, scope
        yield from scopes(child, child if isinstance(child, ast.FunctionDef) else scope)


def joins(tree: ast.Module) -> Iterator[Join]:
    for node, scope in scopes(tree, tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not computes(node):
            yield Join(ast.unparse(node), [node.right], scope)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and not computes(node.value):
            yield Join(ast.unparse(node), [node.value], scope)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith((".joinpath", ".with_name", ".with_stem")):
                own = called.rpartition(".")[0] + ".name"  # a file's own name with something behind it
                parts = [part for part in node.args if own not in ast.unparse(part)]
                yield Join(ast.unparse(node), parts, scope)
            elif called in ("Path", "PurePath", "PurePosixPath", "os.path.join"):
                yield Join(ast.unparse(node), list(node.args[1:]), scope)


def computes(node: ast.AST) -> bool:
    """Whether a division is one of numbers, as far as it shows."""
    if isinstance(node, ast.Subscript | ast.JoinedStr):
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Mult | ast.Pow | ast.MatMult):
        return True
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in COMPUTES or called.startswith(("np.", "math.", "torch.")) or called.endswith((".sum", ".mean"))
    return any(computes(child) for child in ast.iter_child_nodes(node))


def is_ours(part: ast.AST, scope: ast.AST, known: frozenset[str] = frozenset()) -> bool:
    """Whether a text is ours, wherever in the function it was put together."""
    if isinstance(part, ast.Constant):
        return isinstance(part.value, str)
    if isinstance(part, ast.JoinedStr | ast.Tuple | ast.List):
        parts = part.values if isinstance(part, ast.JoinedStr) else part.elts
        return all(is_ours(one, scope, known) for one in parts)
    if isinstance(part, ast.FormattedValue | ast.Starred | ast.Subscript):
        return is_ours(part.value, scope, known)
    if isinstance(part, ast.IfExp):
        return is_ours(part.body, scope, known) and is_ours(part.orelse, scope, known)
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
        return is_ours(part.left, scope, known) and is_ours(part.right, scope, known)
    if isinstance(part, ast.Attribute):
        return part.attr in HASHES
    if isinstance(part, ast.Call):
        return ast.unparse(part.func) in MAKES_SAFE
    if not isinstance(part, ast.Name):
        return False
    if part.id.strip("_").isupper() or part.id in known:
        return True
    given = list(values_of(part.id, scope))
    return bool(given) and all(is_ours(value, scope, known | {part.id}) for value in given)


def values_of(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    """What a local name stands for in a function."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from taken(name, target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            yield from taken(name, node.target, node.iter)
        elif isinstance(node, ast.NamedExpr):
            yield from taken(name, node.target, node.value)


def taken(name: str, target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from taken(name, one, other)
    elif any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(target)):
        yield value


def foreign_joins(tree: ast.Module) -> set[str]:
    return {join.text for join in joins(tree) if not all(is_ours(part, join.scope) for part in join.parts)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_one_module_makes_paths_of_names(path: Path) -> None:
    text = path.read_text("utf-8")
    found = foreign_joins(ast.parse(text)) if "Path" in text or "home()" in text or "files(" in text else set()
    assert found == set(EXCEPTIONS.get(path.relative_to(ROOT).as_posix(), {}))


@pytest.mark.parametrize(
    "line",
    [
        "folder / task.name",
        "folder / name",
        "folder / f'{task.name}.json'",
        "folder / (name + '.json')",
        "folder / names[0]",
        "folder.joinpath(name)",
        "folder.joinpath(*names)",
        "folder.with_name(name)",
        "Path(folder, name)",
        "os.path.join(folder, name)",
        "folder / 'results' / name",
        "folder / str(name)",
        "folder / name.replace('/', '_')",
    ],
)
def test_the_rule_finds(line: str) -> None:
    assert foreign_joins(ast.parse(f"def f(folder, task, name, names):\n    return {line}\n"))
    assert foreign_joins(ast.parse(f"def f(folder, task, given, names):\n    name = given\n    return {line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "folder / 'corpus.jsonl'",
        "folder / MANIFEST",
        "folder / FOLDERS[kind]",
        "folder / component(task.name, 'task')",
        "folder / f\"{component(task.name, 'task')}.json\"",
        "folder / f'{key.digest}.jsonl'",
        "inside(folder, name, 'file')",
        "folder.with_name(folder.name + '.zip')",
        "done / len(names)",
        "(a - b) / c",
        "100 * done / total",
    ],
)
def test_the_rule_leaves(line: str) -> None:
    assert not foreign_joins(ast.parse(f"def f(folder, task, name, names):\n    return {line}\n"))
