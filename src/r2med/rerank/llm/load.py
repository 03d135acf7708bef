"""LLM rerankers by name: `rankgpt:gpt4`, `reasoning:qwq-32b,window=10,step=5`, `setwise:local`, `yesno:openai:NAME`."""

from __future__ import annotations

from typing import Any

from ...core import UsageError
from ...llm import Chat, get_llm
from ...llm import Options as LlmOptions
from ..pointwise import PointwiseReranker
from ..protocol import Reranker
from .asking import AskingReranker, Method
from .yesno import YesNoScorer

METHODS: dict[str, Method] = {"rankgpt": "listwise", "reasoning": "reasoning", "setwise": "setwise"}
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_COMMON = {"passage_words": int, "max_tokens": int}
PARAMETERS: dict[str, dict[str, type]] = {
    "rankgpt": {"window": int, "step": int, "hints": bool, **_COMMON},
    "reasoning": {"window": int, "step": int, "hints": bool, **_COMMON},
    "setwise": {"top": int, "children": int, "hints": bool, **_COMMON},
    "yesno": {"logits": bool, **_COMMON},
}


def llm_reranker(
    method: str, rest: str, *, llm: Chat | str | None = None, llm_options: LlmOptions | None = None, **given: Any
) -> Reranker:
    """The reranker of a method; the model stands behind the first colon, or is given as `llm`."""
    named, parameters = read_rest(method, rest)
    chosen = named or llm
    if chosen is None or chosen == "":
        raise UsageError(f"{method} needs a language model, as in {method}:gpt4 or {method}:local")
    chat = get_llm(chosen, llm_options) if isinstance(chosen, str) else chosen
    shown = f"{method}:{rest}" if rest else f"{method}:{chat.name}"
    own = {k: given[k] for k in ("prompt", "store") if k in given}
    progress = given.get("on_progress")
    if method == "yesno":
        scorer = YesNoScorer(chat, name=shown, **parameters, **own)
        return PointwiseReranker(scorer, name=shown, on_progress=progress)
    return AskingReranker(chat, METHODS[method], name=shown, on_progress=progress, **parameters, **own)


def read_rest(method: str, rest: str) -> tuple[str, dict[str, Any]]:
    """The model's name and the parameters of `MODEL,key=value,…`; a model's name may hold colons and slashes."""
    known = PARAMETERS[method]
    model, parameters = "", dict[str, Any]()
    for number, part in enumerate(rest.split(",")) if rest else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals and number == 0:
            model = part.strip()
            continue
        if not equals or key not in known:
            raise UsageError(f"{method} has no parameter {part.strip()!r}; it has {', '.join(known)}")
        parameters[key] = _value(known[key], key, value)
    return model, parameters


def _value(kind: type, key: str, value: str) -> Any:
    if kind is bool:
        if value.lower() not in _YES:
            raise UsageError(f"{key} must be yes or no, not {value!r}")
        return _YES[value.lower()]
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{key} must be a number, not {value!r}") from None
