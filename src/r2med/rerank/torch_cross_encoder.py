"""Cross-encoders in transformers: any sequence classifier, and adapters such as RankLLaMA's merged into their base."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..core import MissingExtra, ModelError
from ..core.options import Options
from ..models import Card
from ..models.locate import folder_hashes
from ..retrieve.encoders.batching import pad
from ..retrieve.encoders.torch_models import (
    check_folder,
    check_whole,
    import_torch,
    import_transformers,
    is_out_of_memory,
    load_tokenizer,
    load_with,
    loading,
    mixed_precision,
    pickled_only,
    resolve_devices,
    resolve_dtype,
    stated_config,
    token_budget,
)
from ..retrieve.sparse import available_cores
from .contract import Float32
from .cross_encoder import CrossEncoder, PairIds, PairTokenizer, pick_logit
from .pointwise import Pairs, Scored

CPU_BATCH_TOKENS = 2048
"""Small batches stay in a core's cache."""
ADAPTED = "base_model.model."
"""Before the names of a base model's parts in the weights of an adapter."""


class TorchCrossEncoder(CrossEncoder):
    """One classifier on as many devices as there are; on a CPU every core works on batches of its own."""

    def __init__(
        self,
        card: Card,
        folder: Path,
        options: Options | None = None,
        *,
        base: Path | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(card, options)
        self.folder, self.base = folder, base
        check_folder(base or folder, card, self.options)
        self.devices = resolve_devices(self.options.device)
        self.dtype = resolve_dtype(dtype, self.devices)
        self.on_gpu = self.devices[0].startswith("cuda")
        self._models: dict[str, Any] = {}
        self._lock = threading.Lock()

    def describe(self) -> dict[str, object]:
        """Everything besides the texts and the maximum length that changes a score."""
        return {
            "backend": "transformers",
            "files": folder_hashes(self.folder),
            **({"base": folder_hashes(self.base)} if self.base else {}),
            **self.facts(),
            "dtype": self.dtype,
        }

    @cached_property
    def hub_tokenizer(self) -> Any:
        """The tokenizer of transformers, the base model's where an adapter has none."""
        own = (self.folder / "tokenizer_config.json").is_file() or (self.folder / "tokenizer.json").is_file()
        folder = self.folder if own or self.base is None else self.base
        return load_tokenizer(folder, self.options, self.card.architecture)

    @cached_property
    def tokenizer(self) -> PairTokenizer:
        """Loaded on first use."""
        backend = getattr(self.hub_tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(f"{self.name} has no fast tokenizer (tokenizer.json), which pairs are made with")
        return PairTokenizer(backend, self.max_length(), self.name, self.card.truncation)

    @property
    def pad_id(self) -> int:
        """What batches are filled up with; the mask hides it."""
        found = self.hub_tokenizer.pad_token_id
        return int(found if found is not None else self.hub_tokenizer.eos_token_id or 0)

    def model(self, device: str) -> Any:
        """The classifier on a device, loaded on first use, one after the other."""
        with self._lock:
            if device not in self._models:
                self._models[device] = self.load(device)
            return self._models[device]

    def load(self, device: str) -> Any:
        """The classifier, read from its files."""
        if self.base is not None:
            return load_adapted(self.name, self.folder, self.base, self.options, device, self.dtype)
        stated = stated_config(self.folder, self.card.architecture)
        return load_classifier(self.folder, self.options, device, self.dtype, **stated)

    def batching(self) -> tuple[int, int, int]:
        """On a GPU two threads take turns, so that one prepares while the other computes."""
        if not self.on_gpu:
            cores = self.options.threads or available_cores()
            return self.options.batch_tokens or CPU_BATCH_TOKENS, 64, cores
        hidden = int(getattr(self.model(self.devices[0]).config, "hidden_size", 1024))
        return self.options.batch_tokens or token_budget(self.devices[0], hidden), 2048, 2 * len(self.devices)

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Score all pairs, a batch at a time."""
        if self.on_gpu:
            yield from super().stream(pairs, names)
            return
        torch: Any = import_torch()
        threads = torch.get_num_threads()
        try:
            yield from super().stream(pairs, names)
        finally:
            torch.set_num_threads(threads)  # what workers set is also the default of threads to come

    def forward(self, batch: list[PairIds], worker: int) -> Float32:
        """One score per pair."""
        torch, device, model = self.on_device(worker)
        multiple = 8 if self.on_gpu else 1
        ids, mask = pad([item.ids for item in batch], self.pad_id, multiple=multiple)
        arrays = {"input_ids": ids, "attention_mask": mask}
        if (getattr(model.config, "type_vocab_size", 0) or 0) > 1:
            arrays["token_type_ids"] = pad([item.types for item in batch], 0, multiple=multiple)[0]
        with torch.inference_mode(), mixed_precision(self.dtype, device):
            logits = _logits(model, {k: torch.from_numpy(a).to(device) for k, a in arrays.items()}, torch)
            output: Float32 = np.asarray(logits.float().cpu().numpy(), dtype=np.float32)
        return pick_logit(output, self.card.logit, self.name)

    def on_device(self, worker: int) -> tuple[Any, str, Any]:
        """torch, the device of a worker, and the model on it."""
        torch: Any = import_torch()
        if not self.on_gpu and torch.get_num_threads() != 1:
            torch.set_num_threads(1)  # a setting of the calling thread: the cores are busy with one batch each
        device = self.devices[worker % len(self.devices)]
        return torch, device, self.model(device)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed."""
        return is_out_of_memory(error)


def _logits(model: Any, inputs: dict[str, Any], torch: Any) -> Any:
    """Outputs of the classification head.

    A decoder's head reads the last token. transformers finds that token by looking for padding ids, which a text that
    ends in the same id would mislead, and applies the head to every token first; the mask says it exactly.
    """
    head, body = getattr(model, "score", None), getattr(model, model.base_model_prefix, None)
    if head is None or body is None or not isinstance(head, torch.nn.Linear):
        return model(**inputs).logits
    hidden = body(**inputs).last_hidden_state
    last = inputs["attention_mask"].sum(dim=1) - 1
    return head(hidden[torch.arange(len(last), device=hidden.device), last])


def load_classifier(folder: Path, options: Options, device: str, dtype: str, **changes: Any) -> Any:
    """A sequence classifier on a device, ready to score."""
    loader = import_transformers().AutoModelForSequenceClassification
    return first_token_only(load_with(loader, folder, options, device, dtype, **changes))


def first_token_only(model: Any) -> Any:
    """Let the last layer of BERT and its kin work on the first token alone: the head reads no other.

    After attention nothing mixes tokens any more, so three quarters of that layer are done for one token instead of
    all of them, and the score is the same.
    """
    if model.config.model_type not in ("bert", "xlm-roberta", "roberta", "electra", "camembert"):
        return model
    body = getattr(model, model.base_model_prefix, None)
    try:
        after_attention = body.encoder.layer[-1].attention.output  # type: ignore[union-attr]
    except (AttributeError, IndexError):
        return model
    after_attention.register_forward_pre_hook(lambda _, given: tuple(states[:, :1] for states in given))
    return model


def load_adapted(name: str, adapter: Path, base: Path, options: Options, device: str, dtype: str) -> Any:
    """A base model with an adapter merged into its weights, one score per pair."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
        from peft.utils import load_peft_weights
    except ImportError:
        raise MissingExtra("merging an adapter", "torch") from None
    if not (adapter / "adapter_config.json").is_file():
        raise ModelError(f"{adapter}: no adapter_config.json, so not an adapter")
    if not (adapter / "adapter_model.safetensors").is_file() and not options.allow_pickle:
        pickled = (adapter / "adapter_model.bin").is_file()
        raise ModelError(pickled_only(adapter, name) if pickled else f"{adapter}: no weights")
    with loading(adapter):
        brought = set(load_peft_weights(str(adapter), device="cpu"))
    # A base that was trained to write has no head for scores: the adapter brings it.
    heads = [name.removeprefix(ADAPTED) for name in brought]
    model = load_classifier(base, options, "cpu", dtype, num_labels=1, elsewhere=heads)
    with loading(adapter), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = PeftModel.from_pretrained(model, str(adapter), local_files_only=True)
        check_whole(set(get_peft_model_state_dict(adapted)) - brought)
        return adapted.merge_and_unload().eval().to(device)
