"""What can be run and what is here, as functions: models, protocols, experiments that come with r2med, the cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..cache import entries as cache_entries
from ..cache import prune as prune_cache
from ..cache import verify as verify_cache
from ..core import ModelError, UnknownName, UsageError
from ..core.options import Options, parse_size
from ..models import (
    Card,
    Row,
    card_names,
    chat_cards,
    chat_names,
    find_any_card,
    find_chat_card,
    get_card,
    listing,
    locate,
)
from ..models import fetch as fetch_model
from ..models.registry import row

if TYPE_CHECKING:
    from ..doctor import Diagnosis
    from ..llm.serving import ServerName, Start
    from ..models import ChatCard
    from ..pipeline.estimates import Needs
    from ..pipeline.protocol_pack import FetchedPack
    from ..pipeline.quickstart import Collection, Quickstart
    from ..pipeline.recommend import Recommendations

__all__ = [
    "cache_entries",
    "check_installation",
    "describe_model",
    "describe_protocol",
    "fetch_model",
    "fetch_protocol",
    "list_experiments",
    "list_models",
    "list_protocols",
    "model_folder",
    "prune_cache",
    "quickstart",
    "recommend",
    "serve_command",
    "verify_cache",
    "wait_for_server",
]
CARDS = ("dense", "late-interaction", "sparse", "cross-encoder", "chat")


def list_models(kind: str | None = None) -> list[Row]:
    """All models, or those of a kind: whether each is ready here, and the command that gets it."""
    from ..pipeline.system import REGISTRIES

    return listing(kind, REGISTRIES)


def describe_model(name: str) -> dict[str, Any]:
    """One model: where it comes from, how it is run, and how that was proven."""
    without_card = next((found for found in list_models() if found.name == name and found.kind not in CARDS), None)
    card = None if without_card else find_any_card(name)
    shown: dict[str, Any] = msgspec.to_builtins(row(card) if card else without_card)
    if isinstance(card, Card):
        paper = {key: value for key, value in msgspec.to_builtins(card.paper).items() if value}
        shown |= {"settings": card.describe(), "paper": paper}
    return shown


def model_folder(name: str) -> Path:
    """The folder of a model that is on this machine."""
    path = locate(find_any_card(name))
    if path is None:
        raise ModelError(f"{name} is not on this machine: r2med models fetch {name}")
    return path


def serve_command(
    name: str,
    server: ServerName = "vllm",
    *,
    gpus: int = 1,
    gpu_memory: int | None = None,
    context: int | None = None,
) -> Start:
    """The command that serves a chat model's weights, and the GPU memory it takes; nothing is started.

    `name` may also be a method of reranking: of the models trained for it, the largest that fits is served, or the
    smallest where no memory is given.
    """
    from ..llm.serving import start_of

    sizes = [card for card in chat_cards() if card.served and card.reranker == name] or [_chat_card(name)]
    sizes.sort(key=lambda card: card.parameters or 0)
    if gpu_memory is None:
        del sizes[1:]
    while len(sizes) > 1:
        with suppress(UsageError):  # too large: the next smaller one may fit
            return start_of(sizes.pop(), server, gpus=gpus, gpu_memory=gpu_memory, context=context)
    return start_of(sizes[0], server, gpus=gpus, gpu_memory=gpu_memory, context=context)


def wait_for_server(name: str, url: str, seconds: float = 600.0) -> str:
    """Wait until the server at a URL lists a chat model: what it calls the model."""
    from ..llm.serving import wait_for

    return wait_for(url, _chat_card(name), seconds)


def use_of(name: str) -> str:
    """The command that runs with a served chat model: the method it was trained for, where there is one."""
    from ..rerank import rerankers

    card = _chat_card(name)
    if not card.reranker:
        return f"r2med run --tasks mini --expand hyde:{card.name}"
    method = card.reranker if card.reranker in rerankers.names() else "reasoning"
    return f"r2med run --tasks mini --rerank {method}:{card.name}@100"


def _chat_card(name: str) -> ChatCard:
    card = find_chat_card(name)
    if card is not None:
        return card
    if name in card_names():
        raise UsageError(
            f"{name} is a {get_card(name).kind} model, which r2med runs itself: only chat models are served"
        )
    raise UnknownName("chat model", name, chat_names(), hint="(r2med models --kind chat lists them)")


def describe_protocol(name: str) -> dict[str, object]:
    """All that a protocol sets, and whether its instructions are on this machine; `name` may be a file."""
    from ..pipeline.protocol_pack import described
    from ..results.protocols import read_protocol

    return described(read_protocol(name))


def fetch_protocol(name: str, folder: Path | None = None) -> FetchedPack:
    """Read a protocol's instructions and prompts from their repository, or a clone of it, into R2MED_HOME."""
    from ..pipeline.protocol_pack import fetch_pack
    from ..results.protocols import read_protocol

    return fetch_pack(read_protocol(name), folder)


def list_protocols() -> list[dict[str, Any]]:
    """The protocols: what each is, the hash of its settings, and whether its prompt pack is here."""
    from ..pipeline.protocol_pack import listing as of_protocols

    return of_protocols()


class ShippedExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment that comes with r2med: `r2med run @NAME`."""

    name: str
    title: str
    published: float  # The average over R2MED's eight tasks that its source states, × 100.
    source: str
    url: str
    tasks: list[str]
    systems: list[str]
    needs: list[Needs]  # Of each system, estimated for R2MED.
    differs: list[str]  # How it differs from what was published.
    missing: str  # Which part this r2med lacks; empty where it has all.

    @property
    def ready(self) -> bool:
        """Whether this r2med has all its parts."""
        return not self.missing


def list_experiments(*names: str) -> list[ShippedExperiment]:
    """The experiments that come with r2med, or those named: what they run, need and would cost on R2MED."""
    from ..pipeline.estimates import needs
    from ..pipeline.experiment import get_shipped, shipped
    from ..results.ledger import ledger

    found = []
    urls = {source.id: source.url for source in ledger().sources}
    for name in names or shipped():
        file = get_shipped(name)
        about, specs = file.about, [table.spec for table in file.system]
        missing = ""
        try:
            file.systems()
        except UsageError as error:
            missing = str(error)
        estimated = [needs(spec) for spec in specs]
        found.append(
            ShippedExperiment(
                name=name, title=about.title, published=about.published, source=about.source, url=urls[about.source],
                tasks=file.tasks, systems=specs, needs=estimated, differs=about.differs, missing=missing,
            )
        )  # fmt: skip
    return found


def recommend(
    *,
    gpu_memory: int | str = 0,
    dollars: float = 0.0,
    seconds_per_query: float | None = None,
    gpu_speed: float = 1.0,
    everything: bool = False,
) -> Recommendations:
    """The pipelines that fit a budget and that no cheaper one beats, best first, with commands.

    `gpu_memory` is in bytes or as `24GB`, `dollars` what services may cost for R2MED once. Scores are published ones,
    costs are estimates, and each says where it comes from. `gpu_speed` is the GPU's share of an H200's speed;
    `everything` keeps what fits but is not on the Pareto front.
    """
    from ..pipeline.recommend import recommend as within

    memory = parse_size(gpu_memory, least=0) if isinstance(gpu_memory, str) else gpu_memory
    return within(
        gpu_memory=memory,
        dollars=dollars,
        seconds_per_query=seconds_per_query,
        gpu_speed=gpu_speed,
        everything=everything,
    )


def quickstart(
    collection: Collection = "r2med",
    *,
    dense: str = "auto",
    gpu_memory: int | str | None = None,
    results: str | Path = "results",
    dry_run: bool = False,
    options: Options | None = None,
    looked: Callable[[Quickstart], None] = lambda found: None,
    notify: Callable[[str, str], None] = lambda name, what: None,
) -> Quickstart:
    """From nothing to the published row beside ours: check, download, run BM25 and a dense model, compare.

    `dense` is a model, `none`, or `auto` for the best published one that fits the GPU here, the embedded one where
    there is none. `looked` is called with the checks and the plan before anything is done. Where a check fails, nothing
    is begun; with `dry_run` nothing ever is. A task that cannot be downloaded has an error and the others are run.
    """
    from ..doctor.here import gpu_memory as largest_gpu
    from ..pipeline.quickstart import carry_out, look

    memory = largest_gpu() if gpu_memory is None else gpu_memory
    size = parse_size(memory, least=0) if isinstance(memory, str) else memory
    found = look(collection, dense=dense, gpu_memory=size, results=Path(results))
    looked(found)
    if found.ready and not dry_run:
        carry_out(found, results=Path(results), options=options, notify=notify)
    return found


def check_installation(results: Path = Path("results")) -> Diagnosis:
    """What is installed on this machine, what works and what is ready to run; changes nothing."""
    from ..doctor import diagnose

    return diagnose(results)
