"""`query2doc`: one passage, asked for with worked examples (Wang et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core import Query, Task
from .fewshot import render_examples, without_leaks
from .generated import Generated
from .prompts import Prompt, load_prompt


class Query2doc(Generated):
    """Examples that touch the evaluated queries are left out before anything is sent."""

    method = "query2doc"

    def prompt(self, task: Task) -> tuple[Prompt, dict[str, object]]:
        whole = load_prompt(self.method, task.family, self.settings.prompts)
        kept, dropped = without_leaks(whole, task)
        return kept, {"examples": len(kept.examples), **({"examples_left_out": list(dropped)} if dropped else {})}

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        examples = render_examples(prompt, prompt.examples)
        return ({"query": query.text, "examples": examples} for query in queries)
