"""Pooling with torch: one vector per text out of one per token, wherever the padding stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import ModelError

if TYPE_CHECKING:
    import torch


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str, skip: int = 0) -> torch.Tensor:
    """Pool in float32. `skip` tokens of instruction are left out of a mean."""
    import torch

    hidden = hidden.float()
    if pooling == "cls":
        # The first attended token: column 0, unless the padding stands on the left.
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.int().argmax(dim=1)]
    if pooling in ("last", "last-eos"):
        places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        return hidden[torch.arange(len(hidden), device=hidden.device), (mask * places).argmax(dim=1)]
    if pooling in ("mean", "mean-after-instruction"):
        if pooling == "mean-after-instruction":
            mask = mask * (mask.cumsum(dim=1) > skip)
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    raise ModelError(f"pooling {pooling!r} is not known to the torch backend")


def load_projection(folder: Path, device: str) -> torch.nn.Module:
    """The linear layer that some sentence-transformers models put behind pooling."""
    import torch

    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no config.json: the projection behind pooling is missing")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        layer = torch.nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        state = _load_state(folder)
        layer.load_state_dict({name.removeprefix("linear."): value for name, value in state.items()})
    except ModelError:
        raise
    except Exception as error:  # torch, safetensors and the JSON each have their own
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:120]
        raise ModelError(f"{folder}: the projection behind pooling cannot be loaded ({reason})") from None
    activation = str(config.get("activation_function", "torch.nn.modules.linear.Identity")).rsplit(".", 1)[-1]
    if activation not in ("Identity", "Tanh", "GELU", "ReLU"):
        raise ModelError(f"{folder}: activation {activation} is not known")
    return torch.nn.Sequential(layer, getattr(torch.nn, activation)()).float().eval().to(device)


def _load_state(folder: Path) -> dict[str, torch.Tensor]:
    import torch

    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        return dict(load_file(folder / "model.safetensors"))
    if (folder / "pytorch_model.bin").is_file():
        # `weights_only` reads tensors and nothing that could run.
        return dict(torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True))
    raise ModelError(f"{folder} holds no weights")


def bidirectional(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An attention mask that lets every token see every other: causal models take a 4-d mask as it is."""
    import torch

    allowed = mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)
    blocked = torch.zeros(allowed.shape, dtype=dtype, device=mask.device)
    return blocked.masked_fill(~allowed, torch.finfo(dtype).min)


def to_array(vectors: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """To the CPU as float32."""
    return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)
