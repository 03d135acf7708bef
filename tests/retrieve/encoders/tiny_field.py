"""Tiny models of the architectures of 2025 and 2026, with tokenizers in the layout of their published files."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

from . import tiny

QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SAID = [
    *tiny.texts(200, seed=9),
    "Instruct: Given a query, retrieve passages.\nQuery: task: search result | title: none",
]


def save_byte_tokenizer(
    folder: Path, *, special: list[str], before: str = "", after: str = "", normalizer: bool = False, **config: Any
) -> int:
    """Byte-level pairs, as Qwen, Llama 3 and ModernBERT have them, with what is put around a text; returns the size."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    if normalizer:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(SAID, trainer)
    if before or after:
        around = [(token, special.index(token)) for token in (before, after) if token]
        template = " ".join(part for part in (before, "$A", after) if part)
        pair = " ".join(part for part in (before, "$A", after, "$B:1", f"{after}:1" if after else "") if part)
        made.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single=template, pair=pair, special_tokens=around),
            ]
        )
    else:
        made.post_processor = processors.ByteLevel(trim_offsets=False)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    how = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    added = {str(i): {"content": token, **how} for i, token in enumerate(special)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added, **config}))
    return made.get_vocab_size()


def save_qwen_tokenizer(folder: Path, *, ends: bool, eos: str = "<|im_end|>", **config: Any) -> int:
    """Qwen's, which ends texts with <|endoftext|> in Qwen3-Embedding and with nothing in Qwen3."""
    return save_byte_tokenizer(
        folder,
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        after="<|endoftext|>" if ends else "",
        normalizer=True,
        tokenizer_class="Qwen2Tokenizer",
        eos_token=eos,
        pad_token="<|endoftext|>",
        unk_token=None,
        **config,
    )


def save_llama3_tokenizer(folder: Path) -> int:
    """Llama 3's, which begins texts and ends none."""
    return save_byte_tokenizer(
        folder,
        special=["<|begin_of_text|>", "<|end_of_text|>"],
        before="<|begin_of_text|>",
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        pad_token="<|end_of_text|>",
    )


def save_modernbert_tokenizer(folder: Path, *added: str) -> int:
    """ModernBERT's: byte-level pairs between BERT's special tokens, and tokens that somebody added."""
    return save_byte_tokenizer(
        folder,
        special=["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", *added],
        before="[CLS]",
        after="[SEP]",
        normalizer=True,
        tokenizer_class="PreTrainedTokenizerFast",
        model_input_names=["input_ids", "attention_mask"],
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        unk_token="[UNK]",
    )


def save_bert_tokenizer(folder: Path) -> int:
    """BERT's word pieces in lower case."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(SAID, trainers.WordPieceTrainer(vocab_size=160, special_tokens=special))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {**names, "do_lower_case": True, "tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    vocabulary = sorted((number, token) for token, number in made.get_vocab().items())
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for _, token in vocabulary))
    return made.get_vocab_size()


def save_pylate(folder: Path, width: int = 12, **config: Any) -> None:
    """A ModernBERT as PyLate saves it: markers as tokens, a projection of every token, and what it does with them."""
    import torch
    from safetensors.torch import save_file

    size = save_modernbert_tokenizer(folder, "[Q] ", "[D] ")
    save_model(folder, "modernbert", size)
    (folder / "1_Dense").mkdir()
    torch.manual_seed(4)
    save_file({"linear.weight": torch.randn(width, 32)}, folder / "1_Dense" / "model.safetensors")
    identity = "torch.nn.modules.linear.Identity"
    layer = {"in_features": 32, "out_features": width, "bias": False, "activation_function": identity}
    (folder / "1_Dense" / "config.json").write_text(json.dumps({**layer, "use_residual": False}))
    kinds = ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense")
    steps = [{"idx": i, "name": str(i), "path": "1_Dense" if i else "", "type": kind} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 127, "do_lower_case": False}))
    usual: dict[str, Any] = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 32,
        "document_length": 48,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        "do_query_expansion": True,
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**usual, **config}))


def save_gemma_tokenizer(folder: Path) -> int:
    """Gemma's pieces, with both ends marked, as EmbeddingGemma's file says."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    trainer = trainers.BpeTrainer(
        vocab_size=460, special_tokens=[*special, *(f"<0x{i:02X}>" for i in range(256))], show_progress=False
    )
    made.train_from_iterator(SAID, trainer)
    facts = json.loads(made.to_str())
    facts["added_tokens"] = [token for token in facts["added_tokens"] if token["content"] in special]
    made = Tokenizer.from_str(json.dumps(facts))
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B:1 <eos>:1", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "add_bos_token": True,
        "add_eos_token": True,
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "tokenizer_class": "GemmaTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return made.get_vocab_size()


def save_xlm_roberta_tokenizer(folder: Path) -> int:
    """XLM-RoBERTa's pieces between <s> and </s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(SAID, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "tokenizer_class": "XLMRobertaTokenizer",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return made.get_vocab_size()


def save_model(folder: Path, architecture: str, vocabulary: int, **changes: Any) -> Any:
    """A model with weights large enough that mistakes show, in shards, as large ones are published."""
    import torch
    import transformers as tf

    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    few = {"num_key_value_heads": 2}
    made: Any
    if architecture == "qwen3":
        made = tf.Qwen3Model(tf.Qwen3Config(**common, **few, head_dim=8, **changes))
    elif architecture == "qwen2":
        made = tf.Qwen2Model(tf.Qwen2Config(**common, **few, **changes))
    elif architecture == "llama":
        made = tf.LlamaModel(tf.LlamaConfig(**common, **few, **changes))
    elif architecture == "gemma3":
        window = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
        made = tf.Gemma3TextModel(tf.Gemma3TextConfig(**{**common, **window, **few, "head_dim": 8, **changes}))
    elif architecture == "modernbert":
        special = {"cls_token_id": 0, "sep_token_id": 1, "pad_token_id": 2, "local_attention": 8}
        made = tf.ModernBertModel(tf.ModernBertConfig(**{**common, **special, **changes}))
    else:
        made = tf.XLMRobertaModel(tf.XLMRobertaConfig(**{**common, "pad_token_id": 1, **changes}))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made.eval().save_pretrained(folder, max_shard_size="40KB")
    return made


def add_code(folder: Path, module: str, classes: dict[str, str], *, tokenizer: str = "") -> None:
    """Beside the weights, Python code that the configuration names and that must not run."""
    config = json.loads((folder / "config.json").read_text())
    code = {loader: f"{module}.{name}" for loader, name in classes.items()}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": code}))
    (folder / f"{module}.py").write_text("raise SystemExit('this code must not run')\n")
    if tokenizer:
        path = folder / "tokenizer_config.json"
        named = {"AutoTokenizer": [f"{tokenizer}.Tokenizer", f"{tokenizer}.TokenizerFast"]}
        path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": named}))
        (folder / f"{tokenizer}.py").write_text("raise SystemExit('this code must not run')\n")
