"""Workers as actors of a Ray cluster: one for each GPU there is, or one for each CPU.

The cluster is Ray's own: `ray start` on as many machines as there are, or one that is started here and ends with the
run. A node that dies takes its actors with it; the pool gives their work to others and asks for new ones, which Ray
puts wherever there is room.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import Any

from ..core import MissingExtra, Unavailable, UsageError
from ..core.plugins import first_line
from .workers import Event, Failure, Job, Worker

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


TOKEN_HINT = "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=…"
SILENCE = 5  # seconds without news after which the head is looked for


class RayWorkers:
    """Actors; `size` is how many there are when the cluster has room for all of them."""

    def __init__(self, size: int | None, address: str | None, device: str | None, tell: Callable[[str], None]) -> None:
        self.size = size or 1
        self._asked, self._address, self._device, self._tell = size, address, device, tell
        self._ray: Any = None
        self._waiting: dict[Any, Any] = {}  # replies that are due, with the actors that owe them
        self._actors: set[Any] = set()
        self._gpus = 0
        self._head, self._headless, self._silent = "", False, 0
        self._aside = ExitStack()

    def start(self) -> None:
        """Join a cluster, or start one on this machine where there is none; says which on stderr."""
        ray = self._import()
        # Ray prints news of dying nodes to stdout, whatever it is asked; that is where the result goes.
        self._aside.enter_context(redirect_stdout(sys.stderr))
        where = self._connect(ray)
        resources = ray.cluster_resources()
        nodes = sum(node["Alive"] for node in ray.nodes())
        self._gpus = 0 if self._device == "cpu" else int(resources.get("GPU", 0))
        if self._device not in (None, "cpu") and not self._gpus:
            raise Unavailable(f"the Ray cluster has no GPU, and --device is {self._device}")
        room = self._gpus or int(resources.get("CPU", 0))
        if room < 1:
            raise Unavailable("the Ray cluster has neither a GPU nor a CPU to give")
        self.size = self._asked or room
        kind = "GPU" if self._gpus else "CPU"
        self._head = ray.get_runtime_context().gcs_address
        ours = f"{self.size} workers with a {kind} each" if self.size > 1 else f"1 worker with a {kind}"
        self._tell(f"Ray: {where}, {nodes} node{'s' * (nodes != 1)}, {ours}")

    def _import(self) -> Any:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import ray
        except ImportError:
            raise MissingExtra("running on a Ray cluster", "ray") from None
        self._ray = ray
        return ray

    def _connect(self, ray: Any) -> str:
        """Where we are now."""
        if ray.is_initialized():
            return "the cluster this process has joined"
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
        asked = self._address or os.environ.get("RAY_ADDRESS") or ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if asked != "local":
                knock(asked)
                try:
                    context = ray.init(address=asked or "auto", **quiet)
                    return f"joined the cluster at {context.address_info['gcs_address']}"
                except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                    refusal = _refusal(asked or "this machine", error)
                    if asked and asked != "auto":
                        raise Unavailable(refusal) from None
                    if TOKEN_HINT in refusal:
                        self._tell(f"Ray: {refusal}")
            own_token()
            try:
                ray.init(address="local", include_dashboard=False, num_cpus=self._asked, **quiet)
            except Exception as error:  # a start that takes too long is a bare Exception of Ray's
                raise Unavailable(f"Ray cannot be started here: {first_line(error)}") from None
            return ("" if asked == "local" else "no cluster to join, ") + "started one on this machine"

    def spawn(self) -> Any:
        """Ask for an actor; Ray makes it where and when there is room."""
        # An actor sees the one GPU that Ray gave it, whatever number that has for the driver.
        own: dict[str, Any] = {} if self._gpus else {"device": "cpu", "threads": 1}
        wanted = {"num_gpus": 1, "num_cpus": 0} if self._gpus else {"num_cpus": 1}
        made = self._ray.remote(RayWorker).options(**wanted, max_restarts=0).remote(own)
        self._actors.add(made)
        self._waiting[made.hello.remote()] = made
        return made

    def send(self, worker: Any, job: Job) -> None:
        self._waiting[worker.do.remote(job)] = worker

    def events(self, timeout: float) -> Sequence[Event]:
        ray = self._ray
        if not self._waiting:
            return []
        found = []
        ready, _ = ray.wait(list(self._waiting), num_returns=1, timeout=timeout, fetch_local=True)
        self._silent = 0 if ready else self._silent + 1
        if self._silent >= SILENCE:
            self._silent = 0
            self._find_head()
        for reply in ready:
            worker = self._waiting.pop(reply)
            try:
                found.append(Event(worker, ray.get(reply)))
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
                found.append(self._gone(worker, error))
            except ray.exceptions.RayError as error:
                text = next((line for line in reversed(str(error).strip().splitlines()) if line.strip()), "")
                found.append(Event(worker, Failure("", text.strip()[:300], "a Ray worker")))
        return found

    def _find_head(self) -> None:
        """Without it Ray waits for a minute in whatever it is asked next, and then ends this process."""
        try:
            knock(self._head)
        except Unavailable:
            self._headless = True
            raise Unavailable(
                f"the head of the Ray cluster at {self._head} is gone; what was finished is kept: start a cluster "
                "and run the same command again"
            ) from None

    def _gone(self, worker: Any, error: Exception) -> Event:
        self._find_head()
        self._actors.discard(worker)
        self._waiting = {reply: owner for reply, owner in self._waiting.items() if owner is not worker}
        text = str(error)
        if "No module named" in text or "failed to import" in text:
            raise UsageError("a node of the Ray cluster has no r2med: install the same version on every node")
        self._ray.kill(worker)
        return Event(worker, None, first_line(error))

    def stop(self) -> None:
        """End the actors and leave the cluster; a cluster that was started here ends too."""
        with self._aside:
            if self._ray is not None and self._ray.is_initialized() and not self._headless:
                for actor in self._actors:
                    self._ray.kill(actor)
                self._ray.shutdown()
        self._actors.clear()
        self._waiting.clear()


def own_token() -> None:
    """A cluster of our own lets nobody else in, and leaves no token in the user's home, where Ray would write one.

    It stays for as long as this process: Ray reads it once.
    """
    if not any(name in os.environ for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # the mode Ray sets itself


def _refusal(address: str, error: BaseException) -> str:
    """Why a cluster did not let us in, as one line."""
    cause: BaseException | None = error
    while cause is not None:
        if "AuthToken" in str(cause) or "AUTH_TOKEN" in str(cause):
            return f"the Ray cluster at {address} asks for its token: {TOKEN_HINT}"
        cause = cause.__cause__ or cause.__context__
    return f"no Ray cluster answers at {address} ({first_line(error)})"


def knock(address: str) -> None:
    """Ray tries a dead address for minutes and says so at length; a port that nobody opens is known in a moment."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit() or not host:
        return  # `auto`, or a name that Ray understands
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        raise Unavailable(f"no Ray cluster answers at {address} ({error.strerror or error})") from None


class RayWorker(Worker):
    """The actor: a worker that knows its node."""

    def __init__(self, own: dict[str, Any]) -> None:
        import ray

        super().__init__(f"node {ray.util.get_node_ip_address()} ({socket.gethostname()})", **own)
