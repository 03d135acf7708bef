"""Loading a model folder with transformers: only from disk, only safetensors, no foreign code, unless asked."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...core import MissingExtra, ModelError
from .devices import torch_dtype
from .onnx import first_line

if TYPE_CHECKING:
    from ...models import Card
    from .load import Options


def check_folder(folder: Path, card: Card, options: Options) -> None:
    """What can be refused without loading anything."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        raise ModelError(f"{folder}: no config.json, so not a model folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder}/config.json cannot be read ({error})") from None
    if card.remote_code and not options.trust_remote_code:
        raise ModelError(f"{card.name} runs Python code of its own from {card.source}: allow it with trust_remote_code")
    if not any(folder.glob("*.safetensors")) and not options.allow_pickle:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise ModelError(
                f"{folder} has only pickled weights, which can run code: allow them with {card.name}:allow_pickle=yes"
            )
        raise ModelError(f"{folder} has no weights (*.safetensors)")
    places = config.get("max_position_embeddings")
    longest = max(card.query_length, card.document_length)
    # Learned positions end where their table ends; rotary ones are defined beyond, if untrained.
    if card.architecture == "bert" and isinstance(places, int) and longest > places:
        raise ModelError(f"{card.name} takes at most {places} tokens, not {longest}")


def load_tokenizer(folder: Path, options: Options) -> Any:
    """The tokenizer of a folder."""
    transformers = import_transformers()
    try:
        return transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=options.trust_remote_code, local_files_only=True
        )
    except Exception as error:
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {first_line(error)}") from None


def load_model(card: Card, folder: Path, options: Options, device: str, dtype: str) -> Any:
    """The model of a folder on a device, ready to encode."""
    transformers = import_transformers()
    loader = transformers.T5EncoderModel if card.architecture == "t5-encoder" else transformers.AutoModel
    return load_with(loader, folder, options, device, dtype)


def load_masked_lm(folder: Path, options: Options, device: str, dtype: str) -> Any:
    """The model of a folder with its masked-language head."""
    return load_with(import_transformers().AutoModelForMaskedLM, folder, options, device, dtype)


def load_with(loader: Any, folder: Path, options: Options, device: str, dtype: str, **changes: Any) -> Any:
    """What a class of transformers makes of a folder, on a device, ready to run; pickles only if asked for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = loader.from_pretrained(
                folder,
                dtype=torch_dtype(dtype),
                trust_remote_code=options.trust_remote_code,
                use_safetensors=None if options.allow_pickle else True,
                local_files_only=True,
                **changes,
            )
    except Exception as error:
        raise ModelError(f"the model in {folder} cannot be loaded: {first_line(error)}") from None
    return model.eval().to(device)


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
