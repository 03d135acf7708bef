"""Write the ledger's published figures from a table: `python tools/published_figures.py figures.csv [--check]`.

The table has the columns system, kind, task, ndcg10, source, date, protocol. What it calls a system becomes the label;
the names below are what a user of r2med would type.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from r2med.core.files import write_bytes
from r2med.tasks import collections

TARGET = Path(__file__).parent.parent / "src" / "r2med" / "results" / "ledger" / "reported.toml"
AVERAGE = "Average"
BOARD = "r2med.github.io leaderboard"


class Place(NamedTuple):
    """A source of the table, as the ledger has it."""

    id: str
    title: str
    url: str
    protocol: str
    note: str = ""


PLACES = {
    "arXiv:2510.08252 Table 3": Place(
        "reasonembed-article",
        "ReasonEmbed: Enhanced Text Embeddings for Reasoning-Intensive Document Retrieval, table 3",
        "https://arxiv.org/abs/2510.08252",
        "reasonembed-article",
        "read from the picture of the table in github.com/VectorSpaceLab/agentic-search at b2f2e40",
    ),
    "arXiv:2508.07050 Table 2": Place(
        "reasonrank-article",
        "ReasonRank: Empowering Passage Ranking with Strong Reasoning Ability, table 2",
        "https://arxiv.org/abs/2508.07050",
        "reasonrank-article",
    ),
    "arXiv:2511.11653 Table 2": Place(
        "grouprank-article", "GroupRank, table 2", "https://arxiv.org/abs/2511.11653", "grouprank-article"
    ),
    "arXiv:2511.11653 Table 5": Place(
        "grouprank-article-ablation", "GroupRank, table 5", "https://arxiv.org/abs/2511.11653", "grouprank-article"
    ),
    "github:nlpnlpnlp/CuRLRank@166e218": Place(
        "curlrank-readme",
        "CuRLRank, README at 166e218, section 5",
        "https://github.com/nlpnlpnlp/CuRLRank",
        "curlrank-readme",
    ),
    "arXiv:2506.14086 abstract": Place(
        "insertrank-article", "InsertRank, abstract", "https://arxiv.org/abs/2506.14086", "as-stated"
    ),
    BOARD: Place(
        "r2med-board",
        "R2MED's leaderboard, github.com/R2MED/r2med.github.io at c85a571",
        "https://r2med.github.io",
        "r2med-paper",
        "where a figure is that of the repository but for rounding, the leaderboard shows it once",
    ),
    "official board as seen on 2026-04-15": Place(
        "r2med-board-second-hand",
        "R2MED's leaderboard as github.com/teilomillet/kayak read it on 2026-04-15",
        "https://github.com/teilomillet/kayak",
        "as-stated",
    ),
    "Health-Copilot repository": Place(
        "health-copilot",
        "R2MED Frozen Public TEST Evaluation of the Health-Copilot repository",
        "https://github.com/Bubblevan/Health-Copilot",
        "as-stated",
        "undated; three tasks only",
    ),
    "github:teilomillet/kayak docs/traces": Place(
        "kayak-trace",
        "kayak, trace of a Biology evaluation of 2026-04-15",
        "https://github.com/teilomillet/kayak",
        "as-stated",
    ),
}
"""By how the table's source begins."""

RETRIEVERS = {
    "Alibaba-NLP/gte-Qwen2-7B-instruct": "gte-qwen2",
    "Qwen/Qwen3-Embedding-4B": "qwen3-embed-4b",
    "Qwen/Qwen3-Embedding-8B": "qwen3-embed-8b",
    "Qwen3-4B-ms (reproduced baseline)": "qwen3-4b-ms",
    "Qwen3-8B-ms (reproduced baseline)": "qwen3-8b-ms",
    "Llama-3.1-8B-ms (reproduced baseline)": "llama-3.1-8b-ms",
    "AQ-MedAI/Diver-Retriever-4B": "diver-4b",
    "AQ-MedAI/Diver-Retriever-4B (as run by the GroupRank paper)": "diver-4b",
    "hanhainebula/reason-embed-basic-qwen3-4b-0928": "reason-embed-basic-4b",
    "hanhainebula/reason-embed-basic-qwen3-8b-0928 (= BAAI/bge-reasoner-embed-qwen3-8b-0923)": "reason-embed-basic-8b",
    "hanhainebula/reason-embed-basic-llama-3.1-8b-0928": "reason-embed-basic-llama-8b",
    "hanhainebula/reason-embed-qwen3-4b-0928": "reason-embed-4b",
    "hanhainebula/reason-embed-qwen3-4b-0928 (as run by CuRLRank)": "reason-embed-4b",
    "hanhainebula/reason-embed-qwen3-8b-0928": "reason-embed-8b",
    "hanhainebula/reason-embed-llama-3.1-8b-0928": "reason-embed-llama-8b",
    "reasonir/ReasonIR-8B": "reasonir",
    "Raderspace/RaDeR_gte_Qwen2-7B_MATH_LLMq_CoT_lexical": "rader",
    "intfloat/e5-mistral-7b-instruct": "e5",
    "NV-Embed-v2": "nv",
    "GritLM-7B": "grit",
    "SFR-Embedding-Mistral": "sfr",
    "BMRetriever-7B": "bmr-7b",
    "Text-embedding-3-large": "openai",
    "Voyage-3": "voyage",
    "E5-mistral-7b-instruct": "e5",
    "BMRetriever-2B": "bmr-2b",
    "InstructOR-XL": "inst-xl",
    "BMRETRIEVER-410M": "bmr-410m",
    "BGE-Large-en-v1.5": "bge",
    "InstructOR-L": "inst-l",
    "BM25": "bm25",
    "Contriever": "contriever",
    "MedCPT": "medcpt",
    "BM25 (Lucene k1=.9 b=.4)": "bm25",
    "BAAI/bge-large-en-v1.5": "bge",
    "BM25 + bge-large, RRF k=60": "bm25+bge.rrf",
    "colbert-ir/colbertv2.0, exact MaxSim": "colbertv2",
    "official board, top row (not named there; the two values equal ReasonEmbed-Qwen3-8B)": "unnamed-top-of-board",
    "LameR-MV, Qwen3-8B Q4_K_M": "lamer-mv:qwen3-8b+bm25+bge",
    "Compact CRB-Q, Qwen3-8B Q4_K_M": "crb-q:qwen3-8b+bm25+bge",
    "DualSource-RRF, Qwen3-8B Q4_K_M": "dualsource-rrf:qwen3-8b+bm25+bge",
}
RERANKERS = {
    "RankT5-3B": "rankt5-3b",
    "RankZephyr-7B": "rankzephyr-7b",
    "RankLLaMA-7B": "rankllama",
    "FIRST-7B": "first-7b",
    "ielabgroup/Rank-R1-7B": "rank-r1:rank-r1-7b",
    "Rank-R1-7B": "rank-r1:rank-r1-7b",
    "ielabgroup/Rank-R1-14B": "rank-r1:rank-r1-14b",
    "jhu-clsp/rank1-7b": "rank1:rank1-7b",
    "jhu-clsp/rank1-32b": "rank1:rank1-32b",
    "le723z/Rearank-7B": "rearank-7b",
    "REARANK-7B": "rearank-7b",
    "hltcoe/Rank-K-32B": "rank-k-32b",
    "liuwenhan/reasonrank-7B": "reasonrank:reasonrank-7b",
    "ReasonRank-7B": "reasonrank:reasonrank-7b",
    "liuwenhan/reasonrank-32B": "reasonrank:reasonrank-32b",
    "ReasonRank(32B)": "reasonrank:reasonrank-32b",
    "Alibaba-NLP/ERank-4B": "erank:erank-4b",
    "Alibaba-NLP/ERank-32B": "erank:erank-32b",
    "Retro*-7B": "retro:retro-qwen2.5-7b",
    "CuRLRank-4B": "curlrank-4b",
    "Qwen2.5-32B-Instruct, GroupRank prompt zero-shot,": "grouprank:qwen-32b",
    "Qwen3-32B (no think), GroupRank prompt zero-shot,": "grouprank:openai:qwen3-32b-no-think",
    "Qwen3-32B (think), GroupRank prompt zero-shot,": "grouprank:qwen3-32b",
    "DeepSeek-V3.1-671B, GroupRank prompt zero-shot,": "grouprank:openai:deepseek-ai/DeepSeek-V3.1",
    "AQ-MedAI/Diver-GroupRank-7B": "grouprank:grouprank-7b",
    "AQ-MedAI/Diver-GroupRank-32B": "grouprank:grouprank-32b",
    "AQ-MedAI/Diver-GroupRank-32B (groups sorted by first-stage rank)": "grouprank:grouprank-32b,shuffle=no",
}
FIRST_STAGES = {
    "E5-mistral": "e5",
    "E5-mistral-7b-instruct": "e5",
    "DIVER-4B": "diver-4b",
    "reason-embed-qwen3-4b": "reason-embed-4b",
}
LLMS = {
    "o3-mini": "o3-mini",
    "HuatuoGPT-o1-70B": "huatuo-o1-70b",
    "GPT4o": "gpt4",
    "DeepSeek-R1-Distill-Llama-70B": "r1-llama-70b",
    "DeepSeek-R1-Distill-Qwen-32B": "r1-qwen-32b",
    "Llama3.1-70B-Ins": "llama-70b",
    "QwQ-32B": "qwq-32b",
    "QwQ-32b": "qwq-32b",
    "Qwen3-32b": "qwen3-32b",
    "Qwen2.5-32B-Ins": "qwen-32b",
    "Qwen2.5-7B-Ins": "qwen-7b",
    "Qwen2.5-7b-it-em-ppo": "qwen-7b-ins",
    "Qwen2.5-3b-it-em-ppo": "qwen-3b-ins",
}
CAUTIONS = {
    ("reasonembed-article", "diver-4b"): "run at 512 tokens with a space after Query: and no document prefix; the "
    "model's own code reads 16,384 tokens, without the space and with a prefix",
    ("reasonembed-article", "reasonir"): "the instruction's tokens were averaged too, which the model's authors leave "
    "out; the figure may be too low",
    ("reasonembed-article", "rader"): "the source states 35.19, the mean of its eight tasks is 35.215",
    ("grouprank-article", "diver-4b"): "checkpoint, lengths and instruction are not stated",
    ("grouprank-article", "diver-4b+grouprank:grouprank-7b@100"): "the model's hub page says 46.8, which is probably a "
    "figure of another benchmark",
    ("grouprank-article", "diver-4b+grouprank:grouprank-32b@100"): "trained on 1,700 Biology and 1,000 medical "
    "queries, which may overlap with the tasks",
    ("curlrank-readme", "reason-embed-4b"): "the source names 4B and 8B in one row; settings are not stated",
    (
        "reasonrank-article",
        "e5",
    ): "lower than on R2MED's leaderboard and at MTEB; lengths and instruction are not stated",
    ("r2med-board-second-hand", "unnamed-top-of-board"): "second-hand and not named; both values equal those of "
    "reason-embed-8b",
    ("insertrank-article", "insertrank:deepseek-r1"): "first stage, form of the query and tasks are not stated",
}
"""What a reader must know about single figures, by source and system."""


class Row(NamedTuple):
    """One system of one source."""

    kind: str
    label: str
    settings: str
    date: str
    scores: dict[str, str]  # As written: trailing zeros say how many decimals there are.


def name_of(label: str) -> str:
    """What a system is called here."""
    if label in RETRIEVERS:
        return RETRIEVERS[label]
    if label == "InsertRank with DeepSeek-R1":
        return "insertrank:deepseek-r1"
    if match := re.fullmatch(r"(.+) over (.+)", label):
        return f"{FIRST_STAGES[match[2]]}+{RERANKERS[match[1]]}@100"
    if match := re.fullmatch(r"(Search-[OR]1) \((.+)\) \+ (.+)", label):
        return f"{match[1].lower()}:{LLMS[match[2]]}+{RETRIEVERS[match[3]]}"
    llm, _, retriever = label.partition(" + ")
    return f"hyde:{LLMS[llm]}+{RETRIEVERS[retriever]}"


def read(path: Path) -> dict[Place, list[Row]]:
    """The table by source, in its order."""
    found: dict[Place, dict[str, Row]] = defaultdict(dict)
    with path.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            place = next(p for begin, p in PLACES.items() if line["source"].startswith(begin))
            row = Row(line["kind"], line["system"], line["protocol"], line["date"], {})
            found[place].setdefault(line["system"], row).scores[line["task"]] = line["ndcg10"]
    return {place: list(rows.values()) for place, rows in found.items()}


def ledger_text(path: Path) -> str:
    """The ledger file of a table."""
    lines = ["# Figures of papers and boards, nDCG@10 on a scale of 0 to 100; written by tools/published_figures.py."]
    for place, rows in read(path).items():
        lines += _source(place, rows)
    return "\n".join(lines) + "\n"


def _source(place: Place, rows: list[Row]) -> list[str]:
    counts = {task.name: task.queries for task in collections()["r2med"].tasks}
    tasks = [task for task in counts if all(task in row.scores for row in rows)]
    decimals = max(len(value.partition(".")[2]) for row in rows for value in row.scores.values())
    lines = ["", "[[source]]", f"id = {_quoted(place.id)}", f"title = {_quoted(place.title)}"]
    lines += [f"url = {_quoted(place.url)}", f"date = {_quoted(rows[0].date)}"]
    lines += [f"protocol = {_quoted(place.protocol)}", 'collection = "r2med"', "measured = false", "scale = 100"]
    lines += [f"decimals = {decimals}"]
    lines += [f"note = {_quoted(place.note)}"] if place.note else []
    if tasks:
        lines += [f"tasks = [{', '.join(map(_quoted, tasks))}]", f"queries = {[counts[task] for task in tasks]}"]
    for row in rows:
        lines += _system(place, row, tasks)
    return lines


def _system(place: Place, row: Row, tasks: list[str]) -> list[str]:
    name = name_of(row.label)
    lines = ["", f"[source.systems.{_quoted(name)}]", f"label = {_quoted(row.label)}", f"kind = {_quoted(row.kind)}"]
    lines += [f"settings = {_quoted(row.settings)}"]
    if place.id == "r2med-board" and row.kind == "reranker":  # those of its paper, which has a first stage of its own
        lines += ['protocol = "reasonrank-article"']
    if caution := CAUTIONS.get((place.id, name)):
        lines += [f"caution = {_quoted(caution)}"]
    if AVERAGE in row.scores:
        lines += [f"average = {{ ndcg_at_10 = {row.scores[AVERAGE]} }}"]
    if tasks:
        lines += [f"ndcg_at_10 = [{', '.join(row.scores[task] for task in tasks)}]"]
    return lines


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def main() -> None:
    text = ledger_text(Path(sys.argv[1]))
    if "--check" not in sys.argv:
        write_bytes(TARGET, text.encode())
    elif TARGET.read_text("utf-8") != text:
        sys.exit(f"{TARGET} is not what {sys.argv[1]} gives")


if __name__ == "__main__":
    main()
