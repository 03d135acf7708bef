"""Prompts of published rerankers, read from files of the shape that their repositories have, in words of our own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from r2med.core import DataError, Run, Task
from r2med.pipeline.protocol_pack import fetch_pack
from r2med.rerank import rerankers
from r2med.rerank.asking import load_prompt
from r2med.results.protocols import get_protocol, read_protocol
from tests.cli.test_machine import r2med
from tests.llm.conftest import server
from tests.llm.server import ChatServer
from tests.rerank.conftest import MakeReranker, first, make_reranker, task

__all__ = ["first", "make_reranker", "server", "task"]
GROUPS = """
import os

class Judge:
    def __init__(self, path) -> None:
        self.model = open(path)
        self.group_system_prompt = '''You mark pages, from {} to ten.
'''
        self.group_user_prompt = '''Here are {TOPK} pages for {QUERY}:
{PASSAGES}
Answer with {{"[1]": 5}} for all {TOPK}.
'''
"""
ORDERS = """
import os

def add_prefix_prompt(mode, query: str, num: int) -> str:
    if mode == "a":
        return f"Put {num} pages in order for {query}.\\n"
    else:
        return f"Not this one, {query}"

def add_post_prompt(mode, query: str, num: int) -> str:
    if mode == "a":
        example = "[2] > [1] {x}"
        return f"The question: {query}. As in {example}."
    elif mode == "b":
        example = "[1] [2]"
        return f"Nor this one: {example}"
    raise ValueError
"""
SYSTEM = 'system_prompt = "no"\nsystem_prompt_reasoning = "You order pages."\n'
FILES = {
    "grouprank": {"Reranker/rerank_groupwise.py": GROUPS},
    "reasonrank": {"listwise_prompt_r1.toml": SYSTEM, "utils.py": ORDERS},
}


def written(folder: Path, name: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A clone with these files, and a protocol that names their hashes."""
    clone = folder / "clone"
    lines = [f'name = "{name}"', 'title = "t"', 'summary = "s"', "[source]", 'repository = "r"', 'url = "u"']
    lines += ['commit = "0123456789abcdef"', "[source.files]"]
    for path, content in files.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(content.encode())
        lines.append(f'"{path}" = "{hashlib.sha256(content.encode()).hexdigest()}"')
    protocol = folder / "own.toml"
    protocol.write_text("\n".join(lines))
    return clone, protocol


def test_groups(tmp_path: Path, server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    clone, protocol = written(tmp_path, "grouprank", FILES["grouprank"])
    done = fetch_pack(read_protocol(str(protocol)), clone)
    server.text = lambda body: '<answer>{"[1]": 1, "[2]": 9}</answer>'
    run = make_reranker(f"grouprank:any-model,shuffle=no,prompt={done.path}", concurrency=1).rerank(task, first, 2)
    system, user = (message["content"] for message in server.asked[0]["messages"])
    shown = [" ".join(task.documents.contents[d].split()) for d in first.docs[0, :2].tolist()]
    assert system == "You mark pages, from {} to ten.\n"
    assert user == (
        f"Here are 2 pages for {task.queries[0].text}:\n[1]. {shown[0]}\n\n[2]. {shown[1]}\n\n\n"
        'Answer with {"[1]": 5} for all 2.\n'
    )
    assert server.asked[0]["max_tokens"] == 8000
    assert run.docs[0, :2].tolist() == first.docs[0, [1, 0]].tolist()
    plain, own = (rerankers.parse(f"grouprank:any-model{more}") for more in ("", f",prompt={done.path}"))
    assert plain != own
    with pytest.raises(DataError, match="has no prompt for listwise"):
        make_reranker(f"rankgpt:any-model,prompt={done.path}")


def test_orders(tmp_path: Path) -> None:
    clone, protocol = written(tmp_path, "reasonrank", FILES["reasonrank"])
    prompt = load_prompt("reasonrank", Path(fetch_pack(read_protocol(str(protocol)), clone).path))
    system, user = prompt.messages(query="why?", passages=prompt.numbered(["one", "two"]), count="2")
    assert system.content == "You order pages."
    assert user.content == (
        "Put 2 pages in order for why?.\n\n[1] one\n[2] two\nThe question: why?. As in [2] > [1] {x}."
    )
    assert prompt.max_tokens == 3072


def test_the_command(tmp_path: Path) -> None:
    clone, protocol = written(tmp_path, "grouprank", FILES["grouprank"])
    done = r2med("protocol", "fetch", str(protocol), "--from", str(clone))
    assert "--rerank grouprank:LLM,prompt=" in done.stderr


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "why"),
    [
        ("grouprank", "Reranker/rerank_groupwise.py", "group_user_prompt", "other", "holds no text group_user_prompt"),
        ("grouprank", "Reranker/rerank_groupwise.py", "{QUERY}", "{WHO}", "has a gap that is not known"),
        ("grouprank", "Reranker/rerank_groupwise.py", "{QUERY}", "{QUERY.x}", "has a gap that is not known"),
        ("grouprank", "Reranker/rerank_groupwise.py", "import os", "import (", "is not Python"),
        ("reasonrank", "utils.py", "{num}", "{num + 1}", "more than a name"),
        ("reasonrank", "utils.py", "add_post_prompt", "other", "holds no text add_post_prompt"),
        ("reasonrank", "listwise_prompt_r1.toml", "system_prompt_reasoning", "x", "holds no text system_prompt_reas"),
        ("reasonrank", "listwise_prompt_r1.toml", "=", "", "is no TOML"),
    ],
)
def test_files_of_another_shape(tmp_path: Path, name: str, file: str, old: str, new: str, why: str) -> None:
    assert old in FILES[name][file]
    clone, protocol = written(tmp_path, name, {**FILES[name], file: FILES[name][file].replace(old, new)})
    with pytest.raises(DataError, match=why):
        fetch_pack(read_protocol(str(protocol)), clone)


@pytest.mark.parametrize("name", list(FILES))
def test_the_real_files_give_the_pack_that_the_protocol_names(name: str) -> None:
    clone = os.environ.get(f"{name.upper()}_CLONE", "")
    if not clone:
        pytest.skip(f"no clone of the repository of {name}: set {name.upper()}_CLONE to one")
    assert fetch_pack(get_protocol(name), Path(clone)).published
