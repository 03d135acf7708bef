"""Loading sequence classifiers with transformers, and adapters with peft: only from disk, only safetensors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ..core import MissingExtra, ModelError
from ..retrieve.encoders.hub_folder import import_transformers, load_with
from ..retrieve.encoders.load import Options
from ..retrieve.encoders.onnx import first_line


def load_classifier(folder: Path, options: Options, device: str, dtype: str, **changes: Any) -> Any:
    """A sequence classifier on a device, ready to score."""
    loader = import_transformers().AutoModelForSequenceClassification
    return first_token_only(load_with(loader, folder, options, device, dtype, **changes))


def first_token_only(model: Any) -> Any:
    """Let the last layer of BERT and its kin work on the first token alone: the head reads no other.

    After attention nothing mixes tokens any more, so three quarters of that layer are done for one token instead of
    all of them, and the score is the same.
    """
    if model.config.model_type not in ("bert", "xlm-roberta", "roberta", "electra", "camembert"):
        return model
    body = getattr(model, model.base_model_prefix, None)
    try:
        after_attention = body.encoder.layer[-1].attention.output  # type: ignore[union-attr]
    except (AttributeError, IndexError):
        return model
    after_attention.register_forward_pre_hook(lambda _, given: tuple(states[:, :1] for states in given))
    return model


def load_adapted(adapter: Path, base: Path, options: Options, device: str, dtype: str) -> Any:
    """A base model with an adapter merged into its weights, one score per pair."""
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingExtra("merging an adapter", "torch") from None
    if not (adapter / "adapter_config.json").is_file():
        raise ModelError(f"{adapter}: no adapter_config.json, so not an adapter")
    if not (adapter / "adapter_model.safetensors").is_file() and not options.allow_pickle:
        pickled = (adapter / "adapter_model.bin").is_file()
        why = "has only pickled weights, which can run code: allow them with allow_pickle" if pickled else "no weights"
        raise ModelError(f"{adapter}: {why}")
    model = load_classifier(base, options, "cpu", dtype, num_labels=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            merged = PeftModel.from_pretrained(model, str(adapter), local_files_only=True).merge_and_unload()
    except Exception as error:
        raise ModelError(f"the adapter in {adapter} does not fit {base}: {first_line(error)}") from None
    return merged.eval().to(device)
