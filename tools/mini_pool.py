"""Pool Mini again after texts or queries changed: `python tools/mini_pool.py OUT [TASK ...] [--queries FILE]`.

The corpora are read from where they ship; FILE is a JSON object of queries' new texts by their ids. For each task OUT
gets a judging project with every pair that was judged, all that its systems now find in their first 20, and the
judges' journals; `OUT/<task>.new.jsonl` lists the pairs that nobody has judged. A quoted sentence that no longer stands
is cut to its longest run of words that does, and told. Grades of a text that changed are carried over, and named: if
the change matters, they have to be given again. Once the new pairs are judged, the project replaces the one in
`judging/mini`; tools/mini_build.py comes next.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from r2med.cache.records import with_checksum
from r2med.core import Qrels, Query, Run, Task
from r2med.core.files import write_bytes
from r2med.judge import Pooled, Project, create_project, open_project
from r2med.judge.journal import Header, Journal, now
from r2med.judge.pool import KEPT, build_pool
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.run import rank_systems
from r2med.retrieve.contract import DEPTH
from r2med.tasks.corpus import load_corpus

ROOT = Path(__file__).parent.parent
PROJECTS, CORPORA = ROOT / "judging" / "mini", ROOT / "src" / "r2med" / "tasks" / "mini"
SYSTEMS = ("bm25", "bm25-nano", "bge-small", "minilm", "bm25+bge-small.rrf", "bm25+bge-small.rrf+maxsim@50")
WITH_ANSWER = ("bm25", "bge-small")


def rank(task: Task, old: Project) -> dict[str, Run]:
    """The rankings of every system of a project; of those that are no system of ours (`same subject`), the old one."""

    def run(asked: Task, names: tuple[str, ...]) -> Mapping[str, Run]:
        return rank_systems(asked, [Builder().build(SystemSpec.parse(name)) for name in names], depth=DEPTH)

    answers = replace(task, queries=tuple(Query(q.id, q.answer or q.text) for q in task.queries))
    with_answer = {f"answer, by {name}": ranking for name, ranking in run(answers, WITH_ANSWER).items()}
    found, stored = {**run(task, SYSTEMS), **with_answer}, old.runs()
    return {s.name: found[s.name] if s.name in found else stored[s.name] for s in old.settings.systems}


def pool_again(name: str, out: Path, changed: Mapping[str, str]) -> None:
    """The project of a task with its texts as they are now, and the pairs that nobody has judged."""
    old = open_project(PROJECTS / name)
    own = CORPORA / name / "corpus.jsonl"
    corpus = load_corpus(str(own.parent if own.exists() else CORPORA / "encyclopaedia"))
    queries = tuple(q._replace(text=changed.get(q.id, q.text)) for q in old.queries.values())
    nothing = Qrels.from_judgments([])
    task = replace(corpus, name=name, queries=queries, qrels=nothing, candidates=None, published=None)
    runs = {system: run.on(task.documents.ids, query_ids=task.query_ids) for system, run in rank(task, old).items()}
    ranks: dict[tuple[str, str], dict[str, int]] = {}
    for system, run in runs.items():
        for query_id, hits in run.top(KEPT):
            for place, hit in enumerate(hits, start=1):
                ranks.setdefault((query_id, hit.doc_id), {})[system] = place
    judged = [(p.query_id, p.doc_id) for of_query in old.pool.values() for p in of_query]
    found = [(p.query_id, p.doc_id) for p in build_pool(task, runs, old.settings)]
    slots = sorted(dict.fromkeys((*judged, *found)), key=lambda slot: task.query_ids.position(slot[0]))
    settings = msgspec.structs.replace(
        old.settings, corpus_fingerprint=corpus.documents.fingerprint, documents=len(corpus.documents), created=now()
    )
    seen = {doc_id for _, doc_id in slots}
    made = create_project(
        out / name,
        settings,
        queries=queries,
        passages=(document for document in corpus.documents if document.id in seen),
        pool=[Pooled(query_id=q, doc_id=d, systems=ranks.get((q, d), {})) for q, d in slots],
        runs={system: run.top(KEPT) for system, run in runs.items()},
    )
    for journal in old.journals():
        _carry(journal, made)
    new = sorted(set(slots) - set(judged))
    write_bytes(out / f"{name}.new.jsonl", b"".join(msgspec.json.encode(slot) + b"\n" for slot in new))
    print(f"{name}: {len(slots):,} pairs, {len(new):,} of them to judge")
    changed_queries = [key for key, query in old.queries.items() if made.queries[key] != query]
    changed_passages = [key for key, text in old.passages.items() if made.passages.get(key, text) != text]
    for kind, keys in (("queries", changed_queries), ("passages", changed_passages)):
        if keys:
            print(f"  {kind} whose grades were given for another text: {', '.join(keys)}")


def _carry(journal: Journal, made: Project) -> None:
    """A journal as it stands, for the project with the new texts."""
    header = Header(**{**msgspec.structs.asdict(journal.header), "project": made.identity})
    lines = [msgspec.json.encode({"schema": 1, "key": header}) + b"\n"]
    for entry in journal.entries():
        text = made.passages[entry.doc_id].contents if entry.doc_id else ""
        support = longest_run(entry.support, text)
        if support != entry.support:
            print(f"{entry.doc_id} for {entry.query_id}: {entry.support!r} became {support!r}")
        lines.append(with_checksum(msgspec.structs.replace(entry, support=support, replaces="")))
    write_bytes(made.journal_path(journal.header.judge), b"".join(lines))


def longest_run(quoted: str, text: str) -> str:
    """The longest run of a quotation's words that stands in a text."""
    words = quoted.split(" ")
    spans = ((start, start + size) for size in range(len(words), 0, -1) for start in range(len(words) - size + 1))
    return next((run for start, end in spans if (run := " ".join(words[start:end])) in text), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=sorted(folder.name for folder in PROJECTS.iterdir()))
    parser.add_argument("--queries", type=Path)
    given = parser.parse_args()
    changed: dict[str, str] = json.loads(given.queries.read_text("utf-8")) if given.queries else {}
    known = {query_id for folder in PROJECTS.iterdir() for query_id in open_project(folder).queries}
    if unknown := sorted(set(changed) - known):
        parser.error(f"no query of Mini: {', '.join(unknown)}")
    for name in given.tasks:
        pool_again(name, given.out, changed)


if __name__ == "__main__":
    main()
