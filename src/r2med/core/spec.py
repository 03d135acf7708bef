"""What a component is, as one value: parsed once, printed once.

    name                      bm25
    name:key=value,…          bm25:b=0.75,k1=1.2        weighted:w=0.7/0.3
    name:argument             hyde:gpt4                 rankgpt:gpt4,window=20        run:FILE
    …@depth                   maxsim:model=bge-small@50
    module:attr,key=value     my_models:Encoder,dim=64
    org/model@revision        a hub id; digits alone behind @ are a depth, anything else a revision

A `Spec` holds what changes a ranking and nothing else: parameters that differ from their defaults, in the order of
their names. Equal specs are the same component, and every component has one printed form. A file or a folder is known
by its content and prints as `label~digest`. `Registry` reads specs (`core/registry.py`).
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from .errors import DataError

P = TypeVar("P")

_RESERVED = re.compile(r"[%,+\s\x00-\x1f]|@(?=\d+$)")
_CONTENT = re.compile(r"(?P<label>.*)~(?P<digest>[0-9a-f]{8})", re.DOTALL)


@dataclass(frozen=True)
class Content:
    """A file or folder, known by what it holds; where it lies is not part of its identity."""

    label: str
    digest: str
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, path: str | Path, *, label: str = "") -> Content:
        """The content at a path."""
        place = Path(path).expanduser()
        return cls(label or _stem(place), content_digest(place), place.resolve())

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


Value = bool | int | float | str | tuple[float, ...] | Content


@dataclass(frozen=True)
class Spec:
    """One component: a retriever, reranker, expander, chat model or fusion."""

    name: str
    argument: Spec | Content | str | None = None
    """What stands behind the colon without a key: the chat model of `hyde:gpt4`, the file of `run:FILE`."""
    parameters: tuple[tuple[str, Value], ...] = ()
    """Sorted; only those that differ from the declared defaults."""
    depth: int | None = None
    """How many candidates a reranker reorders."""
    options: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """How it is run (`device`, `threads`): read from the same text, no part of what it is."""
    path: Path | None = field(default=None, compare=False, repr=False)
    """Where a folder lies whose name is its content."""
    own: bool = field(default=False, compare=False, repr=False)
    """Whether it stands for somebody's object, which no registry can make again."""

    def get(self, key: str, default: object = None) -> object:
        """A parameter, or a default."""
        return dict(self.parameters).get(key, default)

    def values(self, declared: Callable[..., P]) -> P:
        """The parameters as a value of the class that declares them, defaults filled in."""
        known = inspect.signature(declared).parameters
        return declared(**{key: value for key, value in self.parameters if key in known})

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

    def __str__(self) -> str:
        own = [f"{key}={escape(show(value))}" for key, value in self.parameters]
        text = escape(self.name)
        if isinstance(self.argument, Spec):
            below = self.argument
            head = below if not below.parameters else Spec(below.name, below.argument)
            text += f":{head}"
            own = sorted([*own, *(f"{key}={escape(show(value))}" for key, value in below.parameters)])
        elif self.argument is not None:
            text += f":{escape(str(self.argument))}"
        if own:
            # An address holds its colon already, and an argument has used it.
            text += ("," if self.argument is not None or ":" in self.name else ":") + ",".join(own)
        return text if self.depth is None else f"{text}@{self.depth}"

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
        return found


def show(value: Value) -> str:
    """A value as it stands in a spec."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(_number(part) for part in value)
    return _number(value) if isinstance(value, float) else str(value)


def plain(value: Value) -> object:
    """A value as JSON holds it."""
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Content) else value


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def escape(text: str) -> str:
    """A text in which no character has a meaning of its own in a spec."""
    return _RESERVED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def content_digest(path: Path) -> str:
    """Eight digits of the hash of a file, or of all files of a folder with their names."""
    digest = hashlib.blake2b(digest_size=4)
    try:
        if path.is_file():
            _add(digest, path)
        else:
            for file in _files(path):
                digest.update(file.relative_to(path).as_posix().encode() + b"\0")
                _add(digest, file)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():
        raise DataError("no such file or folder", path=folder)
    hidden = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return (p for p in hidden if not any(part.startswith(".") for part in p.relative_to(folder).parts))


def _add(digest: hashlib.blake2b, file: Path) -> None:
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)


def _stem(path: Path) -> str:
    """The name of a file without its data suffixes, of a folder with its dots."""
    name = path.resolve().name
    if path.is_dir():
        return name
    for suffix in (".gz", ".zst"):
        name = name.removesuffix(suffix)
    for suffix in (".run", ".jsonl", ".trec", ".txt", ".toml", ".json"):
        name = name.removesuffix(suffix)
    return name or path.name
