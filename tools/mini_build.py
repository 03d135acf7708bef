"""Write Mini from its judging projects: `python tools/mini_build.py`.

`judging/mini/<Task>` holds a judging project per task; the corpora lie where they ship. The number in a document's id
was drawn at random, and a corpus lies in the order of its ids: a place says nothing. Queries without a relevant
passage are left out. Eight queries of each task, chosen by a hash of their ids among the first that were written, are
`dev`; the others are `test`. tools/mini_rankings.py comes next; after a change of texts
or queries tools/mini_pool.py comes first.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from r2med.core import Query
from r2med.core.files import write_bytes
from r2med.judge import open_project
from r2med.judge.final import final_grades, final_judgments, sort_queries

ROOT = Path(__file__).parent.parent
PROJECTS, TASKS = ROOT / "judging" / "mini", ROOT / "src" / "r2med" / "tasks"
REVISION, DEV = "2.7", 8
CANARY = "7d4821e2-ead4-5c35-91ac-a15d8d7db2ef"  # one for all revisions: who searches for it finds them all
DEV_UP_TO = {"Biology": 34, "Bioinformatics": 34, "Medical-Sciences": 34, "IIYi-Clinical": 48}  # q01 to here; others 35
ENCYCLOPAEDIA = "encyclopaedia"
LEFT_OUT = {  # judges found them ambiguous or unanswered
    "MedQA-Diag": ("q50",),
    "PMC-Treatment": ("q02", "q23", "q30", "q32", "q33"),
}
TWINS = {  # they ask for what another query asks for, in this task or in another
    "Bioinformatics": ("q40", "q55", "q61"),
    "PMC-Treatment": ("q39",),
    "PMC-Clinical": ("q54", "q57"),
    "IIYi-Clinical": ("q63", "q78"),
}


class TaskFacts(NamedTuple):
    """What the catalogue says of a task."""

    family: str
    scenario: str
    corpus: str
    description: str


FACTS = {
    "Biology": TaskFacts(
        "Q&A reference",
        "Q&A reference",
        "Biology",
        "Posts of curious people. The relevant passages explain what was observed, which the post does not name.",
    ),
    "Bioinformatics": TaskFacts(
        "Q&A reference",
        "Q&A reference",
        "Bioinformatics",
        "Posts about data or tools that behave oddly. The relevant passages explain the concept, artefact or rule.",
    ),
    "Medical-Sciences": TaskFacts(
        "Q&A reference",
        "Q&A reference",
        "Medical-Sciences",
        "Health questions of lay people and students. The relevant passages hold the fact that answers them.",
    ),
    "MedXpertQA-Exam": TaskFacts(
        "Clinical evidence",
        "Examination recommendation",
        ENCYCLOPAEDIA,
        "Board-examination vignettes. The relevant passages of an encyclopaedia support the answer to the question.",
    ),
    "MedQA-Diag": TaskFacts(
        "Clinical evidence",
        "Diagnosis",
        ENCYCLOPAEDIA,
        "Vignettes that ask for a diagnosis. The relevant passages of an encyclopaedia support that diagnosis.",
    ),
    "PMC-Treatment": TaskFacts(
        "Clinical evidence",
        "Treatment planning",
        ENCYCLOPAEDIA,
        "Cases that call for a decision on therapy. The relevant passages of an encyclopaedia support that decision.",
    ),
    "PMC-Clinical": TaskFacts(
        "Clinical case",
        "Similar case",
        "PMC-Clinical",
        "Case presentations without a diagnosis. The relevant documents are cases of the same disease, the more alike "
        "the better.",
    ),
    "IIYi-Clinical": TaskFacts(
        "Clinical case",
        "Similar case",
        "IIYi-Clinical",
        "Admission records without a diagnosis. The relevant documents are records of the same disease, the more "
        "alike the better.",
    ),
}


DATASHEET = """# Mini, edition {revision}: datasheet

Eight tasks in the shapes of R2MED's: {queries} queries ({dev} of them `dev`),
{documents:,} passages in six corpora, {judgments:,} judgments of which
{relevant:,} are relevant. English. CC BY 4.0 (see LICENSE).

Benchmark data must not appear in training corpora. The canary string of this
set is `{canary}`; it stands here and in no passage.

- **Who wrote it.** Language models, under the direction of the r2med
  maintainers, from general medical knowledge, without quoting a source. All
  persons are fictitious.
- **Documents first.** What each passage is about, its kind of text, its length,
  its title and whether it names its subject were drawn at random before it was
  written; writers saw no query. Numbers in ids were drawn at random, and the
  documents of a corpus lie in their order. Every passage was read by a second and
  later by a third reader against a checklist (numbers, units, drugs, sexes, ages,
  time courses); {corrections} corrections were made and are kept in
  `judging/mini-corrections.jsonl`. 48 cases, drawn at random, were then made
  longer, as real ones vary more.
- **Queries.** Written from lists of subjects, without sight of the passages,
  then, but for the last 30 of each case task, reworded where BM25 found the
  passages by shared words. Titles of posts were written by somebody who saw the
  posts alone. No condition or problem is asked for twice, in one task or in two.
- **Judgments.** The first 20 of six systems, of BM25 and an embedder with the
  answer as query, and all passages on the query's subject were pooled and
  judged 0 to 3 by two judges that saw neither systems, ranks, each other's
  grades nor the author's answer; a third decided where they differed. Judges
  were language models, not clinicians. The projects lie in `judging/mini`;
  docs/mini.md says more.
- **Not for clinical decisions.** Mini is test data.
"""


def main() -> None:
    counts, documents_of = Counter[str](), dict[str, int]()
    entries: dict[str, list[str]] = {"test": [], "dev": []}
    for name, facts in FACTS.items():
        project = open_project(PROJECTS / name)
        final = final_grades(project)
        if final.open:
            raise SystemExit(f"{name}: {len(final.open)} passages have no final grade")
        usable = sort_queries(project, final.grades).usable
        grades = {(q, d): grade for q, d, grade in final_judgments(project, final.grades, usable).qrels}
        dropped = {f"{name}-{short}" for short in (*LEFT_OUT.get(name, ()), *TWINS.get(name, ()))}
        queries = [project.queries[q] for q in project.queries if q in usable and q not in dropped]
        documents = documents_of[facts.corpus] = _count(facts.corpus)
        kept = {query.id for query in queries}
        grades = {slot: grade for slot, grade in grades.items() if slot[0] in kept}
        counts.update(judgments=len(grades), relevant=sum(grade > 0 for grade in grades.values()))
        early = [q.id for q in queries if int(q.id.rpartition("-q")[2]) <= DEV_UP_TO.get(name, 35)]
        dev = set(sorted(early, key=_hash)[:DEV])
        for split, some in (
            ("dev", [q for q in queries if q.id in dev]),
            ("test", [q for q in queries if q.id not in dev]),
        ):
            counts.update({"queries": len(some), "dev": len(some) if split == "dev" else 0})
            judged = _write(TASKS / "mini" / name / split, some, grades)
            entries[split].append(_entry(name, facts, len(some), documents, judged))
    corrections = sum(1 for _ in (PROJECTS.parent / "mini-corrections.jsonl").open("rb"))
    _write_datasheet({**counts, "documents": sum(documents_of.values())}, corrections)
    _write_collection("mini", "Mini", "eight original tasks in the shapes of R2MED, built in", "test", entries["test"])
    _write_collection(
        "mini-dev", "Mini, dev", "eight more queries of each task of Mini, to tune and choose on", "dev", entries["dev"]
    )


def _count(corpus: str) -> int:
    """How many documents a corpus has; they lie in the order of their ids."""
    ids = [json.loads(line)["id"] for line in (TASKS / "mini" / corpus / "corpus.jsonl").open("rb")]
    if ids != sorted(ids):
        raise SystemExit(f"{corpus}: documents do not lie in the order of their ids")
    return len(ids)


def _write_datasheet(counts: dict[str, int], corrections: int) -> None:
    """What Mini is, how it was made and judged, with its canary string."""
    text = DATASHEET.format(canary=CANARY, revision=REVISION, corrections=corrections, **counts)
    write_bytes(TASKS / "mini" / "README.md", text.encode())


def _hash(query_id: str) -> str:
    return hashlib.blake2b(query_id.encode(), digest_size=8).hexdigest()


def _write(folder: Path, queries: Iterable[Query], grades: Mapping[tuple[str, str], int]) -> int:
    """The queries and judgments of one split; how many judgments there are."""
    by_query: dict[str, dict[str, int]] = {}
    for (query_id, doc_id), grade in sorted(grades.items()):
        by_query.setdefault(query_id, {})[doc_id] = grade
    asked, judged = [], []
    for q in queries:
        given = by_query[q.id]
        positives = sorted((d for d, grade in given.items() if grade > 0), key=lambda d: (-given[d], d))
        record = {"id": q.id, "text": q.text, "doc_id": positives, "answer": q.answer, "body_system": q.body_system}
        asked.append(record)
        judged += [{"q_id": q.id, "p_id": doc_id, "score": grade} for doc_id, grade in given.items()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in (("query.jsonl", asked), ("qrels.jsonl", judged)):
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        write_bytes(folder / name, "".join(lines).encode())
    return len(judged)


def _entry(name: str, facts: TaskFacts, queries: int, documents: int, judgments: int) -> str:
    return "\n".join(
        [
            "[[task]]",
            f'name = "{name}"',
            f'family = "{facts.family}"',
            f'scenario = "{facts.scenario}"',
            f"queries = {queries}",
            f"documents = {documents}",
            f"judgments = {judgments}",
            f'revision = "{REVISION}"',
            f'corpus = "mini/{facts.corpus}"',
            f'description = "{facts.description}"',
            "",
        ]
    )


def _write_collection(name: str, title: str, summary: str, split: str, entries: list[str]) -> None:
    head = [
        "# Written by tools/mini_build.py from the judging projects in judging/mini.",
        f'name = "{name}"',
        f'title = "{title}"',
        f'summary = "{summary}"',
        'licence = "CC BY 4.0"',
        'layout = "r2med"',
        f'folder = "mini/{{task}}/{split}"',
        "",
    ]
    write_bytes(TASKS / "collections" / f"{name}.toml", "\n".join(head + entries).encode())


if __name__ == "__main__":
    main()
