"""The repository's commands as its README has them, on Mini in its layout, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.integrations.upstream import main
from r2med.retrieve.stored import read_topk
from r2med.tasks import convert, resolve
from tests.llm.server import ChatServer, serving
from tests.paper_files import write_clone
from tests.retrieve.encoders.weights import real_model

DENSE = {f"{m}_at_{k}" for m in ("ndcg", "map", "recall", "precision") for k in (1, 3, 5, 10, 100)}
OTHER = {f"{m}_at_{k}" for m in ("ndcg", "map", "recall", "precision") for k in (1, 10, 25, 50, 100)} | {"mrr"}


OWN = """
import zlib
import numpy as np


class CustomModel:
    def __init__(self, model_name_or_path=None):
        self.model_name_or_path = model_name_or_path

    def encode_queries(self, queries, **kwargs):
        return self.encode(queries)

    def encode_corpus(self, corpus, **kwargs):
        return self.encode([f"{doc.get('title', '')} {doc['text']}".strip() for doc in corpus])

    def encode(self, sentences, **kwargs):
        rows = np.zeros((len(sentences), 128), dtype=np.float32)
        for row, sentence in zip(rows, sentences):
            for word in sentence.casefold().split():
                row[zlib.crc32(word.encode()) % 128] += 1
        return rows


def by_length(pairs):
    return [len(passage) for _, passage in pairs]
"""
"""A model as R2MED's README has it, and a reranker, in a file beside the scripts."""


def upstream(root: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Called as people call `run.py`: from the repository's `src`."""
    return subprocess.run(
        [sys.executable, "-m", "r2med.upstream", *flags],
        cwd=root / "src",
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("converted")
    convert(resolve("mini@1"), root / "dataset", to="r2med")
    return root


@pytest.fixture
def tree(tmp_path: Path, converted: Path) -> Path:
    (tmp_path / "src").mkdir()
    shutil.copytree(converted / "dataset", tmp_path / "dataset")
    return tmp_path


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as running:
        yield running


@pytest.fixture
def with_models(tmp_path: Path) -> dict[str, str]:
    """A home of the test's own that sees real weights."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "models").symlink_to(real_model("bge-small", "model.onnx").parent)
    return {"R2MED_HOME": str(home)}


def small_task(tree: Path, queries: int) -> None:
    """A task folder of one's own: `Small`, the first queries of Biology over its whole corpus."""
    small, source = tree / "dataset" / "Small", tree / "dataset" / "Biology"
    small.mkdir()
    kept = source.joinpath("query.jsonl").read_text().splitlines()[:queries]
    ids = {json.loads(line)["id"] for line in kept}
    qrels = [x for x in source.joinpath("qrels.jsonl").read_text().splitlines() if json.loads(x)["q_id"] in ids]
    small.joinpath("query.jsonl").write_text("\n".join(kept))
    small.joinpath("qrels.jsonl").write_text("\n".join(qrels))
    shutil.copy(source / "corpus.jsonl", small)


def read(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text()))


def test_bm25_on_all_tasks(tree: Path) -> None:
    done = upstream(tree, "--mode", "eval_retrieval", "--task", "All", "--retriever_name", "bm25")
    assert done.returncode == 0, done.stderr
    values = [float(part) for part in done.stdout.split("\t")]
    assert len(values) == 8
    folder = tree / "results" / "base retriever" / "bm25"
    assert len(list(folder.iterdir())) == 8
    result = read(folder / "Biology.json")
    assert set(result) == {"dataset_name", "model_name", "evaluation_time", "test"}
    assert (result["dataset_name"], result["model_name"]) == ("Biology", "bm25")
    assert str(result["evaluation_time"]).endswith(" minutes")
    test = result["test"]
    assert isinstance(test, dict)
    assert set(test) == OTHER
    ours = r2med.evaluate("bm25", r2med.load("mini@1/Biology"), depth=100).means
    assert test["ndcg_at_10"] == round(ours["ndcg_at_10"], 5)
    assert test["mrr"] == round(ours["mrr_at_100"], 5)
    assert values[0] == round(100 * float(test["ndcg_at_10"]), 2)
    candidates = read_topk(tree / "output" / "topk_docs" / "bm25" / "Biology.jsonl")
    assert set(candidates.query_ids) == set(r2med.load("mini@1/Biology").query_ids)


def test_the_figures_are_those_of_trec_eval(tree: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    done = upstream(tree, "--mode", "eval_retrieval", "--task", "PMC-Treatment", "--retriever_name", "bm25")
    assert done.returncode == 0, done.stderr
    folder = tree / "dataset" / "PMC-Treatment"
    qrels: dict[str, dict[str, int]] = {}
    for line in folder.joinpath("qrels.jsonl").read_text().splitlines():
        judged = json.loads(line)
        qrels.setdefault(judged["q_id"], {})[judged["p_id"]] = judged["score"]
    lines = (tree / "output" / "topk_docs" / "bm25" / "PMC-Treatment.jsonl").read_text().splitlines()
    run = {entry["id"]: dict(entry["topk_pid"]) for entry in map(json.loads, lines)}
    cuts = "1,10,25,50,100"
    families = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
    wanted = {f"{name}.{cuts}" for name in families.values()} | {"recip_rank"}
    found = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)
    test = read(tree / "results" / "base retriever" / "bm25" / "PMC-Treatment.json")["test"]
    assert isinstance(test, dict)
    for key, value in test.items():
        family, _, cut = key.partition("_at_")
        theirs = f"{families[family]}_{cut}" if cut else "recip_rank"
        assert value == pytest.approx(sum(q[theirs] for q in found.values()) / len(found), abs=6e-6), key


def test_a_model_of_ones_own(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "src" / "own.py").write_text(OWN)
    flags = ("--mode", "eval_retrieval", "--task", "Biology", "--retriever_name", "own:CustomModel")
    done = upstream(tree, *flags)
    assert done.returncode == 0, done.stderr
    (folder,) = (tree / "results" / "base retriever").glob("own_CustomModel~*")
    test = read(folder / "Biology.json")["test"]
    assert isinstance(test, dict)
    assert set(test) == DENSE
    monkeypatch.syspath_prepend(tree / "src")
    ours = r2med.evaluate("own:CustomModel", r2med.load("mini@1/Biology"))
    assert test["ndcg_at_10"] == pytest.approx(ours.mean(), abs=6e-6)


def test_a_tree_that_lacks_a_task(tree: Path) -> None:
    shutil.rmtree(tree / "dataset" / "IIYi-Clinical")
    done = upstream(tree, "--mode", "eval_retrieval", "--task", "All", "--retriever_name", "bm25")
    assert done.returncode == 1
    assert "has no task IIYi-Clinical" in done.stderr
    assert not (tree / "results").exists()


def test_results_that_are_there_are_left_alone(tree: Path) -> None:
    flags = ("--mode", "eval_retrieval", "--task", "Stack-Biology", "--retriever_name", "bm25")
    file = tree / "results" / "base retriever" / "bm25" / "Biology.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"test": {"NDCG@10": 0.5}}')
    kept = upstream(tree, *flags)
    assert (kept.returncode, kept.stdout) == (0, "50.0\n")
    assert "was there already" in kept.stderr
    assert upstream(tree, *flags, "--overwrite").stdout != kept.stdout
    assert read(file)["dataset_name"] == "Biology"


def test_flags_that_a_mode_does_not_use_are_named(tree: Path) -> None:
    """Reranking was not of the expanded queries, and nothing said so."""
    (tree / "src" / "own.py").write_text(OWN)
    rerank = ("--mode", "eval_reranker", "--retriever_name", "bm25", "--reranker_name", "own:by_length")
    done = upstream(tree, *rerank, "--task", "Biology", "--gar_method", "hyde", "--gar_llm", "gpt4")
    assert done.returncode == 0, done.stderr
    unused = [f"r2med: --mode eval_reranker does not use --{name}" for name in ("gar_method", "gar_llm")]
    assert done.stderr.splitlines()[:2] == unused
    plain = upstream(tree, "--mode", "eval_retrieval", "--task", "Biology", "--retriever_name", "bm25")
    assert "does not use" not in plain.stderr


def test_a_dense_model_and_a_reranker_over_it(tree: Path, with_models: dict[str, str]) -> None:
    small_task(tree, 3)
    flags = ("--mode", "eval_retrieval", "--task", "Small", "--retriever_name", "bge-small")
    # The repository's own scripts pass a reranker to every mode.
    done = upstream(tree, *flags, "--reranker_name", "bge-reranker", **with_models)
    assert done.returncode == 0, done.stderr
    test = read(tree / "results" / "base retriever" / "bge-small" / "Small.json")["test"]
    assert isinstance(test, dict)
    assert set(test) == DENSE
    assert test["recall_at_100"] == 1.0
    real_model("msmarco-minilm", "model.onnx")
    flags = ("--mode", "eval_reranker", "--task", "Small", "--retriever_name", "bge-small")
    again = upstream(tree, *flags, "--reranker_name", "msmarco-minilm", "--recall_k", "10", **with_models)
    assert again.returncode == 0, again.stderr
    result = read(tree / "results" / "reranker" / "msmarco-minilm" / "bge-small" / "top_10" / "Small.json")
    reranked = result["test"]
    assert isinstance(reranked, dict)
    assert result["topk"] == 10
    assert result["retriever_name"] == "bge-small"
    assert set(reranked) == OTHER
    # Ten documents in another order: what can be found among them stays.
    assert reranked["recall_at_10"] == reranked["recall_at_100"] == test["recall_at_10"]


def test_reranking_makes_the_first_stage_that_is_missing(tree: Path) -> None:
    (tree / "src" / "own.py").write_text(OWN)
    flags = ("--mode", "eval_reranker", "--task", "Biology", "--retriever_name", "bm25")
    done = upstream(tree, *flags, "--reranker_name", "own:by_length", "--recall_k", "100")
    assert done.returncode == 0, done.stderr
    assert (tree / "output" / "topk_docs" / "bm25" / "Biology.jsonl").is_file()
    (folder,) = (tree / "results" / "reranker").glob("own_by_length~*")
    result = read(folder / "bm25" / "top_100" / "Biology.json")
    assert (result["reranker_name"], result["retriever_name"]) == ("own:by_length", "bm25")


@pytest.mark.parametrize(
    ("method", "llm"),
    [
        ("hyde", "gpt4"),
        pytest.param("query2doc", "qwq-32b", marks=pytest.mark.slow),
        ("lamer", "huatuo-o1-70b"),
        pytest.param("search-o1", "qwq-32b", marks=pytest.mark.slow),
        pytest.param("search-r1", "qwen-7b", marks=pytest.mark.slow),
    ],
)
def test_texts_are_generated_and_found_again(tree: Path, server: ChatServer, method: str, llm: str) -> None:
    answers = {
        "qwq-32b": "<think>Hm.</think>Bees.",
        "qwen-7b": "<think>Hm.</think><answer>Bees.</answer>",
        "huatuo-o1-70b": "## Thinking\n\nHm.\n\n## Final Response\n\nBees.",
    }
    server.text = lambda body: answers.get(llm, "Honey bees communicate by dancing.")
    reach = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    gar = ("--task", "Biology", "--gar_method", method, "--gar_llm", llm)
    made = upstream(tree, "--mode", "generate_hydoc", *gar, **reach)
    assert made.returncode == 0, made.stderr
    queries = len(r2med.load("mini@1/Biology").queries)
    assert len(server.asked) == queries
    sent = server.asked[0]
    assert (sent["temperature"], sent.get("seed")) == ((0.8, None) if llm == "gpt4" else (0.7, 42))
    assert "prompts: r2med's own" in made.stderr
    file = tree / "dataset" / "Biology" / method / llm / "query_with_hydoc.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {tuple(sorted(line)) for line in lines} == {("doc_id", "hy_doc", "id", "prompts", "text")}
    assert {line["prompts"] for line in lines} == {"r2med's own"}
    assert "Bees" in lines[0]["hy_doc"] or "bees" in lines[0]["hy_doc"]
    scored = upstream(tree, "--mode", "eval_retrieval", "--retriever_name", "bm25", *gar)
    assert scored.returncode == 0, scored.stderr
    result = read(tree / "results" / "gar" / method / llm / "bm25" / "Biology.json")
    assert result["prompts"] == "r2med's own"
    assert (result["gar_method"], result["gar_llm"], result["retriever_name"]) == (method, llm, "bm25")
    again = upstream(tree, "--mode", "generate_hydoc", *gar, **reach)
    assert "already in" in again.stdout
    assert len(server.asked) == queries


@pytest.mark.slow
def test_the_embedded_model_generates(tree: Path, with_models: dict[str, str]) -> None:
    pytest.importorskip("xllamacpp")
    if not (Path(with_models["R2MED_HOME"]) / "models" / "smollm2").is_dir():
        pytest.skip("smollm2 is not here: r2med models fetch smollm2")
    small_task(tree, 1)
    gar = ("--task", "Small", "--gar_method", "hyde", "--gar_llm", "local")
    made = upstream(tree, "--mode", "generate_hydoc", *gar, **with_models)
    assert made.returncode == 0, made.stderr
    assert "SmolLM2" in made.stderr  # what its texts are worth is said
    assert upstream(tree, "--mode", "eval_retrieval", "--retriever_name", "bm25", *gar).returncode == 0


def test_unanswered_queries_write_no_file(tree: Path, server: ChatServer) -> None:
    server.plan = ["ok", *["400"] * 40]
    gar = ("--task", "Biology", "--gar_method", "hyde", "--gar_llm", "gpt4")
    reach = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    made = upstream(tree, "--mode", "generate_hydoc", *gar, **reach)
    assert made.returncode != 0
    assert [line.partition(":")[0] for line in made.stderr.splitlines()] == ["prompts", "r2med"]
    assert not (tree / "dataset" / "Biology" / "hyde").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--mode", "eval_retrieval", "--task", "Biology"), "needs --retriever_name"),
        (("--mode", "eval_reranker", "--task", "Biology", "--retriever_name", "bm25"), "needs --reranker_name"),
        (("--mode", "generate_hydoc", "--task", "Biology"), "needs --gar_method and --gar_llm"),
        (("--mode", "train", "--task", "Biology"), "invalid choice"),
        (("--task", "Biology"), "--mode"),
        (("--mode", "eval_retrieval", "--task", "..", "--retriever_name", "bm25"), "unknown task '..'"),
        (("--mode", "eval_retrieval", "--task", "", "--retriever_name", "bm25"), "unknown task ''"),
        (("--mode", "eval_retrieval", "--task", "Biolgy", "--retriever_name", "bm25"), "did you mean Biology"),
        (("--mode", "eval_retrieval", "--task", "Biology", "--retriever_name", "bm26"), "did you mean bm25"),
        (("--mode", "eval_retrieval", "--task", "Biology", "--retriever_name", "nv"), "r2med models fetch nv"),
        (("--mode", "eval_retrieval", "--task", "All", "--retriever_name", "bm25", "--gar_llm", "gpt4"), "together"),
        (
            (*("--mode", "eval_retrieval", "--task", "Biology", "--retriever_name", "bm25"),
             *("--gar_method", "hyde", "--gar_llm", "gpt4")),
            "no generated texts",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tree: Path,
    flags: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tree / "src")
    assert main(flags) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert words in said.err


def test_no_dataset_folder(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    done = upstream(tmp_path, "--mode", "eval_retrieval", "--task", "All", "--retriever_name", "bm25")
    assert "r2med data convert mini dataset --to r2med" in done.stderr


def test_a_clone_of_the_repository_that_is_not_the_published_one_is_named(tree: Path, server: ChatServer) -> None:
    """Its instructions are not used, and the texts say so; a pack can be given instead."""
    write_clone(tree / "elsewhere")
    for path in (tree / "elsewhere" / "src").iterdir():
        shutil.copy(path, tree / "src")
    gar = ("--mode", "generate_hydoc", "--task", "Biology", "--gar_method", "hyde", "--gar_llm", "gpt4")
    reach = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    made = upstream(tree, *gar, **reach)
    assert made.returncode == 0, made.stderr
    assert "example.py: is not the file of commit 62b7074: SHA-256" in made.stderr
    assert "prompts: r2med's own" in made.stderr
    pack = tree / "mine.toml"
    pack.write_text('[generate.hyde.Biology]\nuser = "Mine: {{query}}"\n')
    refused = upstream(tree, *gar, "--prompts", str(pack), **reach)
    assert refused.returncode != 0
    assert "was made with r2med's own prompts, not with mine~" in refused.stderr
    assert upstream(tree, *gar, "--prompts", str(pack), "--overwrite", **reach).returncode == 0
    assert server.asked[-1]["messages"][-1]["content"].startswith("Mine: ")
