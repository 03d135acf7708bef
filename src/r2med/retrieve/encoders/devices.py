"""Which devices there are, without loading torch to find none."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core import MissingExtra, UsageError
from ...core.options import check_devices
from ..sparse import available_cores

if TYPE_CHECKING:
    import torch

AUTOCAST = "float16-autocast"
"""Weights in float32, products in float16 on a GPU: torch's automatic mixed precision."""
DTYPES = ("float32", "float16", "bfloat16", AUTOCAST)
MOST_TOKENS, FEWEST_TOKENS = 1 << 17, 1 << 11
BYTES_PER_TOKEN_AND_UNIT = 64
"""Activations a transformer layer holds at once, in bytes per token and unit of hidden size; generous."""


def import_torch() -> Any:
    """torch, or the one-line error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("running this model", "torch") from None
    return torch


def may_have_gpu() -> bool:
    """False where there can be no GPU: importing torch to learn that costs seconds."""
    if "torch" in sys.modules:
        return bool(sys.modules["torch"].cuda.is_available())
    return Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists() or sys.platform == "win32"


def resolve_devices(asked: str | None) -> list[str]:
    """Names of the devices to work on: every visible GPU, or the CPU. `CUDA_VISIBLE_DEVICES` is the user's."""
    if asked is None:
        if not may_have_gpu():
            return ["cpu"]
        count = import_torch().cuda.device_count()
        return [f"cuda:{i}" for i in range(count)] or ["cpu"]
    names = check_devices(asked)
    if names == ["cuda"]:
        count = import_torch().cuda.device_count()
        names = [f"cuda:{i}" for i in range(count)] or ["cuda:0"]
    for name in names:
        if name.startswith("cuda:") and int(name[5:]) >= import_torch().cuda.device_count():
            raise UsageError(f"there is no device {name} here ({import_torch().cuda.device_count()} GPUs are visible)")
    return names


def resolve_dtype(asked: str | None, devices: list[str]) -> str:
    """bfloat16 on GPUs that compute in it, float32 elsewhere, unless asked otherwise."""
    if asked is not None:
        if asked not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {asked!r}")
        return asked
    if not devices[0].startswith("cuda"):
        return "float32"
    return "bfloat16" if import_torch().cuda.is_bf16_supported() else "float16"


def token_budget(device: str, hidden: int) -> int:
    """Tokens per batch: a third of what is free on a GPU, little on a CPU, where large batches only leave its cache."""
    if not device.startswith("cuda"):
        return 4096
    free, _ = import_torch().cuda.mem_get_info(device)
    return int(min(max(free / 3 / (BYTES_PER_TOKEN_AND_UNIT * hidden), FEWEST_TOKENS), MOST_TOKENS))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the CPU's allocator, ran out; what it still holds is given back."""
    torch = sys.modules.get("torch")
    if torch is None:
        return isinstance(error, MemoryError)
    if isinstance(error, torch.OutOfMemoryError):
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return True
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def use_all_cores(threads: int | None) -> None:
    """As many threads as this process has cores: torch counts those of the machine."""
    torch: Any = import_torch()
    wanted = threads or available_cores()
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of that name."""
    made: torch.dtype = getattr(import_torch(), "float32" if name == AUTOCAST else name)
    return made


def mixed_precision(dtype: str, device: str) -> AbstractContextManager[object]:
    """Torch's automatic mixed precision where the dtype asks for it and the device is a GPU."""
    if dtype != AUTOCAST or not device.startswith("cuda"):
        return nullcontext()
    return cast(AbstractContextManager[object], import_torch().autocast("cuda", dtype=import_torch().float16))
