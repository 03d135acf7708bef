"""`--mode generate_hydoc`: texts from an LLM, into the file where `eval_retrieval --gar_method` looks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core import DataError, ModelError, Task
from ...core.atomic import write_bytes
from ...core.spec import Content, Spec
from ...expand import Expander, Expansion, expanders
from ...expand.replay import read_recorded
from ...llm import chats
from ...models.prompts import PAPER

API_NAMES: Final = {"o3-mini": "o3-mini"}
"""What the scripts call an API's model where r2med's card names a dated version of it."""
PROMPTS: Final = "prompts"
"""Key of a line that says whose prompts it was made with; the repository's own files have none."""


def expander_spec(method: str, llm: str, prompts: Content | None = None) -> Spec:
    """A method on an LLM as the repository's scripts run it."""
    spec = expanders.changed(expanders.parse(f"{method}:{llm}"), protocol=PAPER, prompts=prompts)
    if llm in API_NAMES and isinstance(spec.argument, Spec):
        return replace(spec, argument=chats.changed(spec.argument, served=API_NAMES[llm]))
    return spec


def generate(
    path: Path, task: Task, expander: Expander, llm: str, *, prompts: str = "", overwrite: bool = False
) -> int:
    """Generate for every query and write the file; returns how many queries were asked.

    Answers are kept in the generation store as they come: a command that was stopped goes on where it was. `prompts`
    says whose prompts they are, where it is not the repository's: a file made with others is refused.
    """
    if not overwrite and path.is_file() and set(task.query_ids) <= set(read_recorded(path, expander.method)):
        if (there := prompts_of(path)) != prompts:
            names = [name or "the repository's" for name in (there, prompts)]
            raise DataError(
                f"was made with {names[0]} prompts, not with {names[1]}: --overwrite replaces it", path=path
            )
        return 0
    made = expander.expand(task)
    failed = [item for item in made if "failed" in item.statuses]
    if failed:
        why = failed[0].notes.get("error", "no answer")
        again = "the same command asks for the rest: answers so far are kept"
        raise ModelError(
            f"{llm} gave no answer to {len(failed)} of {len(made)} queries of {task.name} ({why}); {again}"
        )
    lines = [
        json.dumps(
            {
                "id": item.query_id,
                "text": item.original,
                "hy_doc": as_written(item),
                "doc_id": [doc_id for doc_id, grade in task.qrels.of(item.query_id).items() if grade > 0],
                **({PROMPTS: prompts} if prompts else {}),
            },
            ensure_ascii=False,
        )
        for item in made
    ]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return len(made)


def as_written(item: Expansion) -> str:
    """The answer as it came, a chain without an end as well; what an agent found where nothing came from one call."""
    return "\n\n".join(item.raw or item.texts)


def prompts_of(path: Path) -> str:
    """Whose prompts a file of generated texts was made with; empty: the repository's, or not stated."""
    try:
        with path.open("rb") as stream:
            first = json.loads(stream.readline() or b"{}")
    except (OSError, ValueError, RecursionError):
        return ""
    return str(first.get(PROMPTS, "")) if isinstance(first, dict) else ""
