"""The prompt pack of a protocol: its repository's instructions and prompts, read as data and kept in R2MED_HOME.

Of published rerankers it is the prompt, with its parts in the order in which the repository's code joins them. Of the
R2MED repository two files are read: one with the worked examples of query2doc (`Example`), one with
`query_instruction`, `doc_instruction` and `generate_hy_doc`. All are compared with known hashes, parsed and never run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..core import DataError, R2MedError, Unavailable, UnknownName, UsageError, fingerprint
from ..core.files import parse_toml, write_bytes
from ..core.hub import offline
from ..core.literals import assigned_texts, plain_gaps, read_tables, returned_texts
from ..core.spec import Content
from ..core.untrusted import inside
from ..http import download
from ..models.prompts import OWN, ModelLines, PromptPack, pack_of, pack_place, read_pack
from ..results.protocols import Protocol, Source, get_protocol, protocol_names
from ..tasks.catalogue import find_tasks

Files = Mapping[str, bytes]
MOST_BYTES = 4 << 20
SYSTEM = "You are a helpful assistant."
"""The system text of the repository's generation script: a plain default of many tools, and not in the two files."""
GAPS = {
    **{"TEXT": "{{query}}", "PASSAGE": "{{passages}}", "EXAMPLE": "{{examples}}"},
    **{"QUERY": "{{query}}", "PASSAGES": "{{passages}}", "TOPK": "{{count}}"},
    **{"query": "{{query}}", "num": "{{count}}"},
}
"""Gaps of the repositories' prompts, and what ours are called."""
PASSAGE = "\n[{{number}}]. {{passage}}"
"""How LameR's passages are numbered there."""


class FetchedPack(msgspec.Struct, frozen=True, kw_only=True):
    """The pack of a protocol, as it now lies on this machine."""

    protocol: str
    path: str
    digest: str
    # Hash of the pack, as results carry it.
    published: bool
    # Whether it is the one that the protocol names.
    commit: str
    files: dict[str, str]
    # SHA-256 of what was read.
    models: dict[str, dict[str, int]]
    # Model → query and document instructions it has, each a number of tasks.
    methods: dict[str, int]
    # Method → tasks that have a prompt.
    tasks: dict[str, dict[str, Any]]
    # Task → its instructions and prompts, counted and hashed.


def listing() -> list[dict[str, Any]]:
    """The protocols that come with r2med."""
    rows = []
    for name in protocol_names():
        protocol = get_protocol(name)
        pack = described(protocol)["pack"]
        state = "" if pack is None else "here" if pack["published"] else "another one" if pack["here"] else "not here"
        about = {"name": name, "title": protocol.title, "summary": protocol.summary}
        rows.append({**about, "fingerprint": protocol.fingerprint, "pack": state})
    return rows


def described(protocol: Protocol) -> dict[str, Any]:
    """All that a protocol sets, and the state of its prompt pack here; None where it has none."""
    found: dict[str, Any] = {**msgspec.to_builtins(protocol), "fingerprint": protocol.fingerprint, "pack": None}
    if protocol.source is not None:
        content = pack_of(protocol.name)
        found["pack"] = {
            "here": content is not None,
            "published": content is not None and content.whole == protocol.prompts,
            "path": str(pack_place(protocol.name)),
            "digest": content.whole if content else "",
            "instructions": str(content) if content else OWN,
            "get": f"r2med protocol fetch {protocol.name}",
        }
    return found


def fetch_pack(protocol: Protocol, folder: Path | None = None) -> FetchedPack:
    """Read the repository's files from a folder or the network, and write the pack; all is checked before."""
    source = _source(protocol)
    found = {path: _file(source, path, folder, protocol.name) for path in source.files}
    make = reranker_pack if protocol.name in READERS else pack_from
    pack = make(found, protocol.name, source.commit)
    place = pack_place(protocol.name)
    write_bytes(place, msgspec.json.format(msgspec.json.encode(pack, order="sorted"), indent=1) + b"\n")
    return shown_pack(protocol, place)


def _source(protocol: Protocol) -> Source:
    if protocol.source is None:
        raise UsageError(f"protocol {protocol.name} has nothing to fetch: its instructions come with r2med")
    return protocol.source


def _file(source: Source, path: str, folder: Path | None, name: str) -> bytes:
    """One file, with the hash it must have."""
    if folder is None:
        content, place = _downloaded(source, path, name), source.address(path)
    else:
        content, place = _local(folder, path)
    digest, expected = hashlib.sha256(content).hexdigest(), source.files[path]
    if digest != expected:
        what = f"is not the file of commit {source.commit[:7]}: SHA-256 {digest}, expected {expected}"
        raise DataError(f"{what} (another commit, or edited); nothing was written", path=place)
    return content


def _local(folder: Path, path: str) -> tuple[bytes, str]:
    """A file of a clone, or of a folder that holds the files alone."""
    tried = [inside(folder, name, "file") for name in (path, path.rpartition("/")[2])]
    place = next((candidate for candidate in tried if candidate.is_file()), None)
    if place is None:
        raise DataError(f"holds no {path}: give a clone of the repository, or a folder with its files", path=folder)
    try:
        with place.open("rb") as stream:
            return stream.read(MOST_BYTES), str(place)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=place) from None


def _downloaded(source: Source, path: str, name: str) -> bytes:
    try:
        if offline():
            raise Unavailable("HF_HUB_OFFLINE forbids the network")
        return download(source.address(path), most_bytes=MOST_BYTES)
    except R2MedError as why:
        files = " and ".join(source.files)
        carry = f"carry over {files} of {source.repository} at commit {source.commit[:7]}"
        reason = str(why).partition("; ")[0]
        raise Unavailable(f"{reason}; {carry}, then: r2med protocol fetch {name} --from FOLDER") from None


def pack_from(files: Files, name: str, commit: str) -> PromptPack:
    """The pack that the repository's files make."""
    examples, instructions = _by_name(files, "example.py"), _by_name(files, "instrcution.py")
    shown = read_tables(files[examples], examples)
    tables = read_tables(files[instructions], instructions, {"example": shown})
    aliases: dict[str, str] = {}

    def table(key: str) -> dict[str, Any]:
        value = tables.get(key)
        if not isinstance(value, dict):
            raise DataError(f"holds no table {key}", path=instructions)
        return value

    query, document = table("query_instruction"), table("doc_instruction")
    return PromptPack(
        name=name,
        source=f"{instructions} and {examples} at {commit}",
        model={
            model: ModelLines(
                _lines(query.get(model, {}), aliases, instructions),
                _lines(document.get(model, {}), aliases, instructions),
                whole=True,
            )
            for model in sorted({*query, *document})
        },
        generate={
            method: {
                task: _prompt(text, shown.get("Example", {}).get(key), f"{instructions}: {method} of {key}")
                for task, key, text in _tasks(prompts, aliases)
            }
            for method, prompts in table("generate_hy_doc").items()
        },
        aliases=aliases,
    )


def _by_name(files: Files, name: str) -> str:
    found = next((path for path in files if Path(path).name == name), None)
    if found is None:
        raise UsageError(f"the protocol's source names no {name}")
    return found


def _tasks(table: Mapping[str, Any], aliases: dict[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Entries of R2MED's tasks under the names of the catalogue; tables have entries of other collections too."""
    for key, value in table.items():
        try:
            (task,) = {entry.name for entry in find_tasks(key)}
        except (UnknownName, ValueError):
            continue
        if task != key:
            aliases[key] = task
        yield task, key, value


def _lines(given: object, aliases: dict[str, str], place: str) -> dict[str, str]:
    if isinstance(given, str):
        return {"default": given}
    if not isinstance(given, dict):
        raise DataError(f"has a {type(given).__name__} where instructions belong", path=place)
    lines = {task: value for task, _, value in _tasks(given, aliases)}
    if bad := next((task for task, value in lines.items() if not isinstance(value, str)), None):
        raise DataError(f"has an instruction for {bad} that is no text", path=place)
    return lines


def _prompt(text: object, examples: object, place: str) -> dict[str, Any]:
    """One prompt with our gaps; the worked examples, which stand in it already, are kept apart."""
    if not isinstance(text, str):
        raise DataError("is no text", path=place)
    found: dict[str, Any] = {"system": SYSTEM, "exact": True}
    if isinstance(examples, str) and examples and examples in text:
        text = text.replace(examples, "{EXAMPLE}")
        found["shown"] = examples
    user = _with_our_gaps(text, place)
    if "{{passages}}" in user:
        found |= {"passage": PASSAGE, "between": ""}
    return found | {"user": user}


def shown_pack(protocol: Protocol, place: Path | None = None) -> FetchedPack:
    """What a pack that was fetched holds."""
    path = place or pack_place(protocol.name)
    pack, content = read_pack(path), Content.of(path)
    names = {*pack.aliases}
    tasks = list(dict.fromkeys(n for table in _task_tables(pack) for n in table if n not in (*names, "default")))
    counted = {
        model: {"query": _covered(lines.query, tasks), "document": _covered(lines.document, tasks)}
        for model, lines in pack.model.items()
    }
    return FetchedPack(
        protocol=protocol.name,
        path=str(path),
        digest=content.whole,
        published=content.whole == protocol.prompts,
        commit=protocol.source.commit if protocol.source else "",
        files=protocol.source.files if protocol.source else {},
        models=counted,
        methods={method: _covered(table, tasks) for method, table in pack.generate.items()},
        tasks={task: _task(pack, task) for task in tasks},
    )


def _task_tables(pack: PromptPack) -> Iterator[Mapping[str, Any]]:
    for lines in pack.model.values():
        yield lines.query
        yield lines.document
    yield from pack.generate.values()


def _covered(table: Mapping[str, Any], tasks: list[str]) -> int:
    return len(tasks) if "default" in table else sum(task in table for task in tasks)


def _task(pack: PromptPack, task: str) -> dict[str, Any]:
    """The instructions and prompts of one task, by hash."""

    def hashed(table: Mapping[str, Any]) -> str:
        return fingerprint("prompt", table.get(task, table.get("default")))[:8]

    prompts = {method: table[task] for method, table in pack.generate.items() if task in table}
    return {
        "query": {model: hashed(lines.query) for model, lines in pack.model.items() if lines.query},
        "document": {model: hashed(lines.document) for model, lines in pack.model.items() if lines.document},
        "prompts": {method: fingerprint("prompt", prompt)[:8] for method, prompt in prompts.items()},
        "examples": {method: _examples(prompt["shown"]) for method, prompt in prompts.items() if "shown" in prompt},
    }


def _examples(shown: str) -> int:
    """Worked examples of a text: each has its answer behind a line that says so."""
    return sum(line.rstrip() in ("Passage:", "Similar Case:") for line in shown.splitlines())


def grouprank(files: Files) -> dict[str, Any]:
    """GroupRank: a system and a user text, both attributes of its reranker."""
    place, source = _only(files, ".py")
    texts = assigned_texts(source, place)
    system, user = (_found(texts.get(name), name, place) for name in ("group_system_prompt", "group_user_prompt"))
    return {
        "system": _escaped(system, place),
        "user": _with_our_gaps(user, place),
        "passage": "[{{number}}]. {{passage}}\n\n",
        "between": "",
        "exact": True,
        "max_tokens": 8000,
    }


def reasonrank(files: Files) -> dict[str, Any]:
    """ReasonRank: the system text of its reasoning mode, and what two functions put before and behind the passages."""
    place, source = _only(files, ".toml")
    try:
        table = parse_toml(source.decode())
    except ValueError as error:  # of the encoding, of TOML
        raise DataError(f"is no TOML ({error})", path=place) from None
    system = _found(table.get("system_prompt_reasoning"), "system_prompt_reasoning", place)
    code_place, code = _only(files, ".py")
    before, behind = (
        _found(next(iter(returned_texts(code, code_place, name)), None), name, code_place)
        for name in ("add_prefix_prompt", "add_post_prompt")
    )
    whole = f"{_with_our_gaps(before, code_place)}\n{GAPS['PASSAGES']}{_with_our_gaps(behind, code_place)}"
    return {
        "system": _escaped(system, place),
        "user": whole,
        "passage": "[{{number}}] {{passage}}\n",
        "between": "",
        "exact": True,
        "max_tokens": 3072,
    }


READERS: dict[str, Callable[[Files], dict[str, Any]]] = {"grouprank": grouprank, "reasonrank": reasonrank}
"""Protocols whose pack holds the prompt of the reranker of the same name."""


def reranker_pack(files: Files, name: str, commit: str) -> PromptPack:
    """The pack that the files of a published reranker make."""
    source = f"{' and '.join(files)} at {commit}"
    return PromptPack(name=name, source=source, generate={name: {"default": READERS[name](files)}})


def _only(files: Files, suffix: str) -> tuple[str, bytes]:
    found = [(path, content) for path, content in files.items() if path.endswith(suffix)]
    if len(found) != 1:
        raise DataError(f"the protocol's source names {len(found)} files that end in {suffix}, not one")
    return found[0]


def _found(text: object, name: str, place: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"holds no text {name}", path=place)
    return text


def _with_our_gaps(text: str, place: str) -> str:
    """A format string with our gaps in place of its own."""
    try:
        pieces = [(literal, GAPS[gap] if gap else "") for literal, gap in plain_gaps(text)]
    except (KeyError, ValueError) as error:
        raise DataError(f"has a gap that is not known ({error})", path=place) from None
    return "".join(_escaped(literal, place) + gap for literal, gap in pieces)


def _escaped(text: str, place: str) -> str:
    """A text that holds no gap of ours by chance."""
    if "{{" in text:
        raise DataError("has braces of its own", path=place)
    return text
