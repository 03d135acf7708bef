"""Repeating a published figure: run or read a system, then say per task whether it comes out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..core import Run, UsageError
from ..core.options import Options
from ..core.registry import Registry
from ..core.spec import Spec
from ..expand.contract import R2MED
from ..expand.policy import REASONING, published_policy
from ..models import Card, find_card, named_card
from ..models.prompts import own_wording
from ..rerank import rerankers
from ..results import ResultStore, TaskResult
from ..results.ledger import Figure, Ledger, Reproduction, verdicts
from ..results.protocols import MAIN_PROTOCOL, Expected, Part, Protocol, differences, get_protocol, parts, unstated
from ..retrieve import DEPTH, retrievers
from ..retrieve.cards import with_paper_pack
from ..scoring import MAIN, Measure
from ..tasks import TaskRef
from .run import Notify, run_experiment
from .system import Builder, SystemSpec

PAPER = MAIN_PROTOCOL["r2med"]


def reproduce(
    name: str,
    refs: Sequence[TaskRef],
    store: ResultStore,
    ledger: Ledger,
    *,
    collection: str,
    protocol: str = "",
    measure: Measure = MAIN,
    tolerance: float | None = None,
    run: bool = True,
    notify: Notify = lambda system, task, what: None,
    options: Options | None = None,
) -> Reproduction:
    """Compare a system with the ledger. What is stored is read; what is not is run, unless `run` is false.

    An expansion is run from the generated texts that come with a task; no chat model is asked.
    """
    chosen = get_protocol(protocol or MAIN_PROTOCOL.get(collection, "default"))
    figure = ledger.find(name, collection, chosen.name)
    if not figure.tasks(measure.key):
        raise UsageError(
            f"{figure.source.id} gives no {measure} of each task for {name} on {collection} under {chosen.name}"
        )
    allowed = figure.source.tolerance if tolerance is None else tolerance
    if not 0 <= allowed < math.inf:
        raise UsageError(f"a tolerance is 0 points or more, not {allowed:g}")
    published = [ref for ref in refs if ref.name in figure.tasks(measure.key)]
    if not published:
        raise UsageError(f"none of the tasks asked for has a published figure for {name}")
    results = _results(figure, chosen, published, store, options, run=run, notify=notify)
    reasons = {r.task.name: _reasons(r, chosen, store, measure) for r in results}
    done = {r.task.name for r in results}
    return Reproduction(
        system=name,
        collection=collection,
        protocol=chosen.name,
        protocol_fingerprint=chosen.fingerprint,
        measure=measure.key,
        source=figure.source.id,
        date=figure.source.date,
        tolerance=allowed,
        tasks=verdicts(figure, results, measure.key, tolerance=allowed, reasons=reasons),
        missing=[ref.full_name for ref in published if ref.name not in done],
        notes=_notes(figure, chosen, results),
    )


def expected_of(card: Card, protocol: Protocol) -> Expected:
    """What a protocol means for a model."""
    if protocol.truncation == "published":
        card = card.published()
    known = protocol.truncation in ("model", "published")
    return Expected(
        query_length=card.query_length if known else None,
        document_length=card.document_length if known else None,
        similarity=card.similarity,
        dtype=card.dtype if protocol.precision == "published" and card.backend == "transformers" else None,
        own_wording=own_wording(card),
    )


def spec_under(figure: Figure, protocol: Protocol) -> SystemSpec:
    """A published system as a protocol sets it; its expansions are those published with the tasks."""
    system = SystemSpec.parse(figure.system)
    if protocol.truncation == "published":
        links = [as_published(link, rerankers) for link in (system.reranker.links if system.reranker else ())]
        reranker = Spec.chain(links) if links else None
        system = replace(system, retrievers=tuple(map(as_published, system.retrievers)), reranker=reranker)
    if protocol.bm25 is not None and protocol.bm25.query == "tokens":  # NanoR2MED calls its own BM25 just that
        own = (Spec("bm25-nano") if retriever == Spec("bm25") else retriever for retriever in system.retrievers)
        system = replace(system, retrievers=tuple(own))
    expander = system.expander
    if expander is None or not isinstance(expander.argument, Spec):
        return system
    published = replace(expander, argument=Spec("published", expander.argument.name))
    return replace(system, expander=published.with_parameters(policy=R2MED if protocol.name == PAPER else None))


def as_published(spec: Spec, registry: Registry[Any] = retrievers) -> Spec:
    """A model with the paper's settings and instructions; a component without any stays as it is."""
    if "protocol" not in registry.declared(spec):
        return spec
    changed = registry.changed(spec, protocol=PAPER)
    return with_paper_pack(changed) if registry is retrievers else changed


def _results(
    figure: Figure, protocol: Protocol, refs: Sequence[TaskRef], store: ResultStore, options: Options | None, *,
    run: bool, notify: Notify,
) -> list[TaskResult]:  # fmt: skip
    names = list(_filed_names(figure, protocol))
    found: dict[str, TaskResult] = {}
    if not (run and figure.kind == "retriever"):
        for ref in refs:
            stored = (store.find(name, ref.collection, ref.name) for name in names)  # nearest to the protocol first
            if (result := next(filter(None, stored), None)) is not None:
                found[ref.full_name] = result
    missing = [ref for ref in refs if ref.full_name not in found]
    if run and missing and _runnable(figure, missing):
        with Builder(options) as builder:
            system = builder.build(spec_under(figure, protocol))
            found |= {r.task.full_name: r for r in run_experiment(missing, [system], store, notify=notify).results}
    if not found:
        more = "" if figure.kind == "retriever" else "; run it first: it is more than a retriever"
        raise UsageError(f"{store.root} holds no results of {figure.system} on these tasks{more}")
    return [found[ref.full_name] for ref in refs if ref.full_name in found]


def _filed_names(figure: Figure, protocol: Protocol) -> Iterator[str]:
    """What a system of the ledger may be filed under: as the protocol sets it, as published, as it is named."""
    plain = _parsed(figure)
    if plain is not None:
        wanted = spec_under(figure, protocol)
        yield str(wanted)
        told = tuple(spec.without("prompts") for spec in wanted.retrievers)
        yield str(replace(wanted, retrievers=told))
        if wanted.expander is not None:
            yield str(replace(plain, expander=wanted.expander))
            yield str(replace(wanted, expander=wanted.expander.without("policy")))
            yield str(replace(plain, expander=wanted.expander.without("policy")))
    yield f"{figure.system}@{protocol.name}"  # the first edition's way
    yield figure.system


def _parsed(figure: Figure) -> SystemSpec | None:
    """The spec of a published system; None for one that r2med does not have."""
    try:
        return SystemSpec.parse(figure.system)
    except UsageError:
        return None


def _runnable(figure: Figure, refs: Sequence[TaskRef]) -> bool:
    """Whether a system can be run from its name without asking a chat model."""
    system = SystemSpec.parse(figure.system) if figure.kind == "retriever" else _parsed(figure)
    if system is None or system.expander is None:
        return system is not None
    expander = system.expander
    wanted = (expander.name, expander.argument.name if isinstance(expander.argument, Spec) else "")
    return all(any((e.method, e.llm) == wanted for e in ref.expansions()) for ref in refs)


def _reasons(result: TaskResult, protocol: Protocol, store: ResultStore, measure: Measure) -> list[str]:
    retrievers = parts(result.system)
    expected = {part.name: _expected(result, part, protocol) for part in retrievers}
    used = {part.name: _policy_used(result, part.name) for part in retrievers}
    found = differences(result.system, protocol, expected, {name: policy for name, policy in used.items() if policy})
    kinds = {part.kind for part in retrievers}
    drops = protocol.identical_ids == "dropped" and kinds & set(protocol.identical_ids_for or kinds)
    if drops and _finds_itself(store.run(result)):
        found.append(f"documents with the query's own id are ranked, {protocol.name} drops them")
    if result.ends_before(measure.cutoff or DEPTH):
        found.append(f"rankings were cut at {result.depth}, so that {measure} counts less than there is to find")
    return found


def _expected(result: TaskResult, part: Part, protocol: Protocol) -> Expected:
    """What a protocol means for one retriever of a result."""
    has_card = named_card(part.name) is not None or "/" in part.name
    expected = expected_of(find_card(part.name), protocol) if has_card else Expected()
    expander = result.system.description.get("expander")
    if protocol.name != PAPER or not isinstance(expander, dict) or part.kind not in protocol.expansion:
        return expected
    method, model = str(expander.get("method")), expander.get("model")
    marking = expander.get("marking") or (model.get("marking") if isinstance(model, dict) else "")
    reasoning = marking in REASONING
    policy = published_policy(method, part.kind, model=part.name, reasoning=reasoning)
    return expected._replace(policy=policy or protocol.expansion[part.kind].get(method))


def _policy_used(result: TaskResult, retriever: str) -> str | None:
    """The policy by which expansions met a retriever, as the result notes it; a fused one notes it by retriever."""
    own = result.notes.get(retriever)
    notes = own if isinstance(own, dict) else result.notes
    noted = notes.get("expansion")
    policy = noted.get("policy") if isinstance(noted, dict) else None
    return policy if isinstance(policy, str) else None


def _finds_itself(run: Run) -> bool:
    """Whether any query's ranking holds a document of the same id; where none does, dropping them changes nothing."""
    own = run.doc_ids.positions(run.query_ids)
    return bool(((run.docs == own[:, None]) & (own[:, None] >= 0)).any())


def _notes(figure: Figure, protocol: Protocol, results: Sequence[TaskResult]) -> list[str]:
    notes = [f"{figure.source.title}: {figure.source.note}"] if figure.source.note else []
    kinds = {r.system.kind for r in results}
    silent = dict.fromkeys(choice for kind in sorted(kinds) for choice in unstated(protocol, kind))
    if silent:
        notes.append(f"protocol {protocol.name} does not state: {', '.join(silent)}")
    return notes + _other_versions(protocol, results)


def _other_versions(protocol: Protocol, results: Sequence[TaskResult]) -> list[str]:
    """Libraries that the published figures were made with in another version."""
    used: dict[str, str] = {}
    for result in results:
        versions = result.environment.get("versions")
        used |= versions if isinstance(versions, dict) else {}
    other = [f"{n} {used[n]} (published: {v})" for n, v in protocol.versions.items() if used.get(n, v) != v]
    return [f"made with {', '.join(other)}"] if other else []
