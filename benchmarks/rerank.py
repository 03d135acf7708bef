"""Reranking against sentence-transformers' CrossEncoder, and fusion by the clock.

    python benchmarks/rerank.py            the CPU: real passages, real weights where they are at hand
    python benchmarks/rerank.py --gpu      a CUDA device: pairs of 512 tokens, bfloat16

Contenders run in processes of their own on the same pairs and the same weights, taking turns.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA, contender, english_like, first_queries, report, skipped

from r2med.core.files import home

QUERIES, DEPTH = 16, 16
TURNS = 2
measured = partial(
    contender, "rerank_contenders.py", environment={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
)


def duel(pairs: Path, ours: str, theirs: str, repeat: int, options: dict[str, Any], peer: dict[str, Any]) -> Any:
    """Best times of both over several turns, and how far their scores are apart."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(TURNS):
        for name, folder, how in (("ours", ours, options), ("theirs", theirs, peer)):
            made = measured(name, str(pairs), folder, str(repeat), json.dumps(how))
            if name not in best or made["seconds"] < best[name]["seconds"]:
                best[name] = made
    apart = np.abs(np.array(best["ours"]["scores"]) - np.array(best["theirs"]["scores"])).max()
    return best["ours"]["seconds"], best["theirs"]["seconds"], float(apart)


def real_pairs() -> list[tuple[str, str]]:
    """SciFact's claims with BM25's best abstracts, query by query, as a pipeline hands them over."""
    if not (DATA / "scifact").is_dir():
        texts = english_like(np.random.default_rng(0), QUERIES * DEPTH, 220)
        return [(" ".join(texts[i // DEPTH].split()[:18]), text) for i, text in enumerate(texts)]
    import r2med
    from r2med.retrieve import get_retriever

    task = first_queries(r2med.load(str(DATA / "scifact")), QUERIES)
    run = get_retriever("bm25").retrieve(task, depth=DEPTH)
    return [(q.text, task.documents.contents[d]) for q, row in zip(task.queries, run.docs, strict=True) for d in row]


def save_classifier(folder: Path, source: Path) -> str:
    """MiniLM's float32 weights and tokenizer with a scoring head on top, or random weights in bge-small's shape."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    classifier = transformers.BertForSequenceClassification
    if source.name == "minilm":
        model = classifier.from_pretrained(source, num_labels=1)
    else:
        model = classifier(transformers.BertConfig.from_pretrained(source, num_labels=1))
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    return str(folder)


def on_the_cpu(scratch: Path) -> bool:
    if find_spec("sentence_transformers") is None:
        return skipped("cross-encoding", "pip install 'r2med[torch]'")
    source = next((f for f in (home() / "models" / n for n in ("minilm", "bge-small")) if f.is_dir()), None)
    if source is None:
        return skipped("cross-encoding", "r2med models fetch minilm")
    pairs = scratch / "pairs.json"
    pairs.write_text(json.dumps(real_pairs()), "utf-8")
    folder = save_classifier(scratch / "classifier", source)
    options = {"device": "cpu"}
    mine, peer, apart = duel(pairs, folder, folder, 1, options, options)
    count = QUERIES * DEPTH
    print(f"     float32, same weights: ours {count / mine:.1f} pairs/s, CrossEncoder.predict {count / peer:.1f}")
    met = report("largest difference of scores", apart, 1e-4, at_least=False)
    met &= report("CPU cross-encoding, times CrossEncoder.predict", peer / mine, 1.5)
    eight_bit = home() / "models" / "msmarco-minilm"
    if (eight_bit / "model.onnx").is_file() and find_spec("onnxruntime"):
        seconds = min(measured("ours", str(pairs), str(eight_bit), "1")["seconds"] for _ in range(TURNS))
        print(f"     msmarco-minilm (12 layers, 8-bit): {count / seconds:.1f} pairs/s")
    return met


def on_a_gpu(scratch: Path) -> bool:
    """bge-reranker's shape (XLM-R large) with random weights, every pair 512 tokens long: speed needs no training."""
    import gpu
    import torch
    import transformers

    gpu.check()
    folder = scratch / "large"
    torch.manual_seed(0)
    words = _word_tokenizer(folder)
    config = transformers.XLMRobertaConfig(
        vocab_size=words, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        max_position_embeddings=514, type_vocab_size=1, num_labels=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    model = transformers.XLMRobertaForSequenceClassification(config)
    model.save_pretrained(folder)
    encoder = sum(p.numel() for n, p in model.named_parameters() if "embeddings" not in n)
    rng = np.random.default_rng(0)
    count = 4096
    given = [
        (" ".join(f"w{i}" for i in rng.integers(4, 900, 30)), " ".join(f"w{i}" for i in rng.integers(4, 900, 600)))
        for _ in range(count)
    ]
    pairs = scratch / "long.json"
    pairs.write_text(json.dumps(given), "utf-8")
    met = True
    mine, peer, apart = duel(pairs, str(folder), str(folder), 2, {"device": "cuda"}, {"device": "cuda"})
    print(
        f"     512 tokens, bfloat16: ours {count / mine:.0f} pairs/s; CrossEncoder at its defaults {count / peer:.0f}"
    )
    print(f"     largest difference of scores, bfloat16 against float32: {apart:.4f}")
    met &= report("GPU cross-encoding, times CrossEncoder.predict", peer / mine, 2.0)
    half = measured("theirs", str(pairs), str(folder), "2", json.dumps({"device": "cuda", "dtype": "bfloat16"}))
    print(f"     against CrossEncoder in bfloat16 too: {half['seconds'] / mine:.2f} times")
    # Two operations per weight and token, and attention's two products: 4 × tokens × width per token and layer.
    work = count * 512 * (2 * encoder + 24 * 4 * 512 * 1024)
    rate = measured("matrix-rate")["rate"]
    print(f"     {work / mine / 1e12:.0f} of the card's measured {rate / 1e12:.0f} TFLOP/s: {work / mine / rate:.0%}")
    return met


def _word_tokenizer(folder: Path) -> int:
    """A word-level tokenizer with XLM-R's special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {w: i for i, w in enumerate(["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(4, 1000))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        model_max_length=512, model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    return len(vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="measure on a CUDA device")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if asked.gpu:
            met = on_a_gpu(Path(scratch))
        else:
            met = report("RRF of two 876 × 1,000 runs, CPU seconds", measured("rrf")["seconds"], 0.15, at_least=False)
            met &= on_the_cpu(Path(scratch))
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
