"""`hyde`: hypothetical passages (or similar cases) that the answer would be found beside (Gao et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core import Query, Task
from .generated import Generated
from .prompts import Prompt


class HyDE(Generated):
    """One passage a query as R2MED ran it, or several (`--passages`), drawn at a temperature that makes them differ."""

    method = "hyde"
    default_passages = 1
    default_temperature = 0.7

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        return ({"query": query.text} for query in queries)
