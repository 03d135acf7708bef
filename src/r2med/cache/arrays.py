"""Named arrays under a content key, such as those of an index: plain `.npy` files that are memory-mapped.

    R2MED_HOME/indexes/<key>/index.json     what the arrays are, and a checksum of each file
    R2MED_HOME/indexes/<key>/<name>.npy

A folder appears under its name only when it is whole, and is never changed afterwards.
"""

from __future__ import annotations

import mmap
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import DataError, R2MedError
from ..core.files import atomic_folder, home
from ..core.plugins import first_line
from ..core.untrusted import component
from .shards import FileIdentity, intact

Array = npt.NDArray[Any]
MANIFEST = "index.json"
VERSION = 3


class Manifest(msgspec.Struct, kw_only=True):
    """`index.json`."""

    version: int
    about: dict[str, Any] = {}  # what the arrays are, for people and for checks of whoever wrote them
    checksums: dict[str, int] = {}  # name of an array to the CRC-32 of its file


class ArrayCache:
    """All sets of arrays below one folder, by key."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / "indexes"

    def load(self, key: str) -> dict[str, Array] | None:
        """The arrays of a key, mapped and checked; None where there are none or a file of them is damaged."""
        folder = self._folder(key)
        try:
            arrays = read_arrays(folder)
        except DataError:
            return None
        with suppress(OSError):
            (folder / MANIFEST).touch()  # when it was last used, for pruning
        return arrays

    def save(self, key: str, arrays: Mapping[str, Array], about: Mapping[str, object]) -> None:
        """Keep arrays under a key; what another process has saved meanwhile stays, what is damaged is replaced."""
        folder = self._folder(key)
        if folder.exists():
            if self.load(key) is not None:
                return
            shutil.rmtree(folder, ignore_errors=True)
        try:
            write_arrays(folder, arrays, about)
        except R2MedError:
            if self.load(key) is None:
                raise

    def _folder(self, key: str) -> Path:
        return self.root / component(key, "the key of an index")


def write_arrays(folder: Path, arrays: Mapping[str, Array], about: Mapping[str, object]) -> None:
    """Write arrays as a new folder."""
    with atomic_folder(folder) as target:
        manifest = Manifest(version=VERSION, about=dict(about))
        for name, array in arrays.items():
            path = target / f"{component(name, 'the name of an array')}.npy"
            np.save(path, np.ascontiguousarray(array), allow_pickle=False)
            manifest.checksums[name] = _checksum(path)
        (target / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read_arrays(folder: Path) -> dict[str, Array]:
    """Map the arrays of a folder; each file is compared with its checksum, once per process."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"is not an index (it has no {MANIFEST})", path=folder) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"broken manifest ({error})", path=folder / MANIFEST) from None
    if manifest.version != VERSION:
        raise DataError(f"index version {manifest.version}, this r2med reads {VERSION}: build it again", path=folder)
    return {name: _map(folder, name, checksum) for name, checksum in manifest.checksums.items()}


def _map(folder: Path, name: str, checksum: int) -> Array:
    path = folder / f"{component(name, 'the name of an array', path=folder)}.npy"
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        identity = FileIdentity.of(path.stat())
    except Exception as error:  # numpy reads the header as Python: a broken one fails in any way Python's parser can
        raise DataError(f"cannot be mapped ({first_line(error)})", path=path) from None
    if not intact(identity, lambda: _checksum(path) == checksum):
        raise DataError("does not match its checksum", path=path)
    return array


def _checksum(path: Path) -> int:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return zlib.crc32(data)
