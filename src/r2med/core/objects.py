"""Objects people bring themselves: what they are called, which state this is, and a guard around their calls."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .containing import contained
from .errors import ModelError, R2MedError

MARKS = ("cache_key", "revision", "version", "__version__")
NAMELESS = "no_model_name/available"
"""What mteb calls a model without a name."""


def name_of(model: Any) -> str:
    """What an object calls itself, where it came from, or its class."""
    meta = getattr(model, "mteb_model_meta", None)
    told = (
        getattr(model, "name", None),
        getattr(meta, "name", None),
        getattr(model, "__name__", None),
        _card_name(model),
        _card_name(getattr(model, "model", None)),
    )
    for name in told:
        if isinstance(name, str) and name.strip() and name != NAMELESS:
            return Path(name).name if name.startswith(("/", "./", "../", "~")) else name
    return type(model).__name__


def _card_name(model: Any) -> str | None:
    """Name or path that sentence-transformers and transformers keep with a model."""
    card = getattr(model, "model_card_data", None)
    for holder, field in ((card, "model_id"), (card, "base_model"), (getattr(model, "config", None), "_name_or_path")):
        if isinstance(found := getattr(holder, field, None), str) and found:
            return found
    return None


def revision_of(model: Any) -> str:
    """What an object says of its own state: the first of its `cache_key`, `revision`, `version`."""
    for mark in MARKS:
        value = getattr(model, mark, None)
        if callable(value):
            value = value()
        if value is not None and value != "":
            return str(value)
    return ""


def describe_object(model: Any) -> dict[str, object]:
    """Class and state of an object. One that names no revision is known by its source file and its weights."""
    kind = model if inspect.isroutine(model) else type(model)
    facts: dict[str, object] = {"class": f"{kind.__module__}:{kind.__qualname__}", "revision": revision_of(model)}
    if not facts["revision"]:
        facts |= {key: value for key, value in (("code", _code(kind)), ("weights", _weights(model))) if value}
    return facts


def _code(kind: Any) -> str:
    try:
        source = inspect.getsourcefile(kind)
        return "" if source is None else hashlib.blake2b(Path(source).read_bytes(), digest_size=8).hexdigest()
    except (TypeError, OSError):  # built in, or typed into a session
        return ""


def _weights(model: Any) -> str:
    """Hash of a torch module's weights, or of the module that an object wraps as `model`."""
    for holder in (model, getattr(model, "model", None)):
        state = getattr(holder, "state_dict", None)
        if callable(state):
            digest = hashlib.blake2b(digest_size=16)
            for key, tensor in sorted(state().items()):
                digest.update(key.encode())
                if hasattr(tensor, "detach"):
                    digest.update(_bytes(tensor))
            return digest.hexdigest()
    return ""


def _bytes(tensor: Any) -> Any:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    try:
        return flat.view(sys.modules["torch"].uint8).numpy()
    except (RuntimeError, TypeError):  # types that have no bytes of their own to look at
        return flat.float().numpy()


@contextmanager
def answering(name: str, what: str) -> Iterator[None]:
    """Around a call into somebody else's code: whatever it raises becomes one line that says what it was given."""
    with contained(name, what):
        try:
            yield
        except R2MedError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(f"{name} failed on {what} ({told(error)})") from error


def told(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def accepted(call: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a call takes by keyword."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(arguments)
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return {key: value for key, value in arguments.items() if key in names}


def takes(call: Any, *names: str) -> bool:
    """Whether a call has parameters of all these names."""
    try:
        return set(names) <= set(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        return False
