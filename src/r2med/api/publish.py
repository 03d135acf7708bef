"""Publishing, as functions: results in the browser, as one file, as bundles that others check, for other tools."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..core import DataError, ResultError, UsageError
from ..core.files import write_bytes
from ..core.options import Progress
from ..integrations.exporting import export_beir, export_trec
from ..integrations.hub import Prepared, Uploaded, prepare, upload
from ..integrations.mteb import Imported, Written, ledger_text, read_mteb
from ..integrations.mteb import export_mteb as export_to_mteb
from ..models.registry import named_card
from ..pipeline.bundles import Added, Packed, add, opened, pack, unpack_checked
from ..pipeline.typed import TypedSearch
from ..report.submissions import Judgments, Verdict, gather, verify
from ..rerank.cards import MaxSimParameters
from ..rerank.neighbours import NeighboursParameters
from ..results import ResultIndex, ResultStore
from ..results.bundle import BundledSystem, Manifest, Unpacked, check_about, naming
from ..results.published_models import ModelFacts, SystemFacts, find_facts, joint_facts
from .results import FOLDER

if TYPE_CHECKING:
    from ..report.web import Site
    from ..report.web.public import Written as WrittenBoard
    from ..report.web.single_file import Written as WrittenReport

USUAL_MODELS = {"maxsim": str(MaxSimParameters.model), "neighbours": str(NeighboursParameters.model)}
"""The models that rerankers take unless told otherwise."""
WITHOUT_WEIGHTS = ("bm25", "rm3", "rocchio", "vector-")
"""How methods begin that have no weights of their own: they work with what the other parts of a system have."""
__all__ = [
    "add_bundle",
    "build_board",
    "check_bundle",
    "export_beir",
    "export_hub",
    "export_ledger",
    "export_mteb",
    "export_trec",
    "pack_bundle",
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


class CheckedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle holds, and what became of each of its results."""

    bundle: str
    id: str  # SHA-256 of its manifest, and thereby of everything in it.
    made_by: str
    title: str
    authors: str
    url: str
    note: str
    date: str
    systems: tuple[BundledSystem, ...]
    answers: int  # Files of stored answers of chat models.
    verified: int
    differ: int
    unverified: int
    results: list[Verdict]


def pack_bundle(
    out: str | Path,
    *systems: str,
    results: str | Path = FOLDER,
    collection: str = "",
    title: str = "",
    authors: str = "",
    url: str = "",
    note: str = "",
    date: str = "",
    incomplete: bool = False,
) -> Packed:
    """Write results of systems, by default all, as one file that others can check, add and run again without a key.

    The date is that of the newest result unless stated. `incomplete` allows answers of chat models to be missing.
    """
    stored = ResultIndex([Path(results)]).select(systems, collection=collection)
    about = Manifest(title=title, authors=authors, url=url, note=note, date=date)
    return pack(stored, Path(out), about, incomplete=incomplete)


def check_bundle(
    path: str | Path,
    *,
    tasks: Iterable[str | Path] = (),
    on_progress: Progress = lambda done, total: None,
) -> CheckedBundle:
    """Score every run of a bundle again against the judgments of this machine; `tasks` are folders to look in, too."""
    with opened(Path(path)) as found:
        return _checked(found, Judgments(map(Path, tasks)), on_progress)


def add_bundle(
    path: str | Path,
    *,
    results: str | Path = FOLDER,
    tasks: Iterable[str | Path] = (),
    on_progress: Progress = lambda done, total: None,
) -> Added:
    """Put the results of a bundle into a folder and its answers of chat models into the store; nothing is overwritten.

    A bundle with a score that is not true by the judgments of this machine is refused.
    """
    with opened(Path(path)) as found:
        checked = _checked(found, Judgments(map(Path, tasks)), on_progress)
        if wrong := next((verdict for verdict in checked.results if verdict.status == "differs"), None):
            raise DataError(f"{wrong.system} on {wrong.task}: {wrong.reason}", path=path)
        return add(found, ResultStore(results))


def build_board(
    *bundles: str | Path,
    out: str | Path,
    title: str = "Leaderboard",
    url: str = "",
    tasks: Iterable[str | Path] = (),
    own_texts: bool = False,
    workers: int = 1,
    on_progress: Progress = lambda done, total: None,
) -> WrittenBoard:
    """Write the static site of a leaderboard of bundles; a folder stands for the `.zip` files in it.

    `url` is where the site will lie. `tasks` are folders to look for judgments in, too; their texts are shown only
    with `own_texts`. Results whose scores are not true are left out, and counted. The site is the same for any number
    of `workers`; a script that asks for several has to begin its work below `if __name__ == "__main__"`.
    """
    from ..report.web.public import About, PublicSite, write_site

    paths = [path for given in bundles for path in _bundle_files(Path(given))]
    if not paths:
        raise UsageError("no bundle is given: r2med bundle pack makes one")
    folders, target = [Path(folder) for folder in tasks], Path(out)
    about = About(title=title, url=url, texts=own_texts)
    check_about(Manifest(title=title, url=url))
    with tempfile.TemporaryDirectory(prefix="r2med-board-") as scratch:
        place = Path(scratch)
        gathered = gather(paths, place, unpack_checked, folders, workers=workers, on_progress=on_progress)
        return write_site(PublicSite(gathered, about, folders, facts_of), target, about)


def _bundle_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.zip")) if path.is_dir() else [path]


def _checked(found: Unpacked, judgments: Judgments, on_progress: Progress) -> CheckedBundle:
    with naming(found.path, found.folder):
        verdicts = verify(found.results, judgments, on_progress)
    count = [verdict.status for verdict in verdicts].count
    about = found.manifest
    return CheckedBundle(
        bundle=str(found.path),
        id=found.id,
        made_by=about.made_by,
        title=about.title,
        authors=about.authors,
        url=about.url,
        note=about.note,
        date=about.date,
        systems=about.systems,
        answers=len(found.generations),
        verified=count("verified"),
        differ=count("differs"),
        unverified=count("unverified"),
        results=verdicts,
    )


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
