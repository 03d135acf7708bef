"""Small and read-only file systems, mounted for one test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Mounted:
    """A tmpfs that can be made larger or read-only while it is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True, capture_output=True)

    def used(self) -> int:
        stat = os.statvfs(self.path)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[Mounted]:
    """A file system of `size`; skips where mounting is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "r2med-test", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"mounting a small file system is not allowed here ({done.stderr.strip()[-80:]})")
    try:
        yield Mounted(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)
