"""Prompt packs: the task instructions of models, kept as data so that a user can replace them.

name = "my-pack"
[query]
default = "Given a medical question, retrieve …"
"Clinical case" = "Given a case report, retrieve …"
[document]
default = "Represent the passage: "
[model.e5.query]                      # for one model only
default = "…"
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from ..core import DataError
from ..core.files import parse_toml
from .parts import Instructions


class PromptPack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instructions for all models, and for some in particular."""

    name: str = ""
    query: dict[str, str] = {}
    document: dict[str, str] = {}
    model: dict[str, Instructions] = {}

    def instructions(self, model: str, otherwise: Instructions) -> Instructions:
        """Instructions for a model: the pack's lines for it, else the pack's general ones, else the model's own."""
        own = self.model.get(model, Instructions())
        return own.over(Instructions(self.query, self.document)).over(otherwise)


def built_in(name: str) -> PromptPack:
    """A pack that comes with r2med."""
    return msgspec.convert(parse_toml(files(__package__).joinpath(f"packs/{name}.toml").read_text("utf-8")), PromptPack)


def read_pack(path: Path) -> PromptPack:
    """A user's pack; it is called after its file unless it names itself."""
    try:
        pack = msgspec.convert(parse_toml(path.read_text("utf-8")), PromptPack)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read ({reason})", path=path) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"not a prompt pack ({error})", path=path) from None
    if not (pack.query or pack.document or pack.model):
        raise DataError("has no instructions: expected [query], [document] or [model.NAME.query]", path=path)
    return pack if pack.name else msgspec.structs.replace(pack, name=path.stem)
