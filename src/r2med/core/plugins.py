"""Code that is not ours: by address (`module:attr`) or as a plug-in of an installed package, loaded and called.

[project.entry-points."r2med.retrievers"]
char-ngrams = "my_package:CharNgrams"

Plug-ins are found by their metadata alone and imported when somebody names one: a broken one breaks nothing else.
While such code runs its output is redirected, its errors are one line, and processes that it forks end.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_type_hints

import msgspec

from .errors import ModelError, R2MedError, UsageError, nearest
from .options import NUMBER, Parameter, named_content, path_exists
from .spec import Content
from .untrusted import printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .spec import Spec, Value

_FILE = re.compile(r"([^:,]+\.py):([^\W\d][\w.]*)(?=,|$)")  # of Python code, and what is named in it
STRAY_CHILD = 70  # exit status of a process that a model forked and let run on into r2med


class _Redirect:
    """Standard output goes to standard error while any thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._output: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._output, sys.stdout = sys.stdout, sys.stderr
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.stdout, self._output = self._output, None


_redirect = _Redirect()


@contextmanager
def redirect_stdout(label: str, doing: str) -> Iterator[None]:
    """Keep standard output for our results; a process that the code forks ends here, so that none writes them twice."""
    process = os.getpid()
    try:
        with _redirect:
            yield
    finally:
        if os.getpid() != process:
            sys.stderr.write(printable(f"r2med: {label} forked on {doing}; the child process ends here") + "\n")
            sys.stderr.flush()
            os._exit(STRAY_CHILD)


@contextmanager
def wrap_errors(label: str, given: str, words: str = "") -> Iterator[None]:
    """Turn whatever the code raises into one line that says what it was given, or else in these words."""
    with redirect_stdout(label, given):
        try:
            yield
        except R2MedError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(f"{label} {words or f'failed on {given}'} ({one_line(error)})") from error


def one_line(error: BaseException) -> str:
    """An error as its type and message, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of a library's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def accepted(call: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a call takes by keyword."""
    parameters = _parameters(call).values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(arguments)
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return {key: value for key, value in arguments.items() if key in names}


def takes(call: Any, *names: str) -> bool:
    """Whether a call has parameters of all these names."""
    return set(names) <= set(_parameters(call))


def _parameters(call: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a call; none where nothing says which there are, as with many functions of C."""
    try:
        return inspect.signature(call).parameters
    except (TypeError, ValueError):
        return {}


Kind = Literal["retriever", "reranker", "expander"]
GROUPS: dict[Kind, str] = {kind: f"r2med.{kind}s" for kind in ("retriever", "reranker", "expander")}
NOTHING: Mapping[str, Any] = MappingProxyType({})
_WORDS: dict[str, object] = {"yes": True, "true": True, "no": False, "false": False, "none": None}


class Made(NamedTuple):
    """An object, and those of its constructor's arguments that differ from their defaults, as its name has them."""

    value: Any
    arguments: dict[str, Any]
    beside: dict[str, Any]  # parameters that its constructor does not take: they say how the object is used


def load_address(spec: Spec, beside: Mapping[str, Parameter] = NOTHING) -> Made:
    """The object at the `module:attr` of a spec; modules of the current folder count, as for `python -m`."""
    address = spec.name
    module, _, attribute = address.partition(":")
    if not attribute:
        raise UsageError(f"{address!r} is not an address: expected module:attr")
    found: Any = _module(module, address)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{address}: {module} has no {attribute}")
        found = getattr(found, part)
    return instantiate(found, address, spec, beside)


def instantiate(target: Any, label: str, spec: Spec | None = None, beside: Mapping[str, Parameter] = NOTHING) -> Made:
    """What a class or a factory gives when it is called; anything else is the thing itself.

    A function that needs an argument which is not given is no factory: it encodes, scores or expands. Parameters of
    the spec that `beside` declares are typed and handed back where the constructor has none of that name. Its options
    (a device, a number of threads) go to a constructor that takes them, and are no part of what it makes.
    """
    given, own = dict(spec.parameters if spec else ()), dict[str, Any]()
    for key, parameter in beside.items():
        if key in given and not takes(target, key):
            text = given.pop(key)
            value = parameter.read(text, label) if isinstance(text, str) else parameter.check(text, label)
            own |= {} if value == parameter.default else {key: value}
    factory = inspect.isroutine(target) and (given or not _needs_arguments(target))
    if not (inspect.isclass(target) or factory):
        if given:
            raise UsageError(f"{label} has no parameter {next(iter(given))!r}: it is no class")
        return Made(target, {}, own)
    typed = _typed(target, label, given)
    run = {key: value for key, value in (spec.options if spec else NOTHING).items() if takes(target, key)}
    named = {key: _named(value) for key, value in typed.items()}
    with wrap_errors(label, "construction", "cannot be constructed"):
        return Made(target(**typed, **run), named, own)


def _named(value: Any) -> Any:
    """An argument as a name has it: a file or folder by its content, a member of an enumeration by its value."""
    if isinstance(value, str) and not path_exists(value) and (known := Content.read(value)):
        known.located()  # an error: the constructor would get a path that nobody has
    return named_content(value) or (value.value if isinstance(value, Enum) else value)


def _typed(target: Any, label: str, given: Mapping[str, Value]) -> dict[str, Any]:
    """Arguments as their annotations or defaults say they are, without those at their defaults."""
    if not given:
        return {}
    declared = _parameters(target)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in declared.values())
    if unknown := next((key for key in given if key not in declared and not open_ended), None):
        near = nearest(unknown, declared)
        advice = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(declared) or 'none'}"
        raise UsageError(f"{label} has no parameter {unknown!r}{advice}")
    hints = _hints(target)
    typed = {}
    for key, value in given.items():
        default = declared[key].default if key in declared else inspect.Parameter.empty
        made = _value(value, hints.get(key), default, f"{key} of {label}")
        if isinstance(made, float) and not math.isfinite(made):
            raise UsageError(f"{key} of {label} must be a finite number, not {value!r}")
        if default is inspect.Parameter.empty or made != default:
            typed[key] = made
    return typed


def _hints(target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except Exception:  # annotations that only a type checker can resolve
        return {}


def _value(value: Value, hint: Any, default: object, what: str) -> object:
    if not isinstance(value, str):
        return value
    if hint is None and default not in (None, inspect.Parameter.empty):
        hint = type(default)
    if hint in (None, object, Any):
        return _guess(value)
    try:
        return msgspec.convert(_WORDS.get(value.lower(), value) if hint is not str else value, hint, strict=False)
    except msgspec.ValidationError:
        name = getattr(hint, "__name__", str(hint))
        raise UsageError(f"{what} must be a value of type {name}, not {value!r}") from None
    except TypeError:  # a type that msgspec does not know: the class decides
        return _guess(value)


def _guess(text: str) -> object:
    """A number, yes or no where the text is one; else the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _needs_arguments(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


def by_module(text: str) -> str:
    """`folder/file.py:attr` as `folder.file:attr`: a file of the current folder is its module, however it is typed."""
    match = _FILE.match(text)
    if match is None:
        return text
    file = Path(match[1]).expanduser()
    if not file.is_file():
        if has_module(match[1]) and "/" not in match[1]:
            return text  # the module `py` of a package
        raise UsageError(f"{match[1]}: no such file")
    here, place = Path.cwd().resolve(), file.resolve()
    if not place.is_relative_to(here):
        advice = f"go to {place.parent} and name it {place.stem}:{match[2]}"
        raise UsageError(f"{match[1]}: code is loaded from the current folder; {advice}")
    parts = place.relative_to(here).with_suffix("").parts
    if wrong := next((part for part in parts if not part.isidentifier()), None):
        raise UsageError(f"{match[1]}: {wrong!r} cannot be part of a module's name; rename it")
    if _is_installed_elsewhere(parts[0], here):
        raise UsageError(f"{match[1]}: there is an installed module {parts[0]!r}; rename yours")
    return f"{'.'.join(parts)}:{text[match.end(1) + 1 :]}"


def _is_installed_elsewhere(top: str, here: Path) -> bool:
    """Whether a name is taken by a module outside a folder, which would be imported instead."""
    found = find_spec(top) if is_installed(top) else None
    places = [found.origin, *(found.submodule_search_locations or ())] if found is not None else []
    return bool(places) and not any(place and Path(place).resolve().is_relative_to(here) for place in places)


def has_module(name: str) -> bool:
    """Whether a module is installed or lies in the current folder; nothing of it runs."""
    top = name.partition(".")[0]
    return _is_here(top) or is_installed(top)


def is_installed(top: str) -> bool:
    """Whether a module can be imported; nothing of it runs."""
    try:
        return find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _is_here(top: str) -> bool:
    return Path(f"{top}.py").is_file() or Path(top).is_dir()


def _module(name: str, address: str) -> Any:
    top, here = name.partition(".")[0], str(Path.cwd())
    if top not in sys.modules and _is_here(top) and here not in sys.path:
        sys.path.append(here)  # last: a file here never hides an installed package
    with redirect_stdout(address, "import"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise UsageError(f"{address}: {error}") from None
        except (Exception, SystemExit) as error:
            raise UsageError(f"{address}: {name} cannot be imported ({one_line(error)})") from error


class Plugin(NamedTuple):
    """One entry point, not loaded."""

    name: str
    kind: Kind
    distribution: str
    version: str
    entry: EntryPoint

    @property
    def label(self) -> str:
        """Its name, package and place, for an error."""
        return f"plug-in {self.name!r} of {self.distribution} ({self.entry.value})"

    @property
    def found(self) -> bool:
        """Whether its package can be imported at all; nothing of it runs to find out."""
        return is_installed(self.entry.module.partition(".")[0])

    def load(self, spec: Spec, beside: Mapping[str, Parameter] = NOTHING) -> Made:
        """Import it, and call it where it is a class or factory."""
        with wrap_errors(self.label, "import", "cannot be loaded"):
            loaded = self.entry.load()
        return instantiate(loaded, self.label, spec, beside)


def plugins(kind: Kind | None = None) -> list[Plugin]:
    """What the packages installed here offer, sorted by name."""
    return [plugin for plugin in _installed(tuple(sys.path)) if kind in (None, plugin.kind)]


@cache
def _installed(places: tuple[str, ...]) -> list[Plugin]:
    """All plug-ins on a path; reading the metadata of every package takes 20 ms, and every unknown name asks."""
    from importlib.metadata import entry_points  # imports the email package: not for every command

    del places
    found, offered = set(), entry_points()
    for kind, group in GROUPS.items():
        for entry in offered.select(group=group):
            owner = ("an unknown package", "") if entry.dist is None else (entry.dist.name, entry.dist.version)
            found.add(Plugin(entry.name, kind, *owner, entry))
    return sorted(found, key=lambda p: (list(GROUPS).index(p.kind), p.name, p.distribution))


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """The plug-in of a name; two packages that offer the same name are an error."""
    offers = [plugin for plugin in plugins(kind) if plugin.name == name]
    if len({p.distribution for p in offers}) > 1:
        raise UsageError(f"{kind} {name!r} is offered by {' and by '.join(p.distribution for p in offers)}: remove one")
    return offers[0] if offers else None
