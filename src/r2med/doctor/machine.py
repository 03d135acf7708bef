"""Cores, memory and GPUs. PyTorch is not imported to find them: that takes seconds."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from ..results.provenance import environment
from ..retrieve.cores import available_cores
from .findings import Machine
from .software import installed_version

NVIDIA = Path("/proc/driver/nvidia/gpus")
QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader")


def look_at_machine() -> Machine:
    """The machine as r2med sees it."""
    return Machine(
        platform=platform.platform(),
        processor=str(environment()["processor"]),
        cores=available_cores(),
        memory_bytes=_memory(),
        gpus=_gpus(),
        torch=installed_version("torch"),
    )


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a Unix, or one that does not say
        return None


def _gpus() -> list[str]:
    """Names of the NVIDIA GPUs, from their driver; Apple's own where the machine is theirs."""
    if program := shutil.which("nvidia-smi"):
        try:
            done = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is not None and done.returncode == 0:
            return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if NVIDIA.is_dir():
        return [_model(folder / "information") for folder in sorted(NVIDIA.iterdir())]
    return ["Apple GPU (mps)"] if (platform.system(), platform.machine()) == ("Darwin", "arm64") else []


def _model(information: Path) -> str:
    try:
        for line in information.read_text("utf-8", "replace").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "NVIDIA GPU"
