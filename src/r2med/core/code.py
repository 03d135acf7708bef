"""Code and objects that are not ours, looked at without running anything.

Which package code belongs to, what it refers to and what it reads; what an object holds, where Python shows it.
"""

from __future__ import annotations

import dis
import enum
import importlib
import inspect
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import numpy as np

from .._version import __version__

CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__set_name__")
"""What these read ends in attributes, which are hashed."""
CLASS_NOISE = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__"),
    *("__abstractmethods__", "__static_attributes__", "__firstlineno__", "__orig_bases__", "__parameters__"),
    *("__type_params__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__annotate_func__"),
}
ENTRIES = {
    *("encode", "encode_query", "encode_queries", "encode_corpus", "encode_document", "encode_documents", "similarity"),
    *("predict", "index", "search", "prepare", "retrieve", "rerank", "expand", "expand_query", "plan", "forward"),
}
"""Methods that r2med calls."""
_ENVIRONMENT = {"environ", "getenv", "environb", "getenvb"}
_FILES = {
    *("open", "read_text", "read_bytes", "fromfile", "loadtxt", "genfromtxt", "memmap", "load", "load_file"),
    *("read_csv", "read_json", "read_parquet", "read_table", "from_pretrained", "import_module", "__import__"),
}
_SERVERS = {
    *("socket", "urllib", "http", "requests", "httpx", "aiohttp", "urllib3", "grpc", "subprocess", "urlopen"),
    *("websocket", "websockets", "openai", "cohere", "voyageai", "anthropic"),
}
_LOCAL = {"save", "dump", "write", "load", "read", "from_file", "to_file", "from_pretrained", "save_pretrained"}
"""What helper classes have for other times than a call."""


PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range)


class Unreadable(Exception):
    """A part of an object's state that cannot be hashed; says which."""


def refuse_reading(names: Iterable[str], *, at_call: bool) -> None:
    """Refuse code that looks outside when it is called: what it finds there may change while nothing here does."""
    found = {name.partition(".")[0] for name in names} if at_call else set()
    for known, what in ((_ENVIRONMENT, "reads the environment"), (_FILES, "reads files"), (_SERVERS, "asks others")):
        if used := sorted(known & found):
            raise Unreadable(f"its code {what} when it is called ({used[0]})")


def called_members(kind: type) -> set[str]:
    """Members of a class that run when its objects are used: those r2med calls, and what these refer to."""
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    dunder = {name for name in members if name.startswith("__") and name not in CONSTRUCTORS}
    called = dunder | (ENTRIES & members.keys())
    if not ENTRIES & members.keys() and "__call__" not in members:
        called |= {n for n, m in members.items() if n not in _LOCAL and not isinstance(m, classmethod)}
    waiting = list(called)
    while waiting:
        for code in _codes(members[waiting.pop()]):
            new = (referred_names(code) & members.keys()) - called - set(CONSTRUCTORS)
            called |= new
            waiting += new
    return called


def _codes(member: Any) -> Iterator[types.CodeType]:
    """The code of a method, property or whatever wraps one."""
    for function in (member, *(getattr(member, name, None) for name in ("__func__", "func", "fget", "__wrapped__"))):
        if isinstance(function, types.FunctionType):
            yield function.__code__


def referred_names(code: types.CodeType) -> set[str]:
    """Names of globals and attributes that a function and those inside it refer to, and texts that may be such."""
    found = {*code.co_names, *(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())}
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return found.union(*(referred_names(constant) for constant in inner))


def imports(function: types.FunctionType) -> Iterator[tuple[str, types.ModuleType]]:
    """Modules that a function imports when it is called; those of the user's own are imported to be looked at."""
    package = str(function.__globals__.get("__package__") or "")
    for name in dict.fromkeys(_imported(function.__code__, package)):
        try:
            if library(name) and name not in sys.modules:
                yield name, types.ModuleType(name)
            else:
                yield name, importlib.import_module(name)
        except Exception:
            continue


def _imported(code: types.CodeType, package: str) -> Iterator[str]:
    before: list[Any] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level = before[-2] if len(before) > 1 and isinstance(before[-2], int) else 0
            yield resolve_name("." * level + step.argval, package) if level and package else step.argval
        if step.opname == "LOAD_CONST":
            before.append(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imported(constant, package)


def library_function(function: types.FunctionType) -> str:
    """Version of the package that a function belongs to; a text that was executed belongs to whoever executed it."""
    name = function.__module__ or ""
    version = library(name)
    made_here = function.__globals__ is not vars(sys.modules[name]) if name in sys.modules else True
    return "" if version and made_here and not _inside(function.__code__.co_filename) else version


def library(module: object) -> str:
    """Version of the installed package that a module belongs to, or of Python; empty for the user's own files."""
    top = module.partition(".")[0] if isinstance(module, str) else ""
    if top in ("", "__main__"):
        return ""
    if top == "r2med":
        return __version__
    place = str(_place(top) or "")
    if top in sys.stdlib_module_names and (_inside(place) or not Path(place).is_file()):
        return sys.version.split()[0]  # and not a file of the user's that has the name of one of Python's
    return _version(top, place)


def _place(top: str) -> str | None:
    found: Any = sys.modules.get(top)
    if found is not None:
        return getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", [])), None)
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    return None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or []), None)


@cache
def _version(top: str, place: str) -> str:
    """The version of a package from an index; that of one installed from a folder says nothing about its code."""
    commit = _not_from_an_index().get(top)
    if not _inside(place) or commit == "":
        return ""
    # Not what the module calls itself, which nobody knows before it is imported: its name would depend on the moment.
    version = _distribution_version(top)
    return f"{version}+{commit}" if commit else version


def _distribution_version(top: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(top)
    except PackageNotFoundError:
        names = _all_distributions().get(top, ())
        own = getattr(sys.modules.get(top), "__version__", "")
        return version(names[0]) if names else own if isinstance(own, str) else ""


@cache
def _all_distributions() -> Mapping[str, list[str]]:
    """Packages by their modules: reads all metadata, so only for those that are not called like their package."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


@cache
def _not_from_an_index() -> dict[str, str]:
    """Modules that were installed from a repository, with its commit, or from a folder, with nothing."""
    found: dict[str, str] = {}
    for file in (file for root in _roots() for file in Path(root).glob("*.dist-info/direct_url.json")):
        try:
            origin = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
            listed = file.with_name("RECORD").read_text("utf-8", "replace").splitlines()
        except (OSError, ValueError):
            continue
        modules = {line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in listed}
        if "vcs_info" in origin:
            found |= dict.fromkeys(modules, str(origin["vcs_info"].get("commit_id", "")))
        elif "dir_info" in origin and Path(unquote(urlsplit(str(origin.get("url", ""))).path)).is_dir():
            found |= dict.fromkeys(modules, "")
    return found


@cache
def _roots() -> tuple[str, ...]:
    """Folders of installed packages and of Python itself."""
    found = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*getattr(site, "getsitepackages", list)(), site.getusersitepackages()}
    found |= {place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
    return tuple(os.path.realpath(root).rstrip(os.sep) + os.sep for root in found if root)


@cache
def _inside(place: str) -> bool:
    return place.startswith("<frozen") or os.path.realpath(place).startswith(_roots())


def constructor_arguments(model: Any) -> dict[str, Any]:
    """The attributes of an object that have the name of an argument of its constructor, or that name behind a `_`."""
    try:
        names = inspect.signature(type(model)).parameters
    except (TypeError, ValueError):
        return {}
    held = {*getattr(model, "__dict__", {}), *(name for kind in type(model).__mro__ for name in slots(kind))}
    found = (attribute for name in names for attribute in (name, f"_{name}") if attribute in held)
    return {attribute: getattr(model, attribute) for attribute in found if hasattr(model, attribute)}


def slots(kind: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots, as Python calls them."""
    said = vars(kind).get("__slots__", ())
    names = (said,) if isinstance(said, str) else tuple(said)
    return tuple(_mangled(name, kind) for name in names if name not in ("__dict__", "__weakref__"))


def _mangled(name: str, kind: type) -> str:
    """What Python calls a private name of a class."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def hidden_base(kind: type) -> type | None:
    """The class of C, other than `object`, that keeps a part of an instance where Python does not see it."""
    for base in kind.__mro__:
        members = vars(base)
        fields = "__slots__" not in members and any(isinstance(m, types.MemberDescriptorType) for m in members.values())
        if base is not object and (fields or isinstance(members.get("__new__"), types.BuiltinFunctionType)):
            return base
    return None


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object by name, those in slots last."""
    slotted = (name for kind in type(value).__mro__ for name in slots(kind))
    own = getattr(value, "__dict__", {})
    yield from sorted(own.items())
    yield from ((name, getattr(value, name)) for name in slotted if name not in own and hasattr(value, name))


def is_compiled(value: Any) -> bool:
    """Whether a value is a function that Cython or its like compiled: its type is no class of Python's."""
    named = hasattr(value, "__qualname__") and hasattr(value, "__module__")
    return named and not isinstance(vars(type(value)).get("__module__"), str)


def is_array(value: Any) -> bool:
    """An array or number of numpy's own; a masked array holds more than its numbers."""
    return type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)


def is_tensor(value: Any) -> bool:
    """Whether a value is one of torch's; whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_bytes(tensor: Any) -> Any:
    """The numbers of a tensor as they lie in memory."""
    try:
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(sys.modules["torch"].uint8).numpy().data
    except (RuntimeError, TypeError):  # sparse and quantized ones have no bytes of their own to look at
        raise Unreadable(f"it holds a tensor of {tensor.dtype} whose bytes cannot be read") from None


def is_plain(value: Any) -> bool:
    """Whether a value is a number or a text, or holds nothing else."""
    if isinstance(value, Mapping):
        return all(is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    return type(value) in PLAIN or isinstance(value, np.generic | enum.Enum)
