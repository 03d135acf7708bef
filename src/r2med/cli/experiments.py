"""`r2med run @` and `r2med run @NAME --plan`: the experiments that come with r2med, and what they need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .common import emit, note, print_table, say

if TYPE_CHECKING:
    from ..api.experiments import ShippedExperiment


def print_experiments(*, as_json: bool) -> None:
    """All of them, best published score first."""
    from ..api.experiments import list_experiments
    from ..pipeline.estimates import memory_text

    found = list_experiments()
    if as_json:
        emit(found)
        return
    rows = [
        [f"@{e.name}", f"{e.published:.1f}", ", ".join(e.systems), memory_text(max(n.gpu_memory or 0 for n in e.needs)),
         "yes" if e.ready else "no"]
        for e in found
    ]  # fmt: skip
    caption = (
        "Published: nDCG@10 × 100, mean of R2MED's eight tasks, by others. Complete: whether this r2med has all its "
        "parts. r2med run @NAME --plan says what one needs."
    )
    print_table(["Experiment", "Published", "System", "GPU memory", "Complete"], rows, caption=caption, left=1)


def print_needs(name: str, tasks: tuple[str, ...], results: Path, *, as_json: bool) -> None:
    """What an experiment needs and would cost on R2MED; the stages too, where its data and parts are here."""
    from ..api import experiments as api
    from ..core import R2MedError

    (found,) = api.list_experiments(name)
    stages, missing = None, found.missing
    if not missing:
        try:
            stages = api.plan(*found.systems, tasks=tasks or found.tasks, results=results)
        except R2MedError as error:
            missing = str(error)
    if as_json:
        emit({"schema": 1, "experiment": found, "stages": stages, "missing": missing})
        return
    _print(found)
    if missing:
        note(f"no plan by stages: {missing}")
    else:
        note(
            f"stages: r2med run --plan --tasks {' '.join(tasks or found.tasks)} --system {found.systems[0]}", whole=True
        )


def _print(found: ShippedExperiment) -> None:
    from ..pipeline.estimates import memory_text

    say(f"@{found.name}: {found.title}")
    say(f"published: {found.published:.1f} ({found.source}, {found.url})")
    for need in found.needs:
        say(f"system: {need.system}")
        titles = ["Model", "For", "Source", "Parameters", "GPU memory", "Licence", "How to get it"]
        rows = [
            [m.name, m.role, m.source, "unknown" if m.parameters is None else f"{m.parameters / 1e9:.3g} B",
             "none" if m.api else memory_text(m.gpu_memory), m.licence or "unknown", m.get or "nothing to do"]
            for m in need.models
        ]  # fmt: skip
        print_table(titles, rows, left=len(titles))
        chat = "yes, OpenAI-compatible (OPENAI_BASE_URL)" if any(m.chat for m in need.models) else "none"
        say(f"chat endpoint: {chat}")
        alone, together = memory_text(need.gpu_memory), memory_text(need.gpu_memory_together)
        say(f"GPU memory: {alone} stage by stage, {together} all at once")
        tokens = [("prompts", need.prompt_tokens), ("answers at most", need.answer_tokens)]
        counts = ", ".join(
            f"{what} {'unknown' if n is None else f'{n / 1e6:,.1f} million tokens'}" for what, n in tokens
        )
        calls = f"{need.chat_calls:,} calls" if need.chat_calls else "an unknown number of calls"
        say(f"on R2MED once: {calls}; {counts}")
        served = any(m.chat and not m.api for m in need.models)
        dollars = "unknown" if need.dollars is None else f"{need.dollars:,.2f} at most"
        say(f"dollars for services: {dollars}{' if you serve the chat model yourself' if served else ''}")
        if need.service_dollars is not None:
            say(f"dollars with the chat model at a service: {need.service_dollars:,.2f} at most")
        say(f"time: {_time(need.index_seconds)} to index, {_time(need.seconds_per_query)} a query at most")
        for line in need.how:
            say(f"estimate: {line}")
    for line in found.differs:
        say(f"differs from what was published: {line}")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    return f"{seconds / 60:,.0f} minutes" if seconds > 120 else f"{seconds:,.2f} s"
