"""Real Ray nodes: each its own raylet with workers of its own, started by `ray start` as on separate machines."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.retrieve.encoders.weights import real_model

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "token",  # said outright, so that nothing depends on who used Ray here before
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]


def free_address() -> str:
    """Where a new cluster may listen: this machine under the address Ray calls it by, and a port of nobody's."""
    import ray

    with socket.socket() as found:
        found.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{found.getsockname()[1]}"


def home_with(folder: Path, *models: str) -> Path:
    """A cold `R2MED_HOME` that holds some of the real weights, or a skip."""
    (folder / "models").mkdir(parents=True)
    for name in models:
        (folder / "models" / name).symlink_to(real_model(name, "tokenizer.json"))
    return folder


class Node:
    """One `ray start --block` and everything under it."""

    def __init__(self, address: str, home: Path, *, head: bool = False, temporary: Path | None = None) -> None:
        self.address = address
        self.begun = time.monotonic()
        where = ["--head", f"--port={address.rpartition(':')[2]}"] if head else [f"--address={address}"]
        where += ["--include-dashboard=false", f"--temp-dir={temporary}"] if head else []
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.process = subprocess.Popen(
            [*RAY, *where, "--num-cpus=1", "--num-gpus=0", "--disable-usage-stats", "--object-store-memory=100000000"],
            env={**environment, **QUIET, "R2MED_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        """The machine loses power: raylet, workers and all."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """All processes below one, found in /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        parents.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        queue += parents.get(queue.pop(), [])
        found = list(dict.fromkeys([*found, *queue]))
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def wait_for_nodes(address: str, count: int, *, seconds: float = 40) -> None:
    """Until so many nodes are alive."""
    code = (
        "import ray, sys, time\n"
        f"end = time.time() + {seconds}\n"
        "while True:\n"
        "    try:\n"
        f"        ray.init(address={address!r}, log_to_driver=False, logging_level='CRITICAL'); break\n"
        "    except Exception:\n"
        "        if time.time() > end: raise\n"
        "        time.sleep(0.3)\n"
        f"while sum(n['Alive'] for n in ray.nodes()) != {count}:\n"
        "    assert time.time() < end; time.sleep(0.2)\n"
    )
    environment = {**os.environ, **QUIET}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
