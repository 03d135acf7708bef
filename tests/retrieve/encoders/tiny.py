"""Tiny models with random weights, made with the real classes and real tokenizers, saved as the hub holds them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from r2med.models import Card

WORDS = [
    "fever",
    "cough",
    "rash",
    "liver",
    "kidney",
    "heart",
    "lung",
    "blood",
    "pain",
    "acute",
    "chronic",
    "patient",
    "woman",
    "man",
    "child",
    "test",
    "shows",
    "treatment",
    "with",
    "of",
    "the",
    "and",
    "a",
    "in",
    "copper",
    "iron",
    "bone",
    "marrow",
    "nerve",
    "muscle",
    "tumour",
    "cell",
    "virus",
    "gene",
    "therapy",
    "dose",
    "trial",
]
SPECIAL = {
    "pad": "<pad>",
    "unk": "<unk>",
    "bos": "<s>",
    "eos": "</s>",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}


def texts(count: int, *, longest: int = 40, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def save_tokenizer(folder: Path, style: str, *, padding_side: str = "right") -> Any:
    """A word-level tokenizer that adds special tokens as BERT, T5, Mistral or GPT-NeoX do."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([*SPECIAL.values(), *WORDS, ":", "\n", "Query", "Represent"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = {
        "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        "t5": ("$A </s>", "$A </s> $B </s>"),
        "mistral": ("<s> $A", "<s> $A $B"),
        "neox": ("$A", "$A $B"),
    }[style]
    named = [token for token in SPECIAL.values() if token in single]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(t, vocabulary[t]) for t in named]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side=padding_side,
        **{f"{name}_token": token for name, token in SPECIAL.items()},
    )
    fast.save_pretrained(folder)
    return fast


def save_llama_tokenizer(folder: Path, **config: object) -> Any:
    """Byte-pair tokens in the file layout of Llama's and Mistral's tokenizers, as transformers 4 wrote it."""
    from tokenizers import Tokenizer, models, normalizers, processors, trainers

    special = ["<unk>", "<s>", "</s>"]
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*special, *(f"<0x{i:02X}>" for i in range(256))], show_progress=False
    )
    made.train_from_iterator([*texts(200, seed=9), "Instruct: Query: Represent\n"], trainer)
    facts = json.loads(made.to_str())
    facts["added_tokens"] = [token for token in facts["added_tokens"] if token["content"] in special]
    made = Tokenizer.from_str(json.dumps(facts))
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    how = {"content": "", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    settings = {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": {str(i): {**how, "content": token} for i, token in enumerate(special)},
        "bos_token": "<s>",
        "eos_token": "</s>",
        "legacy": True,
        "pad_token": "</s>",
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
        **config,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return made


def save_model(folder: Path, architecture: str, *, seed: int = 0, vocabulary: int = 0) -> Any:
    """A model of an architecture with weights large enough that mistakes show."""
    import torch
    import transformers as tf

    torch.manual_seed(seed)
    size = vocabulary or len(SPECIAL) + len(WORDS) + 4
    common = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    long = {**common, "intermediate_size": 64, "max_position_embeddings": 128}
    made: Any
    if architecture == "bert":
        made = tf.BertModel(tf.BertConfig(**long))
    elif architecture == "t5-encoder":
        made = tf.T5EncoderModel(
            tf.T5Config(vocab_size=size, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0)
        )
    elif architecture == "gpt-neox":
        made = tf.GPTNeoXModel(tf.GPTNeoXConfig(**long))
    elif architecture == "gemma":
        made = tf.GemmaModel(tf.GemmaConfig(**long, num_key_value_heads=1, head_dim=8))
    elif architecture == "gemma3":
        made = tf.Gemma3TextModel(tf.Gemma3TextConfig(**long, num_key_value_heads=1, head_dim=8, sliding_window=16))
    elif architecture == "llama":
        made = tf.LlamaModel(tf.LlamaConfig(**long, num_key_value_heads=2))
    else:
        made = tf.MistralModel(tf.MistralConfig(**long, num_key_value_heads=2, sliding_window=None))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made.eval().save_pretrained(folder)
    return made


def save_masked_lm(folder: Path) -> tuple[Any, Any]:
    """A masked language model with random weights and its tokenizer."""
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    import transformers as tf

    tokenizer = save_tokenizer(folder, "bert")
    torch.manual_seed(0)
    model: Any = tf.BertForMaskedLM(
        tf.BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      intermediate_size=64, max_position_embeddings=128, initializer_range=0.5)
    ).eval()  # fmt: skip
    model.save_pretrained(folder)
    return model, tokenizer


def card(architecture: str, pooling: str, **changes: Any) -> Card:
    facts: dict[str, Any] = {
        "name": f"tiny-{architecture}",
        "kind": "dense",
        "summary": "for tests",
        "backend": "transformers",
        "source": "tests/tiny",
        "architecture": architecture,
        "pooling": pooling,
        "query_length": 64,
        "document_length": 64,
        "dtype": "float32",
        "licence": "none",
    }
    return Card(**{**facts, **changes})


def save_projection(folder: Path, width: int) -> Any:
    """A `2_Dense` folder as sentence-transformers writes it."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    torch.manual_seed(5)
    weight = torch.randn(width, 32)
    save_file({"linear.weight": weight}, folder / "model.safetensors")
    config = {
        "in_features": 32,
        "out_features": width,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return weight


def change_weights(folder: Path, *lost: str, **added: Any) -> None:
    """The weights of a folder without the tensors of some names, each of which must be there, and with others."""
    from safetensors.torch import load_file, save_file

    path = next(folder.glob("*model.safetensors"))
    kept = {name: tensor.clone() for name, tensor in load_file(path).items()}
    for name in lost:
        del kept[name]
    save_file({**kept, **added}, path, metadata={"format": "pt"})
