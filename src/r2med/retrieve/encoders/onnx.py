"""Encoders of ONNX files: no torch, one text at a time on every core.

They run in ONNX Runtime, and BERT in bytes, such as the embedded default, in C of our own (`native_bert`): half as
fast again, and the same bits on every processor that runs it.

A model quantized to int8 in the usual way scales the activations of a whole batch together, padding included: what a
text becomes then depends on the texts it happens to share a batch with (cosine 0.997 between two batchings of one
passage). Such a model gets batches of one. On CPUs that is also the fastest way, since nothing is padding: each core
runs its own text on one thread.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import MissingExtra, ModelError
from ...core.columns import Int64
from ...core.options import Options
from ...core.plugins import first_line
from ...core.queries import Side
from ...models import Card
from ...models.generic import cut_at
from ...models.locate import file_hash
from ..sparse import available_cores
from . import (
    BaseEncoder,
    Batch,
    Float32,
    TokenBatch,
    WorkOrder,
    check_length,
    length_facts,
    lower_first,
    normalized,
    shortened,
    text_facts,
)
from .batching import (
    BATCH_TOKENS,
    TOKEN_WINDOW,
    Job,
    Tokens,
    by_length,
    check_room,
    pad,
    stream_batches,
    stream_jobs,
    token_batch,
    tokenize_bounded,
)
from .native_bert import BACKEND, Bert, NativeBert, recognized

if TYPE_CHECKING:
    import onnxruntime

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class FileTokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("tokenizing for ONNX models", "onnx") from None
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} holds no tokenizer.json")
        try:
            self.backend = Tokenizer.from_file(str(path))
        except Exception as error:
            raise ModelError(f"{path} is not a tokenizer ({str(error)[:120]})") from None
        # The file may carry the padding and truncation its author used last; both are ours to decide.
        self.backend.no_padding()
        self.backend.no_truncation()
        self._special = self.backend.num_special_tokens_to_add(False)
        self._cut_at = cut_at(folder)
        self.pad_id = self._find_pad(folder)

    def _find_pad(self, folder: Path) -> int:
        config = folder / "tokenizer_config.json"
        try:
            named = json.loads(config.read_text(encoding="utf-8")).get("pad_token") if config.is_file() else None
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ModelError(f"{config} cannot be read ({error})") from None
        if isinstance(named, dict):
            named = named.get("content")
        for token in (named, "[PAD]", "<pad>"):
            if isinstance(token, str) and (found := self.backend.token_to_id(token)) is not None:
                return int(found)
        return 0

    def tokenize(self, texts: list[str], limit: int) -> list[Tokens]:
        """Token ids with special tokens, the text cut so that all fit into `limit`."""
        made: list[Tokens] = []
        for bounded in tokenize_bounded(texts, limit, self._encodings, self._cut_at):
            encoding, total = bounded.tokens, bounded.total + self._special
            if total > limit:
                encoding.truncate(max(limit - self._special, 0), direction=self._cut_at)
            made.append(Tokens(self.backend.post_process(encoding).ids, total))
        return made

    def _encodings(self, texts: list[str]) -> list[Any]:
        return list(self.backend.encode_batch_fast(texts, add_special_tokens=False))


class OnnxModel:
    """A session with its tokenizer; sessions are shared by all worker threads."""

    def __init__(self, folder: Path, *, threads: int | None = None, device: str | None = None) -> None:
        self.folder = folder
        self.path = find_onnx(folder)
        self.tokenizer = FileTokenizer(folder)
        self.per_text = scales_batches(self.path)
        self.workers = threads or available_cores()
        found = native_model(self.path, device)
        self.native = None if found is None else NativeBert(self.path, found)
        self._device = device

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """Opened where it is needed."""
        return self._open(self._device)

    @cached_property
    def inputs(self) -> set[str]:
        """Names of what the graph is given."""
        return {i.name for i in self.session.get_inputs()}

    @cached_property
    def outputs(self) -> list[str]:
        """Names of what it gives back."""
        return [o.name for o in self.session.get_outputs()]

    def _open(self, device: str | None) -> onnxruntime.InferenceSession:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtra("running ONNX models", "onnx") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        runs_on = providers(device, onnxruntime.get_available_providers())
        try:
            return onnxruntime.InferenceSession(str(self.path), options, providers=runs_on)
        except Exception as error:
            raise ModelError(f"{self.path} cannot be loaded: {first_line(error)}") from None

    def hidden(self, batch: list[list[int]], *, first: bool = False) -> tuple[Float32, Float32]:
        """Output of the model (batch × tokens × d, or batch × d where it pools itself) and the attention mask.

        `first`: the first token of each text is enough.
        """
        ids, mask = pad(batch, self.tokenizer.pad_id)
        if self.native is not None:
            states = [self.native.states(text, first=first) for text in batch]
            made = np.zeros((len(batch), 1 if first else ids.shape[1], self.native.hidden), dtype=np.float32)
            for row, part in zip(made, states, strict=True):
                row[: len(part)] = part
            return made, mask.astype(np.float32)
        feed: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        if "position_ids" in self.inputs:
            feed["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        return self.run(feed), mask.astype(np.float32)

    def run(self, feed: dict[str, Any]) -> Float32:
        """The first output for a padded batch; the graph is given the inputs that it has."""
        try:
            (output,) = self.session.run(self.outputs[:1], {k: v for k, v in feed.items() if k in self.inputs})
        except MemoryError:
            raise  # a smaller batch may succeed
        except Exception as error:  # its own classes, which share no other base
            width = feed["input_ids"].shape[1]
            raise ModelError(f"{self.path} fails on texts of {width} tokens: {first_line(error)}") from None
        return np.asarray(output, dtype=np.float32)


class OnnxEncoder(BaseEncoder):
    """Dense vectors from an ONNX file and a `tokenizer.json`."""

    def __init__(self, card: Card, folder: Path, options: Options | None = None) -> None:
        super().__init__()
        self.card, self.folder, self.options = card, folder, options or Options()
        self.name = card.name
        check_length(card, folder)

    @cached_property
    def model(self) -> OnnxModel:
        """Loaded on first use: a task whose vectors are all in the cache needs no model."""
        model = OnnxModel(self.folder, threads=self.options.threads, device=self.options.device)
        lower_first(model.tokenizer.backend, self.folder)
        return model

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return {
            "backend": backend_of(find_onnx(self.folder), self.options.device),
            **onnx_hashes(find_onnx(self.folder)),
            "tokenizer": file_hash(self.folder / "tokenizer.json"),
            "pooling": self.pooling,
            "normalize": self.card.normalize,
            "max_length": self.max_length(side),
            "dtype": "model",
            **text_facts(self.folder),
            **length_facts(self.card),
        }

    def max_length(self, side: Side) -> int:
        """Where texts are cut, in tokens."""
        return self.card.length(side)

    @property
    def pooling(self) -> str:
        """How token states become one vector."""
        return self.card.pooling

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """A model that takes one text at a time lets workers share texts as they like."""
        return by_length(texts, free=scales_batches(find_onnx(self.folder)))

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time."""
        model = self.model
        return stream_batches(
            self,
            texts,
            side,
            instruction,
            budget=self.options.batch_tokens or BATCH_TOKENS,
            most=1 if model.per_text else 64,
            workers=model.workers,
        )

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        """Token ids of each text."""
        return self.model.tokenizer.tokenize([instruction + t for t in texts], self.max_length(side))

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """One vector per list of token ids."""
        del side, instruction, worker
        hidden, mask = self.model.hidden(batch, first=self.pooling == "cls")
        if hidden.ndim == 3 and self.card.projection:
            raise ModelError(
                f"{self.name}: its ONNX file ends before the projection {self.card.projection}: use its safetensors"
            )
        pooled = hidden if hidden.ndim == 2 else pool(hidden, mask, self.pooling)
        return shortened(normalized(pooled) if self.card.normalize else pooled, self.card)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed."""
        return isinstance(error, MemoryError) or "allocate memory" in str(error)


class OnnxTokenEncoder(OnnxEncoder):
    """Token vectors from an ONNX file."""

    pooling = "tokens"

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """A model that takes one text at a time lets workers share texts as they like."""
        return by_length(texts, TOKEN_WINDOW, free=super().work_order(texts).free)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        check_room(self.tokenize([""], side, instruction)[0], self.max_length(side), self.name)
        model = self.model

        def work(job: Job[Tokens], worker: int) -> TokenBatch:
            del worker
            hidden, _ = model.hidden([t.ids for t in job.items])
            return token_batch(job, hidden, [slice(len(t.ids)) for t in job.items], texts, self.name)

        def tokenize(window: Int64) -> list[Tokens]:
            return self.tokenize([texts[i] for i in window.tolist()], side, instruction)

        budget, most = self.options.batch_tokens or BATCH_TOKENS, 1 if model.per_text else 64
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=most, workers=model.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        name = self.model.tokenizer.backend.id_to_token
        return [[str(name(i)) for i in tokens.ids] for tokens in self.tokenize(list(texts), side, instruction)]


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


def providers(device: str | None, available: Sequence[str]) -> list[str | tuple[str, dict[str, int]]]:
    """What runs a session: the GPU that is asked for or the first, where ONNX Runtime can use one; else the CPU."""
    kind, _, number = (device or "cuda").split(",")[0].partition(":")
    if kind == "cuda" and CUDA not in available and device:
        warnings.warn(
            f"--device {device}: ONNX Runtime has no GPU here, so its models run on the CPU "
            "(pip install onnxruntime-gpu)", stacklevel=2,
        )  # fmt: skip
    if kind != "cuda" or CUDA not in available:
        return [CPU]
    return [(CUDA, {"device_id": int(number or 0)}), CPU]


def native_model(path: Path, device: str | None) -> Bert | None:
    """What our own C computes of a file: nothing where another device is asked for or the graph is another one."""
    return recognized(path) if device is None or device.startswith("cpu") else None


def backend_of(path: Path, device: str | None) -> str:
    """What computes the vectors of a file, as results and cache keys call it."""
    return "onnx" if native_model(path, device) is None else BACKEND


def find_onnx(folder: Path) -> Path:
    """The model file: `model.onnx` in the folder or its `onnx` folder."""
    for candidate in ("model.onnx", "onnx/model.onnx"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise ModelError(f"{folder} holds no model.onnx")


def onnx_hashes(path: Path) -> dict[str, object]:
    """Hashes of a graph and of the files beside it that hold its weights, where they are too large for the graph."""
    beside = {*path.parent.glob(f"{path.name}?*"), *path.parent.glob(f"{path.stem}*.data")}
    external = {file.name: file_hash(file) for file in sorted(beside) if file.is_file()}
    return {"file": file_hash(path), **({"external": external} if external else {})}


def scales_batches(path: Path) -> bool:
    """Whether the graph quantizes activations on the fly, one scale for the whole batch."""
    needle, step, tail = b"DynamicQuantizeLinear", 1 << 22, b""
    with path.open("rb") as stream:
        while chunk := stream.read(step):
            if needle in tail + chunk:
                return True
            tail = chunk[-len(needle) :]
    return False
