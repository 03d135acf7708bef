"""Prompts as data: one TOML file per method and task family, with named gaps.

A gap is written `{{name}}`. Only the gaps a method fills are replaced, once, in one pass over the template: braces,
tags or another gap's name inside a query or a passage stay what they are, text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import msgspec

from ..core import DataError, UsageError, fingerprint
from ..core.toml import loads
from ..llm import Message

_GAP = re.compile(r"\{\{([a-z_]+)\}\}")
FAMILIES = {"Q&A reference": "qa-reference", "Clinical evidence": "clinical-evidence", "Clinical case": "clinical-case"}
DEFAULT_FAMILY = "qa-reference"
"""For a folder of the user's own, whose family nobody knows."""


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worked example of a few-shot prompt."""

    query: str
    passage: str


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model is told; every field may have gaps."""

    user: str
    # The request itself.
    system: str = ""
    # Who the model is asked to be.
    example: str = ""
    # How one few-shot example is written.
    examples: tuple[Example, ...] = ()
    # Worked examples, checked against the evaluated queries before use.
    passage: str = "[{{number}}] {{passage}}"
    # How one retrieved passage is written.
    condense: str = ""
    # Asks for the gist of search results (search-o1).
    limit: str = ""
    # What an agent is told when its searches are used up.

    @property
    def hash(self) -> str:
        """Fingerprint of all of it."""
        return fingerprint("prompt", msgspec.to_builtins(self))

    def messages(self, **values: str) -> tuple[Message, ...]:
        """The conversation that opens a request."""
        system = (Message("system", fill(self.system, **values)),) if self.system else ()
        return (*system, Message("user", fill(self.user, **values)))


def fill(template: str, **values: str) -> str:
    """Replace each gap once; what comes in is never read as a template."""

    def put(gap: re.Match[str]) -> str:
        if gap[1] not in values:
            raise UsageError(f"the prompt has a gap {gap[0]} that this method does not fill ({', '.join(values)})")
        return values[gap[1]]

    return _GAP.sub(put, template).strip()


def load_prompt(method: str, family: str, pack: Path | None = None) -> Prompt:
    """The prompt for a method and a task family: the user's, where a pack is given, else ours.

    A pack is one file (used for everything), a folder of `<family>.toml`, or a folder of `<method>/<family>.toml`.
    """
    slug = FAMILIES.get(family, DEFAULT_FAMILY)
    if pack is None:
        own = files(__package__).joinpath("prompts", method, f"{slug}.toml")
        return _parse(own.read_bytes(), f"{method}/{slug}.toml", method)
    if pack.is_file():
        return _read(pack, method)
    if not pack.is_dir():
        raise DataError("there is no such prompt file or folder", path=pack)
    tried = [pack / method / f"{slug}.toml", pack / f"{slug}.toml", pack / f"{method}.toml"]
    for candidate in tried:
        if candidate.is_file():
            return _read(candidate, method)
    raise DataError(f"holds no prompt for {method} on {slug} (looked for {method}/{slug}.toml, {slug}.toml)", path=pack)


def prompt_hashes(method: str, pack: Path | None = None) -> dict[str, str]:
    """Fingerprints of a method's prompts by task family; a pack of the user's own need not have them all."""
    hashes = {}
    for family, slug in FAMILIES.items():
        with suppress(DataError):
            hashes[slug] = load_prompt(method, family, pack).hash
    return hashes


def _read(path: Path, method: str) -> Prompt:
    try:
        return _parse(path.read_bytes(), str(path), method)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None


def _parse(data: bytes, place: str, method: str) -> Prompt:
    try:
        prompt = msgspec.convert(loads(data.decode()), Prompt)
    except (UnicodeDecodeError, ValueError, msgspec.ValidationError) as error:
        raise DataError(f"is no prompt for {method} ({error})", path=place) from None
    if "{{query}}" not in prompt.user:
        raise DataError("a prompt must hold {{query}} in `user`", path=place)
    return prompt
