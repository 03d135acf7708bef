"""Model folders that would run code, plug-ins that raise, texts that look like templates."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import lines, r2med_folder
from tests.faults.services import ranked, serving

MARKER = "R2MED_TEST_MARKER"
HOSTILE_TEXT = (
    "{query} {{query}} {{passages}} %s %(x)s ${HOME} </think> <answer>x</answer> <|im_end|> [1] > [2] {0!r} \\n"
)


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f'touch "${MARKER}"',)


def r2med(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {
        "R2MED_HOME": str(folder / "home"),
        MARKER: str(folder / "marker"),
        "HF_HUB_OFFLINE": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, "-m", "r2med", *arguments], cwd=folder, env={**os.environ, **own, **env},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert words in done.stderr.splitlines()[-1], done.stderr


def model_folder(folder: Path, **config: object) -> Path:
    folder.mkdir()
    facts = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(facts | config))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--retriever", "pytorch_model.bin"),
        pytest.param("--retriever", "model.pt", marks=pytest.mark.faults),
        pytest.param("--rerank", "pytorch_model.bin", marks=pytest.mark.faults),
        pytest.param("--rerank", "model.pt", marks=pytest.mark.faults),
    ],
)
def test_pickled_weights_are_refused_before_they_are_opened(tmp_path: Path, option: str, name: str) -> None:
    model = model_folder(tmp_path / "model")
    (model / name).write_bytes(pickle.dumps(Evil()))
    chosen = (
        ("--retriever", f"{model}") if option == "--retriever" else ("--retriever", "bm25", "--rerank", f"{model}@3")
    )
    refused(r2med(tmp_path, "run", "--tasks", "mini@1/Biology", *chosen), "only pickled weights")
    assert not (tmp_path / "marker").exists()


@pytest.mark.faults
def test_pickled_weights_that_were_allowed_still_run_no_code(tmp_path: Path) -> None:
    """`allow_pickle` reads tensors; whatever else is in the file is refused by torch."""
    pytest.importorskip("torch", reason="the extra `torch` is not installed")
    model = model_folder(tmp_path / "model")
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    done = r2med(tmp_path, "run", "--tasks", "mini@1/Biology", "--retriever", f"{model}:allow_pickle=yes")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "marker").exists()


def test_code_of_a_models_own_needs_a_word(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", auto_map={"AutoModel": "evil.Model", "AutoConfig": "evil.Config"})
    (model / "evil.py").write_text(f"import os, pathlib\npathlib.Path(os.environ['{MARKER}']).touch()\n")
    (model / "model.safetensors").write_bytes(b"")
    for chosen in (("--retriever", str(model)), ("--retriever", "bm25", "--rerank", f"{model}@3")):
        refused(r2med(tmp_path, "run", "--tasks", "mini@1/Biology", *chosen), "trust_remote_code")
    assert not (tmp_path / "marker").exists()


PLUGINS = {
    "import-error": "raise ImportError('no such library')",
    "exits": "import sys; sys.exit(3)",
    "syntax": "def (:",
    "raises": "raise RuntimeError('two\\nlines')",
    "hangs-up": "raise KeyError('x')",
}


@pytest.mark.faults
def test_plugins_that_raise(tmp_path: Path) -> None:
    """A broken plug-in breaks whoever names it, in one line, and nobody else."""
    pytest.importorskip("r2med.core.plugins", reason="no plug-ins in this version")
    site = tmp_path / "site"
    info = site / "broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    entries = "".join(f"{name} = broken_{i}:Thing\n" for i, name in enumerate(PLUGINS))
    groups = ("r2med.retrievers", "r2med.rerankers", "r2med.expanders")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{entries}\n" for group in groups))
    for i, code in enumerate(PLUGINS.values()):
        (site / f"broken_{i}.py").write_text(code)
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    for arguments in (("--help",), ("models",), ("run", "--tasks", "mini@1/Biology", "--retriever", "bm25")):
        done = r2med(tmp_path, *arguments, PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
    for name in PLUGINS:
        refused(r2med(tmp_path, "run", "--tasks", "mini@1/Biology", "--retriever", name, PYTHONPATH=path), name)
    first = next(iter(PLUGINS))
    chosen = (("--rerank", f"{first}@3"), ("--expand", first))
    for more in chosen:
        done = r2med(tmp_path, "run", "--tasks", "mini@1/Biology", "--retriever", "bm25", *more, PYTHONPATH=path)
        refused(done, first)


@pytest.mark.faults
def test_texts_that_look_like_templates(tmp_path: Path) -> None:
    """Braces, tags and marks in queries and passages reach the model as they are, and nothing breaks."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    corpus = lines({"id": f"d{i}", "text": f"{HOSTILE_TEXT} passage {i}"} for i in range(5))
    queries = lines([{"id": "q1", "text": HOSTILE_TEXT, "answer": HOSTILE_TEXT}, {"id": "q2", "text": "passage 3"}])
    qrels = lines([{"q_id": "q1", "p_id": "d1", "score": 1}, {"q_id": "q2", "p_id": "d2", "score": 1}])
    task = r2med_folder(tmp_path / "task", corpus=corpus, queries=queries, qrels=qrels)
    with serving() as server:
        server.text = lambda body: f"{ranked(body)} {{{{query}}}} {{0}} %s"
        key = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-x"}
        for method in ("hyde", "query2doc", "lamer"):
            done = r2med(
                tmp_path, "run", "--tasks", str(task), "--expand", f"{method}:any", "--retriever", "bm25",
                "--rerank", "rankgpt:any@3", **key,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        prompts = [str(m["content"]) for body in server.asked for m in body["messages"]]
        assert sum(HOSTILE_TEXT in prompt for prompt in prompts) >= 4
        assert not [p for p in prompts if f"{HOSTILE_TEXT.replace('{{query}}', HOSTILE_TEXT)}" in p]
