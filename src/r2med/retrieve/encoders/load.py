"""From a card, an object or an address to an encoder. Nothing is loaded yet: only found."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from ...core import ModelError, UsageError
from ...core.budget import Budget
from ...core.places import home
from ...models import Card, verified
from .protocol import Encoder


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may say about how a model is run; a backend reads what concerns it."""

    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`, `cuda:0,cuda:1`; None: every GPU there is, else the CPU."""
    dtype: str | None = None
    """Precision of a torch model; None: bfloat16 on a GPU that has it, else float32."""
    batch_tokens: int | None = None
    threads: int | None = None
    max_length: int | None = None
    """Where both sides are cut, instead of the card's lengths."""
    trust_remote_code: bool = False
    allow_pickle: bool = False
    base_url: str | None = None
    concurrency: int = 8
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout: float = 60.0
    max_attempts: int = 6
    max_cost: float | None = None
    """Dollars an API may take, where no `budget` is given."""
    budget: Budget | None = None
    """Shared by everything a command may spend on."""


def make_options(**given: object) -> Options:
    """Options by name; one that does not exist is a mistake of the user's."""
    known = {f.name for f in fields(Options)}
    if unknown := sorted(set(given) - known):
        raise UsageError(f"unknown option {unknown[0]!r} for a dense retriever; there are {', '.join(sorted(known))}")
    options = Options(**given)  # type: ignore[arg-type]
    for name in ("batch_tokens", "threads", "max_length", "requests_per_minute", "tokens_per_minute"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} must be 1 or more, not {value}")
    if options.concurrency < 1 or options.max_attempts < 1 or options.timeout <= 0:
        raise UsageError("concurrency, max_attempts and timeout must be above zero")
    return options


def as_encoder(
    model: object, *, folder: Path | None = None, document_folder: Path | None = None, **given: object
) -> tuple[Encoder, Card | None]:
    """The encoder behind whatever was given, and its card where it has one."""
    options = make_options(**given)
    if isinstance(model, Card):
        card: Card = model
        if options.max_length is not None:
            card = card.replace(query_length=options.max_length, document_length=options.max_length)
        return load_encoder(card, options, folder, document_folder), card
    if isinstance(model, Encoder):
        return model, None
    from .custom import CustomEncoder, resolve

    return CustomEncoder(resolve(model) if isinstance(model, str) else model), None


def load_encoder(
    card: Card, options: Options, folder: Path | None = None, document_folder: Path | None = None
) -> Encoder:
    """The encoder of a card, from the folder its files lie in; by default where `r2med models fetch` puts them."""
    if card.kind != "dense":
        raise UsageError(f"{card.name} is a {card.kind} model, not a dense retriever")
    if card.is_api:
        from .api import ApiEncoder

        return ApiEncoder(card, options)
    folder = model_folder(card, folder)
    if card.backend == "onnx":
        return _onnx(card, folder, options)
    if card.document_source:
        document_folder = model_folder(card, document_folder, "document")
    if card.pooling == "latent-attention":
        from .remote import RemoteCodeEncoder

        return RemoteCodeEncoder(card, folder, options, document_folder=document_folder)
    from .torch_encoder import TorchEncoder

    return TorchEncoder(card, folder, options, document_folder=document_folder)


def model_folder(card: Card, folder: Path | None = None, part: str = "") -> Path:
    """Where a card's files lie; an error that says how to get them if they do not."""
    found = folder if folder is not None else home() / "models" / card.name.replace("/", "--") / part
    if not found.is_dir():
        raise ModelError(f"{card.name} is not on this machine: r2med models fetch {card.name}")
    return verified(card, found)


def _onnx(card: Card, folder: Path, options: Options) -> Encoder:
    from .onnx import OnnxEncoder

    return OnnxEncoder(
        folder,
        name=card.name,
        pooling=card.pooling,
        normalize=card.normalize,
        query_length=card.query_length,
        document_length=card.document_length,
        threads=options.threads,
        batch_tokens=options.batch_tokens or 4096,
    )
