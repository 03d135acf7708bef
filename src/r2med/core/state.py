"""The state of an object as a hash: its attributes, its weights, the code of its class and what that code refers to.

Code of installed packages is known by their versions, everybody else's by its bytecode. What cannot be seen from here
(a file or the environment read when the model is called, a server, an object of C) is refused: see `Unreadable`.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import logging
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np

from .code import (
    CLASS_NOISE,
    CONSTRUCTORS,
    Unreadable,
    called_members,
    imports,
    library,
    library_function,
    referred_names,
    refuse_reading,
    slots,
)

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range)
_CONTAINERS = (list, tuple, set, frozenset, dict, bytearray, bytes, str, int, float, complex)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)
_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_PARTS: tuple[tuple[Any, str, Callable[[Any], list[Any]]], ...] = (
    (re.Pattern, "pattern", lambda v: [v.pattern, v.flags]),
    (types.MethodType, "method", lambda v: [v.__self__, v.__func__]),
    (functools.partial, "partial", lambda v: [v.func, list(v.args), dict(v.keywords), dict(vars(v))]),
    (staticmethod, "staticmethod", lambda v: [v.__func__]),
    (classmethod, "classmethod", lambda v: [v.__func__]),
    (property, "property", lambda v: [v.fget, v.fset, v.fdel]),
    (functools.cached_property, "property", lambda v: [v.func]),
    (functools._lru_cache_wrapper, "cached", lambda v: [v.__wrapped__]),
)
"""Types with the parts that say all there is to a value."""
_TEXTS: tuple[tuple[Any, str, Callable[[Any], str]], ...] = (
    (PurePath, "", str),
    (np.dtype, "dtype", lambda v: repr(v.descr if v.names else v.str)),
    (_LOCKS, "lock", lambda v: ""),
    (logging.Logger, "logger", lambda v: v.name),
    (_DESCRIPTORS, "builtin", lambda v: f"{v.__objclass__.__qualname__}.{v.__name__}"),
)
"""Types of which a text says all."""
_METHODS = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # functions that a torch module calls


def state_digest(model: Any) -> str:
    """Hash of everything an object's behaviour depends on, as far as Python can see; raises `Unreadable`."""
    reader = _Reader()
    try:
        reader.add(model)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    return reader.digest()


class _Reader:
    """Hashes an object with all it refers to, each thing once."""

    def __init__(self, *, at_call: bool = True) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        self._seen_at_call: set[int] = set()
        self._at_call = at_call
        """Whether what is hashed now runs when the model is called, and not only when it is made."""

    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, tag: str, data: bytes | str = b"") -> None:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self._hash.update(f"{tag}:{len(raw)}:".encode() + raw)

    def add(self, value: Any) -> None:
        """Hash one value; something met before, as in a cycle, is named by its number."""
        kind = type(value)
        if kind in _PLAIN:
            self.put(kind.__name__, repr(value))
        elif kind in (tuple, frozenset):  # equal ones may or may not be one object
            self._compound(value)
        elif id(value) in self._seen and (not self._at_call or id(value) in self._seen_at_call):
            self.put("seen", str(self._seen[id(value)]))
        else:
            self._seen.setdefault(id(value), len(self._seen))
            self._kept.append(value)  # an id is its object's only while that lives
            if self._at_call:
                self._seen_at_call.add(id(value))
            self._compound(value)

    def _compound(self, value: Any) -> None:
        kind = type(value)
        if value is os.environ:
            if self._at_call:
                raise Unreadable("it holds the environment")
            self.put("environment")
        elif kind in (list, tuple, set, frozenset, dict, bytearray, types.MappingProxyType) or _is_array(value):
            self._contents(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, ())
        elif isinstance(value, type):
            self._class(value)
        elif _is_tensor(value):
            self.put("tensor", f"{value.dtype}{tuple(value.shape)}")
            self._hash.update(_tensor_bytes(value))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._builtin(value)
        elif not self._of_python(value):
            self._object(value)

    def _of_python(self, value: Any) -> bool:
        """Hash a value of a type of Python's or numpy's whose parts, or whose text, say all; false for any other."""
        for kind, tag, parts in _PARTS:
            if isinstance(value, kind):
                self._several(tag, parts(value))
                return True
        for kind, tag, text in _TEXTS:
            if isinstance(value, kind):
                self.put(tag or type(value).__name__, text(value))
                return True
        random = sys.modules.get("numpy.random")  # whoever holds a generator has imported it; nobody else needs it
        if random is not None and isinstance(value, random.Generator):
            self._several("generator", [type(value.bit_generator).__name__, value.bit_generator.state])
            return True
        if isinstance(value, enum.Enum):
            kind = type(value)
            self._several(f"{kind.__module__}.{kind.__qualname__}.{value.name}", [value.value])
            for base in (base for base in kind.__mro__ if not library(base.__module__)):
                members = [m for _, m in sorted(vars(base).items()) if isinstance(m, _METHODS)]
                self._several("methods", members if issubclass(base, enum.Enum) else [base])
            return True
        return False

    def _several(self, tag: str, values: Iterable[Any]) -> None:
        several = list(values)
        self.put(tag, str(len(several)))
        for value in several:
            self.add(value)

    def _contents(self, value: Any) -> None:
        """What a container holds; a subclass counts as the container it is."""
        if isinstance(value, np.ndarray | np.generic):
            whole, tag = np.asarray(value), "array" if isinstance(value, np.ndarray) else "scalar"
            self.put(tag, f"{whole.dtype.descr if whole.dtype.names else whole.dtype.str}{whole.shape}")
            if whole.dtype.hasobject:
                self._several("objects", whole.reshape(-1).tolist())
            else:
                self._hash.update(np.ascontiguousarray(whole).tobytes())
        elif isinstance(value, Mapping):
            self._several("mapping", [part for pair in value.items() for part in pair])
        elif isinstance(value, set | frozenset):
            self._several("set", sorted(self._alone(item) for item in value))
        elif isinstance(value, bytearray | bytes | str | int | float | complex):
            base = next(k for k in (bytearray, bytes, str, int, float, complex) if isinstance(value, k))
            self.put(base.__name__, base.__repr__(value))
        else:
            self._several("tuple" if isinstance(value, tuple) else "list", tuple(value))

    def _alone(self, value: Any) -> str:
        """The hash of one element of a set, whose order means nothing."""
        reader = _Reader(at_call=self._at_call)
        reader.add(value)
        return reader.digest()

    def _builtin(self, function: Any) -> None:
        """A function of C; a bound one is what it is bound to, as `table.get` is its table."""
        refuse_reading([function.__name__], at_call=self._at_call)
        self.put("builtin", f"{getattr(function, '__module__', '')}.{function.__qualname__}")
        if not isinstance(function.__self__, types.ModuleType | types.NoneType):
            self.add(function.__self__)

    def _object(self, value: Any) -> None:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "tokenizers" and callable(getattr(value, "to_str", None)):
            self.put("tokenizer", str(value.to_str()))
        elif _is_compiled(value) and (version := library(value.__module__)):
            self.put("function", f"{value.__module__}.{value.__qualname__} {version}")
        elif library(kind.__module__):
            self._library_object(value)
        else:
            self.put("object")
            self._class(kind)
            base = _hidden_base(kind)
            if base in _CONTAINERS:
                self._contents(value)
            elif base is not None and not _is_array(value):
                self._reduced(value)
            self._several("attributes", [part for pair in _attributes(value) for part in pair])

    def _library_object(self, value: Any) -> None:
        """An object of an installed package: what pickle would keep of it; a torch module by its weights."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.nn.Module):
            self._torch_module(value)
        else:
            self._class(type(value))
            self._reduced(value)

    def _reduced(self, value: Any) -> None:
        kind = type(value)
        try:
            registered = copyreg.dispatch_table.get(kind)
            made = value.__reduce_ex__(2) if registered is None else registered(value)
        except Exception:
            what = f"{kind.__module__}.{kind.__qualname__}"
            raise Unreadable(f"it holds a {what}, whose state cannot be read") from None
        if isinstance(made, str):  # the name of a global
            self.put("global", f"{kind.__module__}.{made}")
            return
        parts: tuple[Any, ...] = made
        function, arguments, state, items, pairs, *_ = (*parts, None, None, None, None)
        self._several("reduced", [function, tuple(a for a in arguments if a is not kind), state])
        self._several("items", items or ())
        self._several("pairs", pairs or ())

    def _torch_module(self, model: Any) -> None:
        """A torch module whose code is a package's: its weights, and the settings that shape its output."""
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.put("weight", name)
            self.add(tensor)
        for name, kept in sorted(model.state_dict().items()):
            if not _is_tensor(kept):
                self._several(name, [kept])
        for name, part in model.named_modules():
            self.put("part", name)
            if library(type(part).__module__):
                self._class(type(part))
                self._settings(part)
            elif part is not model:
                self.add(part)
        for name in ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim", "similarity_fn_name"):
            self.put(name, repr(getattr(model, name, None)))

    def _settings(self, part: Any) -> None:
        """The plain attributes of a part, its configuration and its tokenizer."""
        for name, value in sorted(vars(part).items()):
            if name in ("training", "name_or_path") or (name.startswith("_") and name not in _HOOKS):
                continue  # set anew by a call, or where it lies, or made from the rest
            if callable(to_dict := getattr(value, "to_dict", None)) and name.endswith("config"):
                kept = {k: v for k, v in to_dict().items() if k not in ("_name_or_path", "transformers_version")}
                self.put("config", repr(sorted(map(repr, kept.items()))))
            elif (backend := getattr(value, "backend_tokenizer", None)) is not None:
                kept = msgspec.json.decode(backend.to_str())
                unset = {"truncation": None, "padding": None}  # every call sets them
                self.put("tokenizer", msgspec.json.encode(kept | unset, order="deterministic"))
            elif _is_plain(value) or callable(value) or not library(type(value).__module__):
                self.put("setting", name)
                self.add(value)

    def _class(self, kind: type) -> None:
        """The name of a package's class with its version; the code and data of anybody else's."""
        self.put("class", f"{kind.__module__}.{kind.__qualname__}")
        if version := library(kind.__module__):
            self.put("version", version)
            return
        self._several("bases", [base for base in (*kind.__bases__, type(kind)) if base not in (object, type)])
        called = called_members(kind)
        for name, member in sorted(vars(kind).items()):
            if name in CLASS_NOISE or name.startswith("_abc_"):
                continue
            self.put("member", name)
            before, self._at_call = self._at_call, self._at_call and name not in CONSTRUCTORS and name in called
            self.add(member)
            self._at_call = before

    def _function(self, function: types.FunctionType) -> None:
        self.put("function", function.__qualname__)
        if version := library_function(function):
            self.put("version", version)
            return
        code = function.__code__
        self._code(code)
        self._several("defaults", [function.__defaults__, function.__kwdefaults__, dict(vars(function))])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.put("cell", name)
            if cell != types.CellType():
                self.add(cell.cell_contents)
        names = referred_names(code)
        for name in sorted(names & function.__globals__.keys()):
            self._global(name, function.__globals__[name], names)
        for name, found in imports(function):
            self._global(name, found, names)

    def _global(self, name: str, value: Any, names: Iterable[str]) -> None:
        self.put("global", name)
        if isinstance(value, types.ModuleType):
            refuse_reading([value.__name__], at_call=self._at_call)
            self._module(value, names)
        else:
            self.add(value)

    def _code(self, code: types.CodeType) -> None:
        self.put("code", code.co_code + b"\0" + getattr(code, "co_exceptiontable", b""))
        taken = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self.put("arguments", f"{taken}{code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)}")
        self.put("names", " ".join((*code.co_names, *code.co_varnames, "/", *code.co_freevars, "/", *code.co_cellvars)))
        refuse_reading(code.co_names, at_call=self._at_call)
        for constant in code.co_consts:
            self._code(constant) if isinstance(constant, types.CodeType) else self.add(constant)

    def _module(self, module: types.ModuleType, names: Iterable[str]) -> None:
        """A package by name and version; a file of the user's own by its content, and what is used of it."""
        self.put("module", module.__name__)
        if version := library(module.__name__):
            self.put("version", version)
            return
        place = getattr(module, "__file__", None)
        try:
            self.put("source", Path(place).read_bytes() if place else b"")
        except OSError:
            raise Unreadable(f"the source of {module.__name__} cannot be read") from None
        for name, value in sorted(vars(module).items()):
            used = name in names
            if not name.startswith("__") and (used or type(value) in _PLAIN) and id(value) not in self._seen:
                self._global(name, value, names if used else ())


def _hidden_base(kind: type) -> type | None:
    """The class of C, other than `object`, that keeps a part of an instance where Python does not see it."""
    for base in kind.__mro__:
        members = vars(base)
        fields = "__slots__" not in members and any(isinstance(m, types.MemberDescriptorType) for m in members.values())
        if base is not object and (fields or isinstance(members.get("__new__"), types.BuiltinFunctionType)):
            return base
    return None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    slotted = (name for kind in type(value).__mro__ for name in slots(kind))
    own = getattr(value, "__dict__", {})
    yield from sorted(own.items())
    yield from ((name, getattr(value, name)) for name in slotted if name not in own and hasattr(value, name))


def _is_compiled(value: Any) -> bool:
    """Whether a value is a function that Cython or its like compiled: its type is no class of Python's."""
    named = hasattr(value, "__qualname__") and hasattr(value, "__module__")
    return named and not isinstance(vars(type(value)).get("__module__"), str)


def _is_plain(value: Any) -> bool:
    """Whether a value is a number or a text, or holds nothing else."""
    if isinstance(value, Mapping):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN or isinstance(value, np.generic | enum.Enum)


def _is_array(value: Any) -> bool:
    """An array or number of numpy's own; a masked array holds more than its numbers."""
    return type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor_bytes(tensor: Any) -> Any:
    try:
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(sys.modules["torch"].uint8).numpy().data
    except (RuntimeError, TypeError):  # sparse and quantized ones have no bytes of their own to look at
        raise Unreadable(f"it holds a tensor of {tensor.dtype} whose bytes cannot be read") from None
