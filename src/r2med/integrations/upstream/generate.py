"""`--mode generate_hydoc`: texts from an LLM, into the file where `eval_retrieval --gar_method` looks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ...core import ModelError, Task
from ...core.atomic import write_bytes
from ...core.spec import Spec
from ...expand import Expander, Expansion, expanders
from ...expand.replay import marking_of, read_recorded

OPEN_LLMS: Final = (
    *("qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b"),
    *("huatuo-o1-70b", "qwq-32b", "qwen3-32b"),
)
"""Those that the repository's scripts run themselves."""


def expander_spec(method: str, llm: str) -> Spec:
    """A method on an LLM, sampled as the repository's scripts sample that LLM; others go as r2med's default."""
    spec = expanders.parse(f"{method}:{llm}")
    if llm in OPEN_LLMS:
        return expanders.changed(spec, temperature=0.7, seed=42, max_tokens=10_240)
    if llm == "gpt4":
        return expanders.changed(spec, temperature=0.8, top_p=0.8)
    return spec


def generate(path: Path, task: Task, expander: Expander, llm: str, *, overwrite: bool = False) -> int:
    """Generate for every query and write the file; returns how many queries were asked.

    Answers are kept in the generation store as they come: a command that was stopped goes on where it was.
    """
    if not overwrite and path.is_file() and set(task.query_ids) <= set(read_recorded(path, expander.method)):
        return 0
    made = expander.expand(task)
    failed = [item for item in made if "failed" in item.statuses]
    if failed:
        why = failed[0].notes.get("error", "no answer")
        again = "the same command asks for the rest: answers so far are kept"
        raise ModelError(
            f"{llm} gave no answer to {len(failed)} of {len(made)} queries of {task.name} ({why}); {again}"
        )
    marking = marking_of(llm)
    lines = [
        json.dumps(
            {
                "id": item.query_id,
                "text": item.original,
                "hy_doc": as_written(item, marking),
                "doc_id": [doc_id for doc_id, grade in task.qrels.of(item.query_id).items() if grade > 0],
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
