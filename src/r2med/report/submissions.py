"""Submissions to a public board: bundles that were checked, and which of their results are shown.

A result whose scores are not true is never shown. Where the judgments of a task are at hand, a result on other data of
that task is not shown either, so that strangers cannot outvote it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core.parallel import in_processes
from ..core.untrusted import file_name, inside
from ..results import ResultIndex
from ..results.bundle import BundledSystem, Manifest, Unpacked
from ..results.public import without_paths
from .verify import Judgments, Status, Verdict, verify

Unpack = Callable[[Path, Path], Unpacked]
"""From a bundle and an empty folder to the bundle unpacked and checked; a higher room knows how."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle on the board."""

    id: str  # SHA-256 of its manifest.
    name: str  # Its title, or the name of its file; with a part of its id where two share one.
    slug: str  # The name in addresses.
    file: str  # What the file was called.
    manifest: Manifest
    verdicts: list[Verdict]  # Of every result, shown or not.

    @property
    def status(self) -> Status:
        """The worst of its verdicts."""
        return worst(verdict.status for verdict in self.verdicts)


class Submitted(NamedTuple):
    """One system on the board, and the submission that it came with."""

    submission: Submission
    system: BundledSystem
    verdicts: dict[str, Verdict]  # By the full name of the task.

    def status(self, tasks: Iterable[str]) -> Status:
        """Whether all its results on some tasks are verified."""
        return worst(self.verdicts[task].status for task in tasks if task in self.verdicts)


class Gathered(NamedTuple):
    """Everything that a board shows."""

    submissions: list[Submission]  # By date and id, oldest first.
    results: ResultIndex
    systems: dict[str, Submitted]  # By the label under which results are shown.
    left_out: list[str]
    false: int  # How many results are left out because their scores are not true.


def worst(statuses: Iterable[Status]) -> Status:
    """The status of a whole."""
    found = set(statuses)
    return "differs" if "differs" in found else "unverified" if "unverified" in found or not found else "verified"


class Checked(NamedTuple):
    """One result of a bundle, and what became of it."""

    path: Path  # Of the result file, unpacked.
    fingerprint: str  # Of the data that it was made on.
    verdict: Verdict


class CheckedBundle(NamedTuple):
    """A bundle that lies unpacked in a folder and contradicts itself nowhere."""

    path: Path  # Of the bundle.
    root: Path  # The folder of its results.
    id: str
    manifest: Manifest
    results: list[Checked]


class Checker:
    """Unpacks bundles and scores their runs again; judgments are read once."""

    def __init__(self, unpack: Unpack, folders: Sequence[Path]) -> None:
        self._unpack, self._judgments = unpack, Judgments(folders)

    def __call__(self, job: tuple[Path, Path]) -> CheckedBundle:
        """Unpack and check a bundle; the second path is an empty folder."""
        bundle = self._unpack(*job)
        verdicts = verify(bundle.results, self._judgments)
        checked = [
            Checked(stored.path, stored.result.task.fingerprint, verdict)
            for stored, verdict in zip(bundle.results, verdicts, strict=True)
        ]
        return CheckedBundle(bundle.path, bundle.results[0].root, bundle.id, bundle.manifest, checked)


def gather(
    paths: Sequence[Path],
    scratch: Path,
    unpack: Unpack,
    folders: Sequence[Path],
    *,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Gathered:
    """Unpack bundles below a scratch folder, check them, and put aside what must not be shown.

    `folders` are looked in for judgments, too. The number of workers changes nothing but the time.
    """
    left_out: list[str] = []
    bundles: dict[str, CheckedBundle] = {}
    jobs = [(path, inside(scratch, f"{number}", "folder")) for number, path in enumerate(paths)]
    checked = in_processes(jobs, partial(Checker, unpack, folders), workers)
    for done, bundle in enumerate(checked, start=1):
        if bundle.id in bundles:
            left_out.append(f"{bundle.path.name} is the same bundle as {bundles[bundle.id].path.name}")
        else:
            bundles[bundle.id] = bundle
        on_progress(done, len(paths))
    ordered = sorted(bundles.values(), key=lambda bundle: (bundle.manifest.date, bundle.id))
    submissions = _submissions(ordered)
    results = [(made, one) for made, bundle in zip(submissions, ordered, strict=True) for one in bundle.results]
    true_data: dict[str, set[str]] = {}
    for _, one in results:
        if one.verdict.status == "verified":
            true_data.setdefault(one.verdict.task, set()).add(one.fingerprint)
    for made, one in results:
        if why := _why_not(one, true_data.get(one.verdict.task)):
            place = f"{one.verdict.system} on {one.verdict.task} ({made.name})"
            left_out.append(f"{place} is not shown: {without_paths(why)}")
            one.path.unlink()
    roots = [bundle.root for bundle in ordered]
    index = ResultIndex(roots, [made.name for made in submissions], every=math.inf)
    index.refresh()
    by_root = dict(zip(roots, submissions, strict=True))
    systems = {stored.label: _submitted(by_root[stored.root], stored.system) for stored in index.stored}
    false = sum(one.verdict.status == "differs" for _, one in results)
    return Gathered(submissions, index, systems, left_out, false)


def _submissions(bundles: Sequence[CheckedBundle]) -> list[Submission]:
    """Every bundle under a name of its own."""
    called = [bundle.manifest.title or bundle.path.name.removesuffix(".zip") for bundle in bundles]
    often = Counter(name.casefold() for name in called)
    made = []
    for bundle, plain in zip(bundles, called, strict=True):
        name = plain if often[plain.casefold()] == 1 else f"{plain} {bundle.id[:8]}"
        said = (one.verdict for one in bundle.results)
        verdicts = [msgspec.structs.replace(verdict, reason=without_paths(verdict.reason)) for verdict in said]
        made.append(
            Submission(
                id=bundle.id, name=name, slug=file_name(f"{name} {bundle.id}"), file=bundle.path.name,
                manifest=bundle.manifest, verdicts=verdicts,
            )
        )  # fmt: skip
    return made


def _why_not(checked: Checked, true_data: set[str] | None) -> str:
    """Why a result must not be shown; empty where it may."""
    if checked.verdict.status == "differs":
        return checked.verdict.reason
    if true_data and checked.fingerprint not in true_data:
        return "it was made on other data of this task than those that are verified here"
    return ""


def _submitted(submission: Submission, system: str) -> Submitted:
    bundled = next(one for one in submission.manifest.systems if one.name == system)
    return Submitted(submission, bundled, {v.task: v for v in submission.verdicts if v.system == system})
