"""The import rules of the design: a lower room never imports a higher one."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med

ROOT = Path(r2med.__file__).parent
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "http": {"core"},
    "cache": {"core"},
    "text": {"core"},
    "models": {"core"},
    "tasks": {"core", "text"},
    "llm": {"core", "http", "cache", "models"},  # a chat model has a card like any other
    "retrieve": {"core", "http", "cache", "text", "models"},
    "expand": {"core", "llm", "retrieve", "models"},  # models: published texts are filed under the names of chat models
    "rerank": {"core", "cache", "llm", "retrieve", "models"},  # retrieve: cross-encoders are batched as encoders are
    "scoring": {"core"},
    "fuse": {"core", "scoring"},  # scoring: weights are tuned by a measure
    "results": {"core", "scoring"},
    "report": {"core", "results", "tasks", "scoring", "text"},  # text: which words of a passage match the query
}
_STAGES = {"core", "text", "models", "tasks", "llm", "retrieve", "expand", "rerank", "scoring", "fuse", "results"}
ROOMS["pipeline"] = _STAGES | {"http"}  # http: a protocol's instructions are fetched
ROOMS["doctor"] = {"core", "text", "models", "tasks", "retrieve", "results", "pipeline"}  # tries what a first run needs
ROOMS["integrations"] = (_STAGES - {"text", "fuse"}) | {"pipeline", "report"}  # report: cards show its tables
# report: the judging page is served and drawn as the web app is
ROOMS["judge"] = (_STAGES - {"expand", "fuse"}) | {"cache", "pipeline", "report"}
ROOMS["api"] = _STAGES | {
    "cache",
    "pipeline",
    "report",
    "doctor",
    "integrations",
    "judge",
}  # all a command
# A command parses, calls `api` and prints. Beside `api` it names the registries in its help (retrieve, expand, rerank,
# fuse, llm), the tables of report and scoring that it prints, and the types of what `api` gives back.
ROOMS["cli"] = {"api"} | ROOMS["api"]
ROOMS["upstream"] = {"integrations"}  # `python -m r2med.upstream`, and nothing else
HEAVY = ("torch", "pyarrow", "huggingface_hub", "rich", "zstandard", "transformers")


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, at its top or inside a function."""
    package = ["r2med", *path.relative_to(ROOT).with_suffix("").parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if room_of(alias.name) and alias.name.startswith("r2med."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: -node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "r2med":  # `from r2med import tasks`, `from .. import tasks`
                yield from (f"r2med.{alias.name}" for alias in node.names)
            elif module.startswith("r2med."):
                yield module


FILES = sorted(path for path in ROOT.rglob("*.py") if not path.relative_to(ROOT).parts[0].startswith("_"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    room = path.relative_to(ROOT).with_suffix("").parts[0]
    assert room in ROOMS, f"the design knows no room {room}"
    used = {room_of(module) for module in imports(path)}
    assert {name for name in used if not name.startswith("_")} <= ROOMS[room] | {room}  # _version, native modules: all


PRINTING = re.compile(
    r"(print|(click|rich)\.(s?echo|print)|.*\bconsole\.print|sys\.std(out|err)(\.buffer)?\.write(lines)?)"
)
MAY_PRINT = {
    "cli/common.py": "makes what comes from data harmless for a terminal",
    "integrations/upstream/__init__.py": "a command of its own, which prints as upstream's scripts do",
    "integrations/upstream/tree.py": "the same command",
    "core/plugins.py": "a process that foreign code forked says why it ends; its text passes through `printable`",
}


def printed(path: Path) -> set[str]:
    """Calls of a file that write to a terminal, and its imports of what draws on one."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {call for call in calls if PRINTING.fullmatch(call)} | {m for m in modules if m.partition(".")[0] == "rich"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_the_output_module_prints(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() in MAY_PRINT:
        assert printed(path)
    else:
        assert not printed(path)


CLIENTS = {
    "http.py": {"httpx"},  # chat and embedding services
    "core/hub.py": {"huggingface_hub"},
}
ASKING = {"aiohttp", "http", "httpx", "huggingface_hub", "requests", "urllib.request", "urllib3"}


def test_servers_are_asked_by_two_modules_alone() -> None:
    """They bound what an answer costs, give up in time and end at an interrupt; a third would do so once more."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        if asking := {name for name in ASKING for m in modules if m == name or m.startswith(f"{name}.")}:
            found[path.relative_to(ROOT).as_posix()] = asking
    assert found == CLIENTS


ONE_SYSTEM_ONLY = re.compile(
    r"\b(fcntl|msvcrt|resource|termios|pwd|ctypes)\.\w|\bos\.(kill|killpg|fork|pread|pwrite|sysconf|geteuid|getuid|mkfifo)\("
)


def test_calls_of_one_system_stand_in_one_module() -> None:
    """Windows ends the process that `os.kill(pid, 0)` asks after, and has no fcntl: such calls have a twin there."""
    using = {path.relative_to(ROOT).as_posix() for path in FILES if ONE_SYSTEM_ONLY.search(path.read_text("utf-8"))}
    assert using == {"core/portable.py"}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import r2med", "import r2med.core, r2med.tasks"])
def test_nothing_heavy_is_imported(statement: str) -> None:
    assert not loaded_after(statement) & set(HEAVY)


def test_the_file_finder_understands_imports(tmp_path: Path) -> None:
    path = ROOT / "tasks" / "load.py"
    assert {"r2med.core", "r2med.tasks.catalogue"} <= set(imports(path))
