"""`concepts`: expansion without an LLM.

Medical concepts in the query are written out: their preferred names, other names, what abbreviations stand for, and the
diseases that several findings together point to. The same query always gives the same words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core import Query, Task
from .normalise import tokens
from .protocol import FREE, Plan, Progress
from .values import Expansion, Expansions
from .vocabulary import Mention, Vocabulary, differential, find_mentions, load_vocabulary
from .vocabulary.fetch import identity
from .vocabulary.match import find_abbreviations

EMPTY = "empty"


class Concepts:
    """The expander."""

    method = "concepts"
    warning = ""

    def __init__(
        self, *, synonyms: int = 2, diseases: int = 3, abbreviations: bool = True, vocabulary: Vocabulary | None = None
    ) -> None:
        self.synonyms = synonyms
        self.diseases = diseases
        self.abbreviations = abbreviations
        self._vocabulary = vocabulary
        default = (synonyms, diseases, abbreviations) == (2, 3, True)
        self.name = self.method if default else f"{self.method}:synonyms={synonyms},diseases={diseases}"

    @property
    def vocabulary(self) -> Vocabulary:
        """Fetched and built when it is first needed."""
        if self._vocabulary is None:
            self._vocabulary = load_vocabulary()
        return self._vocabulary

    def describe(self) -> dict[str, object]:
        return {
            "method": self.method,
            "synonyms": self.synonyms,
            "diseases": self.diseases,
            "abbreviations": self.abbreviations,
            "vocabulary": identity(),
        }

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        return FREE

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        items, queries = {}, task.queries[:limit]
        for number, query in enumerate(queries, start=1):
            items[query.id] = self.expand_query(query)
            if on_progress:
                on_progress(number, len(queries))
        with_concepts = sum(item.usable for item in items.values())
        return Expansions(self.method, self.describe(), items, {"queries_with_new_words": with_concepts})

    def expand_query(self, query: Query) -> Expansion:
        """Words that the query does not have yet, as one text."""
        mentions = find_mentions(self.vocabulary, query.text)
        asserted = [m for m in mentions if not m.negated]
        shorts = find_abbreviations(self.vocabulary, query.text) if self.abbreviations else {}
        findings = [m.concept.id for m in asserted if m.concept.kind == "finding"]
        suspects = differential(self.vocabulary, findings, most=self.diseases) if self.diseases else []
        phrases = [*shorts.values(), *self._names(asserted), *(s.name for s in suspects)]
        text = " ".join(new_phrases(phrases, query.text))
        return Expansion(
            query_id=query.id,
            original=query.text,
            texts=(text,) if text else (),
            statuses=("ok" if text else EMPTY,),
            notes={
                "concepts": list(dict.fromkeys(m.concept.name for m in asserted)),
                "denied": list(dict.fromkeys(m.concept.name for m in mentions if m.negated)),
                "abbreviations": shorts,
                "diseases": [s.name for s in suspects],
            },
        )

    def _names(self, mentions: Iterable[Mention]) -> Iterable[str]:
        for mention in mentions:
            yield mention.concept.name
            yield from mention.concept.synonyms[: self.synonyms]


def new_phrases(phrases: Iterable[str], text: str) -> list[str]:
    """Phrases that bring at least one word which neither the text nor an earlier phrase has."""
    known = set(tokens(text))
    kept = []
    for phrase in phrases:
        words = set(tokens(phrase))
        if words - known:
            kept.append(phrase)
            known |= words
    return kept
