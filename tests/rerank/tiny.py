"""Tiny classifiers with random weights, made with the real classes and real tokenizers, and tasks to rerank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.models import Card
from tests.retrieve.encoders.tiny import SPECIAL, WORDS, texts

PAIRS = {
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "xlm-roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "llama": ("<s> $A", "<s> $A <s>:1 $B:1"),
}
VOCABULARY = [*SPECIAL.values(), *WORDS, ":", "query", "document"]


def save_tokenizer(folder: Path, style: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = PAIRS[style]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(t, vocabulary[t]) for t in SPECIAL.values() if t in pair]
    )
    names = {f"{name}_token": token for name, token in SPECIAL.items()}
    if style == "llama":
        del names["pad_token"]  # Llama 2 has none
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if style == "bert" else [])]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    fast.save_pretrained(folder)
    return fast


def _stirred(model: Any, torch: Any) -> Any:
    """Weights large enough that mistakes show; those of an adapter's base stay what they are."""
    with torch.no_grad():
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def save_classifier(folder: Path, style: str, *, labels: int = 1) -> Any:
    import torch
    import transformers as tf

    torch.manual_seed(1)
    size = {"vocab_size": len(VOCABULARY), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape = {**size, "intermediate_size": 64, "num_labels": labels, "pad_token_id": 0}
    made: Any
    if style == "bert":
        made = tf.BertForSequenceClassification(tf.BertConfig(**shape, max_position_embeddings=64))
    elif style == "xlm-roberta":
        made = tf.XLMRobertaForSequenceClassification(
            tf.XLMRobertaConfig(**shape, max_position_embeddings=66, type_vocab_size=1)
        )
    else:
        del shape["pad_token_id"]
        made = tf.LlamaForSequenceClassification(
            tf.LlamaConfig(**shape, max_position_embeddings=64, num_key_value_heads=2)
        )
    _stirred(made, torch).save_pretrained(folder)
    return made


def save_adapter(base: Path, folder: Path) -> Any:
    """A LoRA adapter with a head of its own over a base without one, as RankLLaMA is."""
    import torch
    import transformers as tf
    from peft import LoraConfig, get_peft_model

    loaded = tf.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    config = LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"])
    adapted = get_peft_model(loaded, config)
    torch.manual_seed(2)
    _stirred(adapted, torch).save_pretrained(folder)
    return adapted


def card(style: str, **changes: Any) -> Card:
    facts: dict[str, Any] = {
        "name": f"tiny-{style}",
        "kind": "cross-encoder",
        "summary": "for tests",
        "backend": "transformers",
        "source": "tests/tiny",
        "architecture": style,
        "pooling": "none",
        "query_length": 64,
        "document_length": 64,
        "dtype": "float32",
        "licence": "none",
    }
    return Card(**{**facts, **changes})


def a_task(queries: int = 4, documents: int = 24, *, longest: int = 30, seed: int = 0) -> Task:
    asked = texts(queries, longest=8, seed=seed + 1)
    held = texts(documents, longest=longest, seed=seed)
    return Task(
        "tiny",
        tuple(Query(f"q{i}", text) for i, text in enumerate(asked)),
        Documents.of(Document(f"d{i:03d}", text) for i, text in enumerate(held)),
        Qrels.from_judgments([(f"q{i}", f"d{(5 * i + 3) % documents:03d}", 1 + i % 2) for i in range(queries)]),
    )


def first_stage(task: Task, depth: int = 12, *, seed: int = 3) -> Run:
    """Candidates in a random order with falling scores."""
    rng = np.random.default_rng(seed)
    docs = np.stack([rng.permutation(len(task.documents))[:depth] for _ in task.queries]).astype(np.int32)
    scores = np.tile(np.linspace(9, 1, depth, dtype=np.float32), (len(task.queries), 1))
    return Run(task.query_ids, task.documents.ids, docs, scores, name="first")


def by_length(pairs: list[tuple[str, str]]) -> list[float]:
    """A scorer anybody can check: the share of the query's words a document has, long documents first among equals."""
    return [
        len(set(query.split()) & set(document.split())) + len(document) / 1000 for query, document in pairs
    ]  # fmt: skip
