"""Repeating a published figure: run or read a system, then say per task whether it comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..core import Run, UsageError
from ..core.spec import Spec
from ..expand.policy import R2MED, REASONING, published_policy
from ..models import Card, card_names, find_card
from ..results import ResultStore, TaskResult
from ..results.ledger import Figure, Ledger, Reproduction, verdicts
from ..results.protocols import MAIN_PROTOCOL, Expected, Part, Protocol, differences, get_protocol, parts, unstated
from ..retrieve import retrievers
from ..scoring import MAIN, Measure
from ..tasks import TaskRef
from .build import Builder
from .run import Notify, run_experiment
from .system import SystemSpec

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
    published = [ref for ref in refs if ref.name in figure.tasks(measure.key)]
    if not published:
        raise UsageError(f"none of the tasks asked for has a published figure for {name}")
    results = _results(figure, chosen, published, store, run=run, notify=notify)
    reasons = {r.task.name: _reasons(r, chosen, store) for r in results}
    allowed = figure.source.tolerance if tolerance is None else tolerance
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


def card_under(card: Card, protocol: Protocol) -> tuple[Card, Expected]:
    """A model as a protocol sets it, and what the protocol means for it."""
    if protocol.truncation == "published":
        card = card.published()
    known = protocol.truncation in ("model", "published")
    expected = Expected(
        query_length=card.query_length if known else None,
        document_length=card.document_length if known else None,
        similarity=card.similarity,
        own_wording=bool(card.prompts) and card.takes_instructions,
    )
    return card, expected


def spec_under(figure: Figure, protocol: Protocol) -> SystemSpec:
    """A published system as a protocol sets it; its expansions are those published with the tasks."""
    system = SystemSpec.parse(figure.system)
    changed = system
    if protocol.truncation == "published":
        changed = replace(system, retrievers=tuple(map(as_published, system.retrievers)))
    if protocol.bm25 is not None and protocol.bm25.query == "tokens":  # NanoR2MED calls its own BM25 just that
        own = (Spec("bm25-nano") if retriever == Spec("bm25") else retriever for retriever in changed.retrievers)
        changed = replace(changed, retrievers=tuple(own))
    expander = changed.expander
    if expander is not None and isinstance(expander.argument, Spec):
        expander = replace(expander, argument=Spec("published", expander.argument.name))
        changed = replace(changed, expander=expander.with_parameters(policy=R2MED if protocol.name == PAPER else None))
    return changed


def as_published(spec: Spec) -> Spec:
    """A model with the paper's settings; a retriever without any stays as it is."""
    return retrievers.changed(spec, protocol=PAPER) if "protocol" in retrievers.declared(spec) else spec


def _results(
    figure: Figure, protocol: Protocol, refs: Sequence[TaskRef], store: ResultStore, *, run: bool, notify: Notify
) -> list[TaskResult]:
    names = list(_filed_names(figure, protocol))
    found: dict[str, TaskResult] = {}
    if not (run and figure.kind == "retriever"):
        found = {ref.full_name: result for ref in refs if (result := _read(names, ref, store)) is not None}
    missing = [ref for ref in refs if ref.full_name not in found]
    if run and missing and _runnable(figure, missing):
        with Builder() as builder:
            system = builder.build(spec_under(figure, protocol))
            found |= {r.task.full_name: r for r in run_experiment(missing, [system], store, notify=notify).results}
    if not found:
        more = "" if figure.kind == "retriever" else "; run it first: it is more than a retriever"
        raise UsageError(f"{store.root} holds no results of {figure.system} on these tasks{more}")
    return [found[ref.full_name] for ref in refs if ref.full_name in found]


def _read(names: Sequence[str], ref: TaskRef, store: ResultStore) -> TaskResult | None:
    """A stored result, the one nearest to the protocol first."""
    read = (store.find(name, ref.collection, ref.name) for name in names)
    return next((result for result in read if result is not None), None)


def _filed_names(figure: Figure, protocol: Protocol) -> Iterator[str]:
    """What a system of the ledger may be filed under: as the protocol sets it, as published, as it is named."""
    plain = _parsed(figure)
    if plain is not None:
        wanted = spec_under(figure, protocol)
        yield str(wanted)
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


def _reasons(result: TaskResult, protocol: Protocol, store: ResultStore) -> list[str]:
    retrievers = parts(result.system)
    expected = {part.name: _expected(result, part, protocol) for part in retrievers}
    used = {part.name: _policy_used(result, part.name) for part in retrievers}
    found = differences(result.system, protocol, expected, {name: policy for name, policy in used.items() if policy})
    kinds = {part.kind for part in retrievers}
    drops = protocol.identical_ids == "dropped" and kinds & set(protocol.identical_ids_for or kinds)
    if drops and _finds_itself(store.run(result)):
        found.append(f"documents with the query's own id are ranked, {protocol.name} drops them")
    return found


def _card(name: str) -> Card | None:
    return find_card(name) if name in card_names() or "/" in name else None


def _expected(result: TaskResult, part: Part, protocol: Protocol) -> Expected:
    """What a protocol means for one retriever of a result."""
    card = _card(part.name)
    expected = card_under(card, protocol)[1] if card else Expected()
    expander = result.system.description.get("expander")
    if protocol.name != PAPER or not isinstance(expander, dict) or part.kind not in protocol.expansion:
        return expected
    method, model = str(expander.get("method")), expander.get("model")
    marking = expander.get("marking") or (model.get("marking") if isinstance(model, dict) else "")
    reasoning = marking in REASONING
    if method not in protocol.expansion[part.kind] or ((method, part.kind) == ("query2doc", "dense") and not reasoning):
        return expected  # the scripts' own separator, which the table names and r2med does not have
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
    return notes
