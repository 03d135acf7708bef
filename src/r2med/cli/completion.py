"""`r2med completion`: the script that a shell reads at its start."""

from __future__ import annotations

import click

from .output import say


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script: eval "$(r2med completion bash)"."""
    from click.shell_completion import get_completion_class

    from . import app

    completer = get_completion_class(shell)
    assert completer is not None
    say(completer(app, {}, "r2med", "_R2MED_COMPLETE").source(), lines=True)
