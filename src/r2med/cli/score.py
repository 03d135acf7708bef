"""`r2med score`: any TREC run."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note, print_table


@click.command("score")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("qrels", type=click.Path(path_type=Path))
@click.option(
    "--measure",
    "-m",
    "measures",
    multiple=True,
    metavar="MEASURE",
    help="nDCG@10, AP@10, R@100, P@5, RR, hit@10 …; repeatable. Default: all at the usual cut-offs.",
)
@click.option("--per-query", is_flag=True, help="One row per query.")
@json_option
def command(run: Path, qrels: Path, measures: tuple[str, ...], per_query: bool, as_json: bool) -> None:
    """Score a TREC run against judgments (TREC, BEIR tsv or R2MED jsonl), as trec_eval does.

    Queries that the run lacks score 0 and are counted; those without judgments do not count, and are counted too.
    """
    from ..scoring import STANDARD, evaluate_run, parse_measures
    from ..tasks import read_qrels, read_run

    chosen = parse_measures(measures) if measures else STANDARD
    judgments = read_qrels(qrels)
    ranked = read_run(run)
    result = evaluate_run(ranked, judgments, chosen)
    unjudged = len(set(ranked.query_ids) - set(judgments.query_ids))
    means = result.means | ({} if measures else result.micro_recall)
    if as_json:
        document: dict[str, object] = {
            "queries": len(result.query_ids),
            "measures": means,
            "missing_queries": len(result.missing_queries),
            "unjudged_queries": unjudged,
            "queries_without_positives": result.without_positives,
        }
        if per_query:
            columns = {key: values.tolist() for key, values in result.per_query.items()}
            document["per_query"] = {
                query_id: {key: values[i] for key, values in columns.items()}
                for i, query_id in enumerate(result.query_ids)
            }
        emit(document)
        return
    shown = chosen if measures else parse_measures(["nDCG@10", "AP@10", "R@10", "R@100", "P@10", "RR@10", "hit@10"])
    if per_query:
        rows = [
            [query_id, *(f"{result.per_query[m.key][i]:.4f}" for m in shown)]
            for i, query_id in enumerate(result.query_ids)
        ]
        print_table(["Query", *map(str, shown)], rows)
    print_table(["", *map(str, shown)], [[run.name, *(f"{means[m.key]:.4f}" for m in shown)]])
    note(f"{len(result.query_ids)} queries, {len(result.missing_queries)} of them missing from the run (scored 0)")
    if unjudged:
        note(f"{unjudged} queries of the run have no judgments and do not count")
    if result.without_positives:
        note(f"{result.without_positives} queries have no positive judgment and score 0")
