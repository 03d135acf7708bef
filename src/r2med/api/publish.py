"""Publishing, as functions: results in the browser or as one file, and in the files of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..core import ResultError, UsageError
from ..core.files import write_bytes
from ..integrations.exporting import export_beir, export_trec
from ..integrations.hub import Prepared, Uploaded, prepare, upload
from ..integrations.mteb import Imported, Written, ledger_text, read_mteb
from ..integrations.mteb import export_mteb as export_to_mteb
from ..models.registry import named_card
from ..pipeline.typed import TypedSearch
from ..rerank.cards import MaxSimParameters
from ..rerank.neighbours import NeighboursParameters
from ..results import ResultIndex
from ..results.published_models import ModelFacts, SystemFacts, find_facts, joint_facts
from .results import FOLDER

if TYPE_CHECKING:
    from ..report.web import Site
    from ..report.web.single_file import Written as WrittenReport

USUAL_MODELS = {"maxsim": str(MaxSimParameters.model), "neighbours": str(NeighboursParameters.model)}
"""The models that rerankers take unless told otherwise."""
WITHOUT_WEIGHTS = ("bm25", "rm3", "rocchio", "vector-")
"""How methods begin that have no weights of their own: they work with what the other parts of a system have."""
__all__ = [
    "export_beir",
    "export_hub",
    "export_ledger",
    "export_mteb",
    "export_trec",
    "view",
    "write_report",
]


def open_site(results: Sequence[str | Path], tasks: Sequence[str | Path] = (), *, search: bool = False) -> Site:
    """The pages over folders of results; a folder that was named must be there. With `search`, queries can be tried."""
    from ..report.web import Site

    roots = [Path(root) for root in results]
    for root in roots:
        if not root.is_dir():
            raise ResultError(f"{root}: no such folder of results (r2med run makes one)")
    folders = [Path(folder) for folder in tasks]
    searcher = TypedSearch() if search else None
    return Site(roots or [Path(FOLDER)], task_folders=folders, model_facts=facts_of, search=searcher)


def facts_of(names: Sequence[str]) -> SystemFacts:
    """What cards, or else the published facts, say about all models of a system; methods without weights are none."""
    weighty = (name for name in names if not name.startswith(WITHOUT_WEIGHTS))
    models = tuple(dict.fromkeys(USUAL_MODELS.get(name, name) for name in weighty))
    return joint_facts(models, list(map(_facts, models)))


def _facts(name: str) -> ModelFacts | None:
    card = named_card(name)
    if card is None:
        return find_facts(name)
    return ModelFacts(parameters=card.parameters, licence=card.licence, released=card.released, source=card.name)


def view(
    *results: str | Path, tasks: Sequence[str | Path] = (), port: int | None = None, host: str = "",
    allowed: Iterable[str] = (), browser: bool = True, announce: Callable[[str], None] = lambda where: None,
) -> None:  # fmt: skip
    """Show results in the browser until interrupted.

    `tasks` are folders whose texts may be shown; `host` listens elsewhere than on loopback, under the names `allowed`.
    Queries can be tried on loopback only.
    """
    from ..report.web.app import LOOPBACK, create_app
    from ..report.web.server import serve, warm_up

    # What others type would travel to this machine and be searched at its expense.
    site = open_site(results, tasks, search=host in ("", "::1", *LOOPBACK))
    application = create_app(site, host=host, allowed=allowed)
    serve(application, host=host, port=port, browser=browser, announce=announce, warm=lambda: warm_up(site))


def write_report(
    target: str | Path, *results: str | Path, tasks: Sequence[str | Path] = (), max_bytes: int = 24_000_000
) -> WrittenReport:
    """Write what `view` shows as one HTML file that needs no network."""
    if Path(target).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{target}: a report is a web page, and its name ends in .html")
    from ..report.web.single_file import write_report as write_site

    site = open_site(results, tasks)
    written = write_site(site, Path(target), most=max_bytes)
    return msgspec.structs.replace(written, left_out=[*site.problems(), *written.left_out])


class Published(NamedTuple):
    """A folder that is ready for the hub, and the commit if it was sent there."""

    prepared: Prepared
    uploaded: Uploaded | None


def export_hub(
    folder: str | Path, repo: str, *, out: str | Path | None = None, licence: str = "", send: bool = False,
    private: bool = False,
) -> Published:  # fmt: skip
    """Make a Nano dataset or results ready for the Hugging Face hub; only with `send` they leave this machine."""
    if private and not send:
        raise UsageError("only a repository that is uploaded can be private")
    source = Path(folder).resolve()
    prepared = prepare(
        Path(folder), repo, Path(out) if out else source.with_name(f"{source.name}-hub"), licence=licence
    )
    return Published(prepared, upload(prepared, private=private) if send else None)


def export_mteb(
    results: str | Path, out: str | Path, *, systems: Sequence[str] = (), model: str = "", revision: str = ""
) -> list[Written]:
    """Write results in MTEB's layout; `model` and `revision` name a single system as MTEB should."""
    chosen = [stored.result for stored in ResultIndex([Path(results)]).select(systems)]
    return export_to_mteb(chosen, Path(out), model=model, revision=revision)


def export_ledger(
    folder: str | Path, out: str | Path, *, source: str = "mteb-import", title: str = "MTEB results", url: str = "",
    date: str = "",
) -> list[Imported]:  # fmt: skip
    """Write a ledger file from MTEB's result folders, for `reproduce`."""
    found = read_mteb(Path(folder))
    write_bytes(Path(out), ledger_text(found, source=source, title=title, url=url, date=date).encode())
    return found
