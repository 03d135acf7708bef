"""Methods that search before they ask a chat model: LameR once, ThinkQE and DIVER in rounds.

In rounds a model is asked again with what a search by its last answer found. All queries go through a round together:
one search, then their calls side by side. Every answer is kept in the generation store under `query#round`, so that a
loop that was stopped goes on where it was; what a loop came to is kept under the query's own id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from ..core import Query, Task, UsageError
from ..core.options import Names, Options, Progress
from ..core.queries import Queries
from ..core.spec import Spec
from ..llm import Chat, Cost, Generation, GenerationStore, Request, generate, plan_requests
from ..llm.protocol import Prompt
from ..retrieve import Build, Index, Retriever, get_retriever, retrievers
from .contract import JOINED, OTHER, Expansion, Expansions, expanders
from .generated import (
    FIRST_STAGE,
    PASSAGE_WORDS,
    Generated,
    GenerationParameters,
    Prepared,
    expansion_of,
    prompt_wording,
    store_notes,
)
from .policy import queries_for
from .prompting import contents_of, render_passages

THINKING_TOKENS = 32_768
"""Room for a reasoning model, as both methods' scripts gave it."""


class SearchesFirst(Generated):
    """A method whose prompts show what a first stage found, with the query or with what methods before it made."""

    given: LamerParameters | RoundParameters
    before: Expansions | None = None

    def equip(self, build: Build) -> None:
        """The first stage."""
        self.retriever = build.retriever(self.given.retriever)
        self.spec = expanders.changed(self.spec, retriever=self.retriever.spec)

    @cached_property
    def retriever(self) -> Retriever:
        """The first stage."""
        return get_retriever(self.given.retriever)

    def task_facts(self, task: Task) -> dict[str, object]:
        """The prompt of a task, and what else the first stage's ranking of it depends on."""
        first = self.retriever.task_facts(task)
        return {**super().task_facts(task), **({"first_stage": first} if first else {})}

    def after(self, before: Expansions) -> SearchesFirst:
        """The first stage searches with what other methods made."""
        behind = copy(self)
        behind.before = before
        return behind

    def settings_before(self) -> dict[str, object]:
        """What stands before the method, where anything does."""
        return {} if self.before is None else {"after": self.before.description}


@dataclass(frozen=True)
class LamerParameters(GenerationParameters):
    """What may be set on LameR."""

    retriever: Annotated[
        Spec, Meta(description="the first stage whose passages stand in the prompt"), Names(retrievers.parse)
    ] = FIRST_STAGE
    top: Annotated[int, Meta(ge=1, description="passages that stand in the prompt")] = 10
    passage_tokens: Annotated[int, Meta(ge=1, description="tokens that each of them keeps")] = 128
    passage_words: Annotated[int, Meta(ge=1, description="words that each of them keeps, not tokens")] | None = None

    @property
    def words(self) -> int | None:
        """Words of a passage, where they are counted."""
        return PASSAGE_WORDS if self.protocol else self.passage_words


@expanders.register("lamer", argument="chat", needs_argument=True)
class LameR(SearchesFirst):
    """The answer is written with first-stage passages in sight (Shen et al., 2024)."""

    method = "lamer"
    policies = {**JOINED, "dense": "mean"}  # noqa: RUF012
    Parameters = LamerParameters
    given: LamerParameters

    def own_settings(self) -> dict[str, object]:
        """The first stage, and how much of it is shown."""
        length = {"passage_tokens": self.given.passage_tokens}
        if self.given.words is not None:
            length = {"passage_words": self.given.words}
        first = {"first_stage": self.retriever.describe(), "top": self.given.top}
        return {**first, **length, **self.settings_before()}

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """The query, and the best passages for it."""
        index, asked = self.retriever.prepare(task), replace(task, queries=tuple(queries))
        texts = Queries.of(asked) if self.before is None else queries_for(self.retriever, asked, self.before)[0]
        run = index.search(texts, self.given.top)
        for row, query in enumerate(queries):
            found = contents_of(run, row, task)
            passages = render_passages(prompt, found, self.given.passage_tokens, words=self.given.words)
            yield {"query": query.text, "passages": passages}


@dataclass(frozen=True)
class RoundParameters(GenerationParameters):
    """What may be set on a feedback loop; the defaults are ThinkQE's."""

    passages: Annotated[int, Meta(ge=1, description="generations for each query in each round")] = 2
    temperature: Annotated[float, Meta(ge=0, description="of the sampling, not the model's own")] | None = 0.7
    rounds: Annotated[int, Meta(ge=1, description="how often is searched and written")] = 3
    retriever: Annotated[Spec, Meta(description="what searches in every round"), Names(retrievers.parse)] = FIRST_STAGE
    top: Annotated[int, Meta(ge=1, description="passages that stand in a prompt")] = 5
    passage_tokens: Annotated[int, Meta(ge=1, description="tokens that each of them keeps")] = 512


@dataclass
class State:
    """How far the loop of one query has come."""

    query: Query
    shown: set[int] = field(default_factory=set)
    """Documents whose passages stood in a prompt."""
    answers: list[Generation] = field(default_factory=list)
    kept: list[Generation] = field(default_factory=list)
    """The answers that are searched with."""
    failed: bool = False


class Rounds(SearchesFirst):
    """What the feedback loops share."""

    Parameters = RoundParameters
    given: RoundParameters
    thinking_tokens = THINKING_TOKENS
    accumulates = True
    """Whether the texts of all rounds are searched with, or those of the last one."""

    def __init__(
        self,
        chat: Chat,
        given: RoundParameters | None = None,
        *,
        spec: Spec | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(chat, given, spec=spec, options=options)
        if self.given.protocol:
            raise UsageError(f"protocol {self.given.protocol} knows no {self.method}: leave it out")

    def own_settings(self) -> dict[str, object]:
        """The loop: what searches, how often, and what is shown; reading an answer changes the next round."""
        given = self.given
        return {
            "first_stage": self.retriever.describe(),
            "rounds": given.rounds,
            "top": given.top,
            "passage_tokens": given.passage_tokens,
            "clean": not given.raw,
            **self.settings_before(),
        }

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """What fills the prompt of the first round."""
        states = [State(query) for query in queries]
        return (values for _, values in self._filled(prompt, states, self.retriever.prepare(task), task))

    def prepare(self, task: Task, limit: int | None = None) -> Prepared:
        """The requests of the first round."""
        prompt, notes = self.prompt(task)
        states = [State(query) for query in task.queries[:limit]]
        requests = self._requests(1, prompt, states, self.retriever.prepare(task), task)
        return Prepared(prompt.hash, tuple(requests.values()), notes)

    def _filled(
        self, prompt: Prompt, states: Sequence[State], index: Index, task: Task
    ) -> Iterator[tuple[State, dict[str, str]]]:
        """What fills the prompt of the next round: the best passages that were not shown before."""
        if not states:
            return
        asked = replace(task, queries=tuple(state.query for state in states))
        queries, _ = queries_for(self.retriever, asked, self._searched_with(states))
        depth = self.given.top + max(len(state.shown) for state in states)
        run = index.search(queries, min(depth, max(len(task.documents), 1)))
        contents = task.documents.contents
        for row, state in enumerate(states):
            new = [d for d in run.docs[row].tolist() if d >= 0 and d not in state.shown][: self.given.top]
            state.shown.update(new)
            passages = render_passages(prompt, [contents[d] for d in new], self.given.passage_tokens)
            previous = next((a.final for a in reversed(state.answers) if a.usable), "")
            yield state, {"query": state.query.text, "passages": passages, "previous": previous}

    def _searched_with(self, states: Sequence[State]) -> Expansions:
        """What is searched with in the next round."""
        items = {}
        for state in states:
            earlier = self.before.of(state.query.id) if self.before is not None else None
            texts = (*(earlier.texts if earlier else ()), *(answer.final for answer in state.kept))
            items[state.query.id] = Expansion(query_id=state.query.id, original=state.query.text, texts=texts)
        return Expansions(self.method, {}, items, policies=self.policies)

    def _requests(
        self, number: int, prompt: Prompt, states: Sequence[State], index: Index, task: Task
    ) -> dict[str, Request]:
        """The calls of one round, by query id."""
        found = {}
        for state, values in self._filled(prompt, states, index, task):
            messages = prompt.later(**values) if values["previous"] else prompt.messages(**values)
            found[state.query.id] = Request(messages, self.sampling, f"{state.query.id}#{number}")
        return found

    def _take(self, state: State, answers: Sequence[Generation]) -> None:
        """Go on with the answers of a round; one that could not be had ends the loop, to be taken up another time."""
        state.answers += answers
        usable = [answer for answer in answers if answer.usable]
        state.kept = [*(state.kept if self.accumulates or not usable else ()), *usable]
        state.failed = any(answer.status == "failed" for answer in answers)

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """What calls that are not in the store take at most; prompts that depend on missing answers count as full."""
        prompt, _ = self.prompt(task)
        states, index = [State(query) for query in task.queries[:limit]], self.retriever.prepare(task)
        requests = list[Request]()
        with self.open_store(prompt.hash, task, read_only=True) as store:
            for number in range(1, self.given.rounds + 1):
                known = [state for state in states if not state.failed]
                asked = self._requests(number, prompt, known, index, task)
                for state in states:
                    request = asked.get(state.query.id) or self._full(number, prompt, state.query)
                    requests.append(request)
                    answers, left = store.divided(request)
                    if left:
                        state.failed = True  # the next prompts depend on this answer
                    else:
                        self._take(state, answers)
            return plan_requests(self.chat, requests, store)

    def _full(self, number: int, prompt: Prompt, query: Query) -> Request:
        """A call of a later round, with passages and an answer as long as they can be."""
        passages = render_passages(
            prompt, ["text " * self.given.passage_tokens] * self.given.top, self.given.passage_tokens
        )
        previous = "text " * min(self.sampling.max_tokens or THINKING_TOKENS, THINKING_TOKENS) if prompt.again else ""
        messages = prompt.later(query=query.text, passages=passages, previous=previous)
        return Request(messages, self.sampling, f"{query.id}#{number}")

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Let all queries go through the rounds; what was generated before is not generated again."""
        prompt, notes = self.prompt(task)
        states, index = [State(query) for query in task.queries[:limit]], self.retriever.prepare(task)
        done, total = 0, len(states) * self.given.passages * self.given.rounds
        with self.open_store(prompt.hash, task) as store:
            for number in range(1, self.given.rounds + 1):
                going = [state for state in states if not state.failed]
                requests = self._requests(number, prompt, going, index, task)
                answers: dict[str, list[Generation]] = {}
                arriving = generate(
                    self.chat, requests.values(), store, clean=not self.given.raw, keep_prompt=self.options.keep_prompts
                )
                for answer in arriving:
                    answers.setdefault(answer.query_id, []).append(answer)
                    done += 1
                    if on_progress:
                        on_progress(done, total)
                for state in going:
                    self._take(state, sorted(answers.get(f"{state.query.id}#{number}", ()), key=lambda g: g.sample))
            self._keep(store, prompt, states)
            notes |= {**store_notes(store), "prompts": prompt_wording(self.given.prompts)}
            reused = store.reused
        items = {state.query.id: self._expansion(state) for state in states}
        notes |= {"warning": self.warning} if self.warning else {}
        return Expansions(self.method, self.describe(), items, notes, self.policies, reused=reused)

    def _keep(self, store: GenerationStore, prompt: Prompt, states: Sequence[State]) -> None:
        """One record under the query's own id for each text that is searched with; their calls carry the bill.

        Where a call was asked for again, what the loop comes to now takes the place of what it came to before.
        """
        for state in states:
            again = max((answer.again for answer in state.answers), default=0)
            messages = prompt.messages(query=state.query.text, passages="")
            begun = Request(messages, self.sampling, state.query.id, again=again)
            if not state.failed:
                texts = [_outcome(answer, begun, number) for number, answer in enumerate(state.kept)]
                gone = range(len(texts), store.held(begun))
                store.keep(begun, [*texts, *(_outcome(NO_TEXT, begun, number) for number in gone)])

    def _expansion(self, state: State) -> Expansion:
        """The texts that the loop ended with, and the bill of all its calls."""
        kept = expansion_of(state.query, state.kept)
        return msgspec.structs.replace(expansion_of(state.query, state.answers), texts=kept.texts, raw=kept.raw)


def _outcome(answer: Generation, begun: Request, number: int) -> Generation:
    """An answer as a text of its query: without what its call cost and thought."""
    return Generation(
        query_id=begun.key,
        sample=number,
        prompt_hash=begun.prompt_hash,
        status=answer.status,
        final=answer.final,
        raw=answer.final,
        removed=answer.removed,
        clean=answer.clean,
        finish_reason=answer.finish_reason,
        model=answer.model,
        again=begun.again,
    )


NO_TEXT = Generation(query_id="", prompt_hash="", status="empty")
"""In place of a text that a loop no longer comes to."""


@expanders.register("thinkqe", argument="chat", needs_argument=True)
class ThinkQE(Rounds):
    """Three rounds of search and thought; all texts are searched with, the query repeated (Lei et al., 2025)."""

    method = "thinkqe"
    policies = {**JOINED, "lexical": "query*n+passages"}  # noqa: RUF012


@dataclass(frozen=True)
class DiverParameters(RoundParameters):
    """What may be set on DIVER's expansion."""

    passages: Annotated[int, Meta(ge=1, description="generations for each query in each round")] = 1
    rounds: Annotated[int, Meta(ge=1, description="how often is searched and written")] = 2


@expanders.register("diver-qexpand", argument="chat", needs_argument=True)
class DiverQExpand(Rounds):
    """Two rounds of search and thought; the second refines the first's answer, and the last is used (DIVER, 2025)."""

    method = "diver-qexpand"
    policies = {OTHER: "query+passages.apart"}  # noqa: RUF012
    Parameters = DiverParameters
    accumulates = False
