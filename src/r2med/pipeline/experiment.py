"""An experiment as data: which systems on which tasks, from a TOML file or from flags.

tasks = ["mini", "../data/my-task"]
depth = 1000

[[system]]
retrievers = ["bm25"]

[[system]]
retrievers = ["bm25", "bge-small"]
fuse = "rrf"
rerank = "maxsim@50"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..core import DataError, UsageError
from ..core.toml import loads
from ..expand import Expander, Settings, get_expander
from ..llm import Options as LlmOptions
from ..rerank import Reranker, Rest, get_reranker, split_depth
from ..retrieve import Retriever, get_retriever
from ..retrieve.dense import DenseRetriever
from .candidates import Candidates
from .executors.protocol import Made, Recipe
from .fusing import Fusion
from .system import Reranking, System

Part = TypeVar("Part")
RUN = "run:"
Progress = Callable[[int, int], None]
Spending = Callable[[int, int, Any], None]
"""Called with (done, total, usage): usage counts calls and dollars, or is None where nobody is asked."""
RERANKER_OPTIONS = ("device", "trust_remote_code", "on_progress")


class SystemSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One system, as written."""

    retrievers: list[str]
    # Names of retrievers; `run:FILE` is a stored run.
    fuse: str = ""
    # How several retrievers become one: `rrf`, `weighted`, `combsum`, `combmnz`, `tuned`.
    k: int = 60
    # The constant of `rrf`.
    weights: list[float] = []
    # One a retriever, for `weighted`.
    expand: str = ""
    # `hyde:gpt4`, `concepts`, `query2doc:replay:FILE` …
    policy: str | None = None
    # How expansions meet retrievers, instead of the method's own policy.
    rerank: str = ""
    # `maxsim@50`, `msmarco-minilm@100`, `rankgpt:gpt4@20` …
    rest: Rest = "keep"
    # Candidates below the reranker's depth: `keep` or `drop`.


class Experiment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Systems × tasks."""

    system: list[SystemSpec]
    # One table `[[system]]` each.
    tasks: list[str] = msgspec.field(default_factory=lambda: ["mini"])
    # Collections, tasks or folders.
    depth: int = 1000
    # Documents a query.


def read_experiment(path: Path) -> Experiment:
    """Read a TOML file."""
    try:
        return msgspec.convert(loads(path.read_text("utf-8")), Experiment)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    except ValueError as error:  # TOML and msgspec
        raise DataError(f"is no experiment ({error})", path=path) from None


class Builder:
    """Makes systems; a retriever, expander or reranker that several of them name is made once."""

    def __init__(
        self,
        published: Callable[..., Any] | None = None,
        *,
        max_cost: float | None = None,
        dry_run: bool = False,
        settings: Settings | None = None,
        on_expand: Spending | None = None,
        memory: int | None = None,
        **options: Any,
    ) -> None:
        self.memory = memory
        self.made: list[Made] = []
        """Parts that a worker can make again, with their recipes."""
        self.options = options | ({} if max_cost is None else {"max_cost": max_cost})
        self.published = published
        self.settings = settings
        self.on_expand = on_expand
        self.llm_options = LlmOptions(max_cost=max_cost)
        self._open: list[Any] = []
        self.retriever = cache(self._retriever)
        self.expander = cache(self._expander)
        self.reranker = cache(self._reranker)

    def build(self, spec: SystemSpec) -> System:
        """One system."""
        if spec.fuse and len(spec.retrievers) < 2:
            raise UsageError(f"fusion {spec.fuse!r} needs at least two retrievers")
        reranking = None
        if spec.rerank:
            name, depth = split_depth(spec.rerank)
            reranking = Reranking(self.reranker(name), depth, spec.rest)
        fusion = Fusion(spec.fuse, k=spec.k, weights=tuple(spec.weights)) if spec.fuse else None
        expander = self.expander(spec.expand) if spec.expand else None
        return System(
            tuple(self.retriever(name) for name in spec.retrievers),
            fusion,
            expander,
            spec.policy,
            reranking,
            self._watch(expander) if expander else None,
        )

    def _retriever(self, spec: Any) -> Retriever:
        if not isinstance(spec, str):  # somebody's own object
            return get_retriever(spec, **self.options)
        if spec.startswith(RUN):
            return Candidates(spec.removeprefix(RUN))
        made = get_retriever(spec, **self.options)
        if isinstance(made, DenseRetriever):
            made.memory = self.memory
        return self._keep(made, "retriever", spec, self.options)

    def _expander(self, spec: str) -> Expander:
        made = get_expander(spec, settings=self.settings, options=self.llm_options, published=self.published)
        self._open.append(getattr(made, "chat", None))
        return made

    def _reranker(self, spec: str) -> Reranker:
        own = {k: v for k, v in self.options.items() if k in RERANKER_OPTIONS}
        made = get_reranker(spec, llm_options=self.llm_options, **own)
        self._open.append(getattr(made, "chat", None))
        return self._keep(made, "reranker", spec, own)

    def _keep(self, part: Part, kind: str, spec: str, options: dict[str, Any]) -> Part:
        """Write down how a part was made; a folder is named so that another working directory finds it too."""
        folder = Path(spec).expanduser()
        plain = {key: value for key, value in options.items() if value is not None}
        self.made.append(Made(part, Recipe(kind, str(folder.resolve()) if folder.is_dir() else spec, plain)))
        return part

    def _watch(self, expander: Expander) -> Progress | None:
        """Progress of an expander, with what its calls have cost so far."""
        if self.on_expand is None:
            return None
        tell, usage = self.on_expand, getattr(getattr(expander, "chat", None), "usage", None)
        return lambda done, total: tell(done, total, usage)

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections to language models."""
        for chat in filter(None, self._open):
            chat.close()


def ladder(retrievers: list[str], *, expand: str = "", rerank: str = "", **shared: Any) -> list[SystemSpec]:
    """The systems of one command line: each retriever alone, all of them fused, and each step more on top.

    The plain system stands beside the extended one, so that the effect of a step can be seen.
    """
    fuse, weights, k = shared.pop("fuse", ""), shared.pop("weights", []), shared.pop("k", 60)
    policy, rest = shared.pop("policy", None), shared.pop("rest", "keep")
    rungs = [SystemSpec(retrievers=[r]) for r in retrievers]
    if fuse:
        rungs.append(SystemSpec(retrievers=retrievers, fuse=fuse, weights=weights, k=k))
    last = rungs[-1:] if fuse else rungs
    if expand:
        expanded = [msgspec.structs.replace(s, expand=expand, policy=policy) for s in rungs]
        rungs, last = [*rungs, *expanded], expanded[-1:] if fuse else expanded
    if rerank:
        rungs = [*rungs, *(msgspec.structs.replace(s, rerank=rerank, rest=rest) for s in last)]
    return rungs


def systems_from(retrievers: list[str], fuse: str = "", **options: Any) -> list[System]:
    """Each retriever as a system of its own and, where a fusion is asked for, all of them fused."""
    builder = Builder(**options)
    return [builder.build(spec) for spec in ladder(retrievers, fuse=fuse)]
