"""`METHOD:replay:FILE`: texts that somebody generated before, so that a result needs no LLM to be reproduced.

Read are R2MED's `query_with_hydoc.jsonl` (`{"id", "hy_doc"}`), files of the generation store, and what was published
with a task (`METHOD:published:LLM`). Published answers of reasoning models hold their chain of
thought: they are parsed like fresh ones, by the marks of the LLM that a file's folder or the source names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, Task, UsageError, fingerprint
from ..core.options import Progress
from ..core.spec import Content, Spec
from ..core.untrusted import file_name
from ..llm import Choice, Generation, Replay, parse
from ..llm.parsing import put_newest
from ..llm.store import StoreKey, is_header, read_header, read_store, recorded_lines
from ..models import find_chat_card
from .contract import MISSING, Expander, Expansion, Expansions, expanders


class Recorded(NamedTuple):
    """Texts of one query."""

    texts: tuple[str, ...]
    statuses: tuple[str, ...]
    raw: tuple[str, ...] = ()
    """All of them as they came."""


RECORDED = ("replay", "published")
"""Sources of texts that somebody generated before."""


def recorded(spec: Spec) -> Replayed:
    """The expander of `METHOD:replay:FILE` or `METHOD:published:LLM`."""
    source = spec.argument
    assert isinstance(source, Spec)
    if unused := next((key for key, _ in spec.parameters if key != "policy"), None):
        raise UsageError(f"{spec}: texts that are recorded are not generated: leave out {unused}")
    if source.name == "replay":
        assert isinstance(source.argument, Content)
        return Replayed(spec.name, path=source.argument.located(), spec=spec)
    return Replayed(spec.name, published=str(source.argument), spec=spec)


class Replayed(Expander):
    """Recorded texts as an expander: of a file, a folder, or those published with a task."""

    def __init__(
        self,
        method: str,
        *,
        path: Path | None = None,
        published: str = "",
        spec: Spec | None = None,
        marking: str = "auto",
        clean: bool = False,
    ) -> None:
        if (path is None) == (not published):
            raise UsageError("recorded texts come from a file or from a task, not from both or neither")
        self.method, self.path, self.published, self.clean = method, path, published, clean
        self.policies = expanders[method].target.policies  # type: ignore[misc]
        source = Spec("replay", Content.of(path)) if path else Spec("published", published)
        self.spec = spec or Spec(method, source)
        known = path.resolve().parent.name if path else published
        self.marking = marking_of(known) if marking == "auto" else marking
        self.warning = _warning(path) if path else ""

    def describe(self) -> dict[str, object]:
        """The content counts, not where it lies; texts that come with a task are `task_facts`."""
        content = f"published:{self.published}" if self.path is None else _content(self.path)
        return {"method": self.method, "replay": content, "marking": self.marking, "clean": self.clean}

    def task_facts(self, task: Task) -> dict[str, object]:
        """The published texts themselves: the task's own fingerprint does not cover them."""
        if self.path is not None:
            return {}
        texts = self._published(task)
        return {"texts": fingerprint("recorded", {key: list(texts[key]) for key in sorted(texts)})}

    def _published(self, task: Task) -> Mapping[str, Sequence[str]]:
        if task.published is None:
            raise UsageError(f"{task.full_name} comes without published expansions")
        return task.published(self.method, self.published)

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """The recorded texts of each query."""
        recorded = self._recorded(task)
        queries = task.queries[:limit]
        if self.path and self.path.is_file() and _store_key(self.path) and not any(q.id in recorded for q in queries):
            raise DataError(
                f"was generated for another task than {task.full_name} (give the folder to replay several)",
                path=self.path,
            )
        nothing = Recorded((), (MISSING,))
        items = {}
        for query in queries:
            found = recorded.get(query.id, nothing)
            items[query.id] = Expansion(query_id=query.id, original=query.text, **found._asdict())
        if on_progress:
            on_progress(len(queries), len(queries))
        missing = sum(query.id not in recorded for query in queries)
        content = fingerprint("recorded", {key: recorded[key].texts for key in sorted(recorded)})
        notes: dict[str, object] = {"queries_without_recorded_text": missing} if missing else {}
        return Expansions(self.method, {**self.describe(), "content": content}, items, notes, self.policies)

    def _recorded(self, task: Task) -> dict[str, Recorded]:
        if self.path is not None:
            return read_recorded(self._file(task), self.method, self.marking, clean=self.clean)
        texts = self._published(task)
        return {key: as_recorded(value, self.marking, clean=self.clean) for key, value in texts.items()}

    def _file(self, task: Task) -> Path:
        assert self.path is not None
        if not self.path.is_dir():
            return self.path
        known = {task.name, task.collection}
        name, collection = file_name(task.name, known=known), file_name(task.collection or "own", known=known)
        tried = [
            self.path / collection / f"{name}.jsonl",
            self.path / f"{name}.jsonl",
            self.path / name / "query_with_hydoc.jsonl",
            self.path / "query_with_hydoc.jsonl",
        ]
        for candidate in tried:
            if candidate.is_file():
                return candidate
        if stores := stores_of(self.path, self.method, task):
            if len(stores) > 1:
                names = ", ".join(store.name for store in stores)
                raise UsageError(f"{self.path} holds several stores of {task.full_name}: name one ({names})")
            return stores[0]
        raise DataError(f"holds no recorded texts of {task.full_name} (looked for {task.name}.jsonl)", path=self.path)


def marking_of(llm: str) -> str:
    """How an LLM marks its reasoning, as far as its name tells."""
    card = find_chat_card(llm)
    return card.marking if card else "auto"


def as_recorded(texts: Sequence[str | Choice], marking: str = "auto", *, clean: bool = False) -> Recorded:
    """Answers as somebody else got them, read like our own: an unfinished chain of thought is no text."""
    given = (texts,) if isinstance(texts, str) else tuple(texts)
    read = [parse(Choice(t) if isinstance(t, str) else t, marking, clean=clean) for t in given]
    usable = tuple(p.final for p in read if p.final and p.status in ("ok", "truncated"))
    raw = tuple(t if isinstance(t, str) else t.text for t in given)
    return Recorded(usable, tuple(p.status for p in read), raw)


def read_recorded(path: Path, method: str = "", marking: str = "auto", *, clean: bool = False) -> dict[str, Recorded]:
    """Texts by query id, from a generation store of this method or a `query_with_hydoc.jsonl`."""
    if _store_key(path) is None:
        answers = Replay.from_file(path).answers
        return {key: as_recorded(choices, marking, clean=clean) for (key, _), choices in answers.items()}
    key, generations, _ = read_store(path)
    if method and key.method != method:
        raise UsageError(f"{path} holds generations of {key.method}, not of {method}: {key.method}:replay:{path}")
    prompts: dict[str, dict[str, dict[int, Generation]]] = {}
    for generation in generations:
        put_newest(prompts.setdefault(generation.query_id, {}).setdefault(generation.prompt_hash, {}), generation)
    found = {}
    for query_id, by_prompt in prompts.items():
        # A query has a second prompt where a method before this one was asked again: the newest is the one in use.
        by_sample = list(by_prompt.values())[-1]
        ordered = [by_sample[s] for s in sorted(by_sample)]
        found[query_id] = Recorded(
            tuple(g.final for g in ordered if g.usable), tuple(g.status for g in ordered), tuple(g.raw for g in ordered)
        )
    return found


def _store_key(path: Path) -> StoreKey | None:
    """What a generation store says of its answers, compressed or not; None for another file."""
    try:
        with path.open("rb") as stream:
            first = stream.readline()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    if first[:2] == b"\x1f\x8b":
        first = next(iter(recorded_lines(path)), b"")
    return read_header(path, first).key if is_header(first) else None


def stores_of(folder: Path, method: str, task: Task) -> list[Path]:
    """Generation stores of a method on a task, anywhere below a folder."""
    found = []
    for file in sorted(folder.rglob("*.jsonl")):
        key = _store_key(file)
        if key is not None and (key.method, key.task) == (method, task.fingerprint):
            found.append(file)
    return found


def _warning(path: Path) -> str:
    """What must be said of the model that wrote a store, or one of a folder's; other files do not tell."""
    for file in sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]:
        key = _store_key(file)
        if key is not None and (warning := key.model.get("warning")):
            return str(warning)
    return ""


def _content(path: Path) -> str:
    """Hash of a file, or of all files of a folder."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for file in sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    return digest.hexdigest()
