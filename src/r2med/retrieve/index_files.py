"""A BM25 index as named arrays, and a folder of its own for whoever wants to keep one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..cache.arrays import Array, read_arrays, write_arrays
from ..core import DataError, TextColumn, UsageError
from ..text import TermCounts, Vocabulary
from .bm25 import BM25Index, BM25Parameters
from .sparse import Postings

ARRAYS = {
    "vocabulary_data": "uint8", "vocabulary_offsets": "int64", "vocabulary_hashes": "uint32",
    "vocabulary_order": "int32", "indptr": "int64", "terms": "int32", "counts": "int32", "lengths": "int64",
    "term_ptr": "int64", "docs": "int32", "impacts": "float32",
}  # fmt: skip


def index_arrays(index: BM25Index) -> dict[str, Array]:
    """All arrays of an index by name."""
    vocabulary, indptr, terms, counts = index.counts
    hashes, order = vocabulary.lookup
    arrays: tuple[Array, ...] = (
        vocabulary.terms.data, vocabulary.terms.offsets, hashes, order, indptr, terms, counts, index.lengths,
        *index.postings,
    )  # fmt: skip
    return dict(zip(ARRAYS, arrays, strict=True))


def index_from_arrays(arrays: Mapping[str, Array], parameters: BM25Parameters) -> BM25Index:
    """The index of its arrays; arrays that cannot be those of an index are refused."""
    for name, dtype in ARRAYS.items():
        if name not in arrays:
            raise DataError(f"the index has no {name}")
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            shape = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise DataError(f"{name} of the index holds {shape}, expected a list of {dtype}")
    if len(arrays["indptr"]) != len(arrays["lengths"]) + 1:
        raise DataError(f"the index does not hold {len(arrays['lengths'])} documents as it says")
    vocabulary = Vocabulary(
        TextColumn(arrays["vocabulary_data"], arrays["vocabulary_offsets"]),
        (arrays["vocabulary_hashes"], arrays["vocabulary_order"]),
    )
    return BM25Index(
        parameters,
        TermCounts(vocabulary, arrays["indptr"], arrays["terms"], arrays["counts"]),
        lengths=arrays["lengths"],
        postings=Postings(arrays["term_ptr"], arrays["docs"], arrays["impacts"]),
    )


class _About(msgspec.Struct, kw_only=True):
    """What the manifest of a saved index says beside its checksums."""

    parameters: BM25Parameters
    documents: int
    corpus: str


def save_index(index: BM25Index, folder: str | Path, *, corpus: str) -> None:
    """Write an index; `corpus` is the fingerprint of the documents it was made from."""
    about = _About(parameters=index.parameters, documents=len(index), corpus=corpus)
    write_arrays(Path(folder), index_arrays(index), msgspec.to_builtins(about))


def load_index(folder: str | Path, *, corpus: str | None = None, verify: bool = False) -> BM25Index:
    """Map an index into memory; nothing is read until it is searched.

    With `corpus` an index of other documents is refused; with `verify` every array is compared with its checksum.
    """
    folder = Path(folder)
    stored = read_arrays(folder, check=verify)
    try:
        about = msgspec.convert(stored.about, _About)
    except msgspec.ValidationError as error:
        raise DataError(f"broken manifest ({error})", path=folder) from None
    if corpus is not None and corpus != about.corpus:
        raise UsageError(f"{folder}: the index was made from other documents")
    index = index_from_arrays(stored.arrays, about.parameters)
    if len(index) != about.documents:
        raise DataError(f"does not hold {about.documents} documents as it says", path=folder)
    return index
