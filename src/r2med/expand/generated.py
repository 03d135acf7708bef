"""Methods that ask a chat model once per query, with our prompts and sampling or those of R2MED's scripts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ..core import DataError, Query, Task, UsageError
from ..core.budget import known_sum
from ..core.options import Options, Progress
from ..core.spec import Content, Spec
from ..core.untrusted import file_name, inside
from ..llm import (
    Chat,
    Cost,
    Generation,
    GenerationStore,
    Request,
    Sampling,
    StoreKey,
    asked_by,
    generate,
    plan_requests,
    reasons,
    with_defaults,
)
from ..llm.protocol import DEFAULT_FAMILY, FAMILIES, Prompt, built_in, prompt_from, read_prompt
from ..models.prompts import OWN, PAPER, holds_pack, names_of, pack_of, read_pack
from ..retrieve import Build
from .contract import INSTEAD, JOINED, PUBLISHED, Expander, Expansion, Expansions, expanders
from .prompting import render_examples, without_leaks
from .replay import RECORDED, recorded

REASONING_TOKENS = 10_240
"""Room for a model that thinks before it answers, as R2MED's scripts gave it: a chain that is cut is no answer."""
ANSWER_TOKENS = 512
FIRST_STAGE = Spec("bm25")  # where nothing else is said

OPEN_LLMS: Final = (
    *("qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b"),
    *("huatuo-o1-70b", "qwq-32b", "qwen3-32b"),
)
"""LLMs that the scripts run themselves, in vLLM."""
API_LLMS: Final = ("gpt4", "o3-mini")
OPEN_SAMPLING: Final = Sampling(temperature=0.7, seed=42, max_tokens=10_240)
API_SAMPLING: Final = Sampling(temperature=0.8, top_p=0.8, max_tokens=None, as_given=True)
"""No limit on tokens and no seed; both settings are sent to o3-mini too, which does not take them everywhere."""
PASSAGE_WORDS: Final = 512
"""Words of a passage that stands in a LameR prompt."""
SETS: Final = ("temperature", "top_p", "seed", "max_tokens", "passages", "passage_tokens", "passage_words", "raw")
"""Parameters that the protocol decides."""


GAPS: Final = {
    **dict.fromkeys(("lamer", "thinkqe", "diver-qexpand"), ("query", "passages")),
    "query2doc": ("query", "examples"),
    "judge": ("query", "answer", "passage"),
}
"""What a prompt must have room for, where that is more than the query."""


def load_prompt(method: str, names: tuple[str, ...], pack: Content | None = None) -> Prompt:
    """The prompt of a method for a task, named as `names_of` does: the user's, where a pack is given, else ours.

    A pack is a prompt pack (`models.prompts`), one prompt file (used for everything), or a folder of
    `<method>/<name>.toml`, `<name>.toml` or `<method>.toml`, where the name is the task's or its family's.
    """
    prompt = _find_prompt(method, names, pack)
    if pack is not None and prompt.max_tokens is not None:
        said = f"sets max_tokens = {prompt.max_tokens}, which {method} takes as a parameter and not from a prompt"
        raise DataError(said, path=pack.located())
    return prompt


def _find_prompt(method: str, names: tuple[str, ...], pack: Content | None) -> Prompt:
    slug, gaps = FAMILIES.get(names[-1], DEFAULT_FAMILY), GAPS.get(method, ("query",))
    if pack is None:
        return built_in("r2med.expand", f"{method}/{slug}", gaps=gaps)
    path = pack.located()
    if holds_pack(path):
        table = read_pack(path).prompt(method, [*names, slug])
        if table is None:
            raise DataError(f"is a prompt pack without a prompt for {method}", path=path)
        return prompt_from(table, f"{path}: {method}", gaps)
    if path.is_file():
        return read_prompt(path, gaps=gaps)
    files = [f"{file_name(name, known=names)}.toml" for name in dict.fromkeys((names[-2], slug))]
    places = [*(f"{method}/{file}" for file in files), *files, f"{method}.toml"]
    tried = [inside(path, place, "prompt") for place in places]
    if found := next((candidate for candidate in tried if candidate.is_file()), None):
        return read_prompt(found, gaps=gaps)
    raise DataError(f"holds no prompt for {method} on {slug} (looked for {method}/{slug}.toml, {slug}.toml)", path=path)


def prompt_facts(method: str, pack: Content | None = None) -> dict[str, str]:
    """What the prompts of a method are: hashes by task family, or that of the prompt pack they come from."""
    if pack is not None and holds_pack(pack.located()):
        return {"pack": f"{pack.label}~{pack.whole}"}
    hashes = {}
    for family, slug in FAMILIES.items():
        with suppress(DataError):  # a folder of the user's own need not have them all
            hashes[slug] = load_prompt(method, ("", family), pack).hash
    return hashes


def generates_with(spec: Spec, pack: Content) -> bool:
    """Whether a pack holds prompts for a method that asks a chat model: recorded texts take none."""
    recorded_texts = isinstance(spec.argument, Spec) and spec.argument.name in RECORDED
    if recorded_texts or "prompts" not in expanders.declared(spec):
        return False
    return not holds_pack(pack.located()) or spec.name in read_pack(pack.located()).generate


def prompt_wording(pack: Content | None) -> str:
    """Whose words the prompts are in."""
    return OWN if pack is None else f"{pack.label}~{pack.whole}"


def paper_sampling(llm: str) -> Sampling | None:
    """How the scripts sample an LLM; None for one they do not know."""
    return OPEN_SAMPLING if llm in OPEN_LLMS else API_SAMPLING if llm in API_LLMS else None


def paper_spec(spec: Spec) -> Spec:
    """An expander under the protocol with the paper's prompts, where they were fetched; other expanders as they are."""
    if spec.get("protocol") != PAPER:
        return spec
    if own := next((key for key in SETS if spec.get(key) is not None), None):
        raise UsageError(f"protocol {PAPER} sets {own}: leave out {own} or the protocol")
    pack = pack_of(PAPER)
    if pack is None or spec.get("prompts") not in (None, pack) or spec.name not in read_pack(pack.located()).generate:
        return spec
    return spec.with_parameters(prompts=pack)


class Prepared(NamedTuple):
    """All that is sent for a task, and what is worth telling about it."""

    template: str
    """Hash of what the prompts are made from."""
    requests: tuple[Request, ...]
    notes: dict[str, object]


@dataclass(frozen=True)
class GenerationParameters:
    """What may be set on a method that asks a chat model."""

    passages: Annotated[int, Meta(ge=1, description="generations for each query")] = 1
    max_tokens: Annotated[int, Meta(ge=1, description="most tokens of an answer, reasoning included")] | None = None
    temperature: Annotated[float, Meta(ge=0, description="of the sampling, not the model's own")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1, description="likeliest tokens that are sampled from")] | None = None
    seed: Annotated[int, Meta(description="where the server takes one")] | None = 0
    prompts: Annotated[Content, Meta(description="a prompt file or pack in place of ours")] | None = None
    raw: Annotated[bool, Meta(description="keep chatty preambles and markdown fences")] = False
    protocol: (
        Annotated[Literal["r2med-paper"], Meta(description="prompts and sampling of the paper's scripts")] | None
    ) = None

    def sampling(self, chat: Chat, tokens: int, **more: Any) -> Sampling:
        """How answers of a model are drawn; a model that reasons needs room for it."""
        if self.protocol and (published := paper_sampling(chat.spec.name)):
            return msgspec.structs.replace(published, **more)
        wanted = Sampling(
            max_tokens=self.max_tokens or tokens, temperature=self.temperature, top_p=self.top_p, seed=self.seed, **more
        )
        return with_defaults(wanted, chat.defaults)

    def warning(self, chat: Chat) -> str:
        """What must be said of texts that a model makes so."""
        unknown = self.protocol and paper_sampling(chat.spec.name) is None
        own = f"protocol {self.protocol} does not say how {chat.name} is sampled: r2med's own sampling is used"
        return " ".join(filter(None, (chat.warning, own if unknown else "")))


class Generated(Expander):
    """A method that asks once per query."""

    Parameters: type[GenerationParameters] = GenerationParameters
    thinking_tokens = REASONING_TOKENS
    """Room for an answer of a model that reasons."""

    def __init__(
        self,
        chat: Chat,
        given: GenerationParameters | None = None,
        *,
        spec: Spec | None = None,
        options: Options | None = None,
    ) -> None:
        self.chat: Chat = chat
        self.given = given or self.Parameters()
        self.spec = spec or Spec(self.method, chat.spec)
        self.options = options or Options()
        self.warning = self.given.warning(chat)
        tokens = self.thinking_tokens if reasons(chat) else ANSWER_TOKENS
        self.sampling = self.given.sampling(chat, tokens, n=self.given.passages)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Expander:
        """The method on the chat model that is its argument, or on texts that were recorded."""
        assert isinstance(spec.argument, Spec)
        if spec.argument.name in RECORDED:
            return recorded(spec)
        spec = paper_spec(spec)
        chat, options = build.chat(asked_by(spec)), build.options.changed(spec.options)
        made = cls(chat, spec.values(cls.Parameters), spec=replace(spec, argument=chat.spec), options=options)
        made.equip(build)
        return made

    def equip(self, build: Build) -> None:
        """Take what else the method stands on, such as a first stage."""

    def describe(self) -> dict[str, object]:
        """Method, model, sampling and prompts."""
        return {
            "method": self.method,
            "llm": self.chat.name,
            "model": self.chat.describe(),
            "sampling": msgspec.to_builtins(self.sampling),
            "clean": not self.given.raw,
            "prompts": prompt_facts(self.method, self.given.prompts),
            **({"protocol": self.given.protocol} if self.given.protocol else {}),
            **self.own_settings(),
        }

    def own_settings(self) -> dict[str, object]:
        """What else of the method changes a prompt."""
        return {}

    @abstractmethod
    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """What fills the gaps of the prompt, for each query."""
        ...

    def prompt(self, task: Task) -> tuple[Prompt, dict[str, object]]:
        """The prompt for a task, and notes about it."""
        return load_prompt(self.method, names_of(task), self.given.prompts), {}

    def task_facts(self, task: Task) -> dict[str, object]:
        """The prompt of a task, where a prompt pack has one for each; a pack that lacks the task is refused here."""
        pack, hashed = self.given.prompts, self.prompt(task)[0].hash
        return {"prompt": hashed} if pack is not None and holds_pack(pack.located()) else {}

    def prepare(self, task: Task, limit: int | None = None) -> Prepared:
        """Everything that will be sent."""
        prompt, notes = self.prompt(task)
        queries = task.queries[:limit]
        filled = self.values(prompt, queries, task)
        requests = tuple(
            Request(prompt.messages(**values), self.sampling, query.id)
            for query, values in zip(queries, filled, strict=True)
        )
        return Prepared(prompt.hash, requests, notes)

    def store_key(self, template: str, task: Task) -> StoreKey:
        """Where the answers for this task are kept; how they are cleaned is decided when they are read."""
        settings = self.own_settings()
        return StoreKey.of(self.method, self.chat, template, self.sampling, task.fingerprint, settings)

    def open_store(self, template: str, task: Task, *, read_only: bool = False) -> GenerationStore:
        """The answers for this task."""
        return GenerationStore(self.store_key(template, task), read_only=read_only, retry=self.options.retry)

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """What the requests that are not in the store will take at most."""
        prepared = self.prepare(task, limit)
        with self.open_store(prepared.template, task, read_only=True) as store:
            return plan_requests(self.chat, prepared.requests, store)

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Ask for every query what is not in the store yet."""
        prepared = self.prepare(task, limit)
        answers: dict[str, list[Generation]] = {}
        done = 0
        with self.open_store(prepared.template, task) as store:
            arriving = generate(
                self.chat,
                prepared.requests,
                store,
                clean=not self.given.raw,
                keep_prompt=self.options.keep_prompts,
            )
            for generation in arriving:
                answers.setdefault(generation.query_id, []).append(generation)
                done += 1
                if on_progress:
                    on_progress(done, len(prepared.requests) * self.given.passages)
            notes = {**store_notes(store), "prompts": prompt_wording(self.given.prompts), **prepared.notes}
            reused = store.reused
        items = {
            query.id: expansion_of(query, sorted(answers.get(query.id, ()), key=lambda g: g.sample))
            for query in task.queries[:limit]
        }
        notes |= {"warning": self.warning} if self.warning else {}
        policies = PUBLISHED if self.given.protocol else self.policies
        return Expansions(self.method, self.describe(), items, notes, policies, reused=reused)


@dataclass(frozen=True)
class HydeParameters(GenerationParameters):
    """What may be set on HyDE."""

    temperature: Annotated[float, Meta(ge=0, description="high enough that passages differ")] | None = 0.7


@expanders.register("hyde", argument="chat", needs_argument=True)
class HyDE(Generated):
    """Hypothetical passages, or similar cases, that the answer would stand in (Gao et al., 2023)."""

    method = "hyde"
    policies = INSTEAD
    Parameters = HydeParameters

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """The query alone."""
        del prompt, task
        return ({"query": query.text} for query in queries)


@expanders.register("query2doc", argument="chat", needs_argument=True)
class Query2doc(Generated):
    """One passage, asked for with worked examples (Wang et al., 2023)."""

    method = "query2doc"
    policies = {**JOINED, "lexical": "query*5+passages", "dense": "query+passages.tokenizer"}  # noqa: RUF012

    def prompt(self, task: Task) -> tuple[Prompt, dict[str, object]]:
        """The prompt without examples that touch the evaluated queries."""
        prompt = super().prompt(task)[0]
        if prompt.shown:
            return prompt, {"examples": "as the prompt pack has them, not compared with the queries"}
        kept, dropped = without_leaks(prompt, task)
        return kept, {"examples": len(kept.examples), **({"examples_left_out": list(dropped)} if dropped else {})}

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """The query, and the examples that may be shown."""
        del task
        examples = prompt.shown or render_examples(prompt, prompt.examples)
        return ({"query": query.text, "examples": examples} for query in queries)


def store_notes(store: GenerationStore) -> dict[str, object]:
    """Where answers are kept, and how many calls for more of them went out and never came back."""
    return {"store": str(store.path), "lost_calls": store.lost_calls()}


def expansion_of(query: Query, generations: Sequence[Generation]) -> Expansion:
    """The answers to one query, read."""
    errors = [g.error for g in generations if g.error]
    removed = sorted({part for g in generations for part in g.removed})
    return Expansion(
        query_id=query.id,
        original=query.text,
        texts=tuple(g.final for g in generations if g.usable),
        raw=tuple(g.raw for g in generations if g.status != "failed"),
        statuses=tuple(g.status for g in generations),
        reasoning=tuple(g.reasoning for g in generations),
        prompt_tokens=sum(g.prompt_tokens for g in generations),
        completion_tokens=sum(g.completion_tokens for g in generations),
        seconds=sum(g.seconds for g in generations),
        retries=sum(g.retries for g in generations),
        rate_limits=sum(g.rate_limits for g in generations),
        cost=known_sum(g.cost for g in generations),
        notes={**({"removed": removed} if removed else {}), **({"error": errors[0]} if errors else {})},
    )
