"""An LLM as judge of whether an expansion names the answer: on request, since it costs."""

from __future__ import annotations

import re
from pathlib import Path

from ..core import Task
from ..llm import Chat, GenerationStore, Request, Sampling, StoreKey, generate
from .diagnose import RIGHT, UNKNOWN, WRONG
from .generated import REASONING_TOKENS, reasons
from .passages import cut_to_tokens
from .prompts import load_prompt
from .values import Expansions

METHOD = "judge"
PASSAGE_TOKENS = 1024
ANSWER_TOKENS = 512
_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def judge(
    expansions: Expansions, task: Task, chat: Chat, *, prompts: Path | None = None, store: Path | None = None
) -> dict[str, str]:
    """Verdicts by query id; a judge that says neither yes nor no leaves a query `unknown`."""
    prompt = load_prompt(METHOD, task.family, prompts)
    sampling = Sampling(max_tokens=REASONING_TOKENS if reasons(chat) else ANSWER_TOKENS, temperature=0.0, seed=0)
    verdicts = {query.id: UNKNOWN for query in task.queries if expansions.of(query.id)}
    requests = []
    for query in task.queries:
        item = expansions.of(query.id)
        if query.answer and item is not None and item.usable:
            passage = cut_to_tokens("\n\n".join(item.texts), PASSAGE_TOKENS)
            messages = prompt.messages(query=query.text, answer=query.answer, passage=passage)
            requests.append(Request(messages, sampling, query.id))
    key = StoreKey.of(METHOD, chat, prompt.hash, sampling, task.fingerprint)
    with GenerationStore(key, store) as kept:
        for generation in generate(chat, requests, kept):
            if generation.usable:
                verdicts[generation.query_id] = read_verdict(generation.final)
    return verdicts


def read_verdict(text: str) -> str:
    """The first yes or no."""
    found = _VERDICT.search(text)
    return UNKNOWN if not found else RIGHT if found[1].casefold() == "yes" else WRONG
