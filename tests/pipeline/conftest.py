"""One cluster of two nodes for all tests that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .ray_nodes import Node, free_address, home_with, wait_for_nodes


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two nodes with a CPU each, whose `R2MED_HOME` holds weights and nothing else."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'r2med[ray]'")
    home = home_with(tmp_path_factory.mktemp("nodes") / "home", "bge-small", "msmarco-minilm")
    address = free_address()
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # its sockets must have short names
        nodes = [Node(address, home, head=True, temporary=Path(folder))]
        try:
            wait_for_nodes(address, 1)
            nodes.append(Node(address, home))
            wait_for_nodes(address, 2)
            yield address
        finally:
            for node in reversed(nodes):
                node.kill()
