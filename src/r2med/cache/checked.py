"""Checking a file once: one that was found intact is not read again by this process until it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

SETTLED_SECONDS = 2.0
"""How long ago a file must have changed last for its times to tell it from a later version: clocks of file systems
tick in milliseconds, and two writes within one tick leave the same times."""


class FileIdentity(NamedTuple):
    """What differs between a file and anything that is later written in its place."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileIdentity:
        """From what the file system says of a file."""
        return cls(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


_intact: set[FileIdentity] = set()
"""Files this process has read from end to end and found to match their checksum."""


def intact(identity: FileIdentity, matches: Callable[[], bool]) -> bool:
    """Whether a file matches its checksum; `matches` reads it, once per process and version of the file."""
    if identity in _intact:
        return True
    if not matches():
        return False
    if time.time() - max(identity.modified, identity.changed) / 1e9 > SETTLED_SECONDS:
        _intact.add(identity)
    return True
