"""Making components from specs, each once for a whole experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..core import UsageError, fingerprint
from ..core.options import Options
from ..core.registry import Registry
from ..core.spec import Spec
from ..expand import Expander, as_expander, expanders
from ..fuse import fusions
from ..llm import Chat, chats
from ..rerank import Reranker, as_reranker, rerankers
from ..retrieve import Retriever, as_retriever, retrievers
from .system import Reranking, System, SystemSpec

T = TypeVar("T")
REGISTRIES: dict[str, Registry[Any]] = {"retriever": retrievers, "reranker": rerankers, "expander": expanders}
Spending = Callable[[int, int, Any], None]
"""Called with (done, total, usage): usage counts calls and dollars, or is None where no chat model is asked."""


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
        key = (kind, what if isinstance(what, Spec) else id(what))
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
        """The chat model of a spec."""

        def make() -> Chat:
            chat = chats.make(spec, self.options)
            self._chats.append(chat)
            return chat

        return self._once("chat", spec, make)

    def _component(self, component: T) -> T:
        self.components.append(component)  # type: ignore[arg-type]
        return component

    def build(self, spec: SystemSpec) -> System:
        """The system of a spec."""
        expander = self.expander(spec.expander) if spec.expander else None
        policy = spec.expander.get("policy") if spec.expander else None
        reranking = Reranking.of(self.reranker(spec.reranker), spec.reranker) if spec.reranker else None
        return System(
            tuple(self.retriever(part) for part in spec.retrievers),
            fusions.make(spec.fusion) if spec.fusion else None,
            expander,
            None if policy is None else str(policy),
            reranking,
            self.watch(expander) if expander else None,
        )

    def watch(self, expander: Expander) -> Callable[[int, int], None] | None:
        """Progress of an expander, with what its calls have cost so far."""
        if self.on_expand is None:
            return None
        tell, usage = self.on_expand, expander.chat.usage if expander.chat is not None else None
        return lambda done, total: tell(done, total, usage)
