"""Prompts of published rerankers, read from their repositories' files as data.

Each function takes the files of one commit, compared with known hashes before, and makes the prompt in our form. The
order in which the parts are put together is that of the repository's code; the words are all theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core import DataError
from ..core.files import parse_toml
from ..core.literals import assigned_texts, plain_gaps, returned_texts
from ..models.prompts import PromptPack

Files = Mapping[str, bytes]
GAPS = {
    **{"QUERY": "{{query}}", "PASSAGES": "{{passages}}", "TOPK": "{{count}}"},
    **{"query": "{{query}}", "num": "{{count}}"},
}
"""Gaps of the repositories' prompts, and what ours are called."""


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
