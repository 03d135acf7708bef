"""What the R2MED repository's scripts do with generated texts: sampling, cutting of passages, reading of answers."""

from __future__ import annotations

from typing import Final

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
    pack = pack_of(PAPER)
    if pack is None or spec.get("prompts") not in (None, pack) or spec.name not in read_pack(pack.located()).generate:
        return spec
    return spec.with_parameters(prompts=pack)


def cut_to_words(text: str, words: int = PASSAGE_WORDS) -> str:
    """The first words of a text, a blank between each two."""
    return " ".join(text.split()[:words])


def published_text(raw: str, marking: str) -> str:
    """The text that the scripts search with, of an answer as it came: one whose marks are missing is taken whole."""
    after: str | None = None
    if marking in ("think", "think-optional"):
        after = _behind(raw, THINK_END)
    elif marking == "final-response":
        after = _behind(raw, FINAL)
    elif marking == "solution":
        after = _between(raw, SOLUTION, SOLUTION_END)
    elif marking == "answer":
        after = _between(raw, ANSWER, ANSWER_END)
    return raw if after is None else after.strip()


def _behind(text: str, mark: str) -> str | None:
    _, found, after = text.partition(mark)
    return after if found else None


def _between(text: str, begin: str, end: str) -> str | None:
    inside, found, _ = text.partition(begin)[2].partition(end)
    return inside if found else None
