"""Which files of `src/r2med` a command passes: those of which it executes a function.

    python tools/walk.py run --tasks mini/Biology --retriever bm25 --results /tmp/results

Functions that run while a module is imported do not count. `docs/architecture.md` draws one such walk.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType

import r2med

ROOT = Path(r2med.__file__).parent


class Walk:
    """Files in the order in which they are first passed, with the names of the functions executed there."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by Python for every call and return."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(ROOT)) or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # a class body or a module is no function
        name = str(Path(code.co_filename).relative_to(ROOT))
        function = f"{code.co_name}:{code.co_firstlineno}"
        if function not in self.files.get(name, ()) and not _importing(frame):
            self.files.setdefault(name, set()).add(function)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
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


def main() -> None:
    files = walked(sys.argv[1:])
    for name, functions in files.items():
        print(f"{len(functions):5} {name}", file=sys.stderr)
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions", file=sys.stderr)


if __name__ == "__main__":
    main()
