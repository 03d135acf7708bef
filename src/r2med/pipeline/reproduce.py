"""Repeating a published figure: run or read a system, then say per task whether it comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..core import Run, UsageError
from ..expand.policy import R2MED, REASONING, published_policy
from ..expand.specs import GENERATING, Published, get_expander
from ..results import ResultStore, TaskResult
from ..results.ledger import Figure, Ledger
from ..results.protocols import MAIN_PROTOCOL, Expected, Part, Protocol, differences, get_protocol, parts, unstated
from ..results.reproduction import Reproduction, verdicts
from ..retrieve import Retriever, get_retriever
from ..scoring import MAIN, Measure
from ..tasks import TaskRef
from .run import Notify, run_experiment
from .system import Reranking, System

if TYPE_CHECKING:
    from ..models import Card

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
    published_texts: Published | None = None,
    notify: Notify = lambda system, task, what: None,
) -> Reproduction:
    """Compare a system with the ledger. What is stored is read; what is not is run, unless `run` is false.

    An expansion is run from `published_texts`, the generated texts that come with a task; no LLM is asked.
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
    results = _results(figure, chosen, published, store, published_texts, run=run, notify=notify)
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


def retriever_under(name: str, protocol: Protocol) -> Retriever:
    """A retriever as a protocol sets it.

    One that the protocol changes goes by `name@protocol`, so that its results never take the place of the plain ones.
    """
    plain = _card(name)
    if plain is None or plain.kind != "dense" or (card := card_under(plain, protocol)[0]) == plain:
        return get_retriever(name)
    from ..models import locate
    from ..retrieve.dense import DenseRetriever

    second = locate(card, "document") if card.document_source else None
    return DenseRetriever(card, name=_filed(name, protocol), folder=locate(card), document_folder=second)


def _card(name: str) -> Card | None:
    from ..models import card_names, find_card

    return find_card(name) if name in card_names() or "/" in name else None


def _filed(name: str, protocol: Protocol) -> str:
    return f"{name}@{protocol.name}"


def _results(
    figure: Figure,
    protocol: Protocol,
    refs: Sequence[TaskRef],
    store: ResultStore,
    texts: Published | None,
    *,
    run: bool,
    notify: Notify,
) -> list[TaskResult]:
    if run and figure.kind == "retriever":
        return _run(figure, protocol, refs, store, None, notify)
    found = {ref.full_name: result for ref in refs if (result := _read(figure, protocol, ref, store)) is not None}
    missing = [ref for ref in refs if ref.full_name not in found]
    if run and missing and _runnable(figure, missing, texts):
        found |= {r.task.full_name: r for r in _run(figure, protocol, missing, store, texts, notify)}
    if not found:
        more = "" if figure.kind == "retriever" else "; run it first: it is more than a retriever"
        raise UsageError(f"{store.root} holds no results of {figure.system} on these tasks{more}")
    return [found[ref.full_name] for ref in refs if ref.full_name in found]


def _read(figure: Figure, protocol: Protocol, ref: TaskRef, store: ResultStore) -> TaskResult | None:
    """A stored result, the one nearest to the protocol first."""
    read = (store.find(name, ref.collection, ref.name) for name in _filed_names(figure, protocol))
    return next((result for result in read if result is not None), None)


def _filed_names(figure: Figure, protocol: Protocol) -> Iterator[str]:
    """What `r2med run` calls a system of the ledger: `hyde:gpt4+nv` may be `hyde:published:gpt4+nv,policy=r2med`."""
    spec, _, retriever = figure.system.partition("+")
    method, _, llm = spec.partition(":")
    if figure.kind == "expansion":
        expanders = (f"{method}:published:{llm}", spec)
        retrievers = (_filed(retriever, protocol), retriever)
        policies = (f",policy={R2MED}", "") if protocol.name == PAPER else ("",)
        yield from (f"{e}+{r}{p}" for p in policies for r in retrievers for e in expanders)
    elif figure.kind == "reranker":
        yield f"{_filed(spec, protocol)}+{retriever}"
        yield figure.system
    else:
        yield from (_filed(figure.system, protocol), figure.system)


def _runnable(figure: Figure, refs: Sequence[TaskRef], texts: Published | None) -> bool:
    """Whether a system can be run from its name without asking an LLM."""
    spec, plus, _ = figure.system.partition("+")
    method, _, llm = spec.partition(":")
    if figure.kind != "expansion" or not plus or method not in GENERATING or texts is None:
        return figure.kind == "reranker" and bool(plus) and "@" in figure.system
    return all(any((e.method, e.llm) == (method, llm) for e in ref.expansions()) for ref in refs)


def _run(
    figure: Figure,
    protocol: Protocol,
    refs: Sequence[TaskRef],
    store: ResultStore,
    texts: Published | None,
    notify: Notify,
) -> list[TaskResult]:
    first, _, second = figure.system.partition("+")
    if figure.kind == "expansion":
        method, _, llm = first.partition(":")
        expander = get_expander(f"{method}:published:{llm}", published=texts)
        policy = R2MED if protocol.name == PAPER else None
        system = System((retriever_under(second, protocol),), expander=expander, policy=policy)
    elif figure.kind == "reranker":
        from ..rerank import get_reranker, split_depth

        name, depth = split_depth(second)
        system = System((retriever_under(first, protocol),), reranking=Reranking(get_reranker(name), depth))
    else:
        system = System((retriever_under(figure.system, protocol),))
    return run_experiment(refs, [system], store, notify=notify).results


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
    return expected._replace(policy=published_policy(method, part.kind, model=part.name, reasoning=reasoning))


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
