"""A bundle: results of some systems in one file, with the SHA-256 of everything in it.

    manifest.json                          what the bundle holds, and size and hash of every other member
    results/SYSTEM/COLLECTION/TASK.json    a result, and .run.gz, .queries.jsonl, .expansions.jsonl and
                                           .generations.jsonl beside it, all as in a results folder
    generations/METHOD/LLM/DIGEST.jsonl    answers of chat models that these results were made from

It is a zip. Anybody may have written it: names, sizes, hashes and numbers are checked before anything in it is used,
and one that does not hold is refused as a whole. The same content gives the same bytes. Paths of the machine that
results were made on, and the texts of queries, stay out of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from .._version import __version__
from ..core import DataError, HostileData, R2MedError, UsageError
from ..core.files import atomic_file, open_regular
from ..core.stores import BUFFER, ZipStore, expansion_limit, write_zip
from ..core.untrusted import component, file_name, inside, is_portable
from .beside import BESIDE, QUERIES, RUN, Expansion
from .index import ResultIndex, StoredResult
from .protocols import choices_fingerprint
from .schema import TaskResult
from .store import collection_slug, indented_json, sealed, stored_names

FORMAT: Literal["r2med bundle"] = "r2med bundle"
SCHEMA = 1
MANIFEST = "manifest.json"
MOST_MEMBERS = 20_000
LARGEST_MANIFEST = 16 << 20
LONGEST_NAME, LONGEST_NOTE = 1_000, 2_000  # characters
MOST_SECONDS = 1e9
_HASH = re.compile(r"[0-9a-f]{64}")
_RESULT = re.compile(rf"results/([^/]+)/([^/]+)/([^/]+?)(\.json|{'|'.join(map(re.escape, BESIDE))})")
_GENERATIONS = re.compile(r"generations/([^/]+)/([^/]+)/([0-9a-f]{32})\.jsonl")
_PATH = re.compile(r"(/|~|[A-Za-z]:[\\/])")
_INSIDE = re.compile(r"""(?<![\w.:/\\~-])(?:~?/|[A-Za-z]:[\\/])(?:[^\s/\\:'"<>|,;()]+[\\/])+([^\s/\\:'"<>|,;()]*)""")
"""A path from the root on inside a sentence, and the last part of it."""


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a bundle."""

    sha256: str
    bytes: int


class BundledSystem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system of a bundle."""

    name: str  # Its printed spec.
    protocol: str  # The protocol that it follows; `custom` for none.
    protocol_fingerprint: str = ""  # Of the protocol's choices; empty for `custom`.
    replays: bool = True  # Whether every answer of a chat model that it used is in the bundle.


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle holds."""

    format: Literal["r2med bundle"] = FORMAT
    schema: int = SCHEMA  # Version of this layout.
    made_by: str = f"r2med {__version__}"
    title: str = ""  # What the submission is called.
    authors: str = ""
    url: str = ""  # Of a paper or a repository.
    note: str = ""
    date: str = ""  # Year, month and day of its newest result, or as its maker stated; empty where unknown.
    systems: tuple[BundledSystem, ...] = ()
    protocols: dict[str, dict[str, object]] = {}  # Everything that the protocols above say.
    members: dict[str, Member] = {}  # By name.


class _Head(msgspec.Struct):
    format: Literal["r2med bundle"]
    schema: int


class Unpacked(NamedTuple):
    """A bundle in a folder, with every member compared with its hash."""

    path: Path  # Of the bundle.
    folder: Path
    manifest: Manifest
    id: str  # SHA-256 of the manifest, and thereby of everything.
    results: list[StoredResult]  # Whole, with numbers that can be; whether they are true is another question.

    @property
    def generations(self) -> list[str]:
        """The members that hold answers of chat models."""
        return [name for name in self.manifest.members if name.startswith("generations/")]


def member_name(stored: StoredResult, suffix: str = ".json") -> str:
    """What a file of a result is called in a bundle."""
    parts = (stored.system, collection_slug(stored.collection), stored.task)
    return f"results/{'/'.join(stored_names(part)[0] for part in parts)}{suffix}"


def write_bundle(target: Path, manifest: Manifest, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a bundle of members in the order given, and a manifest with their hashes behind them."""

    def everything() -> Iterator[tuple[str, bytes]]:
        written: dict[str, Member] = {}
        for name, data in members:
            written[name] = Member(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            yield name, data
        whole = msgspec.structs.replace(manifest, members=dict(sorted(written.items())))
        yield MANIFEST, indented_json(whole)

    with atomic_file(target) as stream:
        write_zip(stream, everything())


def unpack(path: Path, folder: Path) -> Unpacked:
    """Unpack a bundle into an empty folder and check all that can be checked without the tasks."""
    if not path.is_file():
        raise DataError("no such bundle", path=path)
    archive = ZipStore(path, keep_folder=True)
    manifest, digest = _read_manifest(archive)
    _check_members(archive, manifest)
    for name, member in manifest.members.items():
        _copy(archive, name, member, inside(folder, name, "member"))
    with naming(path, folder):
        index = ResultIndex([inside(folder, "results", "folder")])
        results = list(index.all())
        _check_results(results, manifest)
        for stored in results:
            _check_result(stored)
    return Unpacked(path, folder, manifest, digest, results)


@contextmanager
def naming(path: Path, folder: Path) -> Iterator[None]:
    """Errors about unpacked files, as errors about members of a bundle."""
    try:
        yield
    except R2MedError as error:
        said = str(error).replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
        raise DataError(said.partition("; ")[0], path=path) from None


def _read_manifest(archive: ZipStore) -> tuple[Manifest, str]:
    if MANIFEST not in archive.names():
        raise DataError(f"is not a bundle: it has no {MANIFEST}", path=archive.path)
    with archive.open_raw(MANIFEST) as stream:
        data = stream.read(LARGEST_MANIFEST + 1)
    if len(data) > LARGEST_MANIFEST:
        raise HostileData(f"has a {MANIFEST} of over {LARGEST_MANIFEST >> 20} MiB", path=archive.path)
    try:
        head = msgspec.json.decode(data, type=_Head)
        manifest = msgspec.json.decode(data, type=Manifest) if head.schema == SCHEMA else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not a bundle ({error})", path=archive.path) from None
    if manifest is None:
        stated = f"bundle schema {head.schema}, this r2med reads {SCHEMA}"
        raise DataError(
            f"was written by {'a newer' if head.schema > SCHEMA else 'another'} r2med ({stated})", path=archive.path
        )
    _check_words(manifest, archive.path)
    return manifest, hashlib.sha256(data).hexdigest()


def check_about(manifest: Manifest) -> None:
    """Refuse a title, authors, a note, an address or a date that no bundle may have."""
    for name in ("title", "authors", "note", "made_by"):
        check_text(name, getattr(manifest, name), most=LONGEST_NOTE if name == "note" else 300)
    if manifest.url and not re.fullmatch(r"https?://[^\s\"'<>\\]{1,500}", manifest.url):
        raise DataError(f"its url {manifest.url!r} is not one of the web")
    if manifest.date and not _is_day(manifest.date):
        raise DataError(f"its date {manifest.date!r} is not a year, month and day")


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _check_words(manifest: Manifest, path: Path) -> None:
    try:
        check_about(manifest)
        for system in manifest.systems:
            check_text("system", system.name)
            check_text("protocol", system.protocol)
    except DataError as error:
        raise HostileData(error.message, path=path) from None


def check_text(what: str, text: str, *, most: int = LONGEST_NAME) -> None:
    """Refuse a text of one line that holds what no name needs: control characters, markup, or too much."""
    if len(text) > most or not text.isprintable() or "<" in text or ">" in text:
        shown = text if len(text) <= 100 else f"{text[:100]}…"
        raise HostileData(f"its {what} {shown!r} is too long or holds characters that no name needs")


def _check_members(archive: ZipStore, manifest: Manifest) -> None:
    """The members are those of the manifest, with names of ours, and unpack to no more than is in proportion."""
    path, members = archive.path, manifest.members
    if len(members) > MOST_MEMBERS:
        raise HostileData(f"has over {MOST_MEMBERS:,} members", path=path)
    for name, member in members.items():
        match = _RESULT.fullmatch(name) or _GENERATIONS.fullmatch(name)
        if match is None or not all(is_portable(part) for part in name.split("/")):
            raise HostileData(f"has a member that no bundle has: {name!r}", path=path)
        if not _HASH.fullmatch(member.sha256) or member.bytes < 0:
            raise DataError(f"states no hash of {name!r}", path=path)
    if len({name.casefold() for name in members}) < len(members):
        raise HostileData("has members whose names differ in capitals only", path=path)
    if different := sorted(set(archive.names()) ^ {*members, MANIFEST}):
        what = "lacks" if different[0] in members else "holds, beside what its manifest lists,"
        raise DataError(f"{what} {different[0]!r}", path=path)
    limit = expansion_limit(path.stat().st_size)
    if sum(member.bytes for member in members.values()) > limit:
        raise HostileData(f"unpacks to over {limit >> 20} MiB, out of all proportion", path=path)


def _copy(archive: ZipStore, name: str, member: Member, target: Path) -> None:
    """Unpack one member; what is longer or other than the manifest states is refused."""
    digest, left = hashlib.sha256(), member.bytes
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open_raw(name) as stream, target.open("wb") as out:
        while piece := stream.read(min(BUFFER, left + 1)):
            left -= len(piece)
            if left < 0:
                raise HostileData(f"holds more of {name!r} than its manifest states", path=archive.path)
            digest.update(piece)
            out.write(piece)
    if left or digest.hexdigest() != member.sha256:
        raise DataError(f"{name!r} is not what the manifest states: another hash", path=archive.path)


def _check_results(results: list[StoredResult], manifest: Manifest) -> None:
    """Every file belongs to a result, and the results to the systems and protocols that the manifest lists."""
    if not results:
        raise DataError("holds no results")
    wanted: set[str] = set()
    for stored in results:
        parts = stored.path.relative_to(stored.root.resolve()).with_suffix("").parts
        named = (stored.system, collection_slug(stored.collection), stored.task)
        for part, name in zip(parts, named, strict=True):
            if part not in (name, file_name(name)):
                raise HostileData(f"{'/'.join(parts)} holds a result of {stored.system!r} on {stored.full_name!r}")
        place = f"results/{'/'.join(parts)}"
        wanted |= {place + suffix for suffix in (".json", *stored.result.files)}
        if missing := {RUN, QUERIES} - set(stored.result.files):
            raise DataError(f"{place} has no {min(missing)}")
    if stray := sorted({name for name in manifest.members if name.startswith("results/")} ^ wanted):
        raise DataError(f"{stray[0]} is not what the result beside it states")
    listed = [system.name for system in manifest.systems]
    if sorted(listed) != sorted({stored.system for stored in results}):
        raise DataError("its manifest lists other systems than it holds")
    followed = {(s.protocol, s.protocol_fingerprint) for s in manifest.systems if s.protocol_fingerprint}
    try:
        told = {(name, choices_fingerprint(choices)) for name, choices in manifest.protocols.items()}
    except RecursionError:
        told = set()
    if followed != told:
        raise DataError("its manifest tells of another protocol than its systems follow")


def _check_result(stored: StoredResult) -> None:
    """Names that are names, and numbers that can be."""
    result = stored.result
    system, task = result.system, result.task
    for what, text in (
        ("system", system.name), ("kind", system.kind), ("task", task.name), ("collection", task.collection),
        ("family", task.family), ("source", task.source), ("revision", task.revision),
        ("fingerprint", task.fingerprint),
    ):  # fmt: skip
        check_text(what, text)
    for what, text in (("task", task.name), ("collection", task.collection or "own")):
        component(text, what)
    counts = (task.queries, task.documents, task.judgments, result.missing_queries, result.queries_without_positives)
    shares = [*result.measures.values(), *([] if result.judged_at_10 is None else [result.judged_at_10])]
    where = f"{stored.system} on {stored.full_name}"
    if not result.measures or any(not 0 <= share <= 1 + 1e-9 for share in shares):
        raise DataError(f"{where}: a score is not between 0 and 1")
    if min(counts) < 0 or result.depth < 1:
        raise DataError(f"{where}: a count is below 0")
    if any(not 0 <= seconds <= MOST_SECONDS for seconds in result.seconds.values()):
        raise DataError(f"{where}: {MOST_SECONDS:.0e} seconds or more, or fewer than 0")
    values = stored.scores(result.of_queries).values
    if not ((values >= 0) & (values <= 1 + 1e-9)).all():
        raise DataError(f"{where}: the score of a query is not between 0 and 1")


def public(result: TaskResult) -> TaskResult:
    """A result without the paths of the machine it was made on: of each, only the last part stays."""
    if _PATH.match(result.system.name):
        raise UsageError(
            f"system {result.system.name!r} shows a path of this machine: run it again under a name or from a "
            "relative folder"
        )
    return sealed(msgspec.convert(_public(msgspec.to_builtins(result)), TaskResult))


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {_public(k): _public(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_public(v) for v in value]
    if not isinstance(value, str):
        return value
    if _PATH.match(value) and "\n" not in value:
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return without_paths(value)


def without_paths(text: str) -> str:
    """A sentence in which only the last part of a path from the root on stays."""
    return _INSIDE.sub(r"\1", text)


def public_expansions(path: Path) -> Iterator[bytes]:
    """The lines of a file of expansions: what was made of each query, without the query itself."""
    try:
        with open_regular(path) as stream:
            for line in stream:
                yield msgspec.json.encode(msgspec.json.decode(line, type=Expansion)) + b"\n"
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
