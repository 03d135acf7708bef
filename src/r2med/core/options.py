"""What may be set: the parameters of a component, which say what it is, and the options of a run, which do not.

    def __init__(self, k1: Annotated[float, Meta(ge=0, description="how soon repeated terms saturate")] = 0.9): ...

An argument that carries a `Meta` in its annotation is a parameter; its default, type, bounds and description are read
from there, and nowhere else. Options say how components are run on this machine; nothing in them changes a ranking.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from .budget import Budget
from .errors import UsageError
from .files import exists, typed_path
from .spec import Content, Spec, Value

Extra = TypeVar("Extra")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""As people write one: Python would also take 1_0 for ten, and digits of any script."""
_WORDS: dict[str, object] = {"yes": True, "true": True, "no": False, "false": False}


class Names(NamedTuple):
    """Stands in the annotation of a parameter whose value is another component, and says who reads its spec."""

    parse: Callable[[str], Spec]


class Parameter(NamedTuple):
    """One declared parameter."""

    name: str
    type: Any
    default: object
    help: str = ""
    unless: str = ""
    """Another parameter, beside which the default is not this one: its value, where it is of the same kind."""

    def read(self, text: str, whose: str) -> Value:
        """The value that a text stands for."""
        kinds = _kinds(self.type)
        if Content in kinds:
            return content_at(text, self.name)
        value: object = text
        if bool in kinds:
            value = _WORDS.get(text.lower(), text)
        elif float in kinds:
            value = _number(text)
        elif any(get_origin(kind) is tuple for kind in kinds):
            value = [_number(part) for part in text.split("/")]
        return self.check(value, whose)

    def check(self, value: object, whose: str) -> Value:
        """A value of the declared type and within its bounds."""
        if isinstance(value, Content | Spec):
            return value
        if isinstance(value, str) and value and (names := _extra(self.type, Names)):
            return names.parse(value)
        try:
            checked: Value = msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError:
            raise UsageError(f"{self.name} of {whose} must be {self.wanted}, not {value!r}") from None
        numbers = checked if isinstance(checked, tuple) else (checked,)
        if checked == "" or not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
            raise UsageError(f"{self.name} of {whose} must be {self.wanted}, not {value!r}")
        if isinstance(checked, tuple):
            return tuple(number + 0.0 for number in checked)
        return checked + 0.0 if isinstance(checked, float) else checked  # 0 for -0, which is printed alike

    @property
    def wanted(self) -> str:
        """What values look like, for people."""
        kinds = _kinds(self.type)
        if choices := [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]:
            return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]
        if bool in kinds:
            return "yes or no"
        if any(get_origin(kind) is tuple for kind in kinds):
            return "numbers with / between them"
        if not {int, float} & set(kinds):
            return "a text"
        words = (("at least", "ge"), ("more than", "gt"), ("at most", "le"), ("less than", "lt"))
        meta = _extra(self.type, msgspec.Meta)
        bounds = [f"{word} {at:g}" for word, name in words if (at := getattr(meta, name, None)) is not None]
        return f"a number of {' and '.join(bounds)}" if bounds else "a number"


def declared_parameters(target: Any) -> dict[str, Parameter]:
    """The arguments of a class or function that carry a `Meta` in their annotation."""
    own = inspect.isclass(target) and not is_dataclass(target)
    hints = get_type_hints(target.__init__ if own else target, include_extras=True)
    found = {}
    for argument in inspect.signature(target).parameters.values():
        kind = hints.get(argument.name)
        if (meta := _extra(kind, msgspec.Meta)) is not None:
            found[argument.name] = Parameter(argument.name, kind, argument.default, meta.description or "")
    return found


class Declared(Mapping[str, Parameter]):
    """The declared parameters of a class, read when the first of them is asked for: most classes are only listed."""

    def __init__(self, target: Any) -> None:
        self._target = target

    @cached_property
    def _found(self) -> dict[str, Parameter]:
        return declared_parameters(self._target)

    def __getitem__(self, name: str) -> Parameter:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _number(text: str) -> float | str:
    return float(text) if NUMBER.fullmatch(text) else text


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, types.UnionType) or get_origin(kind) is Union else (kind,)


def _kinds(kind: Any) -> list[Any]:
    """The types that a value may have, without annotations and None."""
    bare = (get_args(k)[0] if get_origin(k) is Annotated else k for k in _alternatives(kind))
    return [k for k in bare if k is not type(None)]


def _extra(kind: Any, wanted: type[Extra]) -> Extra | None:
    """What an annotation says beside the type."""
    extras = (e for k in _alternatives(kind) if get_origin(k) is Annotated for e in get_args(k)[1:])
    return next((extra for extra in extras if isinstance(extra, wanted)), None)


def content_at(text: str, what: str) -> Content:
    """The content of a file or folder that a user named, or whose printed form this is."""
    if path_exists(text):
        return Content.of(typed_path(text))
    if known := Content.read(text):
        return known
    raise UsageError(f"{what}: there is no {text}")


def named_content(value: object) -> Content | None:
    """The file or folder that somebody's argument names; None where it names none, or one around the current folder."""
    if not isinstance(value, str | PurePath) or not str(value) or not path_exists(str(value)):
        return None
    place = typed_path(str(value)).resolve()
    readable = place.is_file() or (place.is_dir() and not Path.cwd().is_relative_to(place))
    return Content.of(place) if readable else None


def path_exists(text: str) -> bool:
    """Whether a text is the path of something here."""
    try:
        return exists(typed_path(text))
    except UsageError:
        return False


Progress = Callable[[int, int], None]  # called with (done, in all)
_DEVICE = re.compile(r"cpu|mps|cuda:[0-9]+")


def check_devices(asked: str) -> list[str]:
    """The names of devices in a text, `cuda` alone standing for every GPU; others are refused."""
    names = [name.strip() for name in asked.split(",")]
    wrong = next((name for name in names if names != ["cuda"] and not _DEVICE.fullmatch(name)), None)
    if wrong is not None:
        raise UsageError(f"unknown device {wrong!r}: cpu, cuda, cuda:N, several with commas, or mps")
    return names


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may say about running models; a backend reads what concerns it."""

    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`, `cuda:0,cuda:1`; None: every GPU there is, else the CPU."""
    threads: int | None = None
    batch_tokens: int | None = None  # tokens that go through a model together
    memory: int | None = None
    """Bytes that dense search may hold beside its mapped vectors; None: what is fastest."""
    verify: int = 0  # cached texts that are encoded again and compared
    cache: bool = True  # whether vectors, scores and indexes are kept on disk
    keep_queries: bool = True  # whether that holds for vectors and scores of queries, too
    trust_remote_code: bool = False
    allow_pickle: bool = False  # load weights that are published as pickles only, which can run code
    base_url: str = ""  # of an API, instead of the environment's
    concurrency: int | None = None  # requests in flight; None: 16 for chat models, 8 for embeddings
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout: float | None = None  # seconds for one answer; None: 600 for chat models, 60 for embeddings
    attempts: int = 5  # times a request is sent before giving up on the server
    budget: Budget | None = None  # one for all that a command spends
    keep_prompts: bool = False  # store every prompt in full beside its answer
    retry: frozenset[str] = frozenset()
    """Statuses of stored answers that chat models are asked for again: `empty`, `failed`, `refused`, …"""
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse nonsense where it is typed, not in a thread later."""
        for name in ("threads", "batch_tokens", "concurrency", "requests_per_minute", "tokens_per_minute", "timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # not a number is refused too
                raise UsageError(f"{name} must be above 0, not {value}")
        if self.device is not None:
            check_devices(self.device)
        if self.attempts < 1:
            raise UsageError(f"attempts must be 1 or more, not {self.attempts}")

    def changed(self, changes: Mapping[str, object]) -> Options:
        """A copy with some options changed."""
        known = {field.name for field in fields(Options)}
        if unknown := next((name for name in changes if name not in known), None):
            raise UsageError(f"unknown option {unknown!r}; there are {', '.join(sorted(known))}")
        values: dict[str, Any] = dict(changes)
        return replace(self, **values) if values else self

    def progress(self, done: int, total: int) -> None:
        """Say how far the current work is."""
        if self.on_progress is not None:
            self.on_progress(done, total)


RUN_OPTIONS = {
    parameter.name: parameter
    for parameter in (
        Parameter("device", str, None, "cpu, cuda, cuda:1 …"),
        Parameter("threads", int, None, "threads, or cores, of a model"),
        Parameter("batch_tokens", int, None, "tokens that go through a model together"),
        Parameter("allow_pickle", bool, False, "load weights that are published as pickles only"),
        Parameter("trust_remote_code", bool, False, "let a model run Python code of its own"),
        Parameter("concurrency", int, None, "requests in flight"),
        Parameter("requests_per_minute", int, None, "most requests a minute"),
        Parameter("tokens_per_minute", int, None, "most tokens a minute"),
    )
}
"""Those that may stand in a spec beside its parameters, as in `bge:device=cpu`; they are no part of it."""


def run_options(*names: str) -> Iterable[Parameter]:
    """Some of them, for a registry."""
    return [RUN_OPTIONS[name] for name in names or RUN_OPTIONS]


_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?)i?b?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str, *, least: int = 1) -> int:
    """Bytes in `500MB`, `2GB`, `10G`, `1.5GiB`; a unit is 1,024 of the one below."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match["number"]) * _UNITS[match["unit"].lower()]) if match else -1
    if size < least:
        raise UsageError(f"cannot read {text!r} as a size: write 500MB or 2GB")
    return size


def show_size(count: int) -> str:
    """The same for people, rounded up: whoever types it gets no less."""
    if count >= 1 << 30:
        return f"{math.ceil(10 * count / (1 << 30)) / 10:.1f}GB"
    return f"{-(-count // (1 << 20))}MB" if count >= 1 << 20 else f"{-(-count // (1 << 10))}KB"
