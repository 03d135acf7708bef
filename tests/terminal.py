"""A real pseudo-terminal of any width, in which one process runs many commands as a shell would."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

OURS = re.compile(r"\x1b\[(?:\?25[lh]|[0-9;]*[mAK]|2K)")
"""What the progress bar and bold words of our own send."""
END = "\x1eend of command"
DRIVER = f"""
import fcntl, json, struct, sys, termios
from r2med.cli import main

for columns, arguments in json.loads(sys.stdin.read()):
    for stream in (1, 2):
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    sys.argv, code = ["r2med", *arguments], 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    for stream in (sys.stdout, sys.stderr):
        print(f"{END} {{code}}", file=stream, flush=True)
"""


class Shown(NamedTuple):
    """What a command wrote to its terminals, line by line; every state of a progress bar is a line."""

    out: list[str]
    err: list[str]
    code: int
    raw: str  # Both, as they were sent.

    @property
    def text(self) -> str:
        """Both without our own colours and movements of the cursor."""
        return OURS.sub("", self.raw)


def run_all(
    commands: Sequence[tuple[int, Sequence[str]]], cwd: Path, environment: Mapping[str, str] | None = None
) -> list[Shown]:
    """Run commands one after the other, each with a terminal of so many columns for stdout and one for stderr."""
    ends = [pty.openpty() for _ in range(2)]
    usual = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=cwd, env=usual | {"TERM": "xterm"} | dict(environment or {}),
        stdin=subprocess.PIPE, stdout=ends[0][1], stderr=ends[1][1],
    )  # fmt: skip
    texts = ["", ""]
    readers = [threading.Thread(target=_read, args=(reader, texts, i)) for i, (reader, _) in enumerate(ends)]
    for thread in readers:
        thread.start()
    for _, writer in ends:
        os.close(writer)
    assert process.stdin is not None
    process.stdin.write(json.dumps([(columns, list(arguments)) for columns, arguments in commands]).encode())
    process.stdin.close()
    assert process.wait(600) == 0, texts[1][-2000:]
    for thread in readers:
        thread.join()
    codes = re.findall(f"{END} (-?[0-9]+)", texts[0])
    outs, errs = (re.split(f"{END} -?[0-9]+\r?\n", text)[: len(commands)] for text in texts)
    assert len(codes) == len(commands)
    return [
        Shown(_lines(out), _lines(err), int(code), out + err)
        for out, err, code in zip(outs, errs, codes, strict=True)
    ]  # fmt: skip


def _read(reader: int, texts: list[str], place: int) -> None:
    data = bytearray()
    while True:
        try:
            more = os.read(reader, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        data += more
    os.close(reader)
    texts[place] = data.decode("utf-8", "replace")


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", OURS.sub("", text)) if line]
