"""A tiny embedder with a real tokenizer and real modules, and results to export."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.cli import run as run_command


@pytest.fixture(autouse=True)
def _own_mteb_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """MTEB makes its cache folder when it is imported."""
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path_factory.getbasetemp() / "mteb"))


@pytest.fixture(scope="session")
def tiny_embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with the words of Mini, saved as sentence-transformers saves models."""
    pytest.importorskip("sentence_transformers")
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("tiny-embedder")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    texts = [d.contents for task in r2med.load_all("mini@1") for d in task.documents]
    # Counted here: a trainer breaks ties in another order in each process, and some orders make a model that ranks
    # nothing.
    words = Counter(word for t in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(t)))
    letters = sorted({letter for word in words for letter in word})
    often = sorted((word for word in words if len(word) > 1), key=lambda word: (-words[word], word))[:1200]
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *often]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    fast.save_pretrained(folder)
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=128,
    )  # fmt: skip
    model = transformers.BertModel(config)
    with torch.no_grad():  # as wide apart as words of a trained model
        model.embeddings.word_embeddings.weight.normal_(0.0, 1.0)
    model.eval().save_pretrained(folder)
    return folder


def load_embedder(folder: Path) -> Any:
    """The model on the CPU."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two systems on two tasks of Mini, made by the command itself."""
    from click.testing import CliRunner

    folder = tmp_path_factory.mktemp("made") / "results"
    arguments = [
        "--tasks",
        "mini@1/Biology,mini@1/MedQA-Diag",
        "-r",
        "bm25",
        "-r",
        "bm25-lucene",
        "--results",
        str(folder),
    ]
    done = CliRunner().invoke(run_command.command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["systems"]) == 2
    return folder
