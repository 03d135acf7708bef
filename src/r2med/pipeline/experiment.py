"""An experiment as data: which systems on which tasks, from a TOML file, from flags, or by name (`@grouprank-32b`).

tasks = ["mini", "../data/my-task"]
depth = 1000

[[system]]
retrievers = ["bm25"]

[[system]]
retrievers = ["bm25", "bge-small"]
fuse = "weighted"
weights = [0.7, 0.3]
rerank = "maxsim@50"

[[system]]
spec = "hyde:gpt4+bm25"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ..core import DataError, UnknownName, UsageError
from ..core.files import parse_toml
from ..core.registry import Registry
from ..core.spec import Content, Spec, show
from ..expand import expanders
from ..expand.generated import generates_with
from ..expand.policy import feedback_kind
from ..fuse import fusions
from ..models import get_card, locate, missing_extra
from ..rerank import Rest, rerankers
from ..retrieve import DEPTH, kind_of, retrievers
from ..retrieve.cards import with_pack
from .system import SystemSpec

FOLDER = "experiments"
EMBEDDED = "bge-small"
BEST_OFFLINE = f"bm25:b=0.9,k1=1.2+{EMBEDDED}.weighted:w=0.3/0.7+neighbours@100"
"""The best of what needs no chat model and no GPU on five real collections: docs/results.md has the table."""


class SystemTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One system, as written: a whole spec, or its parts."""

    spec: str = ""  # `hyde:gpt4+bm25+nv.rrf+maxsim@50`; then nothing else.
    retrievers: list[str] = []  # Names of retrievers; `run:FILE` is a stored run.
    fuse: str = ""  # How several retrievers become one: `rrf`, `weighted`, `combsum`, `combmnz`, `tuned`.
    k: int | None = None  # The constant of `rrf`.
    weights: list[float] = []  # One a retriever, for `weighted`.
    expand: str = ""  # `hyde:gpt4`, `query2doc:replay:FILE`, several in a row: `hyde:gpt4+rm3` …
    policy: str | None = None  # How expansions meet retrievers, instead of the method's own policy.
    rerank: str = ""  # `maxsim@50`, `msmarco-minilm@100`, `rankgpt:gpt4@20` …
    rest: Rest | None = None  # Candidates below the reranker's depth: `keep`, as without it, or `drop`.

    def read(self) -> SystemSpec:
        """The system's spec."""
        if self.spec:
            if self != SystemTable(spec=self.spec):
                raise UsageError(f"a system is given by its spec ({self.spec}) or by its parts, not by both")
            return SystemSpec.parse(self.spec)
        if not self.retrievers:
            raise UsageError("a system needs a spec, or retrievers")
        if not self.fuse and (self.weights or self.k is not None):
            raise UsageError("weights and k belong to a fusion: name one")
        if not self.expand and self.policy:
            raise UsageError("a policy belongs to an expansion: name one")
        if not self.rerank and self.rest == "drop":
            raise UsageError("rest belongs to a reranker: name one")
        return SystemSpec(
            # The first edition wrote `run:nano:CONFIG` for `nano:CONFIG`.
            tuple(retrievers.parse(re.sub(r"^run:(?=nano:)", "", name)) for name in self.retrievers),
            fusion_spec(self.fuse, weights=self.weights, k=self.k) if self.fuse else None,
            expander_spec(self.expand, policy=self.policy) if self.expand else None,
            reranker_spec(self.rerank, rest=self.rest) if self.rerank else None,
        )


class Experiment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Systems × tasks."""

    system: Annotated[list[SystemTable], msgspec.Meta(min_length=1)]  # One table `[[system]]` each.
    tasks: list[str] = msgspec.field(default_factory=lambda: ["mini"])  # Collections, tasks or folders.
    depth: int = DEPTH  # Documents a query.

    def systems(self) -> list[SystemSpec]:
        """Every system once; two tables that say the same are one system."""
        return list(dict.fromkeys(table.read() for table in self.system))


def read_experiment(path: Path) -> Experiment:
    """Read a TOML file."""
    try:
        return msgspec.convert(parse_toml(path.read_text("utf-8")), Experiment)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    except ValueError as error:  # TOML and msgspec
        raise DataError(f"is no experiment ({error})", path=path) from None


def _told(registry: Registry[Any], spec: Spec, **said: object) -> Spec:
    """A spec with what is said beside it; where the spec itself says something else, one would be ignored."""
    changed, declared = registry.changed(spec, **said), registry.declared(spec)
    for name, value in {**dict(spec.parameters), **spec.typed}.items():
        if said.get(name) is not None and changed.get(name, declared[name].default) != value:
            raise UsageError(f"{spec} says {name}={show(value)}, and something else is said beside it")
    return changed


def fusion_spec(text: str, *, weights: Sequence[float] = (), k: int | None = None) -> Spec:
    """A fusion with what is said of it apart from its name."""
    spec = fusions.parse(text)
    if weights and spec.name != "weighted":
        raise UsageError(f"{spec.name} takes no weights")
    if k is not None and spec.name != "rrf":
        raise UsageError(f"{spec.name} has no constant k: rrf has")
    said = {"w": tuple(map(float, weights)) or None, "k": k}
    return _told(fusions, spec, **{name: value for name, value in said.items() if value is not None})


def prompted(retrieved: Sequence[Spec], expander: Spec | None, pack: Content) -> tuple[list[Spec], Spec | None]:
    """Retrievers and an expander with a prompt pack, each as far as the pack has words for it."""
    changed = [with_pack(spec, pack) for spec in retrieved]
    if expander is not None and any(generates_with(link, pack) for link in expander.links):
        links = [expanders.changed(s, prompts=pack) if generates_with(s, pack) else s for s in expander.links]
        return changed, Spec.chain(links)
    if changed == list(retrieved):
        names = ", ".join(map(str, (*retrieved, *([expander] if expander else []))))
        raise UsageError(f"prompt pack {pack.label} changes nothing: it has no words for {names or 'these systems'}")
    return changed, expander


def expander_spec(text: str | Spec, *, policy: str | None = None, **parameters: object) -> Spec:
    """An expander with what is said of it apart from its name; in a chain, of every method that can be told so."""
    first, *rest = expanders.parse(text).links
    if not rest:
        return _told(expanders, first, policy=policy, **parameters)
    given = {key: value for key, value in parameters.items() if value is not None}
    taking = [{k: v for k, v in given.items() if k in expanders.declared(link)} for link in (first, *rest)]
    if untaken := next((key for key in given if not any(key in taken for taken in taking)), None):
        return expanders.changed(first, **{untaken: given[untaken]})  # which refuses it
    links = [_told(expanders, link, **taken) for link, taken in zip((first, *rest), taking, strict=True)]
    return Spec.chain([_told(expanders, links[0], policy=policy), *links[1:]])


def reranker_spec(text: str | Spec, *, rest: Rest | None = None, depth: int | None = None) -> Spec:
    """A reranker, or several in a row, with what becomes of the documents below its depth.

    `depth` is another one than the spec says; several rerankers have one each.
    """
    links = rerankers.parse(text).links
    if depth is not None:
        if links[1:]:
            raise UsageError(f"{text} says how deep each of its rerankers goes: leave out the depth beside it")
        links = (links[0].at(depth),)
    return Spec.chain([_told(rerankers, link, rest=rest) for link in links])


def ablations(
    retrieved: Sequence[Spec], *, fusion: Spec | None = None, expander: Spec | None = None, reranker: Spec | None = None
) -> list[SystemSpec]:
    """The systems of one command line: each retriever alone, all of them fused, and each step more on top.

    The plain system stands beside the extended one, so that the effect of a step can be seen.
    """
    systems = [SystemSpec((spec,)) for spec in retrieved]
    if fusion is not None:
        systems.append(SystemSpec(tuple(retrieved), fusion))
    last = systems[-1:] if fusion is not None else systems
    if expander is not None:
        fitting = ((s, acting_on(expander, s.retrievers)) for s in systems)
        expanded = [SystemSpec(s.retrievers, s.fusion, methods) for s, methods in fitting if methods is not None]
        expanded = expanded or [SystemSpec(s.retrievers, s.fusion, expander) for s in systems]  # which is refused
        systems, last = [*systems, *expanded], expanded[-1:] if fusion is not None else expanded
    for place in range(len(reranker.links) if reranker is not None else 0):
        assert reranker is not None
        so_far = Spec.chain(reranker.links[: place + 1])
        systems += [SystemSpec(s.retrievers, s.fusion, s.expander, so_far) for s in last]
    return list(dict.fromkeys(systems))


def acting_on(expander: Spec, retrieved: Sequence[Spec]) -> Spec | None:
    """A chain without the feedback that none of these retrievers can search with; None where nothing is left."""
    kinds = [kind_of(spec) for spec in retrieved]
    links = [link for link in expander.links if None in kinds or feedback_kind(link) in (None, *kinds)]
    return Spec.chain(links) if links else None


class Defaults(NamedTuple):
    """Retrievers, how they are fused, a whole system beside them, and what is missing for more."""

    retrievers: list[str]
    fusion: str = ""
    best: str = ""
    missing: str = ""


def default_systems() -> Defaults:
    """BM25, the embedded dense model, their fusion and the best made of both; BM25 alone without that model."""
    if missing := missing_for(EMBEDDED):
        return Defaults(["bm25", "bm25-lucene"], missing=missing)
    return Defaults(["bm25", EMBEDDED], "rrf", BEST_OFFLINE)


def missing_for(name: str) -> str:
    """What a named model lacks to run on this machine: its engine, or its weights; empty where it lacks nothing."""
    card = get_card(name)
    if extra := missing_extra(card):
        return f"{name} needs an optional dependency: pip install 'r2med[{extra}]'"
    return "" if locate(card) is not None else f"{name} is not on this machine: r2med models fetch {name}"


def at_lengths(specs: Iterable[Spec], lengths: Sequence[int]) -> list[Spec]:
    """Each model at each length; retrievers that cut no texts stay as they are."""
    found: list[Spec] = []
    for spec in specs:
        cuts = "max_length" in retrievers.declared(spec) and spec.get("max_length") is None
        found += [retrievers.changed(spec, max_length=n) for n in lengths] if cuts and lengths else [spec]
    return list(dict.fromkeys(found))


class Shipped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a shipped experiment says about itself beside what it runs."""

    name: str
    title: str
    published: float  # The average over R2MED's eight tasks that its source states, × 100.
    source: str  # Of the ledger.
    figure: str = ""  # What the ledger calls the system, where that is not the spec.
    differs: list[str] = []  # How it differs from what was published, as far as that is known.


class ShippedFile(Experiment, kw_only=True, forbid_unknown_fields=True):
    """A shipped experiment: an experiment file with a table `[about]`."""

    about: Shipped


@cache
def shipped() -> dict[str, ShippedFile]:
    """All of them, best published score first."""
    found = {}
    for entry in files(__package__).joinpath(FOLDER).iterdir():
        if entry.name.endswith(".toml"):
            data: dict[str, Any] = parse_toml(entry.read_text("utf-8"))
            try:
                data["about"]["name"] = entry.name[:-5]
                found[entry.name[:-5]] = msgspec.convert(data, ShippedFile)
            except (KeyError, ValueError) as error:
                raise DataError(f"is no experiment ({error})", path=entry.name) from None
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].about.published, pair[0])))


def get_shipped(name: str) -> ShippedFile:
    """One of them; an unknown name is answered with all."""
    if name not in shipped():
        hint = f"(there are: {', '.join(f'@{known}' for known in shipped())})"
        raise UnknownName("experiment", name, shipped(), hint=hint)
    return shipped()[name]


def experiment_for(system: str) -> str:
    """The name of the shipped experiment that runs a system and nothing else; empty where there is none."""
    return next((name for name, file in shipped().items() if [table.spec for table in file.system] == [system]), "")
