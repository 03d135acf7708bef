"""Reranking by groups: a chat model grades every passage of a group, and groups are drawn anew several times.

All groups are independent of each other, so all of them are asked at once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..core import UsageError, fingerprint
from ..core.columns import Int64
from ..core.options import Options
from ..core.spec import Spec
from ..llm import Chat, Generation, GenerationStore, Request, generate, unless_read
from ..llm.grades import read_grades
from .asking import Hints, MaxTokens, OwnPrompt, Passages, PassageWords, count_problem, scaled
from .chat_lists import ChatListReranker, Ranked
from .contract import rerankers
from .ordering import order_row, tied

SCALE = 10
GROUP_PASSAGE_WORDS = 450
"""About 3,000 characters."""
TOP = 10
"""Ranks within which orders are compared."""


class Group(NamedTuple):
    """Some candidates of one query that are graded together."""

    row: int
    repeat: int
    places: list[int]


@rerankers.register("grouprank", argument="chat", needs_argument=True)
class GroupRank(ChatListReranker):
    """A chat model grades groups of passages from 0 to 10; the mean over shuffles counts (GroupRank, 2025)."""

    kind = "groupwise"
    prompt_name = "grouprank"

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        group: Annotated[int, Meta(ge=1, description="passages that are graded together")] = 20,
        repeats: Annotated[
            int, Meta(ge=1, description="times all candidates are graded, in other groups each time")
        ] = 1,
        shuffle: Annotated[bool, Meta(description="draw groups at random instead of in first-stage order")] = True,
        seed: Annotated[int, Meta(ge=0, description="of the shuffles")] = 0,
        hints: Hints = False,
        passage_words: PassageWords = GROUP_PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        if not shuffle and (repeats > 1 or seed):
            raise UsageError("grouprank with shuffle=no asks the same however often and with whatever seed")
        self.group, self.repeats, self.shuffle, self.seed = group, repeats, shuffle, seed
        super().__init__(
            chat, spec, options, hints=hints, passage_words=passage_words, max_tokens=max_tokens, prompt=prompt
        )

    def shape(self) -> dict[str, object]:
        """How groups are drawn."""
        return {"group": self.group, "repeats": self.repeats, "shuffle": self.shuffle, "seed": self.seed}

    def gaps(self) -> dict[str, str]:
        """The highest grade."""
        return {"scale": str(SCALE)}

    def score(self, passages: Passages, depth: int, store: GenerationStore, counts: Counter[str]) -> Ranked:
        """The mean grade of each candidate over all shuffles, as a share of the highest; NaN where it has none."""
        candidates = passages.candidates
        lengths = np.minimum(candidates.lengths(), depth).tolist()
        hints = scaled(candidates, depth) if self.hints else None
        groups: dict[str, Group] = {}
        for row, query in enumerate(passages.task.queries):
            for group in self.groups(row, query.id, lengths[row]):
                docs = candidates.docs[row, group.places].tolist()
                # A recorded answer is about these passages in this order, and no other group's.
                shown = fingerprint("group", [candidates.doc_ids[doc] for doc in docs])
                groups[f"{query.id}#{group.repeat}.{shown[:16]}"] = group

        def requests() -> Iterator[Request]:
            for key, group in groups.items():
                yield self.request(passages, group.row, group.places, key, hints)

        def status(answer: Generation) -> str:
            return unless_read(answer, read_grades(answer.final, len(groups[answer.query_id].places), SCALE).read)

        counts["asked"] = len(groups)
        grades = np.full((self.repeats, len(candidates), min(depth, candidates.depth)), np.nan, dtype=np.float32)
        arriving = generate(self.chat, requests(), store, clean=False, status=status)
        for done, answer in enumerate(arriving, start=1):
            group = groups[answer.query_id]
            values = self._grades(answer, len(group.places), counts)
            grades[group.repeat, group.row, group.places] = [np.nan if v is None else v / SCALE for v in values]
            self.options.progress(done, len(groups))
        return mean_of_repeats(grades, lengths)

    def groups(self, row: int, query_id: str, count: int) -> list[Group]:
        """The groups of a query, for all repeats; its shuffles do not depend on the other queries."""
        found = []
        for repeat in range(self.repeats):
            order = shuffled(query_id, count, self.seed, repeat) if self.shuffle else list(range(count))
            found += [Group(row, repeat, order[start : start + self.group]) for start in range(0, count, self.group)]
        return found

    def _grades(self, answer: Generation, size: int, counts: Counter[str]) -> list[float | None]:
        """The grades that an answer gives; a passage without one keeps its place in the first stage's order."""
        count_problem(answer, counts)
        if answer.status == "failed":
            return [None] * size
        grades = read_grades(answer.final, size, SCALE)
        counts["unparsed" if not grades.read else "mended" if grades.mended else "ok"] += 1
        for name in ("repeated", "unknown", "missing", "out_of_range"):
            counts[f"numbers_{name}"] += getattr(grades, name)
        return grades.values


def shuffled(query_id: str, count: int, seed: int, repeat: int) -> list[int]:
    """Places in an order that depends on the query, the seed and the repeat alone, on every machine."""

    def drawn(place: int) -> bytes:
        return hashlib.blake2b(f"{seed}/{repeat}/{place}/{query_id}".encode(), digest_size=16).digest()

    return sorted(range(count), key=drawn)


def mean_of_repeats(grades: npt.NDArray[np.float32], lengths: list[int]) -> Ranked:
    """Mean grades over repeats (repeats × queries × places), and what they say of the judge.

    `no_grade`: candidates that no repeat graded. `tied`: those whose grade another candidate of the query has too.
    `order_sensitivity`: Kendall's tau between the orders of one repeat and the next (1: the same order), and the share
    of the first ten that both have, as means over queries.
    """
    given = ~np.isnan(grades)
    total, times = np.where(given, grades, 0).sum(axis=0, dtype=np.float64), given.sum(axis=0)
    mean = np.where(times > 0, total / np.maximum(times, 1), np.nan).astype(np.float32)
    notes: dict[str, object] = {
        "no_grade": sum(int(np.isnan(mean[row, :length]).sum()) for row, length in enumerate(lengths)),
        "tied": sum(tied(mean[row, :length]) for row, length in enumerate(lengths)),
    }
    if len(grades) > 1:
        pairs = [
            (order_row(one[row, :length])[0], order_row(other[row, :length])[0])
            for one, other in pairwise(grades)
            for row, length in enumerate(lengths)
            if length > 1
        ]
        shared = [len(set(a[:TOP].tolist()) & set(b[:TOP].tolist())) / min(TOP, len(a)) for a, b in pairs]
        notes["order_sensitivity"] = {
            "kendall_tau": round(float(np.mean([kendall_tau(a, b) for a, b in pairs])), 4) if pairs else None,
            f"first_{TOP}_shared": round(float(np.mean(shared)), 4) if pairs else None,
        }
    return Ranked(mean, notes)


def kendall_tau(one: Int64, other: Int64) -> float:
    """Kendall's tau of two orders of the same places: 1 for equal ones, -1 for one turned round."""
    count = len(one)
    rank = np.empty(count, dtype=np.int64)
    rank[other] = np.arange(count)
    second = rank[one]
    swapped = np.triu(second[:, None] > second[None, :], k=1).sum()
    return float(1 - 4 * swapped / (count * (count - 1)))
