"""One chat interface: OpenAI-compatible endpoints, an embedded model, recorded answers; and what they answered, kept.

chat = get_llm("gpt4", Options(budget=Budget(5)))
key = StoreKey.of("hyde", chat, template_hash, sampling, task.fingerprint)
with GenerationStore(key) as store:
    for generation in generate(chat, requests, store):
        ...
"""

from ..core.budget import Budget, BudgetSpent, Usage, estimate_tokens
from .chats import asked_by, chats, get_llm
from .generate import Cost, as_text, generate, plan_requests, read_reply
from .parsing import MARKINGS, STATUSES, Generation, Parsed, Status, StatusOf, open_call, parse, reasons, unless_read
from .protocol import Chat, Choice, Estimate, Message, Reply, Request, Sampling, with_defaults
from .replay import Replay
from .store import Answers, GenerationStore, Retry, StoreKey, asked_again, asked_since, watch_answers

__all__ = [
    "MARKINGS",
    "STATUSES",
    "Answers",
    "Budget",
    "BudgetSpent",
    "Chat",
    "Choice",
    "Cost",
    "Estimate",
    "Generation",
    "GenerationStore",
    "Message",
    "Parsed",
    "Replay",
    "Reply",
    "Request",
    "Retry",
    "Sampling",
    "Status",
    "StatusOf",
    "StoreKey",
    "Usage",
    "as_text",
    "asked_again",
    "asked_by",
    "asked_since",
    "chats",
    "estimate_tokens",
    "generate",
    "get_llm",
    "open_call",
    "parse",
    "plan_requests",
    "read_reply",
    "reasons",
    "unless_read",
    "watch_answers",
    "with_defaults",
]
