"""The tables of a Python file, read as data: the file is parsed and never run.

Understood are assignments of texts, numbers, lists and dicts, and the few ways in which a table is made from another:
a name given before, an entry of it, texts put together with `+`, `.format(NAME=text)` or `.removeprefix(text)`, an
entry added, and `{k: … for k, v in table.items()}`. Everything else is refused with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from string import Formatter
from typing import Any

from .errors import DataError

LARGEST = 4 << 20
"""Bytes of a file."""
Tables = dict[str, Any]


class _Refused(Exception):
    """What is no literal, and where."""

    def __init__(self, node: ast.AST, why: str) -> None:
        super().__init__(why)
        self.line = int(getattr(node, "lineno", 0))


def read_tables(source: bytes, place: str, imported: Mapping[str, Tables] | None = None) -> Tables:
    """What the file assigns, by name; `imported` holds the tables of modules it may take names from."""
    tree = _parsed(source, place)
    tables: Tables = {}
    try:
        for statement in tree.body:
            _read(statement, tables, imported or {})
    except _Refused as why:
        raise DataError(f"{why}: only literals are read, nothing is run", path=place, line=why.line) from None
    except RecursionError:
        raise DataError("is nested too deeply", path=place) from None
    return tables


def assigned_texts(source: bytes, place: str) -> dict[str, str]:
    """Plain texts that a file assigns anywhere, by the name of the variable or attribute; first ones count."""
    found: dict[str, str] = {}
    for node in _in_order(_parsed(source, place)):
        match node:
            case ast.Assign(
                targets=[ast.Name(name) | ast.Attribute(attr=name)], value=ast.Constant(str(text))
            ):  # fmt: skip
                found.setdefault(name, text)
    return found


def returned_texts(source: bytes, place: str, function: str) -> list[str]:
    """Texts that a function of a file returns, as format strings: a name put into a text stands as `{name}`.

    A gap whose name is given a plain text in the function before is filled with it.
    """
    defined = (n for n in _in_order(_parsed(source, place)) if isinstance(n, ast.FunctionDef) and n.name == function)
    found, given = [], dict[str, str]()
    for node in _in_order(next(defined, ast.Module([], []))):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(text))):
                given[name] = _escaped(text)
            case ast.Return(ast.Constant(str(text))):
                found.append(_escaped(text))
            case ast.Return(ast.JoinedStr(parts)):
                found.append("".join(_part(part, given, place) for part in parts))
    return found


def _part(node: ast.expr, given: Mapping[str, str], place: str) -> str:
    match node:
        case ast.Constant(str(text)):
            return _escaped(text)
        case ast.FormattedValue(ast.Name(name), -1, None):
            return given.get(name, f"{{{name}}}")
    raise DataError("puts more than a name into a text: only literals are read", path=place, line=node.lineno)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _in_order(tree: ast.AST) -> list[ast.AST]:
    """All nodes below one, as they stand in the file."""
    return sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))


def _parsed(source: bytes, place: str) -> ast.Module:
    if len(source) > LARGEST:
        raise DataError(f"is larger than {LARGEST >> 20} MB", path=place)
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise DataError(f"is not Python ({error.msg})", path=place, line=error.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        raise DataError("is not Python that can be read", path=place) from None


def _read(statement: ast.stmt, tables: Tables, imported: Mapping[str, Tables]) -> None:
    match statement:
        case ast.Expr(ast.Constant(str())):
            return
        case ast.ImportFrom(module=str(module), names=names, level=0) if module in imported:
            for alias in names:
                if alias.name not in imported[module]:
                    raise _Refused(statement, f"imports {alias.name!r}, which {module} does not have")
                tables[alias.asname or alias.name] = imported[module][alias.name]
        case ast.Assign(targets=[ast.Name(name)], value=value):
            tables[name] = _value(value, tables)
        case ast.Assign(targets=[ast.Subscript(ast.Name() as target, ast.Constant(str(key)))], value=value):
            _table(target, tables)[key] = _value(value, tables)
        case _:
            raise _Refused(statement, f"holds {_described(statement)}")


def _value(node: ast.expr, names: Tables) -> Any:
    match node:
        case ast.Constant(str() | int() | float() | None as value):
            return value
        case ast.List(items) | ast.Tuple(items):
            return [_value(item, names) for item in items]
        case ast.Dict(keys, values):
            return {_key(key, node, names): _value(value, names) for key, value in zip(keys, values, strict=True)}
        case ast.Name() | ast.Subscript() | ast.DictComp():
            return _derived(node, names)
    return _bounded(_joined(node, names), node)


def _derived(node: ast.expr, names: Tables) -> Any:
    """What is taken from a table that was given before."""
    match node:
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Name(name):
            raise _Refused(node, f"uses {name!r}, which is not given before")
        case ast.Subscript(table, ast.Constant(str(key))):
            found = _table(table, names)
            if key not in found:
                raise _Refused(node, f"takes an entry {key!r} that is not there")
            return found[key]
        case ast.DictComp(
            ast.Name(key), value, [ast.comprehension(ast.Tuple([ast.Name(k), ast.Name(v)]), source, [], 0)]
        ) if key == k:
            match source:
                case ast.Call(ast.Attribute(table, "items"), [], []):
                    items = _table(table, names).items()
                    return {name: _value(value, {**names, k: name, v: item}) for name, item in items}
    raise _Refused(node, f"holds {_described(node)} in a value")


def _joined(node: ast.expr, names: Tables) -> str:
    """A text made from texts."""
    match node:
        case ast.JoinedStr(parts) if all(isinstance(part, ast.Constant) for part in parts):
            return "".join(_text(part, names) for part in parts)
        case ast.BinOp(left, ast.Add(), right):
            return _text(left, names) + _text(right, names)
        case ast.Call(ast.Attribute(text, "removeprefix"), [prefix], []):
            return _text(text, names).removeprefix(_text(prefix, names))
        case ast.Call(ast.Attribute(text, "format"), [], keywords) if all(k.arg for k in keywords):
            given = {str(k.arg): _text(k.value, names) for k in keywords}
            return _formatted(_text(text, names), given, node)
    raise _Refused(node, f"holds {_described(node)} in a value")


def _table(node: ast.expr, names: Tables) -> dict[str, Any]:
    value = _value(node, names)
    if not isinstance(value, dict):
        raise _Refused(node, f"has a {type(value).__name__} where a table belongs")
    return value


def _key(node: ast.expr | None, table: ast.Dict, names: Tables) -> str:
    if node is None:
        raise _Refused(table, "unpacks a table into another")
    return _text(node, names)


def _text(node: ast.expr, names: Tables) -> str:
    value = _value(node, names)
    if not isinstance(value, str):
        raise _Refused(node, f"has a {type(value).__name__} where a text belongs")
    return value


def _formatted(text: str, given: Mapping[str, str], node: ast.expr) -> str:
    try:
        return "".join(literal + (given[gap] if gap is not None else "") for literal, gap in plain_gaps(text))
    except (KeyError, ValueError):
        raise _Refused(node, "has a gap that is not filled with a text") from None


def _bounded(text: str, node: ast.expr) -> str:
    """The text, unless a few lines have made a huge one."""
    if len(text) > LARGEST:
        raise _Refused(node, f"makes a text of more than {LARGEST:,} characters")
    return text


def plain_gaps(text: str) -> list[tuple[str, str | None]]:
    """A format string as texts with the name of the gap behind each; a gap that is more than a name is a ValueError."""
    found = []
    for literal, gap, form, conversion in Formatter().parse(text):
        if gap is not None and (form or conversion or not gap.isidentifier()):
            raise ValueError(f"{{{gap}}} is more than a name")
        found.append((literal, gap))
    return found


def _described(node: ast.AST) -> str:
    kinds = {
        "FunctionDef": "a function", "Lambda": "a function", "ClassDef": "a class", "Import": "an import",
        "ImportFrom": "an import", "Call": "a call", "ListComp": "a loop", "DictComp": "a loop",
        "JoinedStr": "a computed text", "Expr": "a statement", "Attribute": "an attribute",
    }  # fmt: skip
    return kinds.get(type(node).__name__, f"code ({type(node).__name__})")
