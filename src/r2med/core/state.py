"""The state of an object as a hash: its attributes, its weights, the code of its class and what that code refers to."""

from __future__ import annotations

import enum
import hashlib
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from .._version import __version__

_STANDARD = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__")
"""What these read ends in attributes, which are hashed."""
_ENVIRONMENT = {"environ", "getenv", "environb", "getenvb"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range)


class Unreadable(Exception):
    """A part of an object's state that cannot be hashed; says which."""


def state_digest(model: Any) -> str:
    """Hash of everything an object's behaviour depends on, as far as Python can see; raises `Unreadable`."""
    reader = _Reader()
    reader.add(model)
    return reader.digest()


class _Reader:
    """Hashes an object with all it refers to, each thing once."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        self._at_call = True

    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, tag: str, data: bytes = b"") -> None:
        self._hash.update(f"{tag}:{len(data)}:".encode() + data)

    def add(self, value: Any) -> None:
        """Hash one value; something met before, as in a cycle, is named by its number."""
        if isinstance(value, _PLAIN):
            self.put(type(value).__name__, repr(value).encode())
            return
        if id(value) in self._seen:
            self.put("seen", str(self._seen[id(value)]).encode())
            return
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)  # an id is its object's only while that lives
        self._compound(value)

    def _compound(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            self.put("array", f"{value.dtype.str}{value.shape}".encode())
            self._hash.update(np.ascontiguousarray(value).data)
        elif isinstance(value, np.generic):
            self.put("scalar", value.dtype.str.encode() + value.tobytes())
        elif isinstance(value, list | tuple | np.ndarray):
            self._several(type(value).__name__, value)
        elif isinstance(value, set | frozenset):
            self._several("set", sorted(value, key=repr))
        elif isinstance(value, Mapping):
            self._mapping(value)
        elif isinstance(value, PurePath | re.Pattern | enum.Enum | np.dtype | np.random.Generator | slice | bytearray):
            self.put(type(value).__name__, self._shown(value))
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif _is_tensor(value):
            self.put("tensor", f"{value.dtype}{tuple(value.shape)}".encode())
            self._hash.update(_tensor_bytes(value))
        else:
            self._callable_or_object(value)

    def _shown(self, value: Any) -> bytes:
        if isinstance(value, np.random.Generator):
            return repr(value.bit_generator.state).encode()
        return repr(value).encode()

    def _several(self, tag: str, values: Any) -> None:
        self.put(tag, str(len(values)).encode())
        for value in values:
            self.add(value)

    def _mapping(self, value: Mapping[Any, Any]) -> None:
        self.put("mapping", str(len(value)).encode())
        for key, item in value.items():
            self.add(key)
            self.add(item)

    def _callable_or_object(self, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self.put("method")
            self.add(value.__self__)
            self.add(value.__func__)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, partial):
            self._several("partial", [value.func, list(value.args), dict(value.keywords)])
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, property):
            self._several("property", [value.fget, value.fset, value.fdel])
        elif isinstance(value, types.BuiltinFunctionType | types.WrapperDescriptorType | types.MethodDescriptorType):
            self._refuse_environment(value)
            self.put("builtin", f"{getattr(value, '__module__', '')}.{value.__qualname__}".encode())
        elif isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):
            self.add(wrapped)
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        kind = type(value)
        if value is os.environ:
            raise Unreadable("it holds the environment")
        if callable(text := getattr(value, "to_str", None)):  # a tokenizer of the tokenizers library
            self.put("tokenizer", str(text()).encode())
            return
        library = _library(kind.__module__)
        if library and callable(getattr(value, "state_dict", None)):
            self._library_model(value)
            return
        if _repr_is_value(value):
            self.put(kind.__qualname__, repr(value).encode())
            return
        attributes = dict(_attributes(value))
        if library and not attributes:
            raise Unreadable(f"it holds a {kind.__module__}.{kind.__qualname__}, whose state cannot be read")
        self.put("object")
        self._class(kind)
        self._mapping(attributes)

    def _library_model(self, model: Any) -> None:
        """A torch module whose code is an installed library's: its weights, and the settings that shape its output."""
        self._class(type(model))
        for name, tensor in sorted(model.state_dict().items()):
            self.put("weight", name.encode())
            if hasattr(tensor, "detach"):
                self.add(tensor)
        parts = model.modules() if callable(getattr(model, "modules", None)) else ()
        self.put("modules", " ".join(type(part).__qualname__ for part in parts).encode())
        for name in ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim", "similarity_fn_name"):
            setting = getattr(model, name, None)
            self.put(name, repr(setting).encode())
        config = getattr(model, "config", None)
        if callable(to_dict := getattr(config, "to_dict", None)):
            self.put("config", repr(sorted(map(repr, to_dict().items()))).encode())
        backend = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
        if backend is not None:
            self.add(backend)

    def _class(self, kind: type) -> None:
        """The name of a library's class with its version; the code and data of anybody else's."""
        self.put("class", f"{kind.__module__}.{kind.__qualname__}".encode())
        if version := _library(kind.__module__):
            self.put("version", version.encode())
            return
        for base in kind.__bases__:
            self.add(base)
        for name, member in sorted(vars(kind).items()):
            if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"):
                continue
            if name.startswith("_abc_") or name in ("__static_attributes__", "__firstlineno__"):
                continue
            self.put("member", name.encode())
            before, self._at_call = self._at_call, self._at_call and name not in _CONSTRUCTORS
            self.add(member)
            self._at_call = before

    def _function(self, function: types.FunctionType) -> None:
        self.put("function", function.__qualname__.encode())
        if version := _library(function.__module__ or ""):
            self.put("version", version.encode())
            return
        self._code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            with _empty_cells():
                self.add(cell.cell_contents)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self.put("global", name.encode())
                self.add(function.__globals__[name])

    def _code(self, code: types.CodeType) -> None:
        self.put("code", code.co_code)
        self.put("names", " ".join((*code.co_names, *code.co_varnames)).encode())
        if self._at_call and _ENVIRONMENT & set(code.co_names):
            raise Unreadable("its code reads the environment")
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant)
            else:
                self.add(constant)

    def _refuse_environment(self, function: Any) -> None:
        if self._at_call and getattr(function, "__name__", "") in _ENVIRONMENT:
            raise Unreadable("its code reads the environment")

    def _module(self, module: types.ModuleType) -> None:
        """A library by name and version; a file of the user's own by its content and its plain values."""
        self.put("module", module.__name__.encode())
        if version := _library(module.__name__):
            self.put("version", version.encode())
            return
        try:
            self.put("source", Path(str(module.__file__)).read_bytes())
        except OSError:
            raise Unreadable(f"the source of {module.__name__} cannot be read") from None
        for name, value in sorted(vars(module).items()):
            if isinstance(value, _PLAIN) and not name.startswith("__"):
                self.put("value", name.encode())
                self.add(value)


class _empty_cells:  # noqa: N801 - used as a statement
    """A closure may refer to a name that is not bound yet."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return kind is ValueError and "empty" in str(error)


def _names(code: types.CodeType) -> set[str]:
    """Global names that a function and those inside it refer to."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names}.union(*(_names(constant) for constant in inner))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    slots = (name for kind in type(value).__mro__ for name in _slots(kind))
    own = getattr(value, "__dict__", {})
    yield from sorted(own.items())
    yield from ((name, getattr(value, name)) for name in slots if name not in own and hasattr(value, name))


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _repr_is_value(value: Any) -> bool:
    """Whether a library's value is told by how it prints: dates, decimals, torch's dtypes and devices."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}" in {
        *("datetime.date", "datetime.datetime", "datetime.timedelta", "decimal.Decimal", "fractions.Fraction"),
        *("uuid.UUID", "torch.dtype", "torch.device", "torch.Size"),
    }


def _library(module: str) -> str:
    """Version of the installed package that a module belongs to, or of Python; empty for the user's own files."""
    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return sys.version.split()[0]
    found = sys.modules.get(top)
    place = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", [])), None)
    if place is None or not any(root and str(place).startswith(root + os.sep) for root in _STANDARD):
        return __version__ if top == "r2med" else ""
    return str(getattr(found, "__version__", "")) or _distribution_version(top)


def _distribution_version(top: str) -> str:
    from importlib.metadata import packages_distributions, version

    names = packages_distributions().get(top, ())
    return version(names[0]) if names else "unknown"


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor_bytes(tensor: Any) -> Any:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    try:
        return flat.view(sys.modules["torch"].uint8).numpy().data
    except (RuntimeError, TypeError):  # types that have no bytes of their own to look at
        return flat.float().numpy().data
