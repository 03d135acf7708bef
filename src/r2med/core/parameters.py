"""Declared parameters: what may be set on a component, of which type, within which bounds, and what for.

    def __init__(self, k1: Annotated[float, Meta(ge=0, description="how soon repeated terms saturate")] = 0.9): ...

An argument that carries a `Meta` in its annotation is a parameter; its default, type, bounds and description are read
from there, and nowhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from .errors import UsageError
from .places import exists, typed_path
from .spec import Content, Value

_WORDS: dict[str, object] = {"yes": True, "true": True, "no": False, "false": False}


class Parameter(NamedTuple):
    """One declared parameter."""

    name: str
    type: Any
    default: object
    help: str = ""

    def read(self, text: str, whose: str) -> Value:
        """The value that a text stands for."""
        kind = _bare(self.type)
        if Content in (kind, *get_args(kind)):
            return content_at(text, self.name)
        value: object = text
        if kind is bool or bool in get_args(kind):
            value = _WORDS.get(text.lower(), text)
        elif get_origin(kind) is tuple:
            value = text.split("/")
        return self.check(value, whose)

    def check(self, value: object, whose: str) -> Value:
        """A value of the declared type and within its bounds."""
        if isinstance(value, Content):
            return value
        try:
            checked: Value = msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError:
            raise UsageError(f"{self.name} of {whose} must be {self.wanted}, not {value!r}") from None
        return checked

    @property
    def wanted(self) -> str:
        """What values look like, for people."""
        kind, meta = _bare(self.type), _meta(self.type)
        if choices := _choices(kind):
            return f"{', '.join(map(str, choices[:-1]))} or {choices[-1]}" if len(choices) > 1 else str(choices[0])
        if kind is bool or bool in get_args(kind):
            return "yes or no"
        if get_origin(kind) is tuple:
            return "numbers with / between them"
        number = kind in (int, float) or {int, float} & set(get_args(kind))
        bounds = [f"{word} {bound:g}" for word, bound in _bounds(meta)]
        return f"a number{' of ' + ' and '.join(bounds) if bounds else ''}" if number else "a text"


def declared_parameters(target: Any) -> dict[str, Parameter]:
    """The arguments of a class or function that carry a `Meta` in their annotation."""
    call = target.__init__ if inspect.isclass(target) else target
    hints = get_type_hints(call, include_extras=True)
    found = {}
    for argument in inspect.signature(call).parameters.values():
        kind = hints.get(argument.name)
        if (meta := _meta(kind)) is not None:
            found[argument.name] = Parameter(argument.name, kind, argument.default, meta.description or "")
    return found


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _meta(kind: Any) -> msgspec.Meta | None:
    if get_origin(kind) is not Annotated:
        return None
    return next((extra for extra in get_args(kind)[1:] if isinstance(extra, msgspec.Meta)), None)


def _choices(kind: Any) -> tuple[Any, ...]:
    literal = next((k for k in (kind, *get_args(kind)) if get_origin(k) is Literal), None)
    return get_args(literal) if literal is not None else ()


def _bounds(meta: msgspec.Meta | None) -> Iterator[tuple[str, float]]:
    for word, name in (("at least", "ge"), ("more than", "gt"), ("at most", "le"), ("less than", "lt")):
        bound = getattr(meta, name, None)
        if bound is not None:
            yield word, bound


def content_at(text: str, what: str) -> Content:
    """The content of a file or folder that a user named, or whose printed form this is."""
    path = typed_path(text)
    if exists(path):
        return Content.of(path)
    if known := Content.read(text):
        return known
    raise UsageError(f"{what}: there is no {text}")
