r"""Prompt packs: what models are told, kept as data so that a user can replace it.

One file, TOML or JSON. A line is for a task (`MedQA-Diag`, or `r2med/MedQA-Diag` for that collection only), for a task
family, or the `default`; the narrowest one that fits is taken, and a pack without one that fits is an error.

    name = "my-pack"
    [query]
    default = "Given a medical question, retrieve …"
    "Clinical case" = "Given a case report, retrieve …"
    MedQA-Diag = "Given an exam question, retrieve …"
    [document]
    default = "Represent the passage: "
    [model.e5]                            # for one model only
    whole = true                          # the lines are all that stands before the text: no template around them
    query.default = "Instruct: …\nQuery: "
    [generate.hyde.MedQA-Diag]            # method, then task, family or default: a prompt as `r2med expand` reads it
    system = "…"
    user = "… {{query}} …"
    [aliases]
    PMC-Treat = "PMC-Treatment"           # other spellings of tasks
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ..core import DataError, Task, UsageError
from ..core.files import home, parse_toml
from ..core.spec import Content
from ..core.untrusted import file_name

if TYPE_CHECKING:
    from .card import Card

PAPER = "r2med-paper"
"""The protocol whose pack is used by itself."""
BUILT_IN = ("describe", "represent")
"""Packs in r2med's own words, which cards name."""
DESCRIBE = BUILT_IN[0]
"""The pack of models that are told in one sentence what to retrieve."""
SENTENCE = re.compile(r"Instruct: (.+)\nQuery: ?")
"""A whole line that holds such a sentence."""
OWN = "r2med's own"
WHOLE = "{instruction}{text}"
"""The template of a line that is all that stands before the text."""
DEFAULT = "default"
SIDES: tuple[Literal["query"], Literal["document"]] = ("query", "document")
T = TypeVar("T")


class Instructions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model is asked, by side and by task or task family; `default` serves those without an own line."""

    query: dict[str, str] = {}
    document: dict[str, str] = {}

    def pick(self, side: str, *names: str | None, pack: str = "") -> str:
        """The line of the first name that has one, else the default; nothing where the side has no lines."""
        lines = self.query if side == "query" else self.document
        return entry_for(lines, names, f"{side} instruction", pack) or ""

    def over(self, other: Instructions) -> Instructions:
        """These lines on top of another's; a side that says anything speaks for all tasks."""
        return Instructions(self.query or other.query, self.document or other.document)


def entry_for(table: Mapping[str, T], names: Sequence[str | None], what: str, pack: str) -> T | None:
    """The entry of the first name that has one, else the default; None where the table is empty.

    Names go from the narrowest to the widest: `r2med/MedQA-Diag`, `MedQA-Diag`, the task's family.
    """
    for name in (*names, DEFAULT):
        if name is not None and name in table:
            return table[name]
    if not table:
        return None
    asked = next((name for name in names if name), "a task without a name")
    raise UsageError(f"prompt pack {pack} has no {what} for {asked} (it has: {', '.join(table)}; none is {DEFAULT!r})")


class ModelLines(Instructions, frozen=True, forbid_unknown_fields=True):
    """The lines of one model."""

    whole: bool = False
    # The lines are all that stands before the text: the model's template is not put around them.


class PromptPack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instructions for all models, and for some in particular; prompts for methods that ask a chat model."""

    name: str = ""
    source: str = ""
    # Where its texts come from.
    query: dict[str, str] = {}
    document: dict[str, str] = {}
    model: dict[str, ModelLines] = {}
    generate: dict[str, dict[str, Any]] = {}
    # Method → a prompt, or task, family or `default` → a prompt.
    aliases: dict[str, str] = {}
    # Other spellings of tasks.

    @property
    def sentences(self) -> dict[str, str]:
        """What queries of each task are told, taken out of the whole lines of one model."""
        for lines in (own.query for own in self.model.values() if own.whole and own.query):
            found = {task: match[1] for task, line in lines.items() if (match := SENTENCE.fullmatch(line))}
            if len(found) == len(lines):
                return found
        return {}

    def speaks_to(self, card: Card) -> bool:
        """Whether it has instructions for a model and the model has a place for them; or sentences that fit there."""
        if card.name in self.model:
            return True
        query = self.query or (card.prompts == DESCRIBE and self.sentences)
        return bool((query and card.instructed("query")) or (self.document and card.instructed("document")))

    def applied(self, card: Card) -> Card:
        """A card with the pack's instructions: its lines for the model, else its general ones, else the model's own."""
        if not self.speaks_to(card):
            known = ", ".join(self.model) or "no model"
            raise UsageError(f"prompt pack {self.name} has no instructions for {card.name} (it has some for {known})")
        own = self.model.get(card.name, ModelLines())
        if own.whole:
            templates = {f"{side}_template": WHOLE for side in SIDES if getattr(own, side)}
            merged = own.over(card.instructions)
            return card.replace(prompts=self.name, instructions=merged, **templates)
        for side in SIDES:
            if getattr(own, side) and not card.instructed(side):
                raise UsageError(
                    f"prompt pack {self.name} has a {side} instruction for {card.name}, whose template has no place "
                    f"for it: whole = true lets it stand before the text"
                )
        query = self.query
        if not query and card.name not in self.model and card.prompts == DESCRIBE:
            query = self.sentences
        merged = own.over(Instructions(query, self.document)).over(card.instructions)
        return card.replace(prompts=self.name, instructions=merged)

    def prompt(self, method: str, names: Sequence[str]) -> Mapping[str, Any] | None:
        """The prompt of a method for a task, named as in `entry_for`; None where the pack has none for the method."""
        table = self.generate.get(method, {})
        if isinstance(table.get("user"), str):
            return table
        found = entry_for(table, names, f"{method} prompt", self.name)
        if found is not None and not isinstance(found, dict):
            raise DataError(f"prompt pack {self.name}: generate.{method} holds {found!r}, not a prompt")
        return found


def built_in(name: str) -> PromptPack:
    """A pack that comes with r2med."""
    return msgspec.convert(parse_toml(files(__package__).joinpath(f"packs/{name}.toml").read_text("utf-8")), PromptPack)


def read_pack(path: Path) -> PromptPack:
    """A user's pack; it is called after its file unless it names itself."""
    try:
        text = path.read_text("utf-8")
        data = msgspec.json.decode(text) if path.suffix == ".json" else parse_toml(text)
        pack = msgspec.convert(data, PromptPack)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read ({reason})", path=path) from None
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DataError(f"not a prompt pack ({error})", path=path) from None
    if not (pack.query or pack.document or pack.model or pack.generate):
        raise DataError(
            "has no instructions: expected [query], [document], [model.NAME] or [generate.METHOD]", path=path
        )
    for alias, task in pack.aliases.items():
        if not _add_alias(pack, alias, task):
            raise DataError(f"calls {task!r} also {alias!r}, and has no line for {task!r}", path=path)
    return pack if pack.name else msgspec.structs.replace(pack, name=path.stem)


def holds_pack(path: Path) -> bool:
    """Whether a file is a prompt pack, and not one prompt or a folder of them."""
    if not path.is_file():
        return False
    try:
        text = path.read_text("utf-8")
        data = msgspec.json.decode(text) if path.suffix == ".json" else parse_toml(text)
    except (OSError, ValueError, RecursionError):
        return path.suffix == ".json"
    return isinstance(data, dict) and "user" not in data


def _add_alias(pack: PromptPack, alias: str, task: str) -> bool:
    """Put what stands for a task under its other spelling too; False where nothing stands for it."""
    lines = [pack.query, pack.document, *(side for own in pack.model.values() for side in (own.query, own.document))]
    found = [table for table in (*lines, *pack.generate.values()) if task in table]
    for table in found:
        table.setdefault(alias, table[task])
    return bool(found)


def names_of(task: Task) -> tuple[str, str, str]:
    """What a pack may call a task, the narrowest name first."""
    return task.full_name, task.name, task.family


def pack_place(protocol: str) -> Path:
    """Where the pack of a protocol lies once it was fetched."""
    return home() / "prompts" / f"{file_name(protocol)}.json"


def pack_of(protocol: str) -> Content | None:
    """The pack of a protocol, where it was fetched."""
    place = pack_place(protocol)
    return Content.of(place) if place.is_file() else None


def own_wording(card: Card) -> bool:
    """Whether a model is instructed in r2med's words."""
    return card.takes_instructions and card.prompts in BUILT_IN


def wording(card: Card, pack: Content | None = None) -> str:
    """Whose words a model is instructed in: a pack's (with its hash), r2med's, its own; empty: it takes none."""
    if not card.takes_instructions:
        return ""
    if pack is not None:
        return f"{pack.label}~{pack.whole or pack.digest}"
    return OWN if own_wording(card) else "the model's own"
