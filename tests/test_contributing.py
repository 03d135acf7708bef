"""The worked examples of CONTRIBUTING.md: each diff is applied to a copy of the package and run as a command."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import r2med
from tests.docs.pages import ROOT, blocks
from tests.llm.server import serving as serving_chat
from tests.serving import in_background

EXAMPLES = {block.title: block.text for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "diff"}
TASK = "mini@1/MedQA-Diag"
MODEL = "qwen-7b"


class Copy(NamedTuple):
    """A copy of the package with an example applied, and the folder that commands are given there."""

    root: Path
    work: Path

    def run(self, *arguments: str, **environment: str) -> str:
        """What `r2med …` of the copy prints."""
        done = self.start(["-m", "r2med", *arguments], **environment)
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def error(self, *arguments: str) -> str:
        """The one line that it fails with."""
        done = self.start(["-m", "r2med", *arguments])
        assert done.returncode in (1, 2), f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        return done.stderr

    def start(self, arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Python with the copy in place of the package."""
        settings = {"PYTHONPATH": str(self.root / "src"), "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **environment}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.work, env=os.environ | settings, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def scores(self, *arguments: str, **environment: str) -> dict[str, float]:
        """nDCG@10 of each system on the task, by name."""
        told = json.loads(self.run("run", "--json", *arguments, **environment))
        return {s["name"]: next(iter(s["tasks"].values()))["ndcg_at_10"] for s in told["systems"]}


def contents(folder: Path) -> dict[str, str]:
    """The hash of every file of the package."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def copied(folder: Path, *examples: str) -> Copy:
    """A copy of the package in which exactly the files that the examples name are new or changed."""
    shutil.copytree(Path(r2med.__file__).parent, folder / "src" / "r2med", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "work").mkdir()
    before = contents(folder)
    for name in examples:
        diff = EXAMPLES[name].encode()
        done = subprocess.run(
            ["git", "apply", "--whitespace=error-all"], cwd=folder, input=diff, capture_output=True, check=False,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)},
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr.decode()}"
    after = contents(folder)
    named = {path for name in examples for path in re.findall(r"^\+\+\+ b/(.+)$", EXAMPLES[name], re.MULTILINE)}
    assert {path for path in after if before.get(path) != after[path]} == named
    assert before.keys() <= after.keys()
    made = Copy(folder, folder / "work")
    assert made.start(["-c", "import r2med; print(r2med.__file__)"]).stdout.startswith(str(folder))
    return made


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_one_file_and_its_data(name: str) -> None:
    files = re.findall(r"^\+\+\+ b/(.+)$", EXAMPLES[name], re.MULTILINE)
    assert sum(path.endswith(".py") for path in files) <= 1
    assert all(path.endswith((".py", ".toml")) for path in files)


def test_all_examples_live_side_by_side(tmp_path: Path) -> None:
    """They are clean code, and the reference pages speak of every one of them."""
    copy = copied(tmp_path, *EXAMPLES)
    assert list(EXAMPLES) == ["expansion", "reranking", "measure", "format", "embedding", "chat"]
    done = copy.start([str(ROOT / "tools" / "docs.py"), str(tmp_path / "pages")])
    assert done.returncode == 0, done.stderr
    pages = {
        path.relative_to(tmp_path / "pages").as_posix(): path.read_text("utf-8")
        for path in tmp_path.glob("pages/**/*.md")
    }
    assert "### `cot:LLM`" in pages["components.md"]
    assert "### `pairwise:LLM`" in pages["components.md"]
    assert "walks from the end of the list to its head" in pages["components.md"]
    assert "`Rprec(rel=1)@k`" in pages["measures.md"]
    assert "`medgemma-27b`" in pages["models/chat.md"]
    assert "JINA_API_KEY" in pages["models/jina.md"]
    assert "`JINA_BASE_URL`" in pages["environment.md"]
    if (ruff := Path(sys.executable).with_name("ruff")).exists():
        for words in (["check", "--no-cache"], ["format", "--no-cache", "--check"]):
            command = [str(ruff), *words, "--config", str(ROOT / "pyproject.toml"), "src"]
            linted = subprocess.run(command, cwd=copy.root, capture_output=True, text=True, check=False)
            assert linted.returncode == 0, linted.stdout


@pytest.mark.slow
def test_all_examples_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    copy = copied(tmp_path, *EXAMPLES)
    done = copy.start(
        [
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(tmp_path / "cache"),
            str(tmp_path / "src"),
        ]
    )
    assert done.returncode == 0, done.stdout


class Answers:
    """A chat model that knows the relevant passages."""

    def __init__(self) -> None:
        task = r2med.load(TASK)
        texts = dict(zip(task.documents.ids, task.documents.contents, strict=True))
        self.grades: dict[str, dict[str, int]] = {}
        for query_id, doc_id, grade in task.qrels:
            self.grades.setdefault(query_id, {})[doc_id] = grade
        relevant = {q: [texts[d] for d, grade in judged.items() if grade > 0] for q, judged in self.grades.items()}
        self.relevant = {query.text: relevant[query.id] for query in task.queries}

    def about(self, body: dict[str, Any]) -> list[str]:
        """The relevant passages of the query that a prompt is about."""
        prompt = body["messages"][-1]["content"]
        return next(passages for query, passages in self.relevant.items() if query in prompt)

    def passage(self, body: dict[str, Any]) -> str:
        """The first relevant passage."""
        return self.about(body)[0]

    def better(self, body: dict[str, Any]) -> str:
        """The number of the passage that is relevant; the first where both or neither are."""
        _, _, shown = body["messages"][-1]["content"].partition("[1] ")
        one, _, two = shown.partition("\n\n[2] ")
        first, second = (any(text[:60] in part for text in self.about(body)) for part in (one, two))
        return "[2]" if second and not first else "[1]"


def ndcg(ranking: list[str], grades: dict[str, int]) -> float:
    """nDCG@10 by its definition."""
    gains = [max(grades.get(doc, 0), 0) for doc in ranking[:10]]
    ideal = sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:10]
    value, best = (sum(g / math.log2(i + 2) for i, g in enumerate(part)) for part in (gains, ideal))
    return value / best


def test_an_expansion_method(tmp_path: Path) -> None:
    copy, known = copied(tmp_path, "expansion"), Answers()
    assert "cot:LLM" in copy.run("run", "--help")
    assert "cot" in copy.run("expand", "--help")
    with serving_chat() as server:
        server.text = known.passage
        here = {"OPENAI_BASE_URL": server.url}
        made = copy.scores("-t", TASK, "-e", f"cot:{MODEL},passages=2", "-r", "bm25", **here)
        (name,) = (name for name in made if name.startswith("cot"))
        assert "passages=2" in name
        asked = len(server.asked)
        assert asked >= len(known.relevant)
        assert all("step by step" in body["messages"][-1]["content"] for body in server.asked)
        again = copy.scores("-t", TASK, "-s", name, **here)  # its name is its spec
        assert again == {name: made[name]}
        assert len(server.asked) == asked
    assert made[name] > made["bm25"] + 0.3
    assert "did you mean cot" in copy.error("run", "-t", TASK, "-e", f"cto:{MODEL}", "-r", "bm25")


def test_a_reranking_algorithm(tmp_path: Path) -> None:
    copy, known = copied(tmp_path, "reranking"), Answers()
    assert "pairwise:LLM" in copy.run("run", "--help")
    with serving_chat() as server:
        server.text = known.better
        here = {"OPENAI_BASE_URL": server.url}
        flags = ("-t", TASK, "-r", "bm25", "--rerank", f"pairwise:{MODEL},passes=3@4")
        (name,) = (name for name in copy.scores(*flags, **here) if "pairwise" in name)
        asked = len(server.asked)
        assert "passes=3" in name
        scores = copy.scores("-t", TASK, "-s", name, "-r", "bm25", **here)
        assert len(server.asked) == asked
    # Three walks over four passages sort them: relevant ones first, else as BM25 has them.
    first = r2med.read_run(next(copy.work.glob("results/bm25/**/*.run.gz")))
    expected = []
    for query_id, ranking in rankings(first).items():
        grades = known.grades[query_id]
        head = sorted(ranking[:4], key=lambda doc: grades.get(doc, 0) <= 0)
        expected.append(ndcg([*head, *ranking[4:]], grades))
    assert scores[name] == pytest.approx(np.mean(expected), abs=1e-9)
    assert scores[name] > scores["bm25"]


def rankings(run: r2med.Run) -> dict[str, list[str]]:
    """Document ids of each query, best first."""
    ids = list(run.doc_ids)
    return {q: [ids[d] for d in row.tolist() if d >= 0] for q, row in zip(run.query_ids, run.docs, strict=True)}


def test_a_measure(tmp_path: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    copy = copied(tmp_path, "measure")
    assert "Rprec(rel=1)@k" in copy.run("score", "--help")
    copy.run("run", "-t", TASK, "-r", "bm25")
    packed = next(copy.work.glob("results/bm25/**/*.run.gz"))
    found = rankings(r2med.read_run(packed)).items()
    judged = [(q, d, rank % 4) for q, ranking in found for rank, d in enumerate(ranking[:10])]
    (copy.work / "qrels.txt").write_text("".join(f"{q} 0 {d} {grade}\n" for q, d, grade in judged), "utf-8")
    measures = ("Rprec", "Rprec(rel=2)")
    told = json.loads(copy.run("score", str(packed), "qrels.txt", "--json", *(x for m in measures for x in ("-m", m))))
    assert list(told["measures"]) == ["rprec", "rprec_rel_2"]
    again = json.loads(copy.run("score", str(packed), "qrels.txt", "--json", "-m", "rprec_rel_2"))
    assert again["measures"]["rprec_rel_2"] == told["measures"]["rprec_rel_2"]  # a key reads back, as the name does
    lines = gzip.decompress(packed.read_bytes()).decode().splitlines()
    run = [ir_measures.ScoredDoc(f[0], f[2], float(f[4])) for f in map(str.split, lines)]
    qrels = [ir_measures.Qrel(*judgment) for judgment in judged]
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(m) for m in measures], qrels, run)
    for name, value in zip(measures, told["measures"].values(), strict=True):
        assert value == pytest.approx(theirs[ir_measures.parse_measure(name)], abs=1e-12)
    assert 0 < told["measures"]["rprec_rel_2"] != told["measures"]["rprec"]


WRONG_TABLES = (
    ("corpus.csv", "id,text\nd1,one,more\n", "corpus.csv:2: expected 2 fields"),
    ("corpus.csv", "id,text\nd1\n", "corpus.csv:2: expected 2 fields"),
    ("corpus.csv", "id,body\nd1,one\n", "needs one column 'text' and has 0"),
    ("corpus.csv", "id,text,text\nd1,one,two\n", "needs one column 'text' and has 2"),
    ("corpus.csv", 'id,text\nd1,"never closed\n', "is no CSV file"),
    ("qrels.csv", "query_id,doc_id,grade\nq1,d1,high\n", "grade 'high' is not a whole number"),
)
TELL_ERRORS = """
import r2med
for number in range({count}):
    try:
        r2med.load(f"./wrong{{number}}")
    except r2med.R2MedError as error:
        print(error)
"""


def test_a_data_format(tmp_path: Path) -> None:
    copy = copied(tmp_path, "format")
    assert "csv" in copy.run("data", "convert", "--help")
    (there,) = json.loads(copy.run("data", "convert", TASK, "sheets", "--to", "csv", "--json"))
    (back,) = json.loads(copy.run("data", "convert", "sheets", "back", "--to", "r2med", "--json"))
    assert there["fingerprint"] == back["fingerprint"]
    copy.run("data", "validate", "sheets")
    copy.run("data", "convert", TASK, "packed", "--to", "csv", "--compress", "gz")
    with zipfile.ZipFile(copy.work / "zipped.zip", "w") as archive:
        for path in (copy.work / "sheets").iterdir():
            archive.write(path, path.name)
    tasks = (TASK, "./sheets", "./packed", "./zipped.zip")
    (system,) = json.loads(copy.run("run", "--json", "-r", "bm25", "-t", ",".join(tasks)))["systems"]
    one, *others = system["tasks"].values()
    assert one["ndcg_at_10"] > 0
    assert others == [one] * 3

    # As a spreadsheet saves it: a byte-order mark, other columns, line breaks inside a cell.
    own = copy.work / "own"
    own.mkdir()
    write_csv(
        own / "corpus.csv", [["text", "id", "note"], ['First line,\r\nsecond "line"', "d1", ""], ["Fever", "d2", "x"]]
    )
    write_csv(own / "queries.csv", [["id", "text"], ["q1", "second line"]])
    write_csv(own / "qrels.csv", [["query_id", "doc_id", "grade"], ["q1", "d1", "1"]])
    assert copy.scores("-t", "./own", "-r", "bm25") == {"bm25": 1.0}
    for number, (name, content, _) in enumerate(WRONG_TABLES):
        shutil.copytree(own, copy.work / f"wrong{number}")
        (copy.work / f"wrong{number}" / name).write_text(content, "utf-8")
    assert WRONG_TABLES[0][2] in copy.error("run", "-t", "./wrong0", "-r", "bm25")
    done = copy.start(["-c", TELL_ERRORS.format(count=len(WRONG_TABLES))])
    assert done.returncode == 0, done.stderr
    for line, (_, _, why) in zip(done.stdout.splitlines(), WRONG_TABLES, strict=True):
        assert why in line


def write_csv(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(rows)


DIMENSION = 1536


def words_vector(text: str) -> list[float]:
    """Counts of words, hashed."""
    counts = Counter(
        int(hashlib.md5(w.encode()).hexdigest(), 16) % DIMENSION for w in re.findall(r"[a-z]+", text.lower())
    )
    return [float(counts[i]) for i in range(DIMENSION)]


class JinaServer(ThreadingHTTPServer):
    asked: list[dict[str, Any]]


class JinaHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: JinaServer

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({**body, "path": self.path, "authorization": self.headers["authorization"]})
        data = [{"object": "embedding", "index": i, "embedding": words_vector(t)} for i, t in enumerate(body["input"])]
        answer = {"object": "list", "data": data, "usage": {"total_tokens": 7 * len(data)}}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving_jina() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that speaks Jina's protocol, and what it was asked."""
    with in_background(JinaServer(("127.0.0.1", 0), JinaHandler)) as server:
        server.asked = []
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", server.asked


def test_an_embedding_api(tmp_path: Path) -> None:
    copy = copied(tmp_path, "embedding")
    (row,) = (row for row in json.loads(copy.run("models", "--json", JINA_API_KEY="")) if row["name"] == "jina")
    assert (row["kind"], row["ready"], row["get"]) == ("dense", False, "export JINA_API_KEY=…")
    with serving_jina() as (url, asked):
        here = {"JINA_BASE_URL": url, "JINA_API_KEY": "a-secret"}
        scores = copy.scores("-t", TASK, "-r", "jina", **here)
        (name,) = scores
        count = len(asked)
        assert {body["path"] for body in asked} == {"/v1/embeddings"}
        assert {body["authorization"] for body in asked} == {"Bearer a-secret"}
        assert {body["model"] for body in asked} == {"jina-embeddings-v3"}
        assert {body["task"] for body in asked} == {"retrieval.query", "retrieval.passage"}
        again = copy.scores("-t", TASK, "-s", name, **here)
        assert (again, len(asked)) == (scores, count)
    task = r2med.load(TASK)
    sent = {text for body in asked for text in body["input"]}
    assert sent == {*task.query_texts, *task.documents.contents}
    queries, documents = (
        np.array([words_vector(text) for text in texts]) for texts in (task.query_texts, task.documents.contents)
    )
    queries, documents = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (queries, documents))
    ids, known = list(task.documents.ids), Answers()
    expected = [
        ndcg([ids[d] for d in np.argsort(-row)], known.grades[q])
        for q, row in zip(task.query_ids, queries @ documents.T, strict=True)
    ]
    assert scores[name] == pytest.approx(np.mean(expected), abs=1e-6)
    (stored,) = copy.work.glob("results/*/mini@1/MedQA-Diag.json")
    assert f'"tokens":{7 * len(sent)}' in re.sub(r"\s", "", stored.read_text("utf-8"))


def test_a_chat_model(tmp_path: Path) -> None:
    copy, known = copied(tmp_path, "chat"), Answers()
    rows = {row["name"]: row for row in json.loads(copy.run("models", "--kind", "chat", "--json", OPENAI_BASE_URL=""))}
    assert rows["medgemma-27b"]["get"].endswith("vllm serve google/medgemma-27b-text-it")
    with serving_chat() as server:
        server.text = known.passage
        here = {"OPENAI_BASE_URL": server.url}
        made = copy.scores("-t", TASK, "-e", "hyde:medgemma-27b", "-r", "bm25", **here)
        (name,) = (name for name in made if name.startswith("hyde:medgemma-27b"))
        assert {body["model"] for body in server.asked} == {"google/medgemma-27b-text-it"}
        asked = len(server.asked)
        assert copy.scores("-t", TASK, "-s", name, **here) == {name: made[name]}
        assert len(server.asked) == asked
    assert made[name] > 0.9
