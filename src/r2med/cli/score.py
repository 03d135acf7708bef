"""`r2med search`: try it; `r2med score`: any TREC run."""

from __future__ import annotations

from pathlib import Path

import click

from ..scoring.measures import JUDGED, STANDARD, USUAL, definitions, parse_measures
from .common import Whole, emit, json_option, note, options_from, pickle_option, print_table, say, say_styled

_PARAMETERS = {p.name: p.help for d in definitions() for p in d.parameters.values()}
_MEASURES = "\n".join(
    [f"  {d.shape:<18} {d.summary}" for d in definitions()]
    + [f"  {name:<18} {meaning}" for name, meaning in _PARAMETERS.items()]
)


@click.command("score", epilog=f"\b\nMeasures, with their parameters at the defaults; @k is the cut-off:\n{_MEASURES}")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("qrels", type=click.Path(path_type=Path))
@click.option(
    "--measure",
    "-m",
    "measures",
    multiple=True,
    metavar="MEASURE",
    help=f"{', '.join(map(str, USUAL))}, R(rel=2)@100 …; repeatable. Default: the first {len(USUAL)} "
    "of these; with --json, all at the usual cut-offs.",
)
@click.option("--per-query", is_flag=True, help="One row per query.")
@click.option("--condensed", is_flag=True, help="Leave out what nobody judged before scoring (trec_eval -J).")
@json_option
def score(
    run: Path, qrels: Path, measures: tuple[str, ...], per_query: bool, condensed: bool, as_json: bool
) -> None:  # fmt: skip
    """Score a TREC run against judgments (TREC, BEIR tsv or R2MED jsonl), as trec_eval does.

    Queries that the run lacks score 0 and are counted; those without judgments do not count, and are counted too.
    """
    from ..core.table import counted, points, share
    from ..scoring import score as evaluate
    from ..scoring.holes import condensed as condensed_lists
    from ..tasks import read_qrels, read_run

    chosen = parse_measures(measures)
    judgments = read_qrels(qrels)
    ranked = read_run(run)
    result = evaluate(condensed_lists(ranked, judgments) if condensed else ranked, judgments, chosen or STANDARD)
    judged = evaluate(ranked, judgments, [JUDGED]).mean(JUDGED) if condensed else result.judged_at_10
    unjudged = len(set(ranked.query_ids) - set(judgments.query_ids))
    if as_json:
        document: dict[str, object] = {
            "queries": len(result.query_ids),
            "measures": result.means.by_key() if chosen else result.to_dict(),
            "missing_queries": len(result.missing_queries),
            "unjudged_queries": unjudged,
            "judged_at_10": judged,
            "condensed": condensed,
            "queries_without_positives": result.without_positives,
        }
        if per_query:
            columns = {key: values.tolist() for key, values in result.per_query.by_key().items()}
            document["per_query"] = {
                query_id: {key: values[i] for key, values in columns.items()}
                for i, query_id in enumerate(result.query_ids)
            }
        emit(document)
        return
    shown = chosen or USUAL
    if per_query:
        columns = {str(m): result.per_query[m].tolist() for m in shown}
        rows = [
            [query_id, *(points(values[i]) for values in columns.values())]
            for i, query_id in enumerate(result.query_ids)
        ]
        print_table(["Query", *columns], rows, caption="Scores × 100.")
        say()
    asked = counted(len(result.query_ids), "query", "queries")
    means = [run.name, *(points(result.mean(m)) for m in shown)]
    print_table(["", *map(str, shown)], [means], caption=f"Scores × 100, means over {asked}.")
    said = "the share of the top ten that somebody judged" + ("; scored alone" if condensed else "")
    note(f"{JUDGED} {share(judged)}: {said}")
    if missing := len(result.missing_queries):
        note(f"{missing:,} of {asked} {'is' if missing == 1 else 'are'} missing from the run and scored 0")
    if unjudged:
        note(f"{counted(unjudged, 'query', 'queries')} of the run without judgments did not count")
    if result.without_positives:
        note(f"{counted(result.without_positives, 'query', 'queries')} without a positive judgment scored 0")


@click.command("search")
@click.argument("text")
@click.option("--task", "-t", "spec", default="mini/MedQA-Diag", show_default=True, help="Task or folder to search in.")
@click.option("--retriever", "-r", default="bm25", show_default=True, help="Retriever.")
@click.option("--top", "-k", default=5, show_default=True, type=Whole(min=1), help="Passages to show.")
@click.option("--prompts", type=click.Path(path_type=Path), help="A prompt pack that replaces the task instructions.")
@click.option("--memory", metavar="SIZE", help="What dense search may hold beside its mapped vectors, such as 2GB.")
@pickle_option
@json_option
def search(
    text: str, spec: str, retriever: str, top: int, prompts: Path | None, memory: str | None, allow_pickle: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Type a query and see the top passages, with the words that matched marked."""
    from ..api import experiments
    from ..tasks import load

    task = load(spec)
    options = options_from({"memory": memory, "allow_pickle": allow_pickle})
    found = experiments.search(text, task, retriever=retriever, top=top, prompts=prompts, options=options)
    if as_json:
        emit({"query": text, "task": task.full_name, "retriever": retriever, "hits": [hit._asdict() for hit in found]})
        return
    if not found:
        say(f"Nothing found: no passage of {task.full_name} shares a term with the query.")
    for hit in found:
        say_styled([(f"{hit.rank}. {hit.doc_id}  {hit.score:.3f}", "bold")])
        pieces, end = list[tuple[str, str]](), 0
        for start, stop in hit.marks:
            pieces += [(hit.text[end:start], ""), (hit.text[start:stop], "bold yellow")]
            end = stop
        say_styled([*pieces, (hit.text[end:], "")], indent=3)
        if hit.marks:
            words = dict.fromkeys(hit.text[start:stop].lower() for start, stop in hit.marks)
            say_styled([(f"matched: {', '.join(words)}", "dim")], indent=3)
