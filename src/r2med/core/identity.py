"""Which object this is: what it says of itself, or what its state and code say.

Somebody's own model is known by its `cache_key`, `revision` or `version`; where that stands in its class, the arguments
of its constructor count too, with the content of files that they name. One that declares none is known by a hash of
its state: the values of its attributes, its weights, and the code of its class with everything that code refers to.
Code of installed packages is known by their versions, everybody else's by its bytecode. Where the state cannot be read
(an open connection, a C object, code that reads a file or the environment when it is called), nothing stored is ever
reused for it: its identity then holds a number that no other process has.
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
import secrets
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .code import (
    CLASS_NOISE,
    CONSTRUCTORS,
    PLAIN,
    Unreadable,
    attributes,
    called_members,
    constructor_arguments,
    hidden_base,
    imports,
    is_array,
    is_compiled,
    is_plain,
    is_tensor,
    library,
    library_function,
    referred_names,
    refuse_reading,
    tensor_bytes,
)
from .options import named_content

REVISION_ATTRS = ("cache_key", "revision", "version", "__version__")
NAMELESS = "no_model_name/available"  # what mteb calls a model without a name
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


class Identity(NamedTuple):
    """What tells an object from every other."""

    facts: dict[str, object]  # part of every fingerprint and cache key
    digest: str  # short form for names; empty where the object declares a revision
    unknown: str = ""  # why its state cannot be read; stored results and vectors of it are then not reused


def identify(model: Any) -> Identity:
    """The identity of an object that somebody brought."""
    kind = model if inspect.isroutine(model) else type(model)
    facts: dict[str, object] = {"class": f"{kind.__module__ or '__main__'}:{kind.__qualname__}"}
    if revision := revision_of(model):
        return Identity(facts | {"revision": revision, **_arguments(model)}, "")
    try:
        digest = state_digest(model)
    except Unreadable as why:
        return Identity(facts | {"unknown": secrets.token_hex(8)}, "", str(why))
    return Identity(facts | {"state": digest}, digest[:8])


def _arguments(model: Any) -> dict[str, object]:
    """Constructor arguments, for an object whose revision is that of its class: they may tell two of them apart."""
    attribute = next(name for name in REVISION_ATTRS if getattr(model, name, None) not in (None, ""))
    if inspect.isroutine(model) or not isinstance(getattr(type(model), attribute, None), str | int | float):
        return {}
    digests = dict[str, str]()
    for name, value in constructor_arguments(model).items():
        with suppress(Unreadable):  # the others still tell
            content = named_content(value)
            digests[name] = state_digest([Path(value).name, content.whole] if content else value)
    return {"arguments": digests} if digests else {}


def revision_of(model: Any) -> str:
    """What an object says of its own state: the first of its `cache_key`, `revision`, `version`."""
    for attribute in REVISION_ATTRS:
        value = getattr(model, attribute, None)
        if callable(value):
            value = value()
        if value is not None and value != "":
            return str(value)
    return ""


def name_of(model: Any) -> str:
    """What an object calls itself, where its weights came from, or its class with the module it lies in."""
    meta = getattr(model, "mteb_model_meta", None)
    said = (
        getattr(model, "name", None),
        getattr(meta, "name", None),
        _card_name(model),
        _card_name(getattr(model, "model", None)),
    )
    for name in said:
        if isinstance(name, str) and name.strip() and name != NAMELESS:
            return Path(name).name if name.startswith(("/", "./", "../", "~")) else name
    return class_name(model)


def class_name(model: Any) -> str:
    """An object's class, or a function, with the module it lies in."""
    kind = model if inspect.isroutine(model) else type(model)
    nameless = kind.__module__ in (None, "__main__", "builtins")
    return kind.__qualname__ if nameless else f"{kind.__module__}:{kind.__qualname__}"


def _card_name(model: Any) -> str | None:
    """Name or path that sentence-transformers and transformers keep with a model."""
    card = getattr(model, "model_card_data", None)
    for holder, field in ((card, "model_id"), (card, "base_model"), (getattr(model, "config", None), "_name_or_path")):
        if isinstance(found := getattr(holder, field, None), str) and found:
            return found
    return None


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
        if kind in PLAIN:
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
        elif kind in (list, tuple, set, frozenset, dict, bytearray, types.MappingProxyType) or is_array(value):
            self._contents(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, ())
        elif isinstance(value, type):
            self._class(value)
        elif is_tensor(value):
            self.put("tensor", f"{value.dtype}{tuple(value.shape)}")
            self._hash.update(tensor_bytes(value))
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
        elif is_compiled(value) and (version := library(value.__module__)):
            self.put("function", f"{value.__module__}.{value.__qualname__} {version}")
        elif library(kind.__module__):
            self._library_object(value)
        else:
            self.put("object")
            self._class(kind)
            base = hidden_base(kind)
            if base in _CONTAINERS:
                self._contents(value)
            elif base is not None and not is_array(value):
                self._reduced(value)
            self._several("attributes", [part for pair in attributes(value) for part in pair])

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
            if not is_tensor(kept):
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
            elif is_plain(value) or callable(value) or not library(type(value).__module__):
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
            if not name.startswith("__") and (used or type(value) in PLAIN) and id(value) not in self._seen:
                self._global(name, value, names if used else ())
