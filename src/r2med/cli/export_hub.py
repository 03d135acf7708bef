"""`r2med export hub`: Nano datasets and results with cards, prepared or uploaded."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note


@click.command("hub")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--repo", required=True, metavar="ORG/NAME", help="The dataset repository.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Default: FOLDER-hub.")
@click.option("--licence", default="", metavar="NAME", help="Terms of the source data, where they are not known.")
@click.option("--upload", "send", is_flag=True, help="Upload; without it nothing leaves this machine.")
@click.option("--private", is_flag=True, help="With --upload: make the repository private.")
@json_option
def hub(folder: Path, repo: str, out: Path | None, licence: str, send: bool, private: bool, as_json: bool) -> None:
    """A Nano dataset or results, ready for the Hugging Face hub.

    FOLDER is what `r2med nano build` or `r2med run` wrote. It is copied with a card; nothing leaves this machine
    without --upload. The token is HF_TOKEN or the one `hf auth login` stored. HF_ENDPOINT and HF_HUB_OFFLINE mean what
    they always mean.
    """
    from ..integrations.hub import prepare, upload

    if private and not send:
        raise click.UsageError("--private goes with --upload: nothing is sent without it")
    target = out or folder.resolve().with_name(f"{folder.resolve().name}-hub")
    prepared = prepare(folder, repo, target, licence=licence)
    uploaded = upload(prepared, private=private) if send else None
    if as_json:
        facts = {"schema": 1, "repo": repo, "kind": prepared.kind, "folder": str(prepared.folder)}
        facts |= {"files": prepared.files, "bytes": prepared.size, "licence": prepared.licence}
        emit(facts | {"uploaded": uploaded._asdict() if uploaded else None})
        return
    for path, size in prepared.files.items():
        note(f"{size:>12,}  {path}")
    click.echo(f"{len(prepared.files)} files, {prepared.size:,} bytes in {prepared.folder}/")
    if uploaded:
        click.echo(f"uploaded to {uploaded.url} ({uploaded.commit[:12]})")
    else:
        note(f"nothing was uploaded; --upload sends this to {repo}")
        if not prepared.licence:
            note("the source data state no licence, or several: --upload will ask for --licence")
