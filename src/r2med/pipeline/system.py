"""A system: what turns a task into a ranking. Its spec is one value with one printed form.

    hyde:gpt4+bm25+nv.rrf+maxsim@50

expands with HyDE, retrieves with two retrievers, fuses them and reranks the best fifty. Several expansion methods may
stand one behind the other (`hyde:gpt4+rm3+bm25`), and several rerankers (`bm25+maxsim@50+neighbours@100`). An expansion
method whose name could be a retriever's stands behind `expand=`.
Everything that changes a ranking is in the spec or in its fingerprint.
`Builder` makes systems from their specs, each component once for a whole experiment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import msgspec

from ..core import Task, UsageError, fingerprint
from ..core.options import Options
from ..core.registry import Registry
from ..core.spec import LINK, Spec, SpecData
from ..expand import Expander, as_expander, expanders
from ..expand.contract import steps_of
from ..expand.policy import check_expander, policy_settings
from ..fuse import Fusion, fusions
from ..llm import Chat, Retry, chats
from ..rerank import DEPTH, Reranker, Rest, as_reranker, rerankers
from ..rerank.contract import BLEND, Blended, blended
from ..results import TaskResult
from ..retrieve import Retriever, as_retriever, retrievers

T = TypeVar("T")
REGISTRIES: dict[str, Registry[Any]] = {"retriever": retrievers, "reranker": rerankers, "expander": expanders}
Spending = Callable[[int, int, Any], None]
"""Called with (done, total, usage): usage counts calls and dollars, or is None where no chat model is asked."""
EXPAND = LINK
_DEPTH = re.compile(r".+@\d+", re.DOTALL)


@dataclass(frozen=True)
class SystemSpec:
    """What a system is made of."""

    retrievers: tuple[Spec, ...]
    fusion: Spec | None = None
    expander: Spec | None = None
    reranker: Spec | None = None

    def __post_init__(self) -> None:
        if not self.retrievers:
            raise UsageError("a system needs a retriever")
        if len(self.retrievers) > 1 and self.fusion is None:
            raise UsageError("several retrievers in one system need a fusion")
        if len(self.retrievers) == 1 and self.fusion is not None:
            raise UsageError(f"fusion {self.fusion} needs at least two retrievers")

    @classmethod
    def parse(cls, text: str) -> SystemSpec:
        """Read what `str` writes."""
        segments = text.split("+")
        fusion = None
        methods, behind = list[Spec](), list[Spec]()
        while segments and (segments[0].startswith(EXPAND) or _is_method(segments[0].partition(":")[0])):
            methods.append(expanders.parse(segments.pop(0).removeprefix(EXPAND)))
        expander = Spec.chain(methods) if methods else None
        while segments and _DEPTH.fullmatch(segments[-1]):
            behind.insert(0, rerankers.parse(segments.pop()))
        reranker = Spec.chain(behind) if behind else None
        if len(segments) > 1:
            names = "|".join(re.escape(entry.name) for entry in fusions)
            match = re.fullmatch(rf"(?P<last>.+)\.(?P<fusion>({names})(:.*)?)", segments[-1], re.DOTALL)
            if match is None:
                raise UsageError(f"{text!r} names several retrievers and no fusion, as in bm25+bge-small.rrf")
            segments[-1], fusion = match["last"], fusions.parse(match["fusion"])
        return cls(tuple(retrievers.parse(segment) for segment in segments), fusion, expander, reranker)

    @classmethod
    def typed(cls, text: str) -> SystemSpec:
        """Read a system, or one retriever whose path holds a plus sign: `run:results/bm25+rm3.run`."""
        try:
            return cls.parse(text)
        except UsageError:
            with suppress(UsageError):
                return cls((retrievers.parse(text),))
            raise

    @staticmethod
    def printed(data: Mapping[str, object]) -> list[str]:
        """The forms in which a spec that `data` wrote may be printed: those of registered parts and of objects.

        Nothing is looked up, so this is safe for data of strangers; what is no such data is a `ValueError`.
        """
        found = msgspec.convert(data, _SystemData)
        return [
            str(
                SystemSpec(
                    tuple(part.spec(own=own) for part in found.retrievers),
                    found.fusion.spec() if found.fusion else None,
                    found.expander.spec(own=own) if found.expander else None,
                    found.reranker.spec(own=own) if found.reranker else None,
                )
            )
            for own in (False, True)
        ]

    @property
    def first_stage(self) -> str:
        """All that stands before the reranker, printed."""
        name = "+".join(map(str, self.retrievers)) + (f".{self.fusion}" if self.fusion else "")
        if self.expander is None:
            return name
        methods = [f"{'' if _is_method(link.name) else EXPAND}{link}" for link in self.expander.links]
        return "+".join([*methods, name])

    def __str__(self) -> str:
        return "+".join([self.first_stage, *map(str, self.reranker.links if self.reranker else ())])

    def data(self) -> dict[str, object]:
        """The spec as plain data, for result files."""
        found: dict[str, object] = {"retrievers": [spec.data() for spec in self.retrievers]}
        for name in ("expander", "fusion", "reranker"):
            part: Spec | None = getattr(self, name)
            if part is not None:
                found[name] = part.data()
        return found


class _SystemData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    retrievers: tuple[SpecData, ...]
    expander: SpecData | None = None
    fusion: SpecData | None = None
    reranker: SpecData | None = None


def _is_method(name: str) -> bool:
    """Whether a name is that of an expansion method, and of no retriever: a plug-in may offer both under one name."""
    if expanders.registered(name):  # one of ours, whose names no retriever of ours has: no plug-in is looked for
        return True
    return retrievers.find(name) is None and expanders.find(name) is not None


@dataclass(frozen=True)
class Reranking:
    """A reranker, how deep it goes, and what becomes of the documents below."""

    reranker: Reranker
    depth: int = DEPTH
    rest: Rest = "keep"

    @classmethod
    def of(cls, reranker: Reranker, spec: Spec) -> Reranking:
        """The reranking that a spec asks for."""
        rest = cast(Literal["keep", "drop"], spec.get("rest", "keep"))
        return cls(reranker, spec.depth or DEPTH, rest)

    @property
    def spec(self) -> Spec:
        """The reranker's spec with depth and rest."""
        changed = self.reranker.spec.with_parameters(rest=None if self.rest == "keep" else self.rest)
        return changed.at(self.depth)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {"reranker": self.reranker.describe(), "depth": self.depth, "rest": self.rest}


@dataclass(frozen=True)
class System:
    """One or several retrievers, with what stands before and behind them."""

    retrievers: tuple[Retriever, ...]
    fusion: Fusion | None = None
    expander: Expander | None = None
    policy: str | None = None
    rerankings: tuple[Reranking, ...] = ()
    on_expand: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)
    retry: frozenset[str] = field(default=frozenset(), compare=False)
    """Statuses of stored answers that chat models are asked for again."""

    def __post_init__(self) -> None:
        _ = self.spec  # refuses what cannot be
        if self.fusion is not None:
            self.fusion.check(len(self.retrievers))
        stored = next((r for r in self.retrievers if r.kind == "stored"), None)
        if self.expander is not None and stored is not None:
            raise UsageError(f"{stored.name} is a stored ranking: expanded queries cannot change it")
        if self.expander is not None:
            check_expander(self.expander, [(r.name, r.kind) for r in self.retrievers], self.policy)

    @property
    def spec(self) -> SystemSpec:
        """What it is, as its parts were found: a chat model with its host, a folder with its content."""
        return SystemSpec(
            tuple(retriever.spec for retriever in self.retrievers),
            self.fusion.spec if self.fusion else None,
            self.expander.spec.with_parameters(policy=self.policy) if self.expander else None,
            Spec.chain([reranking.spec for reranking in self.rerankings]) if self.rerankings else None,
        )

    @property
    def name(self) -> str:
        """What results are filed under."""
        return str(self.spec)

    @property
    def kind(self) -> str:
        """The last step that shaped it, or the kind of its retriever."""
        if self.rerankings:
            return "reranked"
        if self.expander:
            return "expanded"
        return "fused" if self.fusion else self.retrievers[0].kind

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        described: dict[str, object] = {"retrievers": [r.describe() for r in self.retrievers]}
        if self.fusion:
            described["fusion"] = self.fusion.describe()
        if self.expander:
            described["expander"] = self.expander.describe()
            described["policy"] = self.policy or "default"
            if self.policy is not None and (settings := policy_settings(self.policy)):
                described["policy_settings"] = settings
        if self.rerankings:
            first, *rest = (reranking.describe() for reranking in self.rerankings)
            described["reranking"] = {**first, "then": rest} if rest else first
        return described

    def task_facts(self, task: Task) -> dict[str, object]:
        """What else its ranking of one task depends on."""
        facts: dict[str, object] = {}
        for retriever in self.retrievers:
            facts |= {f"{retriever.name}.{key}": value for key, value in retriever.task_facts(task).items()}
        if self.expander:
            facts |= {f"expander.{key}": value for key, value in self.expander.task_facts(task).items()}
        return facts

    def unwanted_answers(self, result: TaskResult) -> str:
        """Which answers behind a stored result shall be asked for again, in words; empty where none shall."""
        found = {status: count for status, count in result.generations.items() if status in self.retry}
        return ", ".join(f"{count:,} {status}" for status, count in found.items())

    def unknown_state(self) -> dict[str, str]:
        """Parts whose state cannot be read, with the reason: results of this system are never reused."""
        methods = steps_of(self.expander) if self.expander else ()
        parts = (*self.retrievers, *methods, *(reranking.reranker for reranking in self.rerankings))
        scorers = (getattr(part, "scorer", part) for part in parts)
        identities = ((getattr(part, "name", ""), getattr(part, "identity", None)) for part in scorers)
        return {name: identity.unknown for name, identity in identities if identity is not None and identity.unknown}


def _same(one: Any, other: Any) -> bool:
    return fingerprint("component", one.describe()) == fingerprint("component", other.describe())


def _declared(made: Any) -> bool:
    """Whether an object is known by its own word alone, which may be the same for different states."""
    identity = getattr(getattr(made, "scorer", made), "identity", None)
    return identity is not None and "state" not in identity.facts


class Builder:
    """Makes systems; a component that several of them name is made once, and all share one budget."""

    def __init__(self, options: Options | None = None, *, on_expand: Spending | None = None) -> None:
        self.options = options or Options()
        self.options = self.options.changed({"retry": Retry(self.options.retry)})
        self.on_expand = on_expand
        self.components: list[Retriever | Reranker] = []
        """Components that were made from specs: workers can make them again."""
        self._made: dict[tuple[str, Any], Any] = {}
        self._chats: list[Chat] = []

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections to chat models."""
        for chat in self._chats:
            chat.close()

    def _once(self, kind: str, what: Any, make: Callable[[], T]) -> T:
        key = (kind, what if isinstance(what, Spec | tuple) else id(what))
        if key not in self._made:
            self._made[key] = make(), what  # what is kept too: an id is its object's only while that lives
        found: T = self._made[key][0]
        return found

    def retriever(self, spec: str | Spec | Any) -> Retriever:
        """The retriever of a spec, or an object as one."""
        if not isinstance(spec, str | Spec):
            return self._once("retriever", spec, lambda: as_retriever(spec, options=self.options))
        parsed = retrievers.parse(spec)
        return self._once("retriever", parsed, lambda: self._component(retrievers.make(parsed, self)))

    def reranker(self, spec: str | Spec | Any) -> Reranker:
        """The reranker of a spec, or an object as one."""
        if not isinstance(spec, str | Spec):
            return self._once("reranker", spec, lambda: as_reranker(spec, options=self.options))
        parsed = rerankers.parse(spec).at(None).without("rest")
        if blended(parsed):
            plain = parsed.without(*BLEND)
            return self._once("reranker", parsed, lambda: Blended(self.reranker(plain), parsed))
        return self._once("reranker", parsed, lambda: self._component(rerankers.make(parsed, self)))

    def expander(self, spec: str | Spec | Any) -> Expander:
        """The expander of a spec, or an object as one."""
        if not isinstance(spec, str | Spec):
            return self._once("expander", spec, lambda: as_expander(spec))
        parsed = expanders.parse(spec).without("policy")
        return self._once("expander", parsed, lambda: expanders.make(parsed, self))

    def own_retriever(self, model: Any) -> Spec:
        """The spec under which an object takes part."""
        return self._own("retriever", self.retriever(model))

    def own_reranker(self, model: Any) -> Spec:
        """The same for a reranker."""
        return self._own("reranker", self.reranker(model), "rest")

    def own_expander(self, model: Any) -> Spec:
        """The same for an expander."""
        return self._own("expander", self.expander(model), "policy")

    def _own(self, kind: str, made: Any, *beside: str) -> Spec:
        """Keep an object under its spec, how it is used left out; another that cannot be told from it is refused."""
        spec: Spec = made.spec.at(None).without(*beside)
        if spec.own and REGISTRIES[kind].find(spec.name) is not None:
            raise UsageError(f"an object is called {spec.name}, which is a {kind} of r2med's: give it another `name`")
        other = self._made.setdefault((kind, spec), (made, spec))[0]
        if other is not made and (_declared(other) or not _same(other, made)):
            raise UsageError(f"two different objects are called {spec}: give them a `name` or a `version`")
        whole: Spec = made.spec
        return whole

    def chat(self, spec: Spec) -> Chat:
        """The chat model of a spec, one for all who ask it under the same options."""
        options = self.options.changed(spec.options)

        def make() -> Chat:
            chat = chats.make(spec, options)
            self._chats.append(chat)
            return chat

        return self._once("chat", (spec, options), make)

    @property
    def asks(self) -> bool:
        """Whether a chat model is part of what was made."""
        return bool(self._chats)

    def usage(self) -> dict[str, Any] | None:
        """What all chat models were asked; None where nothing was sent to any."""
        asked = [counters for chat in self._chats if (counters := chat.usage.snapshot())["attempts"]]
        return {key: sum(counters[key] for counters in asked) for key in asked[0]} if asked else None

    def _component(self, component: T) -> T:
        self.components.append(component)  # type: ignore[arg-type]
        return component

    def build(self, spec: SystemSpec) -> System:
        """The system of a spec."""
        expander = self.expander(spec.expander) if spec.expander else None
        policy = spec.expander.get("policy") if spec.expander else None
        links = spec.reranker.links if spec.reranker else ()
        return System(
            tuple(self.retriever(part) for part in spec.retrievers),
            fusions.make(spec.fusion) if spec.fusion else None,
            expander,
            None if policy is None else str(policy),
            tuple(Reranking.of(self.reranker(link), link) for link in links),
            self.watch(expander) if expander else None,
            self.options.retry,
        )

    def watch(self, expander: Expander) -> Callable[[int, int], None] | None:
        """Progress of an expander, with what its calls have cost so far."""
        if self.on_expand is None:
            return None
        tell, usage = self.on_expand, expander.chat.usage if expander.chat is not None else None
        return lambda done, total: tell(done, total, usage)
