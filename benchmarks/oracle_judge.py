"""A chat model that knows the judgments and errs as it is told to: grades are flipped, or it likes what stands first.

Queries and passages are shown to it by number (`query 3`, `passage 17`), so that it can look their grades up.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from r2med.core import Document, Documents, Query, Run, Task, fingerprint
from r2med.core.budget import Usage
from r2med.core.spec import Spec
from r2med.llm import Chat, Choice, Estimate, Reply, Request, Sampling
from r2med.llm.protocol import OnReply, OnSend
from r2med.pipeline import Builder

QUERY = re.compile(r"query (\d+)")
PASSAGE = re.compile(r"(?:\[\d+\] )?(?:\(.*?(\d+) of 100\) )?passage (\d+)")
HINT_WEIGHT = 0.25
"""How much of a first-stage score, from 0 to 1, the judge adds to a grade where the prompt shows such scores."""


class Flaw(NamedTuple):
    """How a judge errs."""

    noise: float = 0.0
    """The chance that a grade is mirrored on its scale: relevant becomes irrelevant, and the reverse."""
    fixed: bool = False
    """Whether a passage is misjudged always or never, instead of anew in each answer."""
    bias: float = 0.0
    """What is added to the grade of the passage that stands first; nothing to the last one, evenly between."""


class Shown(NamedTuple):
    """A passage as a prompt shows it."""

    document: int
    hint: float | None


class Oracle:
    """Answers about the passages of a task, in the form that a method asks for."""

    marking, warning = "none", ""
    defaults = Sampling()

    def __init__(self, grades: Sequence[dict[int, float]], flaw: Flaw, form: str, seed: int) -> None:
        """`grades` has, for each query, documents with their grades from 0 to 1."""
        self.grades, self.flaw, self.form, self.seed = grades, flaw, form, seed
        self.usage = Usage()
        self.spec = Spec("openai", "oracle")
        self.name = str(self.spec)
        self.read = 0  # passages read in all

    def describe(self) -> dict[str, object]:
        """How it errs, and what it knows: queries and passages have the same numbers in every set."""
        known = fingerprint("grades", [sorted(grades.items()) for grades in self.grades])
        return {"backend": "oracle", **self.flaw._asdict(), "seed": self.seed, "grades": known}

    def complete(
        self, requests: Iterable[Request], on_reply: OnReply | None = None, on_send: OnSend | None = None
    ) -> Iterator[Reply]:
        del on_send
        for request in requests:
            reply = self.complete_one(request)
            if on_reply is not None:
                on_reply(request, reply)
            yield reply

    def complete_one(self, request: Request, on_send: OnSend | None = None) -> Reply:
        del on_send
        text = request.messages[-1].content
        match = QUERY.search(text)
        assert match
        shown = [Shown(int(m[2]), int(m[1]) / 100 if m[1] else None) for m in PASSAGE.finditer(text)]
        self.usage.add(calls=request.sampling.n)
        self.read += len(shown) * request.sampling.n
        samples = range(request.sample, request.sample + request.sampling.n)
        choices = tuple(Choice(FORMS[self.form](self._worth(int(match[1]), shown, sample))) for sample in samples)
        return Reply(key=request.key, choices=choices, cost=0.0, model=self.name)

    def _worth(self, query: int, shown: list[Shown], sample: int) -> list[float]:
        """What the judge believes each passage to be worth."""
        call = "/".join(str(one.document) for one in shown) if not self.flaw.fixed else ""
        worth = []
        for place, (document, hint) in enumerate(shown):
            grade = self.grades[query].get(document, 0.0)
            if self.flaw.noise and self._drawn(query, document, sample, call) < self.flaw.noise:
                grade = 1 - grade
            early = 1 - place / (len(shown) - 1) if len(shown) > 1 else 0.0
            worth.append(grade + self.flaw.bias * early + HINT_WEIGHT * (hint or 0.0))
        return worth

    def _drawn(self, query: int, document: int, sample: int, call: str) -> float:
        """A number from 0 to 1 for this judgment; the same question has the same answer."""
        which = (
            f"{self.seed}/{query}/{document}" if self.flaw.fixed else f"{self.seed}/{query}/{document}/{sample}/{call}"
        )
        return int.from_bytes(hashlib.blake2b(which.encode(), digest_size=7).digest(), "big") / 2**56

    def estimate(self, request: Request) -> Estimate:
        return Estimate(calls=request.sampling.n, prompt_tokens=0, completion_tokens=0, cost=0.0)

    def check(self) -> None:
        """Nothing can be missing."""

    def close(self) -> None:
        """Nothing is held."""


def order(worth: list[float]) -> str:
    return " > ".join(f"[{i + 1}]" for i in sorted(range(len(worth)), key=lambda i: -worth[i]))


def choice(worth: list[float]) -> str:
    return f"<answer>[{worth.index(max(worth)) + 1}]</answer>"


def group(worth: list[float]) -> str:
    return json.dumps({f"[{i}]": round(10 * min(max(value, 0.0), 1.0)) for i, value in enumerate(worth, start=1)})


def verdict(worth: list[float]) -> str:
    return "yes" if worth[0] >= 0.5 else "no"


def grade(worth: list[float]) -> str:
    return f"<answer>{round(10 * min(max(worth[0], 0.0), 1.0))}</answer>"


FORMS: dict[str, Callable[[list[float]], str]] = {f.__name__: f for f in (order, choice, group, verdict, grade)}


class OracleBuilder(Builder):
    """Makes rerankers that ask the oracle, whatever chat model they name."""

    def __init__(self, oracle: Chat) -> None:
        super().__init__()
        self.oracle = oracle

    def chat(self, spec: Spec) -> Chat:
        return self.oracle


def by_number(task: Task) -> Task:
    """The same task with numbers instead of texts."""
    queries = tuple(Query(query.id, f"query {i}") for i, query in enumerate(task.queries))
    documents = Documents.of(Document(d, f"passage {i}") for i, d in enumerate(task.documents.ids))
    return replace(task, queries=queries, documents=documents)


def grades_of(task: Task, run: Run) -> list[dict[int, float]]:
    """Grades of each query's candidates as shares of the task's highest."""
    highest = max(judgment.grade for judgment in task.qrels)
    found = []
    for row, query in enumerate(task.queries):
        judged = task.qrels.of(query.id)
        docs = run.docs[row][np.asarray(run.docs[row]) >= 0].tolist()
        found.append({d: max(judged.get(run.doc_ids[d], 0), 0) / highest for d in docs})
    return found
