"""Tiny causal language models with byte-pair tokenizers, saved in the file layout of the rerankers that judge pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.retrieve.encoders.tiny import texts

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
GEMMA_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")


def _config(tokens: Sequence[str], name: str, **facts: object) -> str:
    """tokenizer_config.json."""
    how = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    added = {str(i): {"content": token, **how} for i, token in enumerate(tokens)}
    return json.dumps({"added_tokens_decoder": added, "tokenizer_class": name, **facts})


def save_qwen_tokenizer(folder: Path, *added: str, eos: bool = False) -> Any:
    """Byte-level pairs split as Qwen splits text; with `eos` every text ends in `<|endoftext|>`.

    `added` are special tokens that a model has besides.
    """
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import AutoTokenizer

    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    made.decoder = decoders.ByteLevel()
    tokens = (*QWEN_SPECIAL, *added)
    special = [AddedToken(token, normalized=False, special=True) for token in tokens]
    trainer = trainers.BpeTrainer(
        vocab_size=520,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*texts(200, seed=9), *["yes", "no", ".\n", "?\n\n"] * 99], trainer)
    if eos:
        made.post_processor = processors.TemplateProcessing(
            single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    facts = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": None, "model_max_length": 131072}
    (folder / "tokenizer_config.json").write_text(_config(tokens, "Qwen2Tokenizer", **facts))
    return AutoTokenizer.from_pretrained(folder)


def save_gemma_tokenizer(folder: Path) -> Any:
    """Pairs over pieces with byte fallback, as Gemma's: no space is put before a text, and texts begin with `<bos>`."""
    from tokenizers import Tokenizer, models, normalizers, processors, trainers
    from transformers import AutoTokenizer

    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    fallback = [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*GEMMA_SPECIAL, *fallback], show_progress=False, max_token_length=8
    )
    made.train_from_iterator([*texts(200, seed=9), *["Yes", "No", "A:", "B:", "\n"] * 99], trainer)
    facts = json.loads(made.to_str())
    facts["added_tokens"] = [token for token in facts["added_tokens"] if token["content"] in GEMMA_SPECIAL]
    made = Tokenizer.from_str(json.dumps(facts))
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    named = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    settings = _config(GEMMA_SPECIAL, "GemmaTokenizer", add_bos_token=True, add_eos_token=False, **named)
    (folder / "tokenizer_config.json").write_text(settings)
    return AutoTokenizer.from_pretrained(folder)


def save_causal(folder: Path, architecture: str, vocabulary: int) -> Any:
    """A language model of an architecture, with weights large enough that mistakes show."""
    import torch
    import transformers as tf

    torch.manual_seed(4)
    shape: dict[str, Any] = {
        "vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 4096,
    }  # fmt: skip
    made: Any
    if architecture == "qwen3":
        made = tf.Qwen3ForCausalLM(tf.Qwen3Config(**shape, head_dim=8, tie_word_embeddings=True))
    elif architecture == "qwen2":
        made = tf.Qwen2ForCausalLM(tf.Qwen2Config(**shape, tie_word_embeddings=True))
    else:
        made = tf.GemmaForCausalLM(tf.GemmaConfig(**{**shape, "num_key_value_heads": 1}, head_dim=8))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made.eval().save_pretrained(folder)
    return made
