"""Prompts as data: TOML files with named gaps.

A gap is written `{{name}}` and filled once, in one pass: braces, tags or another gap's name inside a query or a
passage stay what they are, text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ..core import DataError, UsageError, fingerprint
from ..core.files import parse_toml
from .protocol import Message

_GAP = re.compile(r"\{\{([a-z_]+)\}\}")
FAMILIES = {"Q&A reference": "qa-reference", "Clinical evidence": "clinical-evidence", "Clinical case": "clinical-case"}
DEFAULT_FAMILY = "qa-reference"
"""For a folder of the user's own, which has no family."""


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worked example of a few-shot prompt."""

    query: str
    passage: str


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
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
    # How one passage is written.
    hint: str = "[{{number}}] (score {{score}} of 100) {{passage}}"
    # The same with the score of the first stage.
    condense: str = ""
    # Asks for the gist of search results.
    again: str = ""
    # The request of later rounds, with the answer of the round before in {{previous}}; none: `user` again.
    limit: str = ""
    # What an agent is told when its searches are used up.
    max_tokens: int | None = None
    # Room for the answer; None: the method's own.
    shown: str = ""
    # Worked examples as one finished text, in place of `examples`; not checked against the evaluated queries.
    between: str = "\n\n"
    # What stands between two passages.
    exact: bool = False
    # Blanks and line breaks at the ends of a text are kept.

    @property
    def hash(self) -> str:
        """Fingerprint of all of it."""
        return fingerprint("prompt", msgspec.to_builtins(self))

    def messages(self, **values: str) -> tuple[Message, ...]:
        """The conversation that opens a request."""
        system = (Message("system", self.filled(self.system, **values)),) if self.system else ()
        return (*system, Message("user", self.filled(self.user, **values)))

    def later(self, **values: str) -> tuple[Message, ...]:
        """The conversation of a request in a later round."""
        return msgspec.structs.replace(self, user=self.again or self.user).messages(**values)

    def filled(self, template: str, **values: str) -> str:
        """One of its texts with the gaps filled."""
        return fill(template, exact=self.exact, **values)

    def numbered(self, passages: Sequence[str], scores: Sequence[int] | None = None) -> str:
        """Passages with their numbers, and with first-stage scores where they are given."""
        lines = [
            self.filled(self.passage, number=str(i), passage=passage)
            if scores is None
            else self.filled(self.hint, number=str(i), passage=passage, score=str(scores[i - 1]))
            for i, passage in enumerate(passages, start=1)
        ]
        return self.between.join(lines)


def fill(template: str, *, exact: bool = False, **values: str) -> str:
    """Replace each gap once; what comes in is never read as a template."""

    def put(gap: re.Match[str]) -> str:
        if gap[1] not in values:
            raise UsageError(f"the prompt has a gap {gap[0]} that is not filled here ({', '.join(values)})")
        return values[gap[1]]

    filled = _GAP.sub(put, template)
    return filled if exact else filled.strip()


def built_in(package: str, name: str, *, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt that comes with r2med: `name` is its path below the package's `prompts` folder."""
    return _parse(files(package).joinpath("prompts", *f"{name}.toml".split("/")).read_bytes(), f"{name}.toml", gaps)


def read_prompt(path: Path, *, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt file of the user's own."""
    try:
        return _parse(path.read_bytes(), str(path), gaps)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None


def _parse(data: bytes, place: str, gaps: Sequence[str]) -> Prompt:
    try:
        table = parse_toml(data.decode())
    except ValueError as error:  # of the encoding, of TOML
        raise DataError(f"is no prompt ({error})", path=place) from None
    return prompt_from(table, place, gaps)


def prompt_from(table: Mapping[str, Any], place: str, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt from the table that a file or a prompt pack holds."""
    try:
        prompt = msgspec.convert(table, Prompt)
    except ValueError as error:
        raise DataError(f"is no prompt ({error})", path=place) from None
    if lacking := next((gap for gap in gaps if f"{{{{{gap}}}}}" not in prompt.user), None):
        raise DataError(f"is no prompt: `user` does not hold {{{{{lacking}}}}}", path=place)
    if "{{passage}}" not in prompt.passage or "{{passage}}" not in prompt.hint:
        raise DataError("is no prompt: `passage` and `hint` must hold {{passage}}", path=place)
    return prompt
