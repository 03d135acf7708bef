"""A BM25 index on disk: plain `.npy` arrays that are memory-mapped, and a manifest that says what they are.

The manifest is written last, into a folder that appears under its name only when it is whole.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import DataError, TextColumn, UsageError
from ..core.atomic import atomic_folder
from ..text import TermCounts, Vocabulary
from .bm25 import BM25Index, BM25Parameters
from .sparse import Postings

VERSION = 2
ARRAYS = {
    "vocabulary_data": "uint8", "vocabulary_offsets": "int64", "vocabulary_hashes": "uint32",
    "vocabulary_order": "int32", "indptr": "int64", "terms": "int32", "counts": "int32", "lengths": "int64",
    "term_ptr": "int64", "docs": "int32", "impacts": "float32",
}  # fmt: skip


class Manifest(msgspec.Struct, kw_only=True):
    """`index.json`."""

    version: int
    parameters: BM25Parameters
    documents: int
    corpus: str
    checksums: dict[str, int]


def save_index(index: BM25Index, folder: str | Path, *, corpus: str) -> None:
    """Write an index; `corpus` is the fingerprint of the documents it was made from."""
    vocabulary, indptr, terms, counts = index.counts
    hashes, order = vocabulary.lookup
    arrays: tuple[npt.NDArray[Any], ...] = (
        vocabulary.terms.data, vocabulary.terms.offsets, hashes, order, indptr, terms, counts, index.lengths,
        *index.postings,
    )  # fmt: skip
    with atomic_folder(Path(folder)) as target:
        checksums = {}
        for name, array in zip(ARRAYS, arrays, strict=True):
            np.save(target / f"{name}.npy", array, allow_pickle=False)
            checksums[name] = _checksum(array)
        manifest = Manifest(
            version=VERSION, parameters=index.parameters, documents=len(index), corpus=corpus, checksums=checksums
        )
        (target / "index.json").write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def load_index(folder: str | Path, *, corpus: str | None = None, verify: bool = False) -> BM25Index:
    """Map an index into memory; nothing is read until it is searched.

    With `corpus` an index of other documents is refused; with `verify` every array is compared with its checksum.
    """
    folder = Path(folder)
    try:
        manifest = msgspec.json.decode((folder / "index.json").read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise DataError("is not an index (it has no index.json)", path=folder) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken manifest ({error})", path=folder / "index.json") from None
    if manifest.version != VERSION:
        raise DataError(f"index version {manifest.version}, this r2med reads {VERSION}: build it again", path=folder)
    if corpus is not None and corpus != manifest.corpus:
        raise UsageError(f"{folder}: the index was made from other documents")
    arrays = {name: _map(folder, name, manifest, verify=verify) for name in ARRAYS}
    if len(arrays["lengths"]) != manifest.documents or len(arrays["indptr"]) != manifest.documents + 1:
        raise DataError(f"does not hold {manifest.documents} documents as it says", path=folder)
    vocabulary = Vocabulary(
        TextColumn(arrays["vocabulary_data"], arrays["vocabulary_offsets"]),
        (arrays["vocabulary_hashes"], arrays["vocabulary_order"]),
    )
    return BM25Index(
        manifest.parameters,
        TermCounts(vocabulary, arrays["indptr"], arrays["terms"], arrays["counts"]),
        lengths=arrays["lengths"],
        postings=Postings(arrays["term_ptr"], arrays["docs"], arrays["impacts"]),
    )


def _map(folder: Path, name: str, manifest: Manifest, *, verify: bool) -> npt.NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy reads the header as Python: a broken one fails in any way Python's parser can
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"cannot be mapped ({reason})", path=path) from None
    if array.dtype != ARRAYS[name] or array.ndim != 1:
        raise DataError(f"holds {array.dtype}{list(array.shape)}, expected a list of {ARRAYS[name]}", path=path)
    if verify and _checksum(array) != manifest.checksums.get(name):
        raise DataError("does not match its checksum", path=path)
    return array


def _checksum(array: npt.NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.size else 0
