"""Bundles made and taken in: results with the stored answers of chat models that they were made from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import DataError, HostileData, R2MedError, ResultError, UsageError
from ..core.files import exists, home, locked, scratch_folder
from ..core.keys import keys_in_environment
from ..core.spec import LINK
from ..core.untrusted import file_name, inside
from ..llm import Generation, GenerationStore, StoreKey
from ..llm.parsing import put_newest
from ..llm.store import find_store, read_store, store_lines
from ..results import ResultStore, StoredResult, SystemInfo, TaskResult
from ..results.beside import BESIDE, EXPANSIONS, QUERIES, RUN, UsedGenerations, read_scores
from ..results.bundle import (
    BundledSystem,
    Manifest,
    Unpacked,
    check_about,
    check_text,
    member_name,
    naming,
    public,
    public_expansions,
    unpack,
    write_bundle,
)
from ..results.protocols import get_protocol, protocol_names, protocol_of
from ..results.store import content_hash, indented_json, sealed
from .system import SystemSpec

Wanted = dict[tuple[str, str], set[str]]  # Method and digest of a store to the prompts whose answers are wanted.


class Packed(NamedTuple):
    """A bundle that was written."""

    path: Path
    id: str
    manifest: Manifest
    notes: list[str]  # What its reader should know.


@contextmanager
def opened(path: Path) -> Iterator[Unpacked]:
    """A bundle, unpacked into a temporary folder and checked: its files, its specs and its generations."""
    with tempfile.TemporaryDirectory(prefix="r2med-bundle-") as folder:
        yield unpack_checked(path, Path(folder))


def unpack_checked(path: Path, folder: Path) -> Unpacked:
    """Unpack a bundle into an empty folder; it is refused where anything in it contradicts itself."""
    found = unpack(path, folder)
    stated = {system.name: system for system in found.manifest.systems}
    with naming(path, folder):
        kept = _kept_answers(found)
        for stored in found.results:
            check_spec(stored.result.system)
            said = stated[stored.system]
            if said.protocol != protocol_of(stored.result.system):
                raise DataError(f"the manifest states another protocol of {stored.system} than its result")
            lacking = any(_lacking(used, kept.get((used.method, used.digest), [])) for used in stored.generations())
            if said.replays and (lacking or not says_what_it_asked(stored)):
                raise DataError(f"{stored.system} on {stored.full_name}: answers that it was made from are missing")
    return found


def check_spec(system: SystemInfo) -> None:
    """Refuse a result whose spec, as data, is not the one that its name prints."""
    try:
        printed = SystemSpec.printed(system.spec)
    except (ValueError, RecursionError, R2MedError):
        printed = []
    # Whether a method is marked by `expand=` depends on what is registered here.
    if system.name.replace(LINK, "") not in [name.replace(LINK, "") for name in printed]:
        raise HostileData(f"the spec of {system.name!r} is that of another system")


def pack(stored: Sequence[StoredResult], target: Path, about: Manifest, *, incomplete: bool = False) -> Packed:
    """Write results as one file, with the answers of chat models that they used, and read it back.

    `about` has the title, authors, note, address and date. Where an answer is no longer kept the bundle is refused,
    or with `incomplete` written without it.
    """
    check_about(about)
    if exists(target):
        raise UsageError(f"{target} is there already: choose another name, or remove it")
    stored = sorted(stored, key=lambda one: one.key)
    wanted: Wanted = {}
    notes: list[str] = []
    cannot_replay: dict[str, str] = {}
    for one in stored:
        for used in one.generations():
            wanted.setdefault((used.method, used.digest), set()).update(used.prompts)
        if not says_what_it_asked(one):
            cannot_replay[one.system] = "it was made before r2med noted which answers a result used"
    answers = {name: _answers(*name, prompts) for name, prompts in wanted.items()}
    for one in stored:
        for used in one.generations():
            if why := _lacking(used, answers[used.method, used.digest].records):
                cannot_replay[one.system] = why
    for system, why in cannot_replay.items():
        said = f"{system} will not run again without a key: {why}"
        if not incomplete:
            again = "run it again with --overwrite, which uses the answers that are kept now, or pack with --incomplete"
            raise ResultError(f"{said}; {again}")
        notes.append(said)
    manifest = msgspec.structs.replace(
        about,
        date=about.date or max((_date(one.result) for one in stored), default=""),
        systems=tuple(_bundled(system, stored, cannot_replay) for system in dict.fromkeys(s.system for s in stored)),
    )
    named = {system.protocol for system in manifest.systems} & set(protocol_names())
    protocols = {name: msgspec.to_builtins(get_protocol(name)) for name in sorted(named)}
    manifest = msgspec.structs.replace(manifest, protocols=protocols)
    notes += _failed(stored)
    with scratch_folder(target) as scratch:
        made, members = scratch / "bundle.zip", _without_keys(_members(stored, answers.values()))
        write_bundle(made, manifest, members)
        back = unpack_checked(made, scratch / "back")
        made.replace(target)
    return Packed(target, back.id, back.manifest, notes)


def says_what_it_asked(stored: StoredResult) -> bool:
    """Whether a result says which answers it used, or asked no chat model at all."""
    return bool(stored.generations()) or not _asks(stored.result.system.description)


def _asks(value: object) -> bool:
    """Whether a chat model is described anywhere in the description of a system; recorded texts are none."""
    if isinstance(value, dict):
        chat = value.get("backend") in ("openai", "llama.cpp") and "marking" in value
        return chat or any(map(_asks, value.values()))
    return isinstance(value, list) and any(map(_asks, value))


def _bundled(system: str, stored: Sequence[StoredResult], cannot_replay: Mapping[str, str]) -> BundledSystem:
    protocols = {protocol_of(one.result.system) for one in stored if one.system == system}
    if len(protocols) > 1:
        raise ResultError(f"the results of {system} follow different protocols: {', '.join(sorted(protocols))}")
    (name,) = protocols
    choices = get_protocol(name).fingerprint if name in protocol_names() else ""
    return BundledSystem(name=system, protocol=name, protocol_fingerprint=choices, replays=system not in cannot_replay)


def _date(result: TaskResult) -> str:
    """The day on which a result was made; empty where it does not say."""
    return str(result.environment.get("date", ""))[:10]


def _failed(stored: Iterable[StoredResult]) -> list[str]:
    """Calls that failed are not kept: to run such a system again asks for them once more."""
    counts: dict[str, int] = {}
    for one in stored:
        if failed := one.result.generations.get("failed", 0):
            counts[one.system] = counts.get(one.system, 0) + failed
    return [f"{system}: {count} calls had failed; running it again asks for them" for system, count in counts.items()]


class _Stored(NamedTuple):
    """Answers of one generation store."""

    key: StoreKey
    records: list[Generation]


def _answers(method: str, digest: str, prompts: set[str]) -> _Stored:
    """Stored answers to some prompts, in a fixed order, without the prompts, which may quote the corpus."""
    path = find_store(method, digest)
    if path is None:
        folder = home() / "generations"
        raise ResultError(f"the generation store of {method} ({digest}) is not in {folder}; it cannot be packed")
    key, records, _ = read_store(path)
    newest: dict[tuple[str, str], dict[int, Generation]] = {}
    for record in records:
        if record.prompt_hash in prompts:
            put_newest(newest.setdefault((record.query_id, record.prompt_hash), {}), record)
    used = [samples[number] for _, samples in sorted(newest.items()) for number in sorted(samples)]
    return _Stored(key, [msgspec.structs.replace(record, prompt=()) for record in used])


def _members(stored: Iterable[StoredResult], answers: Iterable[_Stored]) -> Iterator[tuple[str, bytes]]:
    """Everything that goes into a bundle, by name."""
    for one in stored:
        beside = {RUN: one.beside(RUN).read_bytes(), QUERIES: one.beside(QUERIES).read_bytes()}
        one.whole_run()  # compares it with its hashes
        read_scores(one.beside(QUERIES), one.result, ())
        result, rest = public(one.result), set(one.result.files) - {RUN, QUERIES}
        for suffix in sorted(rest):
            path = one.beside(suffix)
            beside[suffix] = b"".join(public_expansions(path)) if suffix == EXPANSIONS else path.read_bytes()
            result.files[suffix] = content_hash(beside[suffix])
        yield member_name(one), indented_json(sealed(result))
        for suffix, data in beside.items():
            yield member_name(one, suffix), data
    for key, records in sorted(answers, key=lambda kept: kept.key.digest):
        name = f"generations/{file_name(key.method)}/{file_name(key.llm)}/{key.digest}.jsonl"
        yield name, b"".join(store_lines(key, records))


def _without_keys(members: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """The members, none of which may hold a key of this machine's environment."""
    keys = {variable: key.encode() for variable, key in keys_in_environment().items()}
    for name, data in members:
        if variable := next((variable for variable, key in keys.items() if key in data), None):
            raise UsageError(f"{name} holds the value of {variable}, so nothing was written: remove it from there")
        yield name, data


def _lacking(used: UsedGenerations, kept: Sequence[Generation]) -> str:
    """Why answers that are kept are not those that a result was made from; empty where they are."""
    if missing := len(set(used.prompts) - {answer.prompt_hash for answer in kept}):
        return f"{missing} of {len(used.prompts)} answers of {used.method} are gone"
    marks = {answer.mark for answer in kept if answer.again and answer.prompt_hash in used.prompts}
    return "" if marks == set(used.again) else f"answers of {used.method} were asked for again since it was made"


def _kept_answers(found: Unpacked) -> dict[tuple[str, str], list[Generation]]:
    """The answers in a bundle by method and digest; a file that is not what its name says is refused."""
    stores = (_read_generations(found, name) for name in found.generations)
    return {(key.method, key.digest): records for key, records in stores}


def _read_generations(found: Unpacked, name: str) -> _Stored:
    path = inside(found.folder, name, "member")
    key, records, bad = read_store(path)
    for what, text in (("method", key.method), ("chat model", key.llm)):
        check_text(what, text)
    if bad or any(record.status == "failed" for record in records):
        raise DataError(f"{name} holds a line that no generation store has")
    if name != f"generations/{file_name(key.method)}/{file_name(key.llm)}/{key.digest}.jsonl":
        raise HostileData(f"{name} holds answers that belong elsewhere")
    return _Stored(key, records)


class Added(NamedTuple):
    """What came of taking in a bundle."""

    results: list[tuple[str, str]]  # System and task of each result that is new.
    there: list[tuple[str, str]]  # Of each that was there already.
    answers: int  # Answers of chat models that are new.
    answers_there: int


def add(found: Unpacked, store: ResultStore) -> Added:
    """Put the results of a bundle into a results folder and its answers into the generation store.

    Something different under the same name is never overwritten: then nothing is written at all.
    """
    with locked(store.root):
        new, there = list[StoredResult](), list[StoredResult]()
        for stored in found.results:
            kept = store.find(*stored.key)
            if kept is not None and not _same(kept, stored.result):
                where = store.path(*stored.key)
                raise ResultError(f"{where} is another result of {stored.system}: choose another folder (--results)")
            (there if kept is not None else new).append(stored)
        fresh = [_new_answers(_read_generations(found, name)) for name in found.generations]
        for (key, records), _ in fresh:
            with GenerationStore(key) as answers:
                answers.append(records)
        for stored in new:
            suffixes = [suffix for suffix in BESIDE if suffix in stored.result.files]
            store.put(stored.result, {suffix: stored.beside(suffix).read_bytes() for suffix in suffixes})
    return Added(
        [(stored.system, stored.full_name) for stored in new],
        [(stored.system, stored.full_name) for stored in there],
        sum(len(kept.records) for kept, _ in fresh),
        sum(known for _, known in fresh),
    )


def _same(kept: TaskResult, other: TaskResult) -> bool:
    """Whether two results hold the same scores of the same run, made from the same things."""
    files = all(kept.files.get(suffix) == other.files.get(suffix) for suffix in (RUN, QUERIES))
    return files and kept.fingerprint == other.fingerprint and kept.measures == other.measures


def _new_answers(stored: _Stored) -> tuple[_Stored, int]:
    """The answers that are not kept here yet, and how many are; another answer to the same prompt is refused."""
    with GenerationStore(stored.key, read_only=True) as here:
        kept = {(record.query_id, record.prompt_hash, record.sample): record for record in here}
    new = []
    for record in stored.records:
        other = kept.get((record.query_id, record.prompt_hash, record.sample))
        if other is None:
            new.append(record)
        elif other.choice != record.choice:
            raise ResultError(
                f"{stored.key.llm} gave another answer for {record.query_id!r} here than in the bundle "
                f"({stored.key.method}): set R2MED_HOME to another folder to take it in"
            )
    return _Stored(stored.key, new), len(stored.records) - len(new)
