"""Readers of what r2med itself keeps: results, caches, indexes, stores, and the settings people write."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np

import r2med
from r2med.cache import ArrayCache, DamagedShard, ShardSet, entries, open_shard, write_shard
from r2med.cache.arrays import Array, read_arrays
from r2med.cache.records import SCHEMA
from r2med.core import R2MedError, TextColumn
from r2med.core.options import Options
from r2med.core.spec import Content
from r2med.expand.generated import load_prompt
from r2med.expand.replay import Replayed, read_recorded
from r2med.llm import Generation, GenerationStore, Message, Request, Sampling, StoreKey
from r2med.llm.replay import Replay
from r2med.llm.store import Header, read_store
from r2med.models.generic import folder_card
from r2med.models.prompts import read_pack
from r2med.pipeline import read_experiment
from r2med.report.collection import MEASURES, all_collections, side_by_side
from r2med.rerank.asking import ask_about
from r2med.rerank.asking import load_prompt as load_rerank_prompt
from r2med.results import ResultIndex
from r2med.results.ledger import read_ledger
from r2med.results.protocols import parse_protocol
from r2med.results.schema import PROGRESS, ProgressFile, read_progress
from r2med.retrieve.encoders.native_bert import Recognition
from r2med.retrieve.encoders.onnx_file import Unreadable, read_graph
from r2med.retrieve.encoders.torch_models import check_folder
from r2med.retrieve.sparse import Postings, SparseQueries, search
from r2med.scoring import MAIN
from r2med.tasks.nano.folder import read_manifest, read_metadata
from tests.builders import lines
from tests.fuzz.cases import Case, Maker, from_file, some_results
from tests.retrieve.encoders.tiny_onnx import tiny, write_bert

KEY = StoreKey(
    method="hyde", llm="m", model={"model": "m", "marking": "think"}, template="t",
    sampling=Sampling(max_tokens=64), task="f",
)  # fmt: skip
EXPERIMENT = (
    b'tasks = ["mini@1"]\ndepth = 10\n[[system]]\nretrievers = ["bm25", "bge-small"]\nfuse = "rrf"\n'
    b"weights = [0.5, 1.0]\n"
)
PACK = b'name = "p"\n[query]\ndefault = "Given {a}"\n"Clinical case" = "x"\n[model.e5.query]\ndefault = "y"\n'
HYDOC = lines([{"id": "q1", "hy_doc": "a text"}, {"id": "q2", "hy_doc": ["one", "<think>x</think> two"]}])
LEDGER = files("r2med.results.ledger").joinpath("mini1.toml").read_bytes()


def results_file(suffix: str, read: Callable[[Path, Path], object]) -> Maker:
    """A results folder made by a real run, with one file of it broken."""

    def make(folder: Path) -> Case:
        root = folder / "results"
        some_results(root)
        path = root / "bm25" / "mini@1" / f"Biology{suffix}"
        return from_file(path, [path.read_bytes()], lambda changed: read(root, changed))

    return make


def read_results(root: Path, _: Path) -> object:
    return [stored.result for stored in ResultIndex([root]).select()]


def read_scores(root: Path, _: Path) -> object:
    return side_by_side(ResultIndex([root]), ["bm25", "bm25-lucene"], MAIN)


def read_in_view(root: Path, _: Path) -> object:
    """The web app never fails over a broken file: it says so and shows the rest."""
    index = ResultIndex([root])
    index.refresh()
    results = all_collections(index).get("mini@1")
    return results and [results.matrix(task, MEASURES[0]) for task in results.tasks], index.problems


def read_run_of(root: Path, _: Path) -> object:
    """A stored run gives the rankings that were stored, or an error."""
    stored = next(s for s in ResultIndex([root]).select(["bm25"]))
    return [stored.run().of(q).docs for q in ("Biology-q01", "Biology-q13", "nobody")]


def bundle_members(folder: Path) -> dict[str, bytes]:
    """A bundle made by a real run, by member."""
    some_results(folder / "results")
    path = r2med.pack_bundle(folder / "seed.zip", "bm25", results=folder / "results").path
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # nothing packed, so that changes meet the content
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def bundle(folder: Path) -> Case:
    """A bundle is whole, or refused; what is whole is scored again."""
    plain = zipped(bundle_members(folder))
    return from_file(folder / "a.zip", [(folder / "seed.zip").read_bytes(), plain], r2med.check_bundle)


def bundle_member(suffix: str) -> Maker:
    """A bundle with one member changed, and a manifest that states the hash of what it then holds."""

    def make(folder: Path) -> Case:
        members = bundle_members(folder)
        name = next(name for name in members if name.endswith(suffix))
        manifest = msgspec.json.decode(members["manifest.json"])

        def read(data: bytes) -> object:
            changed = members | {name: data}
            if name in manifest["members"]:
                stated = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                listed = manifest | {"members": manifest["members"] | {name: stated}}
                changed["manifest.json"] = msgspec.json.encode(listed)
            (folder / "a.zip").write_bytes(zipped(changed))
            return r2med.check_bundle(folder / "a.zip")

        return Case([members[name]], read)

    return make


def progress_file(folder: Path) -> Case:
    live = ProgressFile(folder)
    live.begin(3)
    live.step("bm25", "mini@1/Biology")
    seed = (folder / PROGRESS).read_bytes()

    def read(_: Path) -> object:
        found = read_progress(folder)
        return found and found.running

    return from_file(folder / PROGRESS, [seed], read)


def shard_bytes(folder: Path) -> bytes:
    keys = np.arange(20, dtype="<u8").reshape(10, 2)
    path = write_shard(folder / "made", keys, np.arange(10, dtype=np.int32), np.ones((10, 8), dtype=np.float32))
    return path.read_bytes()


def shards(folder: Path) -> Case:
    def read(path: Path) -> object:
        try:
            return open_shard(path, check=True)
        except DamagedShard:
            return None

    return from_file(folder / "a.shard", [shard_bytes(folder)], read)


def shard_sets(folder: Path) -> Case:
    data = shard_bytes(folder)
    (folder / "set").mkdir()
    (folder / "set" / "b.shard").write_bytes(data)

    def read(_: Path) -> object:
        found = ShardSet(folder / "set")
        return found.tokens(found.find(np.arange(8, dtype="<u8").reshape(4, 2)))

    return from_file(folder / "set" / "a.shard", [data], read)


def set_facts(folder: Path) -> Case:
    path = folder / "embeddings" / "00" / "set.json"
    seed = msgspec.json.encode({"label": "bge", "backend": "onnx", "pooling": "cls"})
    return from_file(path, [seed], lambda _: entries(folder))


def index_file(name: str) -> Maker:
    """A damaged index is refused, and made anew by whoever needs it; one that is whole is searched."""

    def make(folder: Path) -> Case:
        cache, ties = ArrayCache(folder), np.arange(3, dtype=np.int32)
        words = TextColumn.from_texts(["fever", "rash", "β-blocker"])
        arrays: dict[str, Array] = {
            "term_ptr": np.array([0, 2, 4, 5], dtype=np.int64),
            "docs": np.array([0, 1, 1, 2, 0], dtype=np.int32),
            "impacts": np.array([0.5, 0.25, 1.0, 2.0, 0.125], dtype=np.float32),
            "vocabulary_data": words.data,
            "vocabulary_offsets": words.offsets,
        }
        cache.save("index", arrays, {"documents": 3})
        queries = SparseQueries(
            np.array([0, 2], dtype=np.int64), np.array([0, 2], dtype=np.int32), np.array([1.0, 0.5])
        )

        def read(_: Path) -> object:
            if (found := cache.load("index")) is None or set(found) != set(arrays):
                return read_arrays(folder / "index")
            postings = Postings(found["term_ptr"], found["docs"], found["impacts"])
            words = TextColumn(found["vocabulary_data"], found["vocabulary_offsets"])
            return list(words), search(postings, queries, ties, 3)

        path = folder / "index" / name
        return from_file(path, [path.read_bytes()], read)

    return make


def generation_lines() -> bytes:
    records = [
        Generation(query_id=f"q{i}", prompt_hash="h", status="ok", final=f"text {i}", raw=f"<think>a</think>text {i}")
        for i in range(3)
    ]
    return b"\n".join(map(msgspec.json.encode, [Header(schema=SCHEMA, key=KEY), *records])) + b"\n"


def generation_store(folder: Path) -> Case:
    request = Request((Message("user", "x"),), Sampling(max_tokens=64), "q1")

    def read(_: Path) -> object:
        with GenerationStore(KEY, folder) as store:
            return len(store), store.torn, store.get(request)

    return from_file(KEY.path(folder), [generation_lines()], read)


def recorded(folder: Path) -> Case:
    seeds = [HYDOC, generation_lines()]

    def read(path: Path) -> object:
        Replayed("hyde", path=path).describe()
        return read_recorded(path, "hyde", "auto", clean=True)

    return from_file(folder / "query_with_hydoc.jsonl", seeds, read)


def model_folder(name: str, seed: bytes) -> Maker:
    def make(folder: Path) -> Case:
        model = folder / "model"
        (model / "1_Pooling").mkdir(parents=True)
        for inside, content in MODEL_FILES.items():
            (model / inside).write_bytes(content)
        (model / "model.safetensors").write_bytes(b"")

        def read(_: Path) -> object:
            card = folder_card(model)
            check_folder(model, card, Options())
            return card.describe()

        return from_file(model / name, [seed], read)

    return make


MODEL_FILES = {
    "config.json": b'{"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8,'
    b' "max_position_embeddings": 512}',
    "modules.json": b'[{"type": "sentence_transformers.models.Transformer", "path": ""},'
    b' {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]',
    "1_Pooling/config.json": b'{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}',
    "tokenizer_config.json": b'{"model_max_length": 512, "pad_token": "[PAD]"}',
    "sentence_bert_config.json": b'{"max_seq_length": 256}',
    "config_sentence_transformers.json": b'{"prompts": {"query": "q: "}, "similarity_fn_name": "dot"}',
}


def prompt_file(folder: Path) -> Case:
    seeds = [files("r2med.expand").joinpath("prompts", "hyde", "qa-reference.toml").read_bytes()]

    def read(path: Path) -> object:
        return load_prompt("hyde", ("", "Q&A reference"), Content.of(path)).messages(query="{{query}} {0} %s </think>")

    return from_file(folder / "prompt.toml", seeds, read)


def rerank_prompt(folder: Path) -> Case:
    names = [p.name for p in files("r2med.rerank").joinpath("prompts").iterdir() if p.name.endswith(".toml")]
    seeds = [files("r2med.rerank").joinpath("prompts", name).read_bytes() for name in names]

    def read(path: Path) -> object:
        return ask_about(load_rerank_prompt("listwise", path), "q {{query}}", ["{passage}", "</p> [1]"])

    return from_file(folder / "prompt.toml", seeds, read)


def nano_files(folder: Path) -> Case:
    manifest = b'{"schema": 1, "made_by": "r2med", "tasks": {}, "files": {"a": "b"}}'

    def read(path: Path) -> object:
        (folder / "metadata").mkdir(exist_ok=True)
        (folder / "metadata" / "NanoX.json").write_bytes(path.read_bytes())
        with suppress(R2MedError):
            read_manifest(folder)
        return read_metadata(folder, "NanoX")

    return from_file(folder / "manifest.json", [manifest], read)


def toml_file(seeds: list[bytes], read: Callable[[Path], object]) -> Maker:
    return lambda folder: from_file(folder / "settings.toml", seeds, read)


PROTOCOL = files("r2med.results.protocols").joinpath("default.toml").read_bytes()


def onnx_graph(folder: Path) -> Case:
    """A graph is one that we know or none, whatever stands in its file."""
    path = write_bert(folder / "seed.onnx", tiny(32, 2, 16, 1))
    assert Recognition(read_graph(path)).bert().heads == 2

    def read(changed: Path) -> object:
        with suppress(Unreadable):
            return Recognition(read_graph(changed)).bert()
        return None

    return from_file(folder / "model.onnx", [path.read_bytes()], read)


STORES: dict[str, Maker] = {
    "ONNX graph": onnx_graph,
    "experiment TOML": toml_file([EXPERIMENT], read_experiment),
    "prompt pack TOML": toml_file([PACK], read_pack),
    "expansion prompt TOML": prompt_file,
    "rerank prompt TOML": rerank_prompt,
    "ledger TOML": toml_file([LEDGER], read_ledger),
    "protocol TOML": toml_file([PROTOCOL], lambda path: parse_protocol(path.read_text("utf-8", "replace"), path)),
    "result JSON": results_file(".json", read_results),
    "result JSON, compared": results_file(".json", read_scores),
    "per-query jsonl": results_file(".queries.jsonl", read_scores),
    "stored run": results_file(".run.gz", read_run_of),
    "results in the app": results_file(".json", read_in_view),
    "per-query jsonl in the app": results_file(".queries.jsonl", read_in_view),
    "bundle": bundle,
    "bundle manifest": bundle_member("manifest.json"),
    "bundle result": bundle_member("Biology.json"),
    "bundle run": bundle_member(".run.gz"),
    "progress file": progress_file,
    "embedding shard": shards,
    "set of shards": shard_sets,
    "cache facts": set_facts,
    "index manifest": index_file("index.json"),
    "index postings": index_file("docs.npy"),
    "index pointers": index_file("term_ptr.npy"),
    "index impacts": index_file("impacts.npy"),
    "index vocabulary": index_file("vocabulary_data.npy"),
    "index offsets": index_file("vocabulary_offsets.npy"),
    "generation store": generation_store,
    "recorded expansions": recorded,
    "replay": lambda folder: from_file(
        folder / "a.jsonl", [HYDOC, generation_lines(), gzip.compress(HYDOC, mtime=0)], Replay.from_file
    ),
    "store file": lambda folder: from_file(folder / "a.jsonl", [generation_lines()], read_store),
    "model config.json": model_folder("config.json", MODEL_FILES["config.json"]),
    "model modules.json": model_folder("modules.json", MODEL_FILES["modules.json"]),
    "model pooling": model_folder("1_Pooling/config.json", MODEL_FILES["1_Pooling/config.json"]),
    "model tokenizer_config": model_folder("tokenizer_config.json", MODEL_FILES["tokenizer_config.json"]),
    "model prompts": model_folder(
        "config_sentence_transformers.json", MODEL_FILES["config_sentence_transformers.json"]
    ),
    "Nano manifest": nano_files,
}
