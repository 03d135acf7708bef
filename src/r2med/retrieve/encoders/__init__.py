"""Encoders: one small protocol, a backend per file, each importing what it needs when it is used."""

from .base import BaseEncoder, Batch, Encoder, Float32
from .devices import resolve_devices
from .load import as_stated, load_encoder, model_folder

__all__ = ["BaseEncoder", "Batch", "Encoder", "Float32", "as_stated", "load_encoder", "model_folder", "resolve_devices"]
