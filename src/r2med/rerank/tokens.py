"""Pairs as tokens: each text tokenized once, put together as the model's own template does, the query kept whole.

A query stands in a hundred pairs. Tokenizing pairs as pairs would read it a hundred times; tokenizers treat the two
halves of a pair apart anyway, so the ids are the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import ModelError


class PairIds:
    """What the model sees of a pair."""

    __slots__ = ("cut", "ids", "second")

    def __init__(self, ids: list[int], second: int, cut: tuple[int, int]) -> None:
        self.ids = ids
        self.second = second
        """Where the second segment begins; the number of tokens if there is only one."""
        self.cut = cut
        """Tokens of document and query that were cut off."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def types(self) -> list[int]:
        """Segment of each token."""
        return [0] * self.second + [1] * (len(self.ids) - self.second)


class Template(NamedTuple):
    """The special tokens around and between two texts."""

    before: list[int]
    between: list[int]
    after: list[int]
    second_segment: int | None
    """How many tokens of `between` belong to the first segment; None: one segment for all."""

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return len(self.before) + len(self.between) + len(self.after)


class Text(NamedTuple):
    """A tokenized text, no longer than a model could take, and its whole length."""

    ids: list[int]
    total: int


def document_floor(limit: int) -> int:
    """Tokens a document keeps even beside a query that would fill the model: an eighth of it, 16 at least."""
    return max(16, limit // 8)


class PairTokenizer:
    """Builds pairs with a `tokenizers.Tokenizer`, whichever library loaded it."""

    def __init__(self, tokenizer: Any, limit: int, name: str) -> None:
        # Whoever saved it may have left their padding and truncation in it; both are ours to decide.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.limit = limit
        self.template = read_template(tokenizer, name)
        if limit < self.template.size + 2:
            raise ModelError(f"{name}: a maximum length of {limit} tokens leaves no room for a pair of texts")

    def texts(self, texts: list[str]) -> list[Text]:
        """Ids without special tokens."""
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [Text(e.ids[: self.limit], len(e.ids)) for e in encoded]

    def pair(self, query: Text, document: Text) -> PairIds:
        """Both texts within the limit: the document gives way first, down to a floor, then the query."""
        before, between, after, segment = self.template
        room = self.limit - self.template.size
        kept = min(query.total, max(room - min(document.total, document_floor(self.limit)), 1))
        shown = min(document.total, room - kept)
        first = len(before) + kept
        ids = [*before, *query.ids[:kept], *between, *document.ids[:shown], *after]
        second = len(ids) if segment is None else first + segment
        return PairIds(ids, second, (document.total - shown, query.total - kept))


def read_template(tokenizer: Any, name: str) -> Template:
    """The template, read off a pair that the tokenizer makes itself."""
    made = tokenizer.encode("a", "b")
    sides, ids, types = made.sequence_ids, made.ids, made.type_ids
    left = [i for i, side in enumerate(sides) if side == 0]
    right = [i for i, side in enumerate(sides) if side == 1]
    if not left or not right or left[-1] > right[0]:
        raise ModelError(f"the tokenizer of {name} does not make pairs of texts")
    between = slice(left[-1] + 1, right[0])
    segment = None if types[right[0]] == types[left[0]] else types[between].count(types[left[0]])
    return Template(ids[: left[0]], ids[between], ids[right[-1] + 1 :], segment)
