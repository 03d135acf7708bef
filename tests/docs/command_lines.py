"""Does a command line that stands in a text exist? Asked of click, without running anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click

from r2med.cli import app

_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "<<"}


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of every `r2med …` in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token not in _ENDS:
            words.append(token)
            continue
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        if "--" in words:  # `ray symmetric-run … -- r2med …`
            words = words[words.index("--") + 1 :]
        if words[:1] == ["r2med"]:
            yield words[1:]
        words = []


def problem(arguments: list[str], *, whole: bool = True) -> str:
    """Why the command line cannot be; empty where it can.

    `whole`: the line is meant to be typed as it stands, so that arguments and choices are looked at as well; else it is
    a mention in a sentence, and its sub-commands and options have to exist.
    """
    context = click.Context(app, info_name="r2med")
    command: click.Command = app
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        inner = command.get_command(context, arguments[0])
        if inner is None:
            return f"{context.command_path} has no command {arguments[0]!r}"
        context = click.Context(inner, info_name=arguments[0], parent=context)
        command, arguments = inner, arguments[1:]
    if {"--help", "-h", "--version"} & set(arguments):
        return ""
    try:
        values, left, _ = command.make_parser(context).parse_args(list(arguments))
    except click.ClickException as error:
        return error.format_message()
    if not whole:
        return ""
    if left:
        return f"{context.command_path}: unexpected {left}"
    for parameter in command.params:
        try:
            _check(parameter, values.get(str(parameter.name)), context)
        except click.ClickException as error:
            return error.format_message()
    return ""


def _check(parameter: click.Parameter, value: object, context: click.Context) -> None:
    """Required values are there, choices exist, numbers are numbers; files need not be there."""
    given = [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, str)]
    if parameter.required and not given:
        raise click.UsageError(f"{context.command_path}: {parameter.human_readable_name} is missing")
    if isinstance(parameter.type, click.Choice | click.types.IntParamType | click.types.FloatParamType):
        convert: Any = parameter.type.convert
        for item in given:
            convert(item, parameter, context)
