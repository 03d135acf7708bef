"""Encoders in ONNX Runtime: no torch, one text at a time on every core.

A model quantized to int8 in the usual way scales the activations of a whole batch together, padding included: what a
text becomes then depends on the texts it happens to share a batch with (cosine 0.997 between two batchings of one
passage). Such a model gets batches of one. On CPUs that is also the fastest way, since nothing is padding: each core
runs its own text on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import MissingExtra, ModelError
from ...models.hashes import file_hash
from ..cores import available_cores
from .batching import Tokens, pad, stream_batches
from .protocol import BaseEncoder, Batch, Float32, Side, normalized
from .tokens import FileTokenizer

if TYPE_CHECKING:
    import onnxruntime


class OnnxModel:
    """A session with its tokenizer; sessions are shared by all worker threads."""

    def __init__(self, folder: Path, *, file: str = "", threads: int | None = None) -> None:
        self.folder = folder
        self.path = find_onnx(folder, file)
        self.tokenizer = FileTokenizer(folder)
        self.per_text = scales_batches(self.path)
        self.workers = threads or available_cores()
        self.session = self._open()
        self.inputs = {i.name for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]

    def _open(self) -> onnxruntime.InferenceSession:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtra("running ONNX models", "onnx") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        wanted = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        providers = [p for p in wanted if p in onnxruntime.get_available_providers()]
        try:
            return onnxruntime.InferenceSession(str(self.path), options, providers=providers)
        except Exception as error:
            raise ModelError(f"{self.path} cannot be loaded: {first_line(error)}") from None

    def hidden(self, batch: list[list[int]]) -> tuple[Float32, Float32]:
        """Output of the model (batch × tokens × d, or batch × d where it pools itself) and the attention mask."""
        ids, mask = pad(batch, self.tokenizer.pad_id)
        feed: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        if "position_ids" in self.inputs:
            feed["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        (output,) = self.session.run(self.outputs[:1], {k: v for k, v in feed.items() if k in self.inputs})
        return np.asarray(output, dtype=np.float32), mask.astype(np.float32)


class OnnxEncoder(BaseEncoder):
    """Dense vectors from an ONNX file and a `tokenizer.json`."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "",
        file: str = "",
        pooling: str = "cls",
        normalize: bool = True,
        query_length: int = 512,
        document_length: int = 512,
        batch_tokens: int = 4096,
        threads: int | None = None,
        identity: dict[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.name = name or folder.name
        self.pooling = pooling
        self.normalize = normalize
        self.lengths: dict[Side, int] = {"query": query_length, "document": document_length}
        self.batch_tokens = batch_tokens
        self.identity = identity or {}
        self._source = (folder, file, threads)
        self._model: OnnxModel | None = None

    @property
    def model(self) -> OnnxModel:
        """Loaded on first use: a task whose vectors are all in the cache needs no model."""
        if self._model is None:
            folder, file, threads = self._source
            self._model = OnnxModel(folder, file=file, threads=threads)
        return self._model

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return {
            **self.identity,
            "backend": "onnx",
            "file": file_hash(find_onnx(*self._source[:2])),
            "tokenizer": file_hash(self._source[0] / "tokenizer.json"),
            "pooling": self.pooling,
            "normalize": self.normalize,
            "max_length": self.lengths[side],
            "dtype": "model",
        }

    def max_length(self, side: Side) -> int:
        """Where texts are cut, in tokens."""
        return self.lengths[side]

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time."""
        model = self.model
        return stream_batches(
            self,
            texts,
            side,
            instruction,
            budget=self.batch_tokens,
            most=1 if model.per_text else 64,
            workers=model.workers,
        )

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        """Token ids of each text."""
        return self.model.tokenizer.tokenize([instruction + t for t in texts], self.lengths[side])

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """One vector per list of token ids."""
        del side, instruction, worker
        hidden, mask = self.model.hidden(batch)
        pooled = hidden if hidden.ndim == 2 else pool(hidden, mask, self.pooling)
        return normalized(pooled) if self.normalize else pooled

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed."""
        return isinstance(error, MemoryError) or "allocate memory" in str(error)


def pool(hidden: Float32, mask: Float32, pooling: str) -> Float32:
    """One vector per text out of one per token (right-padded)."""
    if pooling == "cls":
        return np.asarray(hidden[:, 0])
    if pooling == "mean":
        total: Float32 = (hidden * mask[:, :, None]).sum(axis=1, dtype=np.float32)
        return np.asarray(total / np.maximum(mask.sum(axis=1, keepdims=True), 1), dtype=np.float32)
    if pooling == "last":
        last = np.maximum(mask.sum(axis=1).astype(np.int64) - 1, 0)
        return np.asarray(hidden[np.arange(len(hidden)), last])
    raise ModelError(f"pooling {pooling!r} is not known to the ONNX backend (cls, mean, last)")


def find_onnx(folder: Path, file: str = "") -> Path:
    """The model file: the one named, or `model.onnx` in the folder or its `onnx` folder."""
    for candidate in (file,) if file else ("model.onnx", "onnx/model.onnx"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise ModelError(f"{folder} holds no {file or 'model.onnx'}")


def scales_batches(path: Path) -> bool:
    """Whether the graph quantizes activations on the fly, one scale for the whole batch."""
    needle, step, tail = b"DynamicQuantizeLinear", 1 << 22, b""
    with path.open("rb") as stream:
        while chunk := stream.read(step):
            if needle in tail + chunk:
                return True
            tail = chunk[-len(needle) :]
    return False


def first_line(error: BaseException) -> str:
    """A library's message as one short line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
