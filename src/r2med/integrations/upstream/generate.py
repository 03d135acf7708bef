"""`--mode generate_hydoc`: texts from an LLM, into the file where `eval_retrieval --gar_method` looks for them."""

from __future__ import annotations

import json
from pathlib import Path

from ..core import ModelError, Task
from ..core.atomic import write_bytes
from ..expand import Expander, Expansion, Settings, get_expander
from ..expand.replay import marking_of, read_recorded
from .names import OPEN_LLMS
from .tree import Tree

SEED, TOKENS = 42, 10_240


def settings_for(llm: str) -> Settings:
    """How the scripts draw answers: one a query, warm, with a seed; models they do not know go as r2med's default."""
    if llm in OPEN_LLMS:
        return Settings(passages=1, temperature=0.7, seed=SEED, max_tokens=TOKENS)
    if llm == "gpt4":
        return Settings(passages=1, temperature=0.8, top_p=0.8)
    return Settings(passages=1)


def make_expander(method: str, llm: str) -> Expander:
    """The expander of a method and an LLM."""
    return get_expander(f"{method}:{llm}", settings=settings_for(llm))


def generate_task(tree: Tree, task: Task, expander: Expander, method: str, llm: str, *, overwrite: bool = False) -> int:
    """Generate for every query and write the file; returns how many queries were asked.

    Answers are kept in the generation store as they come: a command that was stopped goes on where it was.
    """
    path = tree.hydoc(task.name, method, llm)
    if not overwrite and _complete(path, task, method):
        return 0
    made = expander.expand(task)
    failed = [item for item in made if "failed" in item.statuses]
    if failed:
        why = failed[0].notes.get("error", "no answer")
        again = "the same command asks for the rest: answers so far are kept"
        raise ModelError(
            f"{llm} gave no answer to {len(failed)} of {len(made)} queries of {task.name} ({why}); {again}"
        )
    positives: dict[str, list[str]] = {}
    for judgment in task.qrels:
        if judgment.grade > 0:
            positives.setdefault(judgment.query_id, []).append(judgment.doc_id)
    marking = marking_of(llm)
    lines = [
        json.dumps(
            {
                "id": item.query_id,
                "text": item.original,
                "hy_doc": as_written(item, marking),
                "doc_id": positives.get(item.query_id, []),
            },
            ensure_ascii=False,
        )
        for item in made
    ]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return len(made)


def as_written(item: Expansion, marking: str) -> str:
    """A text with its reasoning marked as the LLM marks it: where the repository's readers cut, and ours."""
    if not item.usable:
        return ""
    text, reasoning = "\n\n".join(item.texts), item.reasoning[0] if item.reasoning else ""
    if marking == "think" or (marking == "think-optional" and reasoning):
        return f"<think>\n{reasoning}\n</think>\n\n{text}"
    if marking == "final-response":
        return f"## Thinking\n\n{reasoning}\n\n## Final Response\n\n{text}"
    if marking == "answer":
        return f"<answer>{text}</answer>"
    return text


def _complete(path: Path, task: Task, method: str) -> bool:
    return path.is_file() and set(task.query_ids) <= set(read_recorded(path, method))
