from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import r2med
from r2med.core import DataError, UsageError
from r2med.core.options import Options
from r2med.pipeline.nano_build import build_nano
from r2med.pipeline.nano_profile import dense_retriever, profile, read_nano
from r2med.retrieve import BM25
from r2med.retrieve.bm25 import BM25Lucene
from r2med.retrieve.custom import as_retriever
from r2med.retrieve.dense import DenseRetriever
from r2med.tasks import resolve
from r2med.tasks.load import from_path
from r2med.tasks.nano import PoolSettings
from r2med.tasks.nano.folder import read_manifest, split_name
from tests.builders import beir_folder, lines, r2med_folder


class HashedWords:
    """A real, if simple, encoder: counts of hashed words."""

    name = "hashed-words"

    def encode(self, texts: list[str], **_: object) -> npt.NDArray[np.float32]:
        out = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                out[row, sum(map(ord, word)) % 64] += 1
        return out


def hashed_words() -> DenseRetriever:
    made = as_retriever(HashedWords(), options=Options(cache=False))
    assert isinstance(made, DenseRetriever)
    return made


NAME = hashed_words().name
CONFIG = NAME.replace("-", "_").replace("~", "_")


def build(out: Path, spec: str = "mini@1/MedQA-Diag", **settings: object) -> Path:
    chosen = PoolSettings(**{"docs": 50, **settings})  # type: ignore[arg-type]
    build_nano(resolve(spec), out, chosen, bm25=BM25Lucene(), dense=hashed_words())
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("fill", ["source-order", "hard"])
def test_two_builds_are_the_same_bytes(tmp_path: Path, fill: str) -> None:
    one, two = build(tmp_path / "one", fill=fill, seed=7), build(tmp_path / "elsewhere" / "two", fill=fill, seed=7)
    assert contents(one) == contents(two)
    assert b"interval" not in (one / "metadata" / "NanoMini_1MedQADiag.json").read_bytes().replace(
        b'"ndcg_at_10_interval": null', b""
    )
    split = "NanoMini_1MedQADiag"
    assert set(contents(one)) == {
        *(f"{c}/{split}-00000-of-00001.parquet"
          for c in ("corpus", "queries", "qrels", "bm25", CONFIG, "reranking_hybrid")),
        "README.md", "manifest.json", f"metadata/{split}.json",
    }  # fmt: skip


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = build(tmp_path / "nano")
    source = resolve("mini@1/MedQA-Diag")[0].load()
    (ref,) = from_path(folder)
    read = read_nano(ref)
    assert len(read.task.documents) == 50
    assert read.task.qrels.positives == source.qrels.positives
    assert set(read.runs) == {"bm25", CONFIG, "reranking_hybrid"}
    assert read.metadata is not None
    assert read.metadata.fingerprint == read.task.fingerprint
    figures = read.measure(intervals=False).figures
    assert figures.profiles == read.metadata.figures.profiles
    assert figures.profiles["hybrid"].top_k <= 100
    again = BM25Lucene().retrieve(read.task, depth=500)
    assert [[h.doc_id for h in hits] for _, hits in again] == [
        [h.doc_id for h in hits] for _, hits in read.runs["bm25"]
    ]


def test_a_zip_has_the_figures_of_its_folder(tmp_path: Path) -> None:
    """Its metadata says which lists end in an appended positive: at the end of a short one it would count."""
    folder = tmp_path / "nano"
    source = resolve(str(r2med_folder(tmp_path / "source")))  # no query shares a word with a document
    build_nano(source, folder, PoolSettings(), bm25=BM25Lucene(), dense=BM25())
    shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    for path in (folder, tmp_path / "packed.zip"):
        (hybrid,) = [t.profiles["hybrid"] for t in profile(from_path(path), source="").tasks.values()]
        assert (hybrid.safeguard_rows, hybrid.hit_at_10, hybrid.ndcg_at_10) == (2, 0, 0)


def test_the_manifest_accounts_for_every_document(tmp_path: Path) -> None:
    folder = build(tmp_path / "nano", fill="hard")
    manifest = read_manifest(folder)
    assert manifest is not None
    told = manifest.tasks["NanoMini_1MedQADiag"]
    (ref,) = from_path(folder)
    assert [d.id for d in told.pool] == list(ref.load().documents.ids)
    assert sum(told.admitted.values()) == 50
    assert all(d.query and d.rank for d in told.pool if d.by in ("bm25-lucene", NAME))
    assert {c["name"] for c in told.candidates} == {"bm25-lucene", NAME}
    assert told.revision == "1"
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
    import hashlib

    for name, digest in manifest.files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_a_group_is_one_folder(tmp_path: Path) -> None:
    folder = build(tmp_path / "nano", "mini@1", docs=60)
    found = profile(from_path(folder), source="mini@1")
    assert len(found.tasks) == 8
    assert all(t.documents == 60 for t in found.tasks.values())
    bm25 = found.group["bm25"]
    assert bm25 is not None
    assert bm25.complete
    weighted = sum(t.queries * t.profiles["bm25"].ndcg_at_10 for t in found.tasks.values()) / found.queries
    assert bm25.ndcg_at_10 == pytest.approx(weighted)


def test_splits_of_one_config_have_the_same_columns(tmp_path: Path) -> None:
    """Titles and grades in one task must not keep the hub's library from loading another."""
    pq = pytest.importorskip("pyarrow.parquet")
    for name, title, grade, answer in (("plain", "", 1, ""), ("rich", "Heart", 2, "yes")):
        corpus = [{"_id": f"{name}{i}", "title": title, "text": f"text {i} of {name}"} for i in range(4)]
        queries = [{"_id": "q", "text": "text 1"} | ({"answer": answer} if answer else {})]
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        (folder / "corpus.jsonl").write_bytes(lines(corpus))
        (folder / "queries.jsonl").write_bytes(lines(queries))
        (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{name}1\t{grade}\n")
    refs = [ref for name in ("plain", "rich") for ref in from_path(tmp_path / name)]
    out = tmp_path / "out"
    built = build_nano(refs, out, PoolSettings(docs=3), bm25=BM25(), dense=None)
    for config, columns in (("corpus", ["_id", "text", "title"]), ("queries", ["_id", "text", "answer"]),
                            ("qrels", ["query-id", "corpus-id", "score"])):  # fmt: skip
        for name in ("plain", "rich"):
            assert pq.read_schema(out / config / f"{name}-00000-of-00001.parquet").names == columns
    assert [ref.load().fingerprint for ref in from_path(out)] == [b.manifest.fingerprint for b in built]


def test_the_hybrid_breaks_ties_by_rank_and_says_how_it_was_made(tmp_path: Path) -> None:
    (ref,) = from_path(build(tmp_path / "nano"))
    read = read_nano(ref)
    assert read.metadata is not None
    made = read.metadata.retrievers["reranking_hybrid"]
    assert (made["ties"], made["safeguard"]) == ("rank", {"rule": "first", "seed": 0})
    lists = [read.runs["bm25"], read.runs[CONFIG]]
    for query in read.task.queries:
        sums, best = dict[str, float](), dict[str, int]()
        for run in lists:
            for rank, hit in enumerate(run.of(query.id), 1):
                sums[hit.doc_id] = sums.get(hit.doc_id, 0.0) + 1 / (100 + rank)
                best[hit.doc_id] = min(best.get(hit.doc_id, rank), rank)
        order = sorted(sums, key=lambda d: (-sums[d], best[d], d))
        assert [hit.doc_id for hit in read.runs["reranking_hybrid"].of(query.id)][:100] == order[:100]


def test_a_random_fill_depends_on_the_seed_alone(tmp_path: Path) -> None:
    one, same, other = (build(tmp_path / str(i), fill="random", seed=s, docs=60) for i, s in enumerate((1, 1, 2)))
    assert contents(one) == contents(same)
    assert contents(one) != contents(other)
    manifest = read_manifest(one)
    assert manifest is not None
    assert set(manifest.tasks["NanoMini_1MedQADiag"].admitted) == {"positive", "random"}


def test_without_a_dense_retriever_there_is_no_hybrid(tmp_path: Path) -> None:
    build_nano(resolve("mini@1/Biology"), tmp_path / "n", PoolSettings(docs=60), bm25=BM25(), dense=None)
    (ref,) = from_path(tmp_path / "n")
    assert set(read_nano(ref).runs) == {"bm25"}
    assert dense_retriever("auto") is None
    assert dense_retriever("none") is None


def test_lexical_is_not_dense() -> None:
    with pytest.raises(UsageError, match="not a dense retriever"):
        dense_retriever("bm25")


def test_the_hub_library_loads_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder = build(tmp_path / "nano", "mini@1", docs=60)
    split = "NanoMini_1PMCTreatment"
    corpus = datasets.load_dataset(str(folder), "corpus", split=split, cache_dir=str(tmp_path / "cache"))
    assert corpus.num_rows == 60
    hybrid = datasets.load_dataset(str(folder), "reranking_hybrid", cache_dir=str(tmp_path / "cache"))
    assert len(hybrid) == 8
    assert hybrid[split].column_names == ["query-id", "corpus-ids"]


def test_the_card_names_every_file(tmp_path: Path) -> None:
    folder = build(tmp_path / "nano", "mini@1", docs=60)
    header = (folder / "README.md").read_text().split("---")[1]
    paths = [json.loads(line.partition(": ")[2]) for line in header.splitlines() if line.strip().startswith("path:")]
    assert sorted(paths) == sorted(p for p in contents(folder) if p.endswith(".parquet"))
    assert len(paths) == 48
    assert "\n# Nano mini@1\n" in (folder / "README.md").read_text()


def test_the_card_of_somebody_elses_corpus_claims_nothing(tmp_path: Path) -> None:
    """It was tagged medical and English, whatever it held."""
    r2med.add_collection("mine", r2med_folder(tmp_path / "one"), beir_folder(tmp_path / "two", dev="q2\td3\t1\n"))
    folder = build(tmp_path / "nano", "mine", docs=3)
    header, text = (folder / "README.md").read_text().split("---")[1:3]
    assert "medical" not in header
    assert "language" not in header
    assert "\n# Nano mine\n" in text
    assert [ref.split for ref in from_path(folder)] == ["one", "two_dev"]
    mini = (build(tmp_path / "mini", "mini@1/Biology", docs=60) / "README.md").read_text().split("---")[1]
    assert "- medical\n" in mini
    assert 'language:\n- "en"\n' in mini


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        ("mini@1/MedQA-Diag", "", "NanoMini_1MedQADiag"),
        ("r2med/PMC-Treatment", "", "NanoR2MEDPMCTreatment"),
        ("mini@1/Biology", "my set-2", "my_set_2"),
    ],
)
def test_split_names(spec: str, given: str, expected: str) -> None:
    assert split_name(resolve(spec)[0], given) == expected


def test_a_split_called_test_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be called 'test'"):
        split_name(resolve("mini@1/Biology")[0], "test")


def test_nothing_is_left_of_a_failed_build(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot hold them"):
        build(tmp_path / "nano", docs=3)
    assert list(tmp_path.iterdir()) == []


def test_a_group_is_refused_before_the_first_text_is_encoded(tmp_path: Path) -> None:
    """The last of five tasks had too many positives, which was said after a quarter of an hour."""
    told: list[str] = []
    refs = [*resolve("mini@1/Biology"), *resolve("mini/Biology")]  # few and 243 positives
    with pytest.raises(UsageError, match="mini/Biology has 243 positives: --docs 100 cannot hold them"):
        build_nano(
            refs, tmp_path / "nano", PoolSettings(docs=100), bm25=BM25Lucene(), dense=hashed_words(),
            notify=lambda task, what: told.append(what),
        )  # fmt: skip
    assert told == ["checking", "checking"]


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    with pytest.raises(DataError, match="not an empty folder"):
        build(tmp_path)


def test_metadata_of_other_data_is_refused(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two", docs=60)
    name = "metadata/NanoMini_1MedQADiag.json"
    (one / name).write_bytes((two / name).read_bytes())
    with pytest.raises(DataError, match="made for other data"):
        profile(from_path(one), source="")


def test_broken_metadata_is_one_line(tmp_path: Path) -> None:
    folder = build(tmp_path / "nano")
    (folder / "metadata" / "NanoMini_1MedQADiag.json").write_text("{")
    with pytest.raises(DataError, match="not a metadata file"):
        profile(from_path(folder), source="")


def test_a_task_without_candidates_has_no_profile() -> None:
    with pytest.raises(DataError, match="it is not a Nano task"):
        profile(resolve("mini@1/Biology"), source="")


def test_vignettes_are_hard_for_words(shared_data: Path, tmp_path: Path) -> None:
    from r2med.scoring import score

    (ref,) = from_path(shared_data / "vignettes")
    task = ref.load()
    assert score(BM25Lucene().retrieve(task), task.qrels).mean() == pytest.approx(0.15, abs=0.01)
    (built,) = build_nano([ref], tmp_path / "v", PoolSettings(fill="hard"), bm25=BM25Lucene(), dense=None)
    assert (built.split, built.figures.documents) == ("vignettes", 10_000)
    assert built.manifest.duplicate_queries == {"mb17": "mb11"}
    assert built.manifest.admitted["positive"] == len({d for _, d, _ in from_path(tmp_path / "v")[0].load().qrels})
