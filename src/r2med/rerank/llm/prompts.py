"""Prompts as data: one TOML file per method, with named gaps.

A gap is written `{{name}}` and filled once: braces or tags inside a query or a passage stay what they are, text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from ...core import DataError, UsageError, fingerprint
from ...llm import Message

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_GAP = re.compile(r"\{\{([a-z_]+)\}\}")


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model is told."""

    user: str
    # The request; has the gaps query, passages and count.
    system: str = ""
    # Who the model is asked to be.
    passage: str = "[{{number}}] {{passage}}"
    # How a passage is written.
    hint: str = "[{{number}}] (score {{score}} of 100) {{passage}}"
    # The same with what the first stage thought of it.
    max_tokens: int = 512
    # Room for the answer.

    def __post_init__(self) -> None:
        """What a prompt must hold to be of any use."""
        for gap in ("{{query}}", "{{passages}}"):
            if gap not in self.user:
                raise ValueError(f"`user` has no {gap}")
        if any("{{passage}}" not in line for line in (self.passage, self.hint)):
            raise ValueError("`passage` and `hint` must hold {{passage}}")

    @property
    def hash(self) -> str:
        """Fingerprint of all of it."""
        return fingerprint("prompt", msgspec.to_builtins(self))

    def messages(self, query: str, passages: Sequence[str], scores: Sequence[int] | None = None) -> tuple[Message, ...]:
        """The conversation about some passages; with `scores`, the first stage's hints."""
        lines = [
            fill(self.passage, number=str(i), passage=passage)
            if scores is None
            else fill(self.hint, number=str(i), passage=passage, score=str(scores[i - 1]))
            for i, passage in enumerate(passages, start=1)
        ]
        user = fill(self.user, query=query, passages="\n\n".join(lines), count=str(len(lines)))
        system = (Message("system", self.system.strip()),) if self.system.strip() else ()
        return (*system, Message("user", user))


def fill(template: str, **values: str) -> str:
    """Replace each gap once; what comes in is never read as a template."""

    def put(gap: re.Match[str]) -> str:
        if gap[1] not in values:
            raise UsageError(f"the prompt has a gap {gap[0]} that is not filled here ({', '.join(values)})")
        return values[gap[1]]

    return _GAP.sub(put, template).strip()


def load_prompt(method: str, path: Path | None = None) -> Prompt:
    """The prompt of a method: ours, or the user's file."""
    try:
        data = path.read_bytes() if path else files("r2med.rerank").joinpath("prompts", f"{method}.toml").read_bytes()
        return msgspec.convert(tomllib.loads(data.decode()), Prompt)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path or method) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is no prompt for reranking ({error})", path=path or method) from None
