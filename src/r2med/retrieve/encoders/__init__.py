"""Encoders: one small protocol, a backend per file, each importing what it needs when it is used."""

from __future__ import annotations

from pathlib import Path

from ...core import ModelError, UsageError
from ...core.options import Options
from ...models import Card, locate, stated, verified
from .base import BaseEncoder, Batch, Encoder, Float32
from .devices import resolve_devices

__all__ = ["BaseEncoder", "Batch", "Encoder", "Float32", "as_stated", "load_encoder", "model_folder", "resolve_devices"]


def load_encoder(card: Card, options: Options | None = None, *, dtype: str | None = None) -> Encoder:
    """The encoder of a card, from the folder its files lie in; nothing is loaded yet."""
    options = options or Options()
    if card.kind != "dense":
        raise UsageError(f"{card.name} is a {card.kind} model, not a dense retriever")
    if card.is_api:
        from .api import ApiEncoder

        return ApiEncoder(card, options)
    folder = model_folder(card)
    card = as_stated(card, folder)
    if card.backend == "onnx":
        from .onnx import OnnxEncoder

        return OnnxEncoder(card, folder, options)
    second = model_folder(card, "document") if card.document_source else None
    if card.pooling == "latent-attention":
        from .nv_embed import NvEmbedEncoder

        return NvEmbedEncoder(card, folder, options, document_folder=second, dtype=dtype)
    from .torch_encoder import TorchEncoder

    return TorchEncoder(card, folder, options, document_folder=second, dtype=dtype)


def as_stated(card: Card, folder: Path) -> Card:
    """The card with what it leaves to the model's own files."""
    return card.replace(**stated(folder, card.kind)) if card.pooling == "stated" else card


def model_folder(card: Card, part: str = "main") -> Path:
    """Where the files of a card, or of one part of it, lie; an error that says how to get them if they do not."""
    found = locate(card, part)
    if found is None or not found.is_dir():
        raise ModelError(f"{card.name} is not on this machine: r2med models fetch {card.name}")
    return verified(card, found)
