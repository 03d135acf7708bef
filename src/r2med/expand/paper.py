"""What the R2MED repository's scripts do with generated texts: sampling, cutting of passages, reading of answers."""

from __future__ import annotations

from typing import Final

import msgspec

from ..core import UsageError
from ..core.spec import Spec
from ..llm import Sampling
from ..llm.parsing import ANSWER, ANSWER_END, SOLUTION, SOLUTION_END, THINK_END
from ..models.prompts import PAPER, pack_of, read_pack

OPEN_LLMS: Final = (
    *("qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b"),
    *("huatuo-o1-70b", "qwq-32b", "qwen3-32b"),
)
"""LLMs that the scripts run themselves, in vLLM."""
API_LLMS: Final = ("gpt4", "o3-mini")
OPEN_SAMPLING: Final = Sampling(temperature=0.7, seed=42, max_tokens=10_240)
API_SAMPLING: Final = Sampling(temperature=0.8, top_p=0.8, max_tokens=None, as_given=True)
"""No limit on tokens and no seed; both settings are sent to o3-mini too, which does not take them everywhere."""
PASSAGE_WORDS: Final = 512
"""Words of a passage that stands in a LameR prompt."""
SETS: Final = ("temperature", "top_p", "seed", "max_tokens", "passages", "passage_tokens", "passage_words", "raw")
"""Parameters that the protocol decides."""
FINAL = "Final Response"


def paper_sampling(llm: str) -> Sampling | None:
    """How the scripts sample an LLM; None for one they do not know."""
    return OPEN_SAMPLING if llm in OPEN_LLMS else API_SAMPLING if llm in API_LLMS else None


def paper_spec(spec: Spec) -> Spec:
    """An expander under the protocol with the paper's prompts, where they were fetched; other expanders as they are."""
    if spec.get("protocol") != PAPER:
        return spec
    if own := next((key for key in SETS if spec.get(key) is not None), None):
        raise UsageError(f"protocol {PAPER} sets {own}: leave out {own} or the protocol")
    if spec.get("prompts") is not None:
        return spec
    pack = pack_of(PAPER)
    return spec.with_parameters(prompts=pack) if pack and spec.name in read_pack(pack.located()).generate else spec


def cut_to_words(text: str, words: int = PASSAGE_WORDS) -> str:
    """The first words of a text, a blank between each two."""
    return " ".join(text.split()[:words])


def published_text(raw: str, marking: str) -> str:
    """The text that the scripts search with, of an answer as it came: one whose marks are missing is taken whole."""
    before, found, after = "", "", ""
    if marking in ("think", "think-optional"):
        before, found, after = raw.partition(THINK_END)
    elif marking == "final-response":
        before, found, after = raw.partition(FINAL)
    elif marking == "solution":
        after, found = _inside(raw, SOLUTION, SOLUTION_END)
    elif marking == "answer":
        after, found = _inside(raw, ANSWER, ANSWER_END)
    del before
    return after.strip() if found else raw


def _inside(text: str, begin: str, end: str) -> tuple[str, str]:
    """What stands between the first two marks, and the second mark where both are there."""
    inside, found, _ = text.partition(begin)[2].partition(end)
    return inside, found


def facts() -> dict[str, object]:
    """The sampling of both kinds of LLM, as a protocol states it."""
    kinds = {"open": OPEN_SAMPLING, "api": API_SAMPLING}
    return {kind: msgspec.to_builtins(sampling) for kind, sampling in kinds.items()}
