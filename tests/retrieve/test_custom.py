"""Whatever people bring is taken: by `evaluate`, by systems and, where it has an address, by the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError, UsageError
from r2med.core.queries import Queries, QueryText
from r2med.core.spec import Spec
from r2med.pipeline import Builder, SystemSpec
from r2med.retrieve import Retriever, as_retriever, get_retriever
from r2med.retrieve.custom import ObjectRetriever, comparison
from r2med.retrieve.dense import DenseParameters
from tests import own_models as models
from tests.own_rankings import Ranking, beyond_the_documents, broken, run_of, with_nan
from tests.retrieve.encoders.tiny import save_model, save_tokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini@1/MedQA-Diag")


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
    name = "Mini1R2MEDMedQADiagRetrieval"
    assert model.told == [(name, "Retrieval", "document"), (name, "Retrieval", "query")]


def test_mteb_is_not_imported_for_it() -> None:
    code = """
import sys, r2med
from tests import own_models as models
from tests.own_rankings import Ranking, beyond_the_documents, broken, run_of, with_nan
task = r2med.load("mini@1/Biology")
for model in (models.MtebEncoder(), models.MtebCrossEncoder()):
    r2med.evaluate(model, task)
assert "mteb" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_builder_takes_objects(task: r2med.Task, expected: float) -> None:
    builder, model = Builder(), models.CustomModel()
    spec = builder.own_retriever(model)
    assert re.fullmatch(r"tests\.own_models:CustomModel~[0-9a-f]{8}", str(spec))
    built = builder.build(SystemSpec((spec,)))
    assert built.name == str(spec)
    assert builder.own_retriever(model) == spec
    run = built.retrievers[0].retrieve(task)
    assert r2med.score(run, task).mean() == pytest.approx(expected, abs=1e-6)


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
        as_retriever(like(euclidean), how=DenseParameters(variant="int8"))


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
        mine = prompted.embed(texts, "query", "").rows.read(0, 2)
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


def test_real_mteb_models(tmp_path: Path, task: r2med.Task) -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("mteb")
    save_model(tmp_path / "bert", "bert")
    save_tokenizer(tmp_path / "bert", "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mteb
        from mteb.models.search_wrappers import SearchEncoderWrapper

        plain = sentence_transformer(tmp_path / "bert")
        wrapped = mteb.models.SentenceTransformerEncoderWrapper(plain)
        direct = r2med.evaluate(plain, task).means
        assert r2med.evaluate(wrapped, task).means == pytest.approx(direct, abs=1e-6)
        assert r2med.evaluate(SearchEncoderWrapper(wrapped), task).means == pytest.approx(direct, abs=1e-6)


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
    (tmp_path / "own.py").write_text((ROOT / "tests" / "own_models.py").read_text())
    own = ("--retriever", "own:CustomModel", "--expand", "own:shout", "--rerank", "own:overlap@10")
    command = Path(sys.executable).with_name("r2med")
    done = subprocess.run(
        [str(command), "run", "--tasks", "mini@1/MedQA-Diag", *own, "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    systems = {s["name"]: s["tasks"]["mini@1/MedQA-Diag"]["ndcg_at_10"] for s in json.loads(done.stdout)["systems"]}
    assert systems["own:CustomModel"] == pytest.approx(expected, abs=1e-6)
    assert list(systems) == [
        "own:CustomModel", "expand=own:shout+own:CustomModel", "expand=own:shout+own:CustomModel+own:overlap@10",
    ]  # fmt: skip


def test_code_that_changed_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import numpy as np\n\n\ndef encode(texts):\n    return np.array([[len(t), 1.0] for t in texts])\n")
    flags = ("--tasks", "mini@1/Biology", "--retriever", "own:encode")
    first, second = run_command(tmp_path, *flags), run_command(tmp_path, *flags)
    assert first.returncode == second.returncode == 0, first.stderr
    # Another length, too: within a second Python takes a file of the same length for the one that it has compiled.
    file.write_text(file.read_text().replace("1.0", "20.0"))
    third = run_command(tmp_path, *flags)
    assert "is run again" in third.stderr
    assert "is run again" not in second.stderr


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere:Model", "No module named 'nowhere'"),
        ("tests.own_models:Missing", "tests.own_models has no Missing"),
        ("tests.own_models:", "unknown retriever"),
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


class BadSearcher(models.MtebSearcher):
    def __init__(self, found: Any) -> None:
        self.found = found

    def search(self, queries: Any, **kwargs: Any) -> Any:
        return self.found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([1, 2], "did not return scores by query and document"),
        ({"nobody": {}}, "'nobody'"),
        ("unknown", "unknown document 'zzz'"),
        ("nan", "not a number"),
        ("text", "cannot be used"),
    ],
)
def test_searchers_too(found: Any, words: str, task: r2med.Task) -> None:
    known = task.documents.ids[0]
    rows = {"unknown": {"zzz": 1.0}, "nan": {known: float("nan")}, "text": {known: "high"}}
    given = {task.queries[0].id: rows[found]} if isinstance(found, str) else found
    with pytest.raises(ModelError, match=words):
        r2med.evaluate(BadSearcher(given), task)


def test_a_query_that_a_searcher_leaves_out_scores_nothing(task: r2med.Task) -> None:
    assert r2med.evaluate(BadSearcher({}), task).mean() == 0


@pytest.fixture(scope="module")
def biology() -> r2med.Task:
    return r2med.load("mini@1/Biology")


class Retrieving(Ranking):
    def retrieve(self, task: r2med.Task, *, depth: int = 1000) -> Any:
        return self.answer(task)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            broken,
            r"theirs~\w+ failed on .*13 queries of mini@1/Biology \(RuntimeError: CUDA out of memory on device 0\)",
        ),
        (lambda task: None, r"theirs~\w+ returned NoneType for .*13 queries of mini@1/Biology, not a Run"),
        (lambda task: run_of(task, query="nobody"), "'nobody', which mini@1/Biology does not hold"),
        (lambda task: run_of(task, doc="nothing"), "unknown document 'nothing'"),
        (with_nan, "scores that are not numbers"),
        (beyond_the_documents, "cannot be used"),
    ],
)
def test_one_line_names_the_retriever(answer: Any, words: str, biology: r2med.Task) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        r2med.evaluate(Retrieving(answer), biology)
    assert "\n" not in str(caught.value)


def test_a_good_one_passes_through(biology: r2med.Task) -> None:
    run = r2med.BM25().retrieve(biology, depth=20)
    theirs = get_retriever(Retrieving(lambda _: run))
    assert list(theirs.retrieve(biology, depth=5)) == list(run.top(5))
    assert theirs.describe()["version"] == 1
    ours = r2med.BM25()
    assert get_retriever(ours) is ours


def shuffled(run: r2med.Run) -> r2med.Run:
    """The same hits in another order, as somebody may have collected them."""
    order = np.random.default_rng(0).permutation(run.depth)
    return r2med.Run(run.query_ids, run.doc_ids, run.docs[:, order], run.scores[:, order], name="mine")


def test_a_run_that_is_not_in_order_is_put_in_order(biology: r2med.Task, tmp_path: Path) -> None:
    """The same hits score the same, whichever order they come in and whether they were written in between."""
    run = r2med.BM25().retrieve(biology, depth=20)
    assert not np.array_equal(run.docs[:, :5], run.docs[:, np.random.default_rng(0).permutation(run.depth)][:, :5])
    expected = r2med.score(run, biology).means
    r2med.write_run(shuffled(run), tmp_path / "shuffled.run")
    for system in (
        Retrieving(lambda _: shuffled(run)),
        Preparing(lambda queries, depth: shuffled(run)),
        f"run:{tmp_path / 'shuffled.run'}",
    ):
        assert r2med.evaluate(system, biology).means == expected
    cut = get_retriever(Retrieving(lambda _: shuffled(run))).retrieve(biology, depth=5)
    assert list(cut) == list(run.top(5)), "the best are kept, not the first"
    assert r2med.score(shuffled(run), biology).means == expected


class Preparing:
    """A retriever by our contract, without our base class."""

    def __init__(self, search: Callable[[Queries, int], Any]) -> None:
        self.search = search

    def prepare(self, task: r2med.Task) -> Preparing:
        del task
        return self


class Turned(r2med.BM25):
    """Somebody's subclass of a class of ours: it ranks the other way round."""

    def prepare(self, task: r2med.Task) -> Any:
        index = super().prepare(task)

        def search(queries: Queries, depth: int) -> r2med.Run:
            run = index.search(queries, len(task.documents))
            return r2med.Run(run.query_ids, run.doc_ids, run.docs, np.where(run.docs < 0, -np.inf, -run.scores)).top(
                depth
            )

        return Preparing(search)


class ByContract(Retriever):
    """Somebody's class with our contract."""

    def __init__(self, answer: Any, spec: Spec) -> None:
        self.answer, self.spec = answer, spec

    def describe(self) -> dict[str, object]:
        return {"mine": 1}

    def task_facts(self, task: r2med.Task) -> dict[str, object]:
        return {"length": len(task.name)}

    def prepare(self, task: r2med.Task) -> Any:
        return Preparing(lambda queries, depth: self.answer(task))


def test_a_subclass_of_ours_is_not_ours(biology: r2med.Task, tmp_path: Path) -> None:
    """It has another name and another result than the class it comes from, however it describes itself."""
    plain = r2med.run("bm25", tasks=biology, results=tmp_path)
    turned = r2med.run(Turned(), tasks=biology, results=tmp_path)
    assert turned.results[0].system.name.startswith("tests.retrieve.test_custom:Turned~")
    assert turned.results[0].measures != plain.results[0].measures
    assert turned.results[0].measures["ndcg_at_10"] == r2med.evaluate(Turned(), biology).mean()
    both = r2med.run("bm25", Turned(), tasks=biology, results=tmp_path)
    assert [r.measures for r in both.results] == [plain.results[0].measures, turned.results[0].measures]


def test_our_contract_is_checked_too(biology: r2med.Task) -> None:
    """A retriever that only has our base class is somebody else's code: its answers are looked at."""
    run = r2med.BM25().retrieve(biology, depth=9)
    theirs = get_retriever(ByContract(lambda _: run, Spec("theirs", None, (("x", 1),))))
    assert theirs.name == "theirs:x=1"
    assert theirs.describe()["mine"] == 1
    assert theirs.task_facts(biology) == {"length": 7}
    assert list(theirs.retrieve(biology, depth=5)) == list(run.top(5))
    for answer in (broken, with_nan, lambda task: run_of(task, doc="nothing")):
        with pytest.raises(ModelError, match="theirs:x=1"):
            get_retriever(ByContract(answer, Spec("theirs", None, (("x", 1),)))).retrieve(biology)


def test_names_of_ours_are_not_given_away(biology: r2med.Task, tmp_path: Path) -> None:
    taken = get_retriever(ByContract(broken, Spec("bm25")))
    assert taken.name.startswith("tests.retrieve.test_custom:ByContract~")
    named = models.CustomModel()
    named.spec = "bm25"  # type: ignore[attr-defined]
    assert re.fullmatch(r"bm25~\w{8}", get_retriever(named).name)


def test_equal_objects_are_one_system_and_others_are_refused(biology: r2med.Task, tmp_path: Path) -> None:
    def model(width: int) -> models.CustomModel:
        return models.CustomModel(str(width))

    scores = r2med.run(model(1), model(1), model(2), tasks=biology, results=tmp_path)
    assert len({r.system.name for r in scores.results}) == len(scores.results) == 2
    with pytest.raises(UsageError, match=r"two different objects are called .*Versioned,version=7"):
        r2med.run(models.Versioned(), models.Versioned(), tasks=biology, results=tmp_path)
    assert len(r2med.run(r2med.BM25(), r2med.BM25(), "bm25", tasks=biology, results=tmp_path).results) == 1


def test_queries_that_belong_to_no_task(biology: r2med.Task) -> None:
    """Both contracts are searched with whatever texts there are."""
    bm25 = r2med.BM25()

    def retrieve(task: r2med.Task) -> r2med.Run:
        return bm25.retrieve(task)

    texts = [biology.queries[3].text, "fever"]
    expected = bm25.prepare(biology).search(Queries.typed(texts), 7)
    for model in (Retrieving(retrieve), Preparing(bm25.prepare(biology).search)):
        found = get_retriever(model).prepare(biology).search(Queries.typed(texts), 7)
        assert list(found) == list(expected)
    with pytest.raises(UsageError, match="takes one text for each query"):
        several = Queries(biology.query_ids, biology.query_texts, [(QueryText("a"), QueryText("b"))] * 13)
        get_retriever(Retrieving(retrieve)).prepare(biology).search(several, 7)


def test_descriptions_are_plain_data() -> None:
    for facts, words in (
        (broken, "describing itself"),
        (object, "describing itself"),
        ([1], "by a list, not a dict"),
    ):
        with pytest.raises(ModelError, match=words):
            get_retriever(Retrieving(broken, facts)).describe()


def test_a_similarity_for_tensors_is_asked_with_tensors(task: r2med.Task) -> None:
    torch = pytest.importorskip("torch")
    documents = np.random.default_rng(0).normal(size=(len(task.documents), 3)).astype(np.float32)

    class Near:
        def encode(self, texts: list[str]) -> Any:
            return documents[: len(texts)]

        def similarity(self, a: Any, b: Any) -> Any:
            return -torch.cdist(a, b)

    retriever = as_retriever(Near())
    assert retriever.describe()["similarity"] == "own"
    run = retriever.retrieve(task, depth=1)
    assert run.docs[:, 0].tolist() == list(range(len(task.queries)))  # each is nearest to itself; by cosine too,
    assert np.allclose(run.scores, 0, atol=1e-3)  # but then at 1


def test_a_similarity_of_its_own_width_is_left_to_the_object(task: r2med.Task) -> None:
    class Weighted:
        weights = np.array([5.0, 0.1, 2.0], dtype=np.float32)

        def encode(self, texts: list[str]) -> Any:
            return np.random.default_rng(1).normal(size=(len(texts), 3)).astype(np.float32)

        def similarity(self, a: Any, b: Any) -> Any:
            return (a * self.weights) @ b.T

    model = Weighted()
    best = model.similarity(model.encode(list(task.query_texts)), model.encode(list(task.documents.contents))).max(1)
    assert np.allclose(as_retriever(model).retrieve(task, depth=1).scores[:, 0], best, rtol=1e-5)
