"""The command `r2med`: parses, calls, prints; no logic.

Sub-commands are imported when they are called, so that `r2med --help` answers at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
import warnings
from types import FrameType
from typing import Any

import click

from .._version import __version__
from .common import Commands, harmless, note, say

COMMANDS = {
    "run": "Run systems on tasks and print a table of scores (the main job).",
    "quickstart": "From nothing to the published scores beside ours, on R2MED or NanoR2MED.",
    "tune": "Choose the weights of a fusion on other queries than those reported.",
    "search": "Type a query and see the top passages of a task.",
    "score": "Score any TREC run against judgments.",
    "compare": "Compare systems on the same queries: intervals, paired tests, ties.",
    "design": "Say how many queries and tasks a difference needs.",
    "judge": "Make a benchmark: pool, judge, agree, check, publish.",
    "leaderboard": "Show results beside published figures.",
    "reproduce": "Compare our scores with the published ledger.",
    "recommend": "Say which pipeline fits a budget, with the command.",
    "protocol": "Show the protocols, and fetch the instructions that one needs.",
    "plot": "Draw results as SVG or PNG.",
    "view": "Look at results in the browser.",
    "report": "Write results as one HTML file.",
    "board": "Write the static site of a public leaderboard from bundles.",
    "bundle": "Pack results as one file that verifies itself; check and add such files.",
    "tasks": "List the tasks: what there is and what is on this machine.",
    "data": "Download tasks or add your own; validate, measure, convert and audit them.",
    "nano": "Build, profile and check Nano tasks.",
    "pages": "Write task and group pages in Markdown.",
    "models": "List the models and fetch them.",
    "expand": "Generate texts from queries before retrieval; resumable.",
    "export": "Export results, tasks and training data; publish to the hub.",
    "cache": "Show, verify and prune everything kept on disk.",
    "doctor": "Say what is installed, what works and what is ready to run.",
    "completion": "Print the shell completion script.",
}
HOMES = {
    "design": "compare",
    "search": "score",
    "score": "score",
    "leaderboard": "browse",
    "view": "browse",
    "report": "browse",
    "pages": "browse",
    "tasks": "data",
    "data": "data",
    "quickstart": "reproduce",
    "reproduce": "reproduce",
    "protocol": "reproduce",
    "recommend": "choose",
    "tune": "choose",
    "export": "publish",
    "bundle": "publish",
    "board": "publish",
    "models": "machine",
    "doctor": "machine",
    "cache": "machine",
}
"""Commands that share a module."""
MOVED = {"relabel": "judge relabel"}
"""Commands of 0.1 that have another name now."""
PATIENCE = 0.7
"""Seconds that an interrupted command gives the threads of libraries."""
KEPT = "what was finished is kept, the same command goes on from there"


class LazyGroup(Commands):
    """A group whose commands live in modules of their own, named after them."""

    moved = MOVED

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        return COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "completion":
            return completion
        module = importlib.import_module(f".{HOMES.get(cmd_name, cmd_name)}", __name__)
        command: click.Command = getattr(module, cmd_name if cmd_name in HOMES else "command")
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="r2med")
def app() -> None:
    """Reasoning-driven medical retrieval: run, score, explain and publish experiments.

    Start with `r2med run`: it needs no network and no key. Not a clinical decision system.
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(r2med completion bash)"."""
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    say(completer(app, {}, "r2med", "_R2MED_COMPLETE").source(), lines=True)


class Terminated(BaseException):
    """SIGTERM: the command ends as after Ctrl-C, with what is finished kept."""


_signals: list[int] = []
"""Signals that came: a library that is just being imported may turn their exception into one of its own."""


def _on_signal(number: int, frame: FrameType | None) -> None:
    _signals.append(number)
    if parallel := sys.modules.get("r2med.core.parallel"):
        parallel.STOP.set()  # threads that wait for a server end at once
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def main() -> None:
    """Entry point: an error of the user's is one line and an exit code, never a stack trace."""
    warnings.formatwarning = lambda message, *_, **__: f"r2med: {harmless(str(message))}\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # signals that nohup ignores stay ignored
            signal.signal(number, _on_signal)
    for stream in (sys.stdout, sys.stderr):
        # UTF-8 whatever the locale says, as Python does from 3.15 on: tables and texts of tasks hold what others lack.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    try:
        sys.exit(_run())
    except BrokenPipeError:  # `r2med … | head` is no error
        _write_nothing_more()
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _write_nothing_more()
        note(f"r2med: cannot write ({error.strerror})")
        sys.exit(1)


def _run() -> Any:
    try:
        return app.main(prog_name="r2med", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        note(asked.format_message(), lines=True)
        return asked.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        note(f"r2med: {error.format_message()}{hint}")
        return error.exit_code
    except (Exception, KeyboardInterrupt, Terminated) as error:
        return _failed(error)


def _failed(error: BaseException) -> int:
    """One line for what went wrong; a bug of ours is raised again."""
    if _signals or isinstance(error, KeyboardInterrupt | click.Abort):
        how, code = ("terminated", 143) if signal.SIGTERM in _signals else ("interrupted", 130)
        note(f"r2med: {how}; {KEPT}", whole=True)  # nothing is imported at an interrupt
        _end_soon(code)
        return code
    if isinstance(error, MemoryError):
        note(f"r2med: not enough memory ({error or 'an allocation failed'}); {KEPT}")
        return 1
    from ..core.errors import R2MedError  # imports numpy: not for --help

    if not isinstance(error, R2MedError):
        raise error
    note(f"r2med: {error}")
    return error.exit_code


def _end_soon(code: int) -> None:
    """Python waits at its end for the threads of libraries, which may wait for a server: not for longer than this."""
    sys.stdout.flush()
    watch = threading.Timer(PATIENCE, os._exit, [code])
    watch.daemon = True
    watch.start()


def _write_nothing_more() -> None:
    """Python would try to write the rest of the output once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
