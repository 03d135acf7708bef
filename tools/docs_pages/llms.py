"""The language models that have a name here."""

from __future__ import annotations

from r2med.core.table import Table, markdown_text
from r2med.models import ChatCard, chat_cards

INTRODUCTION = """# Language models by name

For [expansion](../../expand.md), [listwise reranking](../../rerank.md) and [relabelling](../../intervals.md#holes).
An open model is served by a machine of yours that speaks OpenAI's protocol (`OPENAI_BASE_URL`); a closed one needs a
key; `smollm2` is small, runs inside the program (`r2med models fetch smollm2`), and shows that the machinery works: its
medicine is poor. Any other name a server knows works too, and `replay:FILE` reads recorded answers.
"""


def pages() -> dict[str, str]:
    """`models/language-models.md`."""
    named = list(chat_cards())
    rows = [_row(card) for card in named]
    titles = ["Name", "What it is", "Called at the server", "Weights", "Tokens", "$ a million: in, out"]
    prices = [card.price for card in named if card.price]
    seen = f"Prices as read in {', '.join(sorted({p.seen for p in prices}))}: check them." if prices else ""
    listed = Table(titles, rows, left=4).markdown(ready=True)
    return {"models/language-models.md": "\n".join([INTRODUCTION, listed, "", seen])}


def _row(card: ChatCard) -> list[str]:
    price = f"{card.price.per_million:g}, {card.price.completion:g}" if card.price else "–"
    weights = "open" if card.served else "embedded" if not card.is_api else "closed"
    context = f"{card.context:,}" if card.context else "–"
    return [f"`{card.name}`", markdown_text(card.summary), f"`{card.source}`", weights, context, price]
