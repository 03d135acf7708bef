"""Components by name: what there is of one kind, with declared parameters; and reading a `Spec` from text.

    fusions = Registry("fusion", package="r2med.fuse")

    @fusions.register("rrf")
    class ReciprocalRank:
        def __init__(self, k: Annotated[int, Meta(ge=0, description="constant added to every rank")] = 60) -> None: ...

Help, listings, completion, error messages and the reference pages come from here. Modules of `package` are imported
when a name is first looked for, so that a new file in that package is all it takes to add an entry.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from .errors import UnknownName, UsageError, nearest
from .options import Declared, Parameter, content_at, path_exists
from .plugins import by_module, has_module
from .spec import ADDRESS, LINK, Content, Spec, Value

T = TypeVar("T")
ARGUMENTS = {"chat": "LLM", "file": "FILE", "text": "NAME"}
"""What may stand behind a colon, and how it is written in help."""
_DEPTH = re.compile(r"(?P<rest>.+)@(?P<depth>[0-9]+)", re.DOTALL)
_BEHIND_DEPTH = re.compile(r"(@\d+)\+")
_PARAMETERS = re.compile(r":(?=\w+=)")  # where a place ends and its parameters begin


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One thing that has a name."""

    name: str  # as it is printed; that of a folder is its content
    make: Callable[..., T]  # called with the spec and whatever else its kind needs
    summary: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    argument: str = ""
    """What may stand behind the colon: `chat` (a spec of that kind), `file`, `text`, or nothing."""
    needs_argument: bool = False
    path: Path | None = None  # where a folder lies
    target: Any = None  # the class that was registered
    open: bool = False
    """Whether it takes parameters that are known only when it is made, as a plug-in does; they stay texts till then."""

    @property
    def shape(self) -> str:
        """How it is typed: `hyde:LLM`."""
        return f"{self.name}:{ARGUMENTS[self.argument]}" if self.needs_argument else self.name


class Registry(Generic[T]):
    """All entries of one kind, and the one reader of their specs."""

    def __init__(
        self,
        kind: str,
        *,
        package: str = "",
        shared: Iterable[Parameter] = (),
        options: Iterable[Parameter] = (),
        depth: int | None = None,
        nested: Callable[[], Registry[Any]] | None = None,
        hint: str = "",
        chains: bool = False,
    ) -> None:
        self.kind, self.package, self.depth, self.hint = kind, package, depth, hint
        self.chains = chains  # whether several may follow each other: `hyde:gpt4+rm3`, `maxsim@50+neighbours@100`
        self.shared = {parameter.name: parameter for parameter in shared}  # parameters that every entry has
        self.options = {parameter.name: parameter for parameter in options}
        """What may be said of how any entry is run: no part of what it is."""
        self.finders: list[Callable[[str], Entry[T] | None]] = []
        """Asked in turn for names that nobody registered: model cards, plug-ins."""
        self.places: list[Callable[[str], Entry[T] | None]] = []
        """Asked for what is no name at all: folders, hub ids."""
        self.listings: list[Callable[[], Iterable[str]]] = []  # more names for listings and suggestions
        self.from_address: Callable[..., T] | None = None
        """Makes what lies at `module:attr`; None where a kind has no such thing."""
        self.from_chain: Callable[..., T] | None = None
        """Makes one of several that follow each other."""
        self._nested = nested
        self._entries: dict[str, Entry[T]] = {}
        self._aliases: dict[str, str] = {}
        self._loaded = not package

    def register(
        self,
        name: str,
        *,
        aliases: Iterable[str] = (),
        argument: str = "",
        needs_argument: bool = False,
        summary: str = "",
    ) -> Callable[[Any], Any]:
        """Class decorator: it makes the entry of that name, by `from_spec` where it has that.

        The parameters are those of its class `Parameters`, or of its own constructor.
        """

        def add(target: Any) -> Any:
            make = getattr(target, "from_spec", None) or (lambda spec, *_: target(**dict(spec.parameters)))
            declared = Declared(getattr(target, "Parameters", target))
            about = summary or first_sentence(target)
            self.add(Entry(name, make, about, declared, argument, needs_argument, target=target), aliases=aliases)
            return target

        return add

    def add(self, entry: Entry[T], *, aliases: Iterable[str] = ()) -> None:
        """Add an entry; a name or alias that is taken is an error of the programmer's."""
        others = dict.fromkeys(aliases, entry.name)
        if taken := {entry.name, *others} & {*self._entries, *self._aliases}:
            raise ValueError(f"{self.kind} {min(taken)!r} is registered twice")
        self._entries[entry.name] = self._shared(entry)
        self._aliases |= others

    def _shared(self, entry: Entry[T]) -> Entry[T]:
        return replace(entry, parameters=ChainMap(self.shared, entry.parameters))  # type: ignore[arg-type]

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{self.package}.{module.name}")

    def __iter__(self) -> Iterator[Entry[T]]:
        """The registered entries."""
        self._load()
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """Every name that can be typed, registered ones first."""
        return list(dict.fromkeys([*(entry.name for entry in self), *(n for more in self.listings for n in more())]))

    def find(self, name: str) -> Entry[T] | None:
        """The entry of a name, spelled with any case, hyphens or underscores."""
        return self.registered(name) or self._ask(self.finders, name)

    def registered(self, name: str) -> Entry[T] | None:
        """The same of those that were registered alone: neither a model card nor a plug-in."""
        folded = name.casefold().replace("_", "-")
        for _ in range(2):  # the second time with all modules of the package imported
            if found := self._entries.get(self._aliases.get(folded, folded)):
                return found
            self._load()
        return None

    def _ask(self, finders: Iterable[Callable[[str], Entry[T] | None]], name: str) -> Entry[T] | None:
        found = next((entry for finder in finders if (entry := finder(name)) is not None), None)
        return None if found is None else self._shared(found)

    def entry(self, spec: Spec) -> Entry[T]:
        """The entry that makes a spec."""
        found = self.find(spec.name) or self._ask(self.places, str(spec.path or spec.name))
        if found is None:
            raise self.unknown(spec.name)
        return found

    def __getitem__(self, name: str) -> Entry[T]:
        if (entry := self.find(name)) is None:
            raise self.unknown(name)
        return entry

    def make(self, spec: Spec, *given: Any) -> T:
        """The component of a spec; `given` is whatever its kind needs to be made."""
        if spec.own:
            raise UsageError(f"{spec} is an object: it cannot be made from its name")
        if spec.then is not None:
            assert self.from_chain is not None
            return self.from_chain(spec, *given)
        if self.from_address is not None and self._is_address(spec):
            module = spec.name.partition(":")[0]
            if nearest(module, self.names()) and not has_module(module):
                raise self.unknown(module)  # `hide:gpt4` is a misspelled name, not a module of the user's
            return self.from_address(spec, *given)
        return self.entry(spec).make(spec, *given)

    def _is_address(self, spec: Spec) -> bool:
        return spec.path is None and bool(ADDRESS.fullmatch(spec.name)) and self.find(spec.name) is None

    def unknown(self, name: str) -> UnknownName:
        """The error for a name that nobody has."""
        known = self.names()
        return UnknownName(self.kind, name, known, hint=self.hint or f"(known: {', '.join(known)})")

    def parse(self, text: str | Spec) -> Spec:
        """The spec that a text stands for; what cannot be is refused with the nearest that can."""
        if isinstance(text, Spec):
            return text
        whole, depth = text.strip(), self.depth
        if self.chains and depth is not None and (links := self.split(whole))[1:]:
            return Spec.chain([self.parse(link) for link in links])
        if depth is not None and (match := _DEPTH.fullmatch(whole)):
            whole, depth = match["rest"], int(match["depth"])
            if depth < 1:
                raise UsageError(f"{text!r}: the depth of a {self.kind} must be 1 or more")
        if not whole:
            raise UsageError(f"an empty text names no {self.kind}")
        if self.depth is not None or not self.chains:
            return self._named(whole).at(depth)
        if len(links := self.split(whole)) > 1:
            return Spec.chain([self._named(link) for link in links])
        return self._named(whole.removeprefix(LINK))

    def join(self, texts: Iterable[str]) -> Spec | None:
        """One chain of several texts; None of none."""
        links = [link for text in texts for link in self.parse(text).links]
        return Spec.chain(links) if links else None

    def split(self, text: str) -> list[str]:
        """The links of a chain; a plus before anything but a name, or nearly one, belongs to a path.

        Where links have depths, all but the last say theirs, and a chain is split behind those.
        """
        if self.depth is not None:
            parts = _BEHIND_DEPTH.split(text)
            return [link + depth for link, depth in zip(parts[::2], [*parts[1::2], ""], strict=True)]
        links = list[str]()
        for part in text.split("+"):
            if links and not self._begins_link(part):
                links[-1] += f"+{part}"
            else:
                links.append(part.removeprefix(LINK))
        return links

    def _begins_link(self, part: str) -> bool:
        head = unquote(part.partition(":")[0])
        return part.startswith(LINK) or self.find(head) is not None or bool(nearest(head, self.names()))

    def _named(self, text: str) -> Spec:
        """What stands before the colon decides: a name, a place, or a module."""
        head, _, rest = text.partition(":")
        if entry := self.find(unquote(head)):
            return self._read(entry, rest, text)
        text = by_module(text) if self.from_address is not None else text
        place, rest = _place(text)
        match = None if path_exists(place) else ADDRESS.match(text)
        if self.from_address is not None and match and text[match.end() : match.end() + 1] in ("", ","):
            # The constructor's own arguments stay texts until the module is imported.
            own = Entry(match[0], self.from_address, parameters=self.shared, open=True)
            return self._read(own, text[match.end() + 1 :], text)
        if entry := self._ask(self.places, place):
            return self._read(entry, rest, text)
        raise self.unknown(unquote(head))

    def _read(self, entry: Entry[T], rest: str, text: str) -> Spec:
        """The spec of an entry from what stands behind its colon."""
        argument, parts = self._argument(entry, rest.split(",") if rest else [], text)
        nested = self._nested().entry(argument).parameters if isinstance(argument, Spec) and self._nested else {}
        own, below, options = dict[str, Value](), dict[str, Value](), dict[str, object]()
        for key, value in self._pairs(parts, text).items():
            if key in entry.parameters:
                own[key] = entry.parameters[key].read(value, entry.name)
            elif key in nested:
                below[key] = nested[key].read(value, entry.name)
            elif key in self.options:
                options[key] = self.options[key].read(value, entry.name)
            elif entry.open:
                own[key] = value
            else:
                raise self._no_parameter(entry.name, entry.parameters, key)
        if isinstance(argument, Spec) and self._nested is not None:
            argument = self._nested().changed(argument.with_parameters(**below))
        made = Spec(entry.name, argument, tuple(sorted(own.items())), options=options, path=entry.path, typed=own)
        return self._changed(made, entry.parameters, {})

    def _argument(
        self, entry: Entry[T], parts: list[str], text: str
    ) -> tuple[Spec | Content | str | None, list[str]]:  # fmt: skip
        """What stands behind the colon without a key, and the parts that follow it."""
        key, equals, _ = parts[0].partition("=") if parts else ("", "", "")
        is_parameter = equals and (key in entry.parameters or key in self.options)
        if not entry.argument or not parts or not parts[0] or is_parameter:
            if entry.needs_argument:
                raise UsageError(f"{text!r} is not complete: it looks like {entry.shape}")
            return None, parts
        if entry.argument == "text":
            return unquote(parts[0]), parts[1:]
        if entry.argument == "file":
            # A path may hold commas: the longest beginning that exists.
            ends = range(len(parts), 0, -1)
            end = next((end for end in ends if path_exists(unquote(",".join(parts[:end])))), 1)
            return content_at(unquote(",".join(parts[:end])), entry.name), parts[end:]
        assert self._nested is not None
        chats = self._nested()
        head, colon, rest = parts[0].partition(":")
        below = chats.find(unquote(head)) if colon else None
        if below is not None and below.argument:
            argument, left = chats._argument(below, [rest, *parts[1:]], text)
            return Spec(below.name, argument), left
        return chats.parse(parts[0]), parts[1:]

    def _pairs(self, parts: Iterable[str], text: str) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for part in parts:
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not key or not value or key in pairs:
                raise UsageError(f"cannot read {part!r} in {text!r}: parameters look like name:key=value,key=value")
            pairs[key] = unquote(value)
        return pairs

    def _no_parameter(self, name: str, declared: Mapping[str, Parameter], key: str) -> UsageError:
        near = nearest(key, [*declared, *self.options])
        advice = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(declared) or 'none'}"
        return UsageError(f"{name} has no parameter {key!r}{advice}")

    def declared(self, spec: Spec) -> Mapping[str, Parameter]:
        """The parameters that a spec may have; of somebody's own object, those that every entry has."""
        return self.shared if spec.own or self._is_address(spec) else self.entry(spec).parameters

    def changed(self, spec: Spec, **parameters: object) -> Spec:
        """The spec with some parameters set from Python values; None leaves one as it is."""
        return self._changed(spec, self.declared(spec), parameters)

    def _changed(self, spec: Spec, declared: Mapping[str, Parameter], parameters: Mapping[str, object]) -> Spec:
        given = {key: value for key, value in parameters.items() if value is not None}
        if unknown := next((key for key in given if key not in declared), None):
            raise self._no_parameter(spec.name, declared, unknown)
        typed = {key: declared[key].check(value, spec.name) for key, value in given.items()}
        return _without_defaults(spec.with_parameters(**typed), declared)

    def spec(self, name: str, argument: Spec | Content | str | None = None, **parameters: object) -> Spec:
        """A spec from Python values: checked, typed, defaults left out."""
        entry = self.entry(Spec(name))
        return self._changed(Spec(entry.name, argument, path=entry.path), entry.parameters, parameters)

    def help(self) -> str:
        """Every registered name, as it is typed."""
        return ", ".join(entry.shape for entry in self)


def _without_defaults(spec: Spec, declared: Mapping[str, Parameter]) -> Spec:
    given = dict(spec.parameters)
    said = {key for key, value in given.items() if key not in declared or declared[key].default != value}
    said |= {key for key in given if key in declared and declared[key].unless in said}
    said -= {key for key, value in given.items() if key in declared and given.get(declared[key].unless) == value}
    return replace(spec, parameters=tuple((key, value) for key, value in spec.parameters if key in said))


def _place(text: str) -> tuple[str, str]:
    """A folder or hub id and the parameters behind it; a path that exists is taken as it is typed."""
    if path_exists(text):
        return text, ""
    splits = list(_PARAMETERS.finditer(text))
    split = next((s for s in splits if path_exists(text[: s.start()])), splits[0] if splits else None)
    left, rest = (text[: split.start()], text[split.end() :]) if split else (text, "")
    return (left if path_exists(left) else unquote(left)), rest


def first_sentence(target: Any) -> str:
    """The first sentence of a docstring."""
    text = " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")
