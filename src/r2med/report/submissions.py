"""Submissions to a public board: bundles that were checked, and which of their results are shown.

A result whose scores are not true is never shown. Where the judgments of a task are at hand, a result on other data of
that task is not shown either, so that strangers cannot outvote it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core.untrusted import file_name, inside
from ..results import ResultIndex, StoredResult
from ..results.bundle import BundledSystem, Manifest, Unpacked, without_paths
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


def gather(
    paths: Sequence[Path],
    scratch: Path,
    unpack: Unpack,
    judgments: Judgments,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Gathered:
    """Unpack bundles below a scratch folder, check them, and put aside what must not be shown."""
    left_out: list[str] = []
    bundles: dict[str, Unpacked] = {}
    for number, path in enumerate(paths):
        bundle = unpack(path, inside(scratch, f"{number}", "folder"))
        if bundle.id in bundles:
            left_out.append(f"{path.name} is the same bundle as {bundles[bundle.id].path.name}")
        else:
            bundles[bundle.id] = bundle
    ordered = sorted(bundles.values(), key=lambda bundle: (bundle.manifest.date, bundle.id))
    everything = [stored for bundle in ordered for stored in bundle.results]
    checked = dict(zip(everything, verify(everything, judgments, on_progress), strict=True))
    submissions = _submissions(ordered, checked)
    names = {bundle.path: made.name for bundle, made in zip(ordered, submissions, strict=True)}
    true_data: dict[str, set[str]] = {}
    for stored, verdict in checked.items():
        if verdict.status == "verified":
            true_data.setdefault(stored.full_name, set()).add(stored.result.task.fingerprint)
    for bundle in ordered:
        for stored in bundle.results:
            if why := _why_not(stored, checked[stored], true_data.get(stored.full_name)):
                place = f"{stored.system} on {stored.full_name} ({names[bundle.path]})"
                left_out.append(f"{place} is not shown: {without_paths(why)}")
                stored.path.unlink()
    roots = [bundle.results[0].root for bundle in ordered]
    index = ResultIndex(roots, [made.name for made in submissions], every=math.inf)
    index.refresh()
    by_root = dict(zip(roots, submissions, strict=True))
    systems = {stored.label: _submitted(by_root[stored.root], stored.system) for stored in index.stored}
    false = sum(verdict.status == "differs" for verdict in checked.values())
    return Gathered(submissions, index, systems, left_out, false)


def _submissions(bundles: Sequence[Unpacked], checked: dict[StoredResult, Verdict]) -> list[Submission]:
    """Every bundle under a name of its own."""
    called = [bundle.manifest.title or bundle.path.name.removesuffix(".zip") for bundle in bundles]
    often = Counter(name.casefold() for name in called)
    made = []
    for bundle, plain in zip(bundles, called, strict=True):
        name = plain if often[plain.casefold()] == 1 else f"{plain} {bundle.id[:8]}"
        verdicts = [
            msgspec.structs.replace(checked[stored], reason=without_paths(checked[stored].reason))
            for stored in bundle.results
        ]
        made.append(
            Submission(
                id=bundle.id, name=name, slug=file_name(f"{name} {bundle.id}"), file=bundle.path.name,
                manifest=bundle.manifest, verdicts=verdicts,
            )
        )  # fmt: skip
    return made


def _why_not(stored: StoredResult, verdict: Verdict, true_data: set[str] | None) -> str:
    """Why a result must not be shown; empty where it may."""
    if verdict.status == "differs":
        return verdict.reason
    if true_data and stored.result.task.fingerprint not in true_data:
        return "it was made on other data of this task than those that are verified here"
    return ""


def _submitted(submission: Submission, system: str) -> Submitted:
    bundled = next(one for one in submission.manifest.systems if one.name == system)
    return Submitted(submission, bundled, {v.task: v for v in submission.verdicts if v.system == system})
