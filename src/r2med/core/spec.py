"""What a component is, as one value: parsed once, printed once.

    name                      bm25
    name:key=value,…          bm25:b=0.75,k1=1.2        weighted:w=0.7/0.3
    name:argument             hyde:gpt4                 rankgpt:gpt4,window=20        run:FILE
    …@depth                   maxsim:model=bge-small@50
    module:attr,key=value     my_models:Encoder,dim=64
    org/model@revision        a hub id; digits alone behind @ are a depth, anything else a revision
    one+next                  hyde:gpt4+rm3             expansion methods, one after the other

A `Spec` holds what changes a ranking and nothing else: parameters that differ from their defaults, in the order of
their names. Equal specs are the same component, and every component has one printed form. A file or a folder is known
by its content and prints as `label~digest`, wherever it stands: as a name, as an argument or as the value of a
parameter, which may be a component too. `Registry` reads specs (`core/registry.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import DataError
from .files import content_digest

P = TypeVar("P")

ADDRESS = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d][\w.]*")  # `module:attr`
LINK = "expand="
"""What stands before an expansion method that no registry knows by name."""
_RESERVED = re.compile(r"[%,+\s\x00-\x1f]|@(?=\d+$)")
_RESERVED_IN_NAMES = re.compile(r"[=:]")
_EQUALS = re.compile("=")
_CONTENT = re.compile(r"(?P<label>.*)~(?P<digest>[0-9a-f]{8})", re.DOTALL)


@dataclass(frozen=True)
class Content:
    """A file or folder, known by what it holds; where it lies is not part of its identity."""

    label: str
    digest: str  # eight digits of the hash: what is printed
    path: Path | None = field(default=None, compare=False)
    whole: str = field(default="", compare=False, repr=False)
    """The hash in full; empty where only the printed form is known."""

    @classmethod
    def of(cls, path: str | Path, *, label: str = "") -> Content:
        """The content at a path."""
        place = Path(path).expanduser()
        whole = content_digest(place)
        return cls(label or _stem(place), whole[:8], place.resolve(), whole)

    @classmethod
    def read(cls, text: str) -> Content | None:
        """What `str` printed, or None; such content has no place here and cannot be loaded from its name alone."""
        match = _CONTENT.fullmatch(text)
        return cls(match["label"], match["digest"]) if match else None

    def __str__(self) -> str:
        return f"{self.label}~{self.digest}"

    def located(self) -> Path:
        """Where it lies; an error for content that is known by name only."""
        if self.path is None:
            raise DataError(f"{self} names content that is not at hand: give the file itself")
        return self.path


@dataclass(frozen=True)
class Spec:
    """One component: a retriever, reranker, expander, chat model or fusion."""

    name: str
    argument: Spec | Content | str | None = None
    """What stands behind the colon without a key: the chat model of `hyde:gpt4`, the file of `run:FILE`."""
    parameters: tuple[tuple[str, Value], ...] = ()  # sorted; only those that differ from the declared defaults
    depth: int | None = None  # how many candidates a reranker reorders
    then: Spec | None = None
    """The component of the same kind that follows it: a chain of expansion methods."""
    options: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """How it is run (`device`, `threads`): read from the same text, no part of what it is."""
    path: Path | None = field(default=None, compare=False, repr=False)
    """Where a folder lies whose name is its content."""
    own: bool = field(default=False, compare=False, repr=False)
    """Whether it stands for somebody's object, which no registry can make again."""
    typed: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)
    """The parameters that its text sets, also those at their defaults."""

    def get(self, key: str, default: object = None) -> object:
        """A parameter, or a default."""
        return dict(self.parameters).get(key, default)

    def values(self, declared: Callable[..., P]) -> P:
        """The parameters as a value of the class that declares them, defaults filled in."""
        known = inspect.signature(declared).parameters
        # A component that is the default anyway may still have been typed with how it is run.
        typed = {k: v for k, v in self.typed.items() if k in known and isinstance(v, Spec) and v == known[k].default}
        return declared(**typed | {key: value for key, value in self.parameters if key in known})

    def with_parameters(self, **changes: Value | None) -> Spec:
        """A copy with parameters changed, or removed where None."""
        merged = dict(self.parameters) | changes
        kept = tuple(sorted((k, v) for k, v in merged.items() if v is not None))
        return replace(self, parameters=kept)

    def without(self, *keys: str) -> Spec:
        """A copy without some parameters."""
        return self.with_parameters(**dict.fromkeys(keys))

    def at(self, depth: int | None) -> Spec:
        """A copy at another depth."""
        return replace(self, depth=depth)

    @property
    def links(self) -> tuple[Spec, ...]:
        """It and those that follow it, each alone."""
        rest = self.then.links if self.then is not None else ()
        return (replace(self, then=None), *rest)

    @staticmethod
    def chain(links: Sequence[Spec]) -> Spec:
        """One spec of several that follow each other."""
        first, *rest = links
        return replace(first, then=Spec.chain(rest) if rest else None)

    def __str__(self) -> str:
        if self.then is not None:
            return "+".join([str(self.links[0]), *(link.linked for link in self.links[1:])])
        own = [f"{key}={escape(show(value))}" for key, value in self.parameters]
        text = escape(self.name) if self.own or ADDRESS.fullmatch(self.name) else escape_name(self.name)
        if isinstance(self.argument, Spec):
            below = self.argument
            head = below if not below.parameters else Spec(below.name, below.argument)
            text += f":{head}"
            own = sorted([*own, *(f"{key}={escape(show(value))}" for key, value in below.parameters)])
        elif self.argument is not None:
            text += f":{_escape(escape(str(self.argument)), _EQUALS)}"
        if own:
            # An address holds its colon already, and an argument has used it.
            text += ("," if ":" in text else ":") + ",".join(own)
        return text if self.depth is None else f"{text}@{self.depth}"

    @property
    def linked(self) -> str:
        """How it is printed behind another: what no registry knows by name is marked."""
        return f"{LINK}{self}" if self.own or ADDRESS.fullmatch(self.name) else str(self)

    def data(self) -> dict[str, object]:
        """The spec as plain data, for results and fingerprints."""
        argument = self.argument.data() if isinstance(self.argument, Spec) else self.argument
        found: dict[str, object] = {"name": self.name}
        if argument is not None:
            found["argument"] = str(argument) if isinstance(argument, Content) else argument
        if self.parameters:
            found["parameters"] = {key: plain(value) for key, value in self.parameters}
        if self.depth is not None:
            found["depth"] = self.depth
        if self.then is not None:
            found["then"] = self.then.data()
        return found


Value = bool | int | float | str | tuple[float, ...] | Content | Spec


class SpecData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A spec as `data` writes it into files; anybody may have written one."""

    name: str
    argument: SpecData | str | None = None
    parameters: dict[str, bool | int | float | str | tuple[float, ...]] = {}
    depth: int | None = None
    then: SpecData | None = None

    def spec(self, *, own: bool = False) -> Spec:
        """The spec; a file is known by its printed form only, and `own` is not in the data."""
        argument = self.argument.spec() if isinstance(self.argument, SpecData) else self.argument
        then = self.then.spec(own=own) if self.then else None
        return Spec(self.name, argument, tuple(sorted(self.parameters.items())), self.depth, then, own=own)


def show(value: Value) -> str:
    """A value as it stands in a spec."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(_number(part) for part in value)
    return _number(value) if isinstance(value, float) else str(value)


def plain(value: Value) -> object:
    """A value as JSON holds it."""
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Content | Spec) else value


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def escape(text: str) -> str:
    """A text in which no character has a meaning of its own in a spec."""
    return _escape(text, _RESERVED)


def escape_name(text: str) -> str:
    """The same for a name, which ends at a colon."""
    return _escape(escape(text), _RESERVED_IN_NAMES)


def _escape(text: str, reserved: re.Pattern[str]) -> str:
    return reserved.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def _stem(path: Path) -> str:
    """The name of a file without its data suffixes, of a folder with its dots."""
    name = path.resolve().name
    if path.is_dir():
        return name
    for suffix in (".gz", ".zst", ".run", ".jsonl", ".trec", ".txt", ".toml", ".json"):
        name = name.removesuffix(suffix)
    return name or path.name
