"""Which files of `src/r2med` a command passes: those of which it executes a function.

    python tools/walk.py run --tasks mini/Biology --retriever bm25 --results /tmp/results
    python tools/walk.py --markdown         # the walk that docs/architecture.md draws, written there
    python tools/walk.py --print            # the same, printed

Functions that run while a module is imported do not count. The walk of the page starts with an empty home, so that
nothing is cached; it needs the weights of bge-small, and its chat model is a server that this script starts.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
import textwrap
import threading
from contextlib import redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType, FrameType

from marked import ROOT, write_block

import r2med
from r2med.core.files import home

PACKAGE = Path(r2med.__file__).parent
PAGE = ROOT / "docs" / "architecture.md"
COMMAND = (
    *("run", "--tasks", "mini/MedQA-Diag", "--expand", "hyde:qwen-7b", "--retriever", "bm25"),
    *("--retriever", "bge-small", "--fuse", "rrf", "--rerank", "maxsim@50"),
)
WIDTH, NAMES = 80, 14
"""Columns of the drawing, and of the names of rooms in it."""


class Walk:
    """Files in the order in which they are first passed, with the functions executed there."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        self._known: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by Python for every call and return."""
        code = frame.f_code
        if event != "call" or code in self._known:
            return
        if not code.co_filename.startswith(str(PACKAGE)) or not code.co_flags & inspect.CO_OPTIMIZED:
            self._known.add(code)  # not ours, or a class body or a module, which is no function
        elif not _importing(frame):
            self._known.add(code)
            name = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            self.files.setdefault(name, set()).add(f"{code.co_name}:{code.co_firstlineno}")


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return True
        frame = frame.f_back
    return False


def walked(arguments: list[str]) -> dict[str, set[str]]:
    """Run a command in this process and say which files it passed."""
    from r2med.cli import app

    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        app.main(args=arguments, prog_name="r2med", standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk.files


class ChatHandler(BaseHTTPRequestHandler):
    """A chat model that answers with the end of the question."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""

    def do_POST(self) -> None:
        """One completion."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": asked["messages"][-1]["content"][-400:]}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        data = json.dumps(answer | {"usage": {"prompt_tokens": 100, "completion_tokens": 100}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def walk_of_the_page() -> dict[str, set[str]]:
    """The walk that the page draws, with nothing cached."""
    models = home() / "models"
    if not (models / "bge-small").is_dir():
        raise SystemExit("the walk needs the weights of bge-small: r2med models fetch bge-small")
    server = ThreadingHTTPServer(("127.0.0.1", 0), ChatHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        (Path(folder) / "models").symlink_to(models)
        os.environ |= {"R2MED_HOME": folder, "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1"}
        files = walked([*COMMAND, "--results", f"{folder}/results"])
    server.shutdown()
    server.server_close()
    return files


def drawn(files: dict[str, set[str]]) -> str:
    """The walk, room by room in the order in which they are entered."""
    rooms: dict[str, list[str]] = {}
    for name in files:
        room, _, inside = name.partition("/")
        rooms.setdefault(room, []).append(inside or name)
    command = textwrap.wrap("r2med " + " ".join(COMMAND), WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False)
    lines = [" \\\n".join(command), "│"]
    for number, (room, passed) in enumerate(rooms.items(), start=1):
        text = "" if passed == [room] else ", ".join(passed)
        first, *more = textwrap.wrap(text, WIDTH - NAMES - 4, break_on_hyphens=False) or [""]
        last = number == len(rooms)
        lines.append(f"{'└' if last else '├'}─ {room:<{NAMES}} {first}".rstrip())
        lines += [f"{' ' if last else '│'}  {'':<{NAMES}} {line}" for line in more]
    count = sum(1 for _ in PACKAGE.rglob("*.py"))
    drawing = "\n".join(lines)
    return f"```text\n{drawing}\n```\n\n{len(files)} of {count} files."


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--markdown"], ["--print"]):
        text = drawn(walk_of_the_page())
        if arguments == ["--markdown"]:
            write_block(PAGE, "walk", text)
        else:
            print(text)
        return
    files = walked(arguments)
    for name, functions in files.items():
        print(f"{len(functions):5} {name}", file=sys.stderr)
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions", file=sys.stderr)


if __name__ == "__main__":
    main()
