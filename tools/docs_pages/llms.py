"""The language models that have a name here."""

from __future__ import annotations

from r2med.core.table import Table, markdown_text
from r2med.llm.catalogue import LlmCard, llm_card, llm_names

INTRODUCTION = """# Language models by name

For [expansion](../../expand.md), [listwise reranking](../../rerank.md) and [relabelling](../../intervals.md#holes).
An open model is served by a machine of yours that speaks OpenAI's interface (`OPENAI_BASE_URL`); a closed one needs a
key. Any other name such a server knows works too, `local` is the small [embedded model](smollm2.md), and `replay:FILE`
reads recorded answers.
"""


def pages() -> dict[str, str]:
    """`models/language-models.md`."""
    rows = [_row(llm_card(name)) for name in llm_names()]
    titles = ["Name", "What it is", "Called at the server", "Weights", "Tokens", "$ a million: in, out"]
    prices = [card.price for card in map(llm_card, llm_names()) if card.price]
    seen = f"Prices as read in {', '.join(sorted({p.seen for p in prices}))}: check them." if prices else ""
    return {
        "models/language-models.md": "\n".join(
            [INTRODUCTION, Table(titles, rows, left=4).markdown(ready=True), "", seen]
        )
    }


def _row(card: LlmCard) -> list[str]:
    price = f"{card.price.prompt:g}, {card.price.completion:g}" if card.price else "–"
    context = f"{card.context:,}" if card.context else "–"
    return [
        f"`{card.name}`",
        markdown_text(card.summary),
        f"`{card.model}`",
        "open" if card.open else "closed",
        context,
        price,
    ]
