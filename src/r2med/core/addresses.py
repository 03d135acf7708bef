"""`module:attr`: from an address to the thing behind it, made where it is a class or a factory."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from .containing import contained
from .errors import ModelError, R2MedError, UsageError
from .objects import told


def resolve(address: str) -> Any:
    """The object at `module:attr`; modules of the current folder count, as they do for `python -m`."""
    module, _, attribute = address.partition(":")
    if not attribute:
        raise UsageError(f"{address!r} is not an address: expected module:attr")
    found: Any = _module(module, address)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{address}: {module} has no {attribute}")
        found = getattr(found, part)
    return made(found, address)


def made(found: Any, label: str) -> Any:
    """What a class or a factory gives when called without arguments; anything else is the thing itself.

    A function that needs an argument is no factory: it encodes, scores or expands.
    """
    if not (inspect.isclass(found) or (inspect.isroutine(found) and not _needs_arguments(found))):
        return found
    with contained(label, "being made"):
        try:
            return found()
        except R2MedError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(f"{label} cannot be made ({told(error)})") from error


def _needs_arguments(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters)


def _module(name: str, address: str) -> Any:
    top = name.partition(".")[0]
    here = Path.cwd()
    if (
        top not in sys.modules
        and ((here / f"{top}.py").is_file() or (here / top).is_dir())
        and str(here) not in sys.path
    ):
        sys.path.append(str(here))  # last: a file here never hides an installed package
    with contained(address, "being imported"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise UsageError(f"{address}: {error}") from None
        except (Exception, SystemExit) as error:
            raise UsageError(f"{address}: {name} cannot be imported ({told(error)})") from error
