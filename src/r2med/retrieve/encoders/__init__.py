"""Encoders: one small protocol, a backend per file, each importing what it needs when it is used."""

from .load import Options, as_encoder, load_encoder
from .protocol import BaseEncoder, Batch, Encoder, Side

__all__ = ["BaseEncoder", "Batch", "Encoder", "Options", "Side", "as_encoder", "load_encoder"]
