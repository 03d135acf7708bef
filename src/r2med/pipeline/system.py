"""A system: what turns a task into a ranking. Its spec is one value with one printed form.

    hyde:gpt4+bm25+nv.rrf+maxsim@50

expands with HyDE, retrieves with two retrievers, fuses them and reranks the best fifty. An expander whose name
could be a retriever's stands behind `expand=`. Everything that changes a ranking is in the spec or in its fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

from ..core import Run, Task, UsageError
from ..core.queries import Queries
from ..core.spec import Spec
from ..expand import Expander, expanders, queries_for
from ..expand.policy import policy_settings
from ..fuse import Fusion, fusions
from ..rerank import DEPTH, Reranker, Rest, rerankers
from ..retrieve import Retriever, retrievers

EXPAND = "expand="
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
        expander = reranker = fusion = None
        if segments[0].startswith(EXPAND) or _is_method(segments[0].partition(":")[0]):
            expander = expanders.parse(segments.pop(0).removeprefix(EXPAND))
        if segments and _DEPTH.fullmatch(segments[-1]):
            reranker = rerankers.parse(segments.pop())
        if len(segments) > 1:
            names = "|".join(re.escape(entry.name) for entry in fusions)
            match = re.fullmatch(rf"(?P<last>.+)\.(?P<fusion>({names})(:.*)?)", segments[-1], re.DOTALL)
            if match is None:
                raise UsageError(f"{text!r} names several retrievers and no fusion, as in bm25+bge-small.rrf")
            segments[-1], fusion = match["last"], fusions.parse(match["fusion"])
        return cls(tuple(retrievers.parse(segment) for segment in segments), fusion, expander, reranker)

    @property
    def first_stage(self) -> str:
        """All that stands before the reranker, printed."""
        name = "+".join(map(str, self.retrievers)) + (f".{self.fusion}" if self.fusion else "")
        if self.expander is None:
            return name
        own = "" if _is_method(self.expander.name) else EXPAND
        return f"{own}{self.expander}+{name}"

    def __str__(self) -> str:
        return self.first_stage + (f"+{self.reranker}" if self.reranker else "")

    def data(self) -> dict[str, object]:
        """The spec as plain data, for result files."""
        found: dict[str, object] = {"retrievers": [spec.data() for spec in self.retrievers]}
        for name in ("expander", "fusion", "reranker"):
            part: Spec | None = getattr(self, name)
            if part is not None:
                found[name] = part.data()
        return found


def _is_method(name: str) -> bool:
    """Whether a name is that of an expansion method, and of no retriever: a plug-in may offer both under one name."""
    entry = expanders.find(name)
    return entry is not None and (entry.target is not None or retrievers.find(name) is None)


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
    reranking: Reranking | None = None
    on_expand: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _ = self.spec  # refuses what cannot be
        if self.fusion is not None:
            self.fusion.check(len(self.retrievers))
        stored = next((r for r in self.retrievers if r.kind == "stored"), None)
        if self.expander is not None and stored is not None:
            raise UsageError(f"{stored.name} is a stored ranking: expanded queries cannot change it")

    @property
    def spec(self) -> SystemSpec:
        """What it is, as its parts were found: a chat model with its host, a folder with its content."""
        return SystemSpec(
            tuple(retriever.spec for retriever in self.retrievers),
            self.fusion.spec if self.fusion else None,
            self.expander.spec.with_parameters(policy=self.policy) if self.expander else None,
            self.reranking.spec if self.reranking else None,
        )

    @property
    def name(self) -> str:
        """What results are filed under."""
        return str(self.spec)

    @property
    def kind(self) -> str:
        """The last step that shaped it, or the kind of its retriever."""
        if self.reranking:
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
        if self.reranking:
            described["reranking"] = self.reranking.describe()
        return described

    def rank(self, task: Task, depth: int) -> Run:
        """The ranking of a task, made here and now."""
        expansions = self.expander.expand(task, on_progress=self.on_expand) if self.expander else None
        runs = []
        for retriever in self.retrievers:
            queries = Queries.of(task)
            if expansions is not None:
                queries, _ = queries_for(retriever, task, expansions, self.policy)
            runs.append(retriever.prepare(task).search(queries, depth))
        run = self.fusion.fuse(runs, task, depth, self.spec.first_stage) if self.fusion else runs[0]
        if self.reranking is None:
            return run
        reranking = self.reranking
        return reranking.reranker.rerank(task, run, reranking.depth, rest=reranking.rest).renamed(self.name)

    def task_facts(self, task: Task) -> dict[str, object]:
        """What else its ranking of one task depends on."""
        facts: dict[str, object] = {}
        for retriever in self.retrievers:
            facts |= {f"{retriever.name}.{key}": value for key, value in retriever.task_facts(task).items()}
        if self.expander:
            facts |= {f"expander.{key}": value for key, value in self.expander.task_facts(task).items()}
        return facts

    def unknown_state(self) -> dict[str, str]:
        """Parts whose state cannot be read, with the reason: results of this system are never reused."""
        parts = (*self.retrievers, self.expander, self.reranking.reranker if self.reranking else None)
        scorers = (getattr(part, "scorer", part) for part in parts if part is not None)
        identities = ((getattr(part, "name", ""), getattr(part, "identity", None)) for part in scorers)
        return {name: identity.unknown for name, identity in identities if identity is not None and identity.unknown}
