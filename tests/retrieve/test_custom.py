"""Whatever people bring is taken: by `evaluate`, by systems and, where it has an address, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError, UsageError
from r2med.pipeline.experiment import Builder, SystemSpec
from r2med.rerank import get_reranker
from r2med.retrieve import get_retriever
from r2med.retrieve.objects import ObjectRetriever, as_retriever, comparison
from tests import own_models as models
from tests.rerank.tiny import save_classifier
from tests.rerank.tiny import save_tokenizer as save_pair_tokenizer
from tests.retrieve.encoders.tiny import save_model, save_tokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini/MedQA-Diag")


@pytest.fixture(scope="module")
def expected(task: r2med.Task) -> float:
    return r2med.evaluate(models.encode, task).mean()


@pytest.mark.parametrize(
    "model",
    [
        models.encode,
        models.CustomModel,
        models.CustomModel(),
        models.FlagModel(),
        models.SentenceModel(),
        models.MtebEncoder(),
        models.MtebSearcher(),
        models.factory,
        "tests.own_models:encode",
        "tests.own_models:CustomModel",
        "tests.own_models:factory",
    ],
    ids=lambda m: m if isinstance(m, str) else getattr(m, "__name__", type(m).__name__),
)
def test_every_contract_gives_the_same_ranking(model: Any, task: r2med.Task, expected: float) -> None:
    assert 0 < expected < 1
    assert r2med.evaluate(model, task).mean() == pytest.approx(expected, abs=1e-6)


def test_the_sides_of_a_sentence_model_are_its_own(task: r2med.Task) -> None:
    model = models.SentenceModel()
    r2med.evaluate(model, task)
    assert model.called == ["document", "query"]


def test_an_mteb_encoder_is_told_the_task(task: r2med.Task) -> None:
    model = models.MtebEncoder()
    r2med.evaluate(model, task)
    name = "MiniR2MEDMedQADiagRetrieval"
    assert model.told == [(name, "Retrieval", "document"), (name, "Retrieval", "query")]


def test_mteb_is_not_imported_for_it() -> None:
    code = """
import sys, r2med
from tests import own_models as models
task = r2med.load("mini/Biology")
for model in (models.MtebEncoder(), models.MtebCrossEncoder()):
    r2med.evaluate(model, task)
assert "mteb" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("model", [models.overlap, models.Predicting(), models.Predicting, models.MtebCrossEncoder()])
def test_rerankers_as_objects(model: Any, task: r2med.Task) -> None:
    ours = r2med.evaluate("bm25", task, rerank=(model, 20)).mean()
    named = r2med.evaluate("bm25", task, rerank="tests.own_models:overlap@20").mean()
    assert ours == pytest.approx(named, abs=1e-9)
    assert ours != r2med.evaluate("bm25", task).mean()


def test_a_cross_encoder_as_system_reranks_bm25(task: r2med.Task) -> None:
    given = r2med.evaluate(models.Predicting(), task).mean()
    assert given == r2med.evaluate(models.Predicting, task).mean()
    assert given == r2med.evaluate("bm25", task, rerank=models.overlap).mean()
    with pytest.raises(UsageError, match="a reranker, not a retriever"):
        as_retriever(models.Predicting())


def test_expanders_as_objects(task: r2med.Task) -> None:
    plain = r2med.evaluate("bm25", task)
    for expander in (models.shout, "tests.own_models:shout"):
        shouted = r2med.evaluate("bm25", task, expand=expander)
        assert shouted.mean("R@100") == pytest.approx(plain.mean("R@100"), abs=0.2)
    assert r2med.evaluate("bm25", task, expand=lambda text: "").mean() == plain.mean()


def test_a_builder_takes_objects(task: r2med.Task, expected: float) -> None:
    built = Builder().build(SystemSpec(retrievers=[models.CustomModel()]))  # type: ignore[list-item]
    run = built.retrievers[0].retrieve(task)
    assert built.name == "CustomModel"
    assert r2med.evaluate(run, task).mean() == pytest.approx(expected, abs=1e-6)


def test_similarity_is_the_objects_own(task: r2med.Task) -> None:
    def like(compare: Any) -> Any:
        return type("Own", (models.SentenceModel,), {"similarity": staticmethod(compare)})()

    cosine = models.MtebEncoder().similarity
    assert comparison(like(cosine)) == "cosine"
    assert comparison(like(lambda a, b: a @ b.T)) == "dot"
    assert comparison(models.encode) == "cosine"

    def euclidean(a: Any, b: Any) -> Any:
        return -np.linalg.norm(np.asarray(a)[:, None] - np.asarray(b)[None], axis=2)

    near = as_retriever(like(euclidean))
    assert isinstance(near, ObjectRetriever)
    assert near.describe()["similarity"] == "own"
    run = near.retrieve(task, depth=5)
    queries, documents = models.vectors(task.query_texts), models.vectors(task.documents.contents)
    best = euclidean(queries, documents).max(axis=1)
    assert np.allclose(run.scores[:, 0], best, rtol=1e-5)
    with pytest.raises(UsageError, match="no variants"):
        as_retriever(like(euclidean), variant="int8")


def test_vectors_of_any_length_are_compared_by_cosine(task: r2med.Task, expected: float) -> None:
    def stretched(texts: list[str]) -> Any:
        made = models.vectors(texts)
        return made * np.linspace(0.01, 900, len(made), dtype=np.float32)[:, None]

    assert r2med.evaluate(stretched, task).mean() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64", "list", "rows", "sparse", "gradient"])
def test_arrays_of_any_kind(kind: str, task: r2med.Task, expected: float) -> None:
    torch = pytest.importorskip("torch")

    def encode(texts: list[str]) -> Any:
        made = torch.from_numpy(models.vectors(texts))  # whole numbers below 256: exact in every type
        forms = {
            "list": made.tolist,
            "rows": lambda: list(made),
            "sparse": made.to_sparse,
            "gradient": lambda: made.clone().requires_grad_(),
        }
        return forms[kind]() if kind in forms else made.to(getattr(torch, kind))

    assert r2med.evaluate(encode, task).mean() == pytest.approx(expected, abs=1e-6)


def test_real_sentence_transformers(tmp_path: Path, task: r2med.Task) -> None:
    torch = pytest.importorskip("torch")
    save_model(tmp_path / "bert", "bert")
    save_tokenizer(tmp_path / "bert", "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_transformer(tmp_path / "bert", prompts={"query": "patient with ", "document": ""})
        plain = sentence_transformer(tmp_path / "bert")
        prompted = get_retriever(model)
        assert isinstance(prompted, ObjectRetriever)
        texts = ["fever and cough", "acute liver pain"]
        mine = prompted.embed(texts, "query").rows.read(0, 2)
        theirs = plain.encode([f"patient with {text}" for text in texts])
        assert np.allclose(mine, theirs, atol=1e-5)
        assert 0 <= r2med.evaluate(model, task).mean() <= 1
    before = prompted.describe()
    with torch.no_grad():
        next(iter(model.parameters())).add_(1.0)
    assert get_retriever(model).describe() != before  # other weights, other results
    assert prompted.cache is None


def sentence_transformer(folder: Path, **options: Any) -> Any:
    library = pytest.importorskip("sentence_transformers")
    made = library.SentenceTransformer(str(folder), device="cpu", **options)
    made.max_seq_length = 64
    return made


def test_a_real_cross_encoder(tmp_path: Path, task: r2med.Task) -> None:
    library = pytest.importorskip("sentence_transformers")
    save_classifier(tmp_path, "bert")
    save_pair_tokenizer(tmp_path, "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = library.CrossEncoder(str(tmp_path), device="cpu", max_length=64)
        reranker = get_reranker(model)
        candidates = r2med.BM25().retrieve(task, depth=5)
        run = reranker.rerank(task, candidates, 5)
    query = task.queries[0]
    pairs = [(query.text, task.documents[int(d)].contents) for d in candidates.docs[0]]
    scores = model.predict(pairs, show_progress_bar=False)
    assert [hit.score for hit in run.of(query.id)] == pytest.approx(sorted(map(float, scores), reverse=True), abs=1e-5)


def test_real_mteb_models(tmp_path: Path, task: r2med.Task) -> None:
    library = pytest.importorskip("sentence_transformers")
    pytest.importorskip("mteb")
    save_model(tmp_path / "bert", "bert")
    save_tokenizer(tmp_path / "bert", "bert")
    save_classifier(tmp_path / "pairs", "bert")
    save_pair_tokenizer(tmp_path / "pairs", "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mteb
        from mteb.models.search_wrappers import SearchEncoderWrapper
        from mteb.models.sentence_transformer_wrapper import CrossEncoderWrapper

        plain = sentence_transformer(tmp_path / "bert")
        wrapped = mteb.models.SentenceTransformerEncoderWrapper(plain)
        direct = r2med.evaluate(plain, task).means
        assert r2med.evaluate(wrapped, task).means == pytest.approx(direct, abs=1e-6)
        assert r2med.evaluate(SearchEncoderWrapper(wrapped), task).means == pytest.approx(direct, abs=1e-6)
        pairs = library.CrossEncoder(str(tmp_path / "pairs"), device="cpu", max_length=64)
        candidates = r2med.BM25().retrieve(task, depth=4)
        mine = get_reranker(CrossEncoderWrapper(pairs)).rerank(task, candidates, 4)
        assert np.allclose(mine.scores, get_reranker(pairs).rerank(task, candidates, 4).scores, atol=1e-5)


def test_the_searcher_that_comes_with_mteb(task: r2med.Task) -> None:
    pytest.importorskip("mteb")
    pytest.importorskip("bm25s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mteb

        from r2med.integrations.mteb import to_mteb

        model = mteb.get_model("mteb/baseline-bm25s")
        ours = r2med.evaluate(model, task).mean()
        theirs = mteb.evaluate(model, to_mteb(task), cache=None, show_progress_bar=False)[0].scores["test"][0]
    assert ours == pytest.approx(theirs["ndcg_at_10"], abs=6e-6)  # it rounds to five digits


def run_command(folder: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags], cwd=folder, env=os.environ | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_addresses_on_the_command_line(tmp_path: Path, task: r2med.Task, expected: float) -> None:
    """A file of the current folder is enough, also for the installed command, whose path does not hold that folder."""
    (tmp_path / "own.py").write_text((ROOT / "tests" / "custom" / "models.py").read_text())
    own = ("--retriever", "own:CustomModel", "--expand", "own:shout", "--rerank", "own:overlap@10")
    command = Path(sys.executable).with_name("r2med")
    done = subprocess.run(
        [str(command), "run", "--tasks", "mini/MedQA-Diag", *own, "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    systems = {s["name"]: s["tasks"]["mini/MedQA-Diag"]["ndcg_at_10"] for s in json.loads(done.stdout)["systems"]}
    assert systems["CustomModel"] == pytest.approx(expected, abs=1e-6)
    assert set(systems) == {"CustomModel", "shout+CustomModel", "shout+CustomModel+overlap@10"}


def test_code_that_changed_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import numpy as np\n\n\ndef encode(texts):\n    return np.array([[len(t), 1.0] for t in texts])\n")
    flags = ("--tasks", "mini/Biology", "--retriever", "own:encode")
    first, second = run_command(tmp_path, *flags), run_command(tmp_path, *flags)
    assert first.returncode == second.returncode == 0, first.stderr
    file.write_text(file.read_text().replace("1.0", "2.0"))
    third = run_command(tmp_path, *flags)
    assert "is run again" in third.stderr
    assert "is run again" not in second.stderr


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere:Model", "No module named 'nowhere'"),
        ("tests.own_models:Missing", "tests.own_models has no Missing"),
        ("tests.own_models:", "expected module:attr"),
        ("tests.own_models:broken_factory", "weights.bin"),
        ("tests.own_models:WIDTH", "does not encode"),
        ("tests.own_models:Predicting", "it is a reranker"),
    ],
)
def test_addresses_of_nothing(address: str, words: str) -> None:
    with pytest.raises((UsageError, ModelError), match=words):
        get_retriever(address)


def test_a_module_that_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fallen_module.py").write_text("def encode(texts:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UsageError, match=r"fallen_module cannot be imported \(SyntaxError"):
        get_retriever("fallen_module:encode")
