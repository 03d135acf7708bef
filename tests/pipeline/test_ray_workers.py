"""The ray executor on a real cluster of two nodes."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

import pytest

from .ray_nodes import Node, command_line, descendants, free_address, home_with, wait_for_nodes
from .run_process import Ran
from .test_workers import late_interaction

SHORT = "bge-small:max_length=16"
BRIEF = [
    "--tasks", "mini@1/Biology,mini@1/IIYi-Clinical", "-r", "bm25", "-r", SHORT, "--fuse", "rrf",
    "--rerank", "msmarco-minilm:max_length=24@10",
]  # fmt: skip
FULL = ["--tasks", "mini@1"]


def on_ray(address: str) -> list[str]:
    return ["--executor", "ray", "--address", address]


def test_a_gpu_that_no_node_has_is_not_replaced_by_a_cpu(cluster: str, tmp_path: Path) -> None:
    arguments = ["--tasks", "mini@1/Biology", "-r", "bm25", "--device", "cuda", *on_ray(cluster)]
    ran = Ran(home_with(tmp_path / "home"), tmp_path / "results", *arguments).end(None)
    assert ran.process.returncode not in (0, None)
    assert "the Ray cluster has no GPU, and --device is cuda" in ran.err


@pytest.mark.parametrize("arguments", [BRIEF, pytest.param(FULL, marks=pytest.mark.slow)], ids=["brief", "mini@1"])
def test_a_cluster_gives_the_bytes_of_this_machine(cluster: str, tmp_path: Path, arguments: list[str]) -> None:
    models = ("bge-small", "msmarco-minilm")
    if arguments is BRIEF:  # a model with a vector per token
        arguments = [*arguments, "-r", f"{late_interaction(tmp_path / 'tiny-colbert')}:max_length=16,threads=1"]
    here = Ran(home_with(tmp_path / "one", *models), tmp_path / "here", *arguments).end()
    there = Ran(home_with(tmp_path / "two", *models), tmp_path / "there", *arguments, *on_ray(cluster)).end()
    assert f"joined the cluster at {cluster}, 2 nodes, 2 workers" in there.err
    assert len(there.err.strip().splitlines()) == 1, there.err
    assert there.document() == here.document()
    assert there.files() == here.files()
    assert there.files()


def test_a_node_without_the_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'r2med[ray]'")
    address = free_address()
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        node = Node(address, tmp_path / "empty", head=True, temporary=Path(folder))
        try:
            wait_for_nodes(address, 1)
            home = home_with(tmp_path / "home", "bge-small")
            ran = Ran(home, tmp_path / "r", "--tasks", "mini@1/Biology", "-r", SHORT, *on_ray(address)).end(None)
        finally:
            node.kill()
    assert ran.process.returncode == 1
    assert not ran.out
    last = ran.err.strip().splitlines()[-1]
    assert f"node {address.partition(':')[0]}" in last
    assert "bge-small is not on this machine: r2med models fetch bge-small" in last
    assert "Traceback" not in ran.err


def test_an_address_where_nobody_is(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'r2med[ray]'")
    ran = Ran(tmp_path, tmp_path / "r", "--tasks", "mini@1/Biology", "-r", "bm25", *on_ray("127.0.0.1:1")).end(1)
    assert "no Ray cluster answers at 127.0.0.1:1" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_node_dies_in_the_middle(cluster: str, tmp_path: Path) -> None:
    arguments = ["--tasks", "mini@1", "-r", "bm25", "-r", "bge-small:max_length=128", "--fuse", "rrf"]
    here = Ran(home_with(tmp_path / "one", "bge-small"), tmp_path / "here", *arguments).end()
    third = Node(cluster, home_with(tmp_path / "three", "bge-small"))
    try:
        wait_for_nodes(cluster, 3)
        there = Ran(home_with(tmp_path / "two", "bge-small"), tmp_path / "there", *arguments, *on_ray(cluster))
        there.until(lambda: len(there.shards()) >= 2)
        assert any("ray::RayWorker" in command_line(pid) for pid in descendants(third.process.pid))
    finally:
        third.kill()
    there.end()
    assert "lost on the way" in there.err
    assert there.document() == here.document()
    assert there.files() == here.files()


@pytest.mark.slow
def test_all_nodes_gone_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'r2med[ray]'")
    address = free_address()
    home = home_with(tmp_path / "home", "bge-small")
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        node = Node(address, home, head=True, temporary=Path(folder))
        try:
            wait_for_nodes(address, 1)
            ran = Ran(home, tmp_path / "r", "--tasks", "mini@1", "-r", "bge-small:max_length=128", *on_ray(address))
            ran.until(ran.shards)
        finally:
            node.kill()
        ran.end(None)
    assert ran.process.returncode == 1
    assert f"the head of the Ray cluster at {address} is gone" in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err
    again = Ran(home, tmp_path / "r", "--tasks", "mini@1", "-r", "bge-small:max_length=128").end()
    assert again.document()["systems"][0]["tasks"]


@pytest.mark.slow
def test_an_interrupt_leaves_no_actor_behind(cluster: str, tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", "bge-small")
    ran = Ran(home, tmp_path / "r", "--tasks", "mini@1", "-r", "bge-small:max_length=128", *on_ray(cluster))
    ran.until(ran.shards)
    ran.process.send_signal(signal.SIGINT)
    ran.end(None)
    assert ran.process.returncode not in (0, 1)
    assert "Traceback" not in ran.err
    end = time.monotonic() + 20
    while any("ray::RayWorker" in command_line(int(p.name)) for p in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end, "an actor is still there"
        time.sleep(0.2)


@pytest.mark.slow
def test_without_a_cluster_one_is_started_and_ended(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'r2med[ray]'")
    home = home_with(tmp_path / "home", "bge-small")
    ran = Ran(home, tmp_path / "r", "--tasks", "mini@1/Biology", "-r", SHORT, *on_ray("local"), "--workers", "2").end()
    assert "started one on this machine, 1 node, 2 workers" in ran.err
    assert ran.document()["systems"][0]["name"] == "bge-small:max_length=16"
