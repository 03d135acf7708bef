"""Cards for models without one: a folder describes itself, a hub id does once it is in the cache.

Read are transformers' config.json and the files of sentence-transformers.
"""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core import ModelError, fingerprint
from ..core.untrusted import inside
from .card import Card, Interaction
from .locate import complete, folder_hashes, own_folder, snapshot
from .prompts import Instructions

DECODERS = {"mistral", "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt_neox", "phi3", "opt"}
ARCHITECTURES = {"t5": "t5-encoder", "gpt_neox": "gpt-neox", "gemma3_text": "gemma3", "nvembed": "nv-embed"}
POOLING = {"cls": "cls", "mean": "mean", "lasttoken": "last", "last": "last"}
ORDER = re.compile(r"Transformer Pooling(?: Dense| Dropout)*(?: Normalize)*")
# Steps of a dense model that are run here; dropout does nothing outside training.
LATE_ORDER = re.compile(r"Transformer(?: Dense)+")
# Those of late interaction, as PyLate lists them.
LATE_LENGTHS = {"query_length": 32, "document_length": 180}
# What PyLate takes where a model's files state no lengths.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
ROBERTA = ("roberta", "xlm-roberta", "camembert", "mpnet")
UNLIMITED = 1 << 20
# Tokenizers without a limit say 1e30.


class Steps(NamedTuple):
    """What happens to the states of the tokens."""

    pooling: str
    projection: str
    normalize: bool


def folder_card(path: str | Path) -> Card:
    """A card from a model folder's own configuration; its revision is a hash of the content."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json, so not a model folder")
    whole = str(folder.resolve())
    return Card(
        name=str(path),
        source=whole,
        folder=whole,
        revision=f"local-{fingerprint('model-folder', folder_hashes(folder))}",
        licence="unknown",
        **derive(folder),
    )


def generic_card(spec: str) -> Card:
    """A card for `org/name` or `org/name@revision`; generic until the model has been fetched."""
    source, _, revision = spec.partition("@")
    facts: dict[str, Any] = {"name": spec, "source": source, "revision": revision or "main", "licence": "unknown"}
    stub = Card(
        **facts,
        kind="dense",
        summary=f"{source} from the hub; how it pools is known once it is fetched",
        backend="transformers",
        architecture="unknown",
        pooling="mean",
        query_length=512,
        document_length=512,
        dtype="float32",
    )
    own, cached = own_folder(stub), snapshot(source, stub.revision)
    for folder in (own, cached):
        if folder and complete(folder) and (folder / "config.json").is_file():
            if folder == cached:
                facts["revision"] = folder.name  # a branch moves, the commit that was loaded does not
            return Card(**facts, **derive(folder))
    return stub


def derive(folder: Path) -> dict[str, Any]:
    """Card fields read from the files of a model folder."""
    config = read_config(folder)
    modules = _modules(folder)
    model_type = str(config.get("model_type", "unknown"))
    kind = _kind(config, modules)
    native = model_type == "nvembed"  # built here, whatever code lies beside the weights
    steps = Steps("latent-attention", "", True) if native else _after(folder, modules, model_type, kind)
    length = _length(folder, config)
    late = _interaction(folder, length) if kind == "late-interaction" else {}
    return {
        "kind": kind,
        "summary": f"{model_type} model, described by its own files",
        "note": "" if modules or kind != "dense" or native else f"its files state no pooling: {steps.pooling} is taken",
        "backend": _backend(folder),
        "architecture": _architecture(config, model_type),
        **steps._asdict(),
        "query_length": length,
        "document_length": length,
        "dtype": str(config.get("dtype") or config.get("torch_dtype") or "float32"),
        "dimension": _dimension(folder, config, steps.projection) if kind in ("dense", "late-interaction") else None,
        "remote_code": bool(config.get("auto_map")) and not native,
        **_prompts(folder, kind),
        **late,
    }


def stated(folder: Path, kind: str) -> dict[str, Any]:
    """What a card leaves to the model's own files: how it pools, or which tokens count in late interaction."""
    if not (modules := _modules(folder)):
        raise ModelError(f"{folder} has no modules.json, so it does not say how it pools")
    late = {"interaction": _interaction(folder, UNLIMITED)["interaction"]} if kind == "late-interaction" else {}
    return {**_after(folder, modules, "", kind)._asdict(), **late}


def _interaction(folder: Path, most: int) -> dict[str, Any]:
    """Which tokens count in late interaction, and lengths, as PyLate saves them; `most` is what the model can read."""
    path = folder / "config_sentence_transformers.json"
    config = _optional(path)
    if not {"query_prefix", "document_prefix"} <= config.keys():
        raise ModelError(f"{path} names no query_prefix and document_prefix, so which tokens to add is not known")
    expansion = config.get("do_query_expansion") is not False
    words = config.get("skiplist_words")
    lengths = {name: config.get(name) or min(usual, most) for name, usual in LATE_LENGTHS.items()}
    if not all(isinstance(length, int) and length > 0 for length in lengths.values()):
        raise ModelError(f"{path}: query_length and document_length must be whole numbers above 0")
    return {
        **lengths,
        "interaction": Interaction(
            query_marker=str(config["query_prefix"] or ""),
            document_marker=str(config["document_prefix"] or ""),
            expansion=expansion,
            expansion_seen=expansion and bool(config.get("attend_to_expansion_tokens")),
            skipped=list(string.punctuation if words is None else map(str, words)),
        ),
    }


def _architecture(config: dict[str, Any], model_type: str) -> str:
    name = ARCHITECTURES.get(model_type, model_type.replace("_", "-"))
    both_ways = config.get("is_causal") is False and model_type in ("mistral", "llama", "qwen2", "qwen3")
    return f"{name}-bidirectional" if both_ways else name


def read_config(folder: Path) -> dict[str, Any]:
    """What transformers saves of a model beside its weights."""
    return _read(folder / "config.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path}: expected a JSON object")
    return data


def _optional(path: Path) -> dict[str, Any]:
    return _read(path) if _is_file(path) else {}


def _is_file(path: Path) -> bool:
    """Whether a file is there; under a name that no file system takes there is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _modules(folder: Path) -> list[tuple[str, str]]:
    """(class name, sub-folder) of each step after tokenising, as sentence-transformers lists them."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        return [(str(m["type"]).rpartition(".")[2], str(m["path"])) for m in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path}: not a list of modules ({error})") from None


def _kind(config: dict[str, Any], modules: list[tuple[str, str]]) -> str:
    if "ForSequenceClassification" in str(config.get("architectures")):
        return "cross-encoder"
    types = [name for name, _ in modules]
    if "SpladePooling" in types:
        return "sparse"
    if types and "Pooling" not in types and "Dense" in types:
        return "late-interaction"  # a projection of every token: PyLate's layout
    return "dense"


def _after(folder: Path, modules: list[tuple[str, str]], model_type: str, kind: str) -> Steps:
    """Pooling, projection and normalisation. Without a list: the mean, or the last token of a decoder."""
    dense = [path for name, path in modules if name == "Dense"]
    if kind == "cross-encoder":
        return Steps("none", "", False)
    if kind == "sparse":
        return _splade(folder, modules)
    if not modules:
        return Steps("last" if model_type in DECODERS else "mean", "", False)
    names, late = " ".join(name for name, _ in modules), kind == "late-interaction"
    if not (LATE_ORDER if late else ORDER).fullmatch(names):
        runs = "Transformer and Dense" if late else "Transformer, Pooling, Dense and Normalize, in that order"
        raise ModelError(f"{folder / 'modules.json'} lists {names.replace(' ', ', ')}; r2med runs {runs}")
    for path in dense:
        if not _is_file(config := _module(folder, path) / "config.json"):
            what = "of the tokens" if late else "behind pooling"
            raise ModelError(f"{config} is missing, so the projection {what} is not known")
    if late:
        return Steps("tokens", "+".join(dense), True)
    pooling = next(path for name, path in modules if name == "Pooling")
    normalize = any(name == "Normalize" for name, _ in modules)
    return Steps(_pooling(_module(folder, pooling) / "config.json"), "+".join(dense), normalize)


def _splade(folder: Path, modules: list[tuple[str, str]]) -> Steps:
    """A masked-language head whose largest weights count; other ways of pooling are not run."""
    names = ", ".join(name for name, _ in modules)
    if names not in ("Transformer, SpladePooling", "MLMTransformer, SpladePooling"):
        raise ModelError(f"{folder / 'modules.json'} lists {names}; r2med runs Transformer and SpladePooling")
    path = _module(folder, modules[-1][1]) / "config.json"
    config = _optional(path)
    how = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if how != ("max", "relu"):
        raise ModelError(f"{path}: {how[0]} of {how[1]} is not run here, only max of relu")
    return Steps("tokens", "", False)


def _module(folder: Path, path: str) -> Path:
    """The folder of a part of a model, as its list of modules names it; the first one often is the model's own."""
    return inside(folder, path, "module") if path else folder


def _pooling(path: Path) -> str:
    if not _is_file(path):
        raise ModelError(f"{path} is missing, so how the model pools is not known")
    config = _read(path)
    modes = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on is True
    ]
    named = config.get("pooling_mode")
    modes += [str(mode) for mode in named] if isinstance(named, list) else [str(named)] if named else []
    if len(modes) != 1 or modes[0] not in POOLING:
        raise ModelError(f"{path}: pooling {' + '.join(modes) or 'not given'} is not one of cls, mean, lasttoken")
    pooling = POOLING[modes[0]]
    return "mean-after-instruction" if pooling == "mean" and config.get("include_prompt") is False else pooling


def _length(folder: Path, config: dict[str, Any]) -> int:
    """The smallest limit anybody states: sentence-transformers', the tokenizer's, the position table's."""
    stated = [
        _optional(folder / "sentence_bert_config.json").get("max_seq_length"),
        _optional(folder / "tokenizer_config.json").get("model_max_length"),
        positions(config, str(config.get("model_type"))),
    ]
    return min((int(v) for v in stated if isinstance(v, int | float) and 0 < v < UNLIMITED), default=512)


def lower_cases(folder: Path) -> bool:
    """Whether sentence-transformers writes texts in lower case before the model's own tokenizer reads them."""
    return _optional(folder / "sentence_bert_config.json").get("do_lower_case") is True


def cut_at(folder: Path) -> Literal["left", "right"]:
    """The end at which the model's own tokenizer cuts a text that is too long."""
    return "left" if _optional(folder / "tokenizer_config.json").get("truncation_side") == "left" else "right"


def positions(config: dict[str, Any], architecture: str) -> int | None:
    """How many tokens a model has positions for, where it says so; the first two of RoBERTa's table stand for none."""
    places = config.get("max_position_embeddings")
    if not isinstance(places, int):
        return None
    return places - 2 if architecture in ROBERTA else places


def _dimension(folder: Path, config: dict[str, Any], projection: str) -> int | None:
    if projection:
        size = _optional(_module(folder, projection.rsplit("+", maxsplit=1)[-1]) / "config.json").get("out_features")
    else:
        size = config.get("hidden_size") or config.get("d_model") or config.get("n_embd")
    return size if isinstance(size, int) else None


def _backend(folder: Path) -> str:
    onnx = any(folder.glob("*.onnx")) or any(folder.glob("onnx/*.onnx"))
    torch = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    return "onnx" if onnx and not torch else "transformers"


def _prompts(folder: Path, kind: str) -> dict[str, Any]:
    """Prompts the model's authors stored for queries and documents, and the similarity they trained with."""
    config = _optional(folder / "config_sentence_transformers.json")
    stored = config.get("prompts")
    prompts = {k: v for k, v in stored.items() if isinstance(v, str) and v} if isinstance(stored, dict) else {}
    usual = str(config.get("default_prompt_name"))
    query = prompts.get("query") or ("" if usual in DOCUMENT_PROMPTS else prompts.get(usual, ""))
    document = next((prompts[name] for name in DOCUMENT_PROMPTS if name in prompts), "")
    measure = "cosine" if kind == "late-interaction" else config.get("similarity_fn_name") or "cosine"
    if measure not in ("cosine", "dot", "dot_product"):
        raise ModelError(f"{folder / 'config_sentence_transformers.json'}: similarity {measure!r} is not cosine or dot")
    fields: dict[str, Any] = {
        "similarity": "cosine" if measure == "cosine" else "dot",
        "instructions": Instructions({"default": query} if query else {}, {"default": document} if document else {}),
    }
    if query:
        fields["query_template"] = "{instruction}{text}"
    if document:
        fields["document_template"] = "{instruction}{text}"
    return fields
