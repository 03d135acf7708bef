"""What models in torch stand on: devices and precision, loading from disk (safetensors, no foreign code), pooling."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from ...core import MissingExtra, ModelError, UsageError
from ...core.options import Options, check_devices
from ...core.plugins import first_line
from ...core.untrusted import inside
from ...models import Card
from ...models.locate import HEADS
from ..sparse import available_cores
from . import check_length

if TYPE_CHECKING:
    import torch

AUTOCAST = "float16-autocast"
"""Weights in float32, products in float16 on a GPU: torch's automatic mixed precision."""
DTYPES = ("float32", "float16", "bfloat16", AUTOCAST)
MOST_TOKENS, FEWEST_TOKENS = 1 << 17, 1 << 11
BYTES_PER_TOKEN_AND_UNIT = 64
"""Activations a transformer layer holds at once, in bytes per token and unit of hidden size; generous."""
MODEL_TYPES = {
    "t5-encoder": "t5",
    "gpt-neox": "gpt_neox",
    "gemma3": "gemma3_text",
}
"""What transformers calls a card's architecture, where it is not the same."""
BIDIRECTIONAL = "-bidirectional"
"""Ends the architecture of a decoder that reads in both directions."""


def import_torch() -> Any:
    """torch, or the one-line error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("running this model", "torch") from None
    return torch


def import_transformers() -> Any:
    """The library without its progress bars and advice, which belong to interactive use."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("running this model", "torch") from None
    library: Any = transformers
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def may_have_gpu() -> bool:
    """False where there can be no GPU: importing torch to learn that costs seconds."""
    if "torch" in sys.modules:
        return bool(sys.modules["torch"].cuda.is_available())
    return Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists() or sys.platform == "win32"


def resolve_devices(asked: str | None) -> list[str]:
    """Names of the devices to work on: every visible GPU, or the CPU. `CUDA_VISIBLE_DEVICES` is the user's."""
    if asked is None:
        if not may_have_gpu():
            return ["cpu"]
        count = import_torch().cuda.device_count()
        return [f"cuda:{i}" for i in range(count)] or ["cpu"]
    names = check_devices(asked)
    if names == ["cuda"]:
        count = import_torch().cuda.device_count()
        names = [f"cuda:{i}" for i in range(count)] or ["cuda:0"]
    for name in names:
        if name.startswith("cuda:") and int(name[5:]) >= import_torch().cuda.device_count():
            raise UsageError(f"there is no device {name} here ({import_torch().cuda.device_count()} GPUs are visible)")
    return names


def resolve_dtype(asked: str | None, devices: list[str]) -> str:
    """bfloat16 on GPUs that compute in it, float32 elsewhere, unless asked otherwise."""
    if asked is not None:
        if asked not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {asked!r}")
        return asked
    if not devices[0].startswith("cuda"):
        return "float32"
    return "bfloat16" if import_torch().cuda.is_bf16_supported() else "float16"


def token_budget(device: str, hidden: int) -> int:
    """Tokens per batch: a third of what is free on a GPU, little on a CPU, where large batches only leave its cache."""
    if not device.startswith("cuda"):
        return 4096
    free, _ = import_torch().cuda.mem_get_info(device)
    return int(min(max(free / 3 / (BYTES_PER_TOKEN_AND_UNIT * hidden), FEWEST_TOKENS), MOST_TOKENS))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the CPU's allocator, ran out; what it still holds is given back."""
    torch = sys.modules.get("torch")
    if torch is None:
        return isinstance(error, MemoryError)
    if isinstance(error, torch.OutOfMemoryError):
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return True
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def use_all_cores(threads: int | None) -> None:
    """As many threads as this process has cores: torch counts those of the machine."""
    torch: Any = import_torch()
    wanted = threads or available_cores()
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of that name."""
    made: torch.dtype = getattr(import_torch(), "float32" if name == AUTOCAST else name)
    return made


def mixed_precision(dtype: str, device: str) -> AbstractContextManager[object]:
    """Torch's automatic mixed precision where the dtype asks for it and the device is a GPU."""
    if dtype != AUTOCAST or not device.startswith("cuda"):
        return nullcontext()
    return cast(AbstractContextManager[object], import_torch().autocast("cuda", dtype=import_torch().float16))


def check_folder(folder: Path, card: Card, options: Options) -> None:
    """What can be refused without loading anything."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json, so not a model folder")
    if card.remote_code and not options.trust_remote_code:
        raise ModelError(f"{card.name} runs Python code of its own from {card.source}: allow it with trust_remote_code")
    if not any(folder.glob("*.safetensors")) and not options.allow_pickle:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise ModelError(pickled_only(folder, card.name))
        raise ModelError(f"{folder} has no weights (*.safetensors)")
    check_length(card, folder)


def pickled_only(folder: Path, name: str) -> str:
    """The error for weights that are published as pickles."""
    return (
        f"{folder} has only pickled weights, which can run code: "
        f"allow them with --allow-pickle, or in a spec, {name}:allow_pickle=yes"
    )


def stated_config(folder: Path, architecture: str) -> dict[str, Any]:
    """`config`, for a folder whose config.json says no `model_type`, as monoBERT's: built from the card's architecture.

    Empty where transformers finds its way by itself.
    """
    path = folder / "config.json"
    facts = msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) if path.is_file() else {}
    if not facts or "model_type" in facts or "auto_map" in facts:
        return {}
    kind = MODEL_TYPES.get(architecture, architecture.removesuffix(BIDIRECTIONAL))
    try:
        return {"config": import_transformers().AutoConfig.for_model(kind, **facts)}
    except (ValueError, TypeError) as error:
        raise ModelError(f"{folder}/config.json has no model_type, and as {kind}: {first_line(error)}") from None


def load_tokenizer(folder: Path, options: Options, architecture: str) -> Any:
    """The tokenizer of a folder."""
    transformers = import_transformers()
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(
            folder,
            trust_remote_code=options.trust_remote_code,
            local_files_only=True,
            **stated_config(folder, architecture),
        )
        return _as_published(loaded, folder / "tokenizer.json")
    except Exception as error:
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {first_line(error)}") from None


def _as_published(loaded: Any, path: Path) -> Any:
    """A tokenizer that splits text as its file says.

    transformers 5 rebuilds those of Llama, T5 and others by rules of its own, which differ from the file that the
    model was published with, and that transformers 4 read: on a text that begins with a space, for one.
    """
    if not path.is_file() or getattr(loaded, "backend_tokenizer", None) is None:
        return loaded
    from tokenizers import Tokenizer

    whole = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    if whole.get("model", {}).get("type") not in ("BPE", "Unigram"):
        return loaded  # BERT's settings stand in tokenizer_config.json
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    kept = {key: whole.get(key) for key in ("version", "normalizer", "pre_tokenizer")}
    splitting = Tokenizer.from_str(msgspec.json.encode({**kept, "model": empty}).decode())
    loaded.backend_tokenizer.normalizer = splitting.normalizer
    loaded.backend_tokenizer.pre_tokenizer = splitting.pre_tokenizer
    return loaded


def load_model(card: Card, folder: Path, options: Options, device: str, dtype: str) -> Any:
    """The model of a folder on a device, ready to encode."""
    transformers = import_transformers()
    loader = transformers.T5EncoderModel if card.architecture == "t5-encoder" else transformers.AutoModel
    stated = stated_config(folder, card.architecture)
    # Vectors are pooled from token states as the card says: the model's own pooler is not read, and often not saved.
    return load_with(loader, folder, options, device, dtype, elsewhere=("pooler.",), **stated)


def load_masked_lm(folder: Path, options: Options, device: str, dtype: str) -> Any:
    """The model of a folder with its masked-language head."""
    return load_with(import_transformers().AutoModelForMaskedLM, folder, options, device, dtype)


def load_with(
    loader: Any,
    folder: Path,
    options: Options,
    device: str,
    dtype: str,
    *,
    elsewhere: Iterable[str] = (),
    **changes: Any,
) -> Any:
    """What a class of transformers makes of a folder, on a device, ready to run; pickles only if asked for.

    `elsewhere` names the beginnings of weights that nobody reads, or that another file brings.
    """
    with loading(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (folder / "adapter_config.json").is_file():
            raise ModelError("an adapter lies beside the weights: merge it into them, or take it away")
        model, report = loader.from_pretrained(
            folder,
            output_loading_info=True,
            dtype=torch_dtype(dtype),
            trust_remote_code=options.trust_remote_code,
            use_safetensors=None if options.allow_pickle else True,
            local_files_only=True,
            **changes,
        )
        check_whole(name for name in report["missing_keys"] if not name.startswith(tuple(elsewhere)))
        return model.eval().to(device)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Whatever goes wrong in a model's files is one line that names the folder."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from None
    except Exception as error:  # torch, safetensors, transformers, peft and JSON each have their own
        raise ModelError(f"the model in {folder} cannot be loaded: {first_line(error)}") from None


def check_whole(missing: Iterable[str]) -> None:
    """Refuse a model without some of its weights: libraries draw them at random, and the scores look like scores."""
    if names := sorted(missing):
        more = f" and {len(names) - 1:,} more" if names[1:] else ""
        raise ModelError(f"the weights lack {names[0]}{more}: this is not the whole model")


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str, skip: int = 0) -> torch.Tensor:
    """Pool in float32. `skip` tokens of instruction are left out of a mean."""
    import torch

    hidden = hidden.float()
    if pooling == "cls":
        # The first attended token: column 0, unless the padding stands on the left.
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.int().argmax(dim=1)]
    if pooling in ("last", "last-eos"):
        places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        return hidden[torch.arange(len(hidden), device=hidden.device), (mask * places).argmax(dim=1)]
    if pooling in ("mean", "mean-after-instruction"):
        if pooling == "mean-after-instruction":
            mask = mask * (mask.cumsum(dim=1) > skip)
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    raise ModelError(f"pooling {pooling!r} is not known to the torch backend")


def load_projections(folder: Path, names: str, device: str) -> torch.nn.Module | None:
    """The linear layers that some sentence-transformers models put behind pooling, one behind the other."""
    import torch

    if not names:
        return None
    layers = [_load_projection(inside(folder, name, "projection"), device) for name in names.split("+")]
    return torch.nn.Sequential(*layers)


def load_head(folder: Path, name: str, device: str) -> torch.nn.Module:
    """The linear layer in a file beside the weights."""
    path = next((p for ending in HEADS if (p := inside(folder, name + ending, "head")).is_file()), None)
    if path is None:
        raise ModelError(f"{folder} holds no {name}.safetensors or {name}.pt: the layer behind the tokens is missing")
    with loading(path):
        state = _read_state(path)
        return _linear(state, bias="bias" in state).float().eval().to(device)


def _load_projection(folder: Path, device: str) -> torch.nn.Module:
    import torch

    with loading(folder):
        if not (folder / "config.json").is_file():
            raise ModelError("no config.json: the projection behind pooling is missing")
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        activation = str(config.get("activation_function", "torch.nn.modules.linear.Identity")).rsplit(".", 1)[-1]
        if config.get("use_residual"):
            raise ModelError("a projection that is added to its input (use_residual) is not run here")
        if activation not in ("Identity", "Tanh", "GELU", "ReLU"):
            raise ModelError(f"activation {activation} is not known")
        path = next((folder / n for n in ("model.safetensors", "pytorch_model.bin") if (folder / n).is_file()), None)
        if path is None:
            raise ModelError("no weights")
        state = {name.removeprefix("linear."): value for name, value in _read_state(path).items()}
        layer = _linear(state, bias=config.get("bias", True))
        return torch.nn.Sequential(layer, getattr(torch.nn, activation)()).float().eval().to(device)


def _linear(state: dict[str, torch.Tensor], *, bias: bool) -> torch.nn.Module:
    import torch

    check_whole({"weight", *(["bias"] if bias else [])} - set(state))
    out, into = state["weight"].shape
    layer = torch.nn.Linear(into, out, bias=bias)
    layer.load_state_dict(state)
    return layer


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file; of a pickle, tensors are read and nothing that could run."""
    import torch

    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def bidirectional(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An attention mask that lets every token see every other: causal models take a 4-d mask as it is.

    It has one row for all tokens that look, so that a long text does not take memory by the square of its length.
    """
    import torch

    allowed = mask.bool()[:, None, None, :]
    blocked = torch.zeros(allowed.shape, dtype=dtype, device=mask.device)
    return blocked.masked_fill(~allowed, torch.finfo(dtype).min)


def to_array(vectors: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """To the CPU as float32."""
    return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)
