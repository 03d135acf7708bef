"""Retrievers by name: what a user types becomes a thing that retrieves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import UnknownName, UsageError
from .bm25 import BM25
from .protocol import Retriever

LEXICAL: dict[str, Callable[..., Retriever]] = {
    "bm25": lambda **p: BM25(**p, query="bm25"),
    "bm25-lucene": lambda **p: BM25(**p, query="count"),
}
_NUMBERS = {"k1", "b"}


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:key=value,key=value`; the part behind the colon must hold an equals sign to be parameters."""
    name, colon, rest = spec.partition(":")
    if not colon or "=" not in rest:
        return spec, {}
    parameters = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise UsageError(f"cannot read {pair!r} in {spec!r}: parameters look like name:k1=1.2,b=0.75")
        parameters[key.strip()] = value.strip()
    return name, parameters


def get_retriever(spec: str) -> Retriever:
    """The retriever that `spec` names."""
    name, parameters = parse_spec(spec)
    if name in LEXICAL:
        return _lexical(name, parameters, spec)
    raise UnknownName("retriever", spec, LEXICAL)


def _lexical(name: str, parameters: dict[str, str], spec: str) -> Retriever:
    arguments: dict[str, Any] = {}
    for key, value in parameters.items():
        if key in _NUMBERS:
            try:
                arguments[key] = float(value)
            except ValueError:
                raise UsageError(f"{key} in {spec!r} must be a number, not {value!r}") from None
        elif key == "analyzer":
            arguments[key] = value
        else:
            raise UsageError(f"{name} has no parameter {key!r}; it has k1, b, analyzer")
    if parameters:
        arguments["name"] = f"{name},{','.join(f'{k}={v}' for k, v in parameters.items())}"
    return LEXICAL[name](**arguments)
