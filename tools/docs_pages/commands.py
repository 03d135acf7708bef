"""One page per command, from click itself."""

from __future__ import annotations

from collections.abc import Iterator

import click

from r2med.cli import COMMANDS, app
from r2med.core.table import Table

INTRODUCTION = """# Commands

Every command takes `--help` and `--json` (one JSON document on standard output, everything else on standard error). The
exit code is 0 on success, 1 where something failed, 2 for a request that cannot be carried out as written, 3 where a
budget is spent, 130 after an interruption. Errors are one line.
"""


def pages() -> dict[str, str]:
    """`commands/index.md` and a page per command."""
    root = click.Context(app, info_name="r2med")
    made = {}
    rows = []
    for name, summary in COMMANDS.items():
        command = app.get_command(root, name)
        assert command is not None, name
        made[f"commands/{name}.md"] = "\n".join(section(command, root, name, level=1))
        rows.append([f"[`r2med {name}`]({name}.md)", cell(summary)])
    index = "\n".join([INTRODUCTION, Table(["Command", "What it does"], rows, left=2).markdown(ready=True)])
    return {"commands/index.md": index, **made}


def section(command: click.Command, parent: click.Context, name: str, *, level: int) -> list[str]:
    """A command, its options and its sub-commands."""
    context = click.Context(command, info_name=name, parent=parent)
    lines = [f"{'#' * level} r2med {context.command_path.removeprefix('r2med ')}", ""]
    lines += [*paragraphs(command.help or ""), "```text", command.get_usage(context).removeprefix("Usage: "), "```", ""]
    if arguments := [p for p in command.params if isinstance(p, click.Argument)]:
        rows = [[f"`{a.make_metavar(context)}`", "yes" if a.required else "no"] for a in arguments]
        lines += [Table(["Argument", "Needed"], rows, left=2).markdown(ready=True), ""]
    if rows := [list(option_row(o)) for o in command.params if isinstance(o, click.Option) and not o.hidden]:
        lines += [Table(["Option", "Meaning", "Default"], rows, left=3).markdown(ready=True), ""]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            child = command.get_command(context, inner)
            assert child is not None
            lines += section(child, context, inner, level=level + 1)
    return lines


def option_row(option: click.Option) -> Iterator[str]:
    """Names with the kind of value, the help, the default."""
    value = "" if option.is_flag else f" {value_name(option)}"
    names = sorted((*option.opts, *option.secondary_opts), key=lambda name: name.startswith("--"))
    yield "<br>".join(f"`{name}{value if name.startswith('--') else ''}`" for name in names)
    yield cell(option.help or "") + (" May be repeated." if option.multiple else "")
    yield default_of(option)


def value_name(option: click.Option) -> str:
    """What stands after the option's name."""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    if isinstance(option.type, click.IntRange):
        return "N"
    return {"FLOAT RANGE": "X", "FLOAT": "X", "INTEGER": "N"}.get(option.type.name.upper(), option.type.name.upper())


def default_of(option: click.Option) -> str:
    """The default, where there is one to speak of."""
    default = option.default
    if option.is_flag or default is None or callable(default) or str(default).startswith("Sentinel"):
        return ""
    if isinstance(default, list | tuple):
        default = ", ".join(map(str, default))
    return f"`{default}`" if str(default) else ""


def paragraphs(text: str) -> list[str]:
    """Help text as Markdown paragraphs."""
    blocks = [" ".join(block.split()) for block in text.replace("\b", "").split("\n\n")]
    return [line for block in blocks if block for line in (escape(block), "")]


def cell(text: str) -> str:
    """Text inside a table."""
    return escape(" ".join(text.split())).replace("|", "\\|")


def escape(text: str) -> str:
    """Angle brackets mean themselves; everything else is written with Markdown in mind."""
    return text.replace("<", "&lt;").replace("*", "\\*")
