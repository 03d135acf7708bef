"""Bundles and the public board, as functions: results that others can check, and a site that shows them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..core import DataError, UsageError
from ..core.options import Progress
from ..pipeline.bundles import Added, Packed, add, opened, pack, unpack_checked
from ..report.submissions import Judgments, Verdict, gather, verify
from ..results import ResultIndex, ResultStore
from ..results.bundle import BundledSystem, Manifest, Unpacked, check_about, naming
from .publish import facts_of
from .results import FOLDER

if TYPE_CHECKING:
    from ..report.web.public import Written as WrittenBoard

__all__ = ["add_bundle", "build_board", "check_bundle", "pack_bundle"]


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
