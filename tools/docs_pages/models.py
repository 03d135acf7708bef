"""A page per model card, and one for all chat models."""

from __future__ import annotations

from r2med.core.table import Table, markdown_text
from r2med.models import Card, ChatCard, cards, chat_cards

ABOUT = {
    "dense": "One vector a text; the nearest ones are found exactly.",
    "late-interaction": "One vector a token; a document is as good as the best match of each query token.",
    "sparse": "One weight a term.",
    "cross-encoder": "Reads query and passage together and gives one score: a reranker.",
}
NOT_RUN = "<!-- not run: downloads weights -->"
CHAT = """# Chat models

For [expansion](../../expand.md), [listwise reranking](../../rerank.md) and [relabelling](../../intervals.md#holes).
An open model is served by a machine of yours that speaks OpenAI's protocol (`OPENAI_BASE_URL`); a closed one needs a
key; `smollm2` is small, runs inside the program (`r2med models fetch smollm2`), and shows that the machinery works: its
medicine is poor. Any other name a server knows works too, and `replay:FILE` reads recorded answers.
"""


def pages() -> dict[str, str]:
    """`models/index.md`, a page per card, and `models/chat.md`."""
    known = list(cards())
    lines = [
        "# Models",
        "",
        "Models that have a name here. Any Hugging Face id or folder works in their place. "
        "Chat models have [a page of their own](chat.md); "
        "the [parameters](../components.md) of each kind are on another.",
        "",
    ]
    for kind, words in ABOUT.items():
        if rows := [_row(c) for c in known if c.kind == kind]:
            lines += [f"## {kind.capitalize()}", "", words, ""]
            titles = ["Name", "What it is", "Licence", "Released", "Parameters"]
            lines += [Table(titles, rows, left=4).markdown(ready=True), ""]
    pages_of = {f"models/{c.name}.md": _page(c) for c in known}
    return {"models/index.md": "\n".join(lines), "models/chat.md": _chat(), **pages_of}


def _chat() -> str:
    named = list(chat_cards())
    rows = [_chat_row(card) for card in named]
    titles = ["Name", "What it is", "Called at the server", "Weights", "Tokens", "$ a million: in, out"]
    prices = [card.price for card in named if card.price]
    seen = f"Prices as read in {', '.join(sorted({p.seen for p in prices}))}: check them." if prices else ""
    return "\n".join([CHAT, Table(titles, rows, left=4).markdown(ready=True), "", seen])


def _chat_row(card: ChatCard) -> list[str]:
    price = f"{card.price.per_million:g}, {card.price.completion:g}" if card.price else "–"
    weights = "open" if card.served else "embedded" if not card.is_api else "closed"
    context = f"{card.context:,}" if card.context else "–"
    return [f"`{card.name}`", markdown_text(card.summary), f"`{card.source}`", weights, context, price]


def _row(card: Card) -> list[str]:
    about = [f"[`{card.name}`]({card.name}.md)", markdown_text(card.summary), card.licence, card.released or "–"]
    return [*about, _size(card.parameters)]


def _size(parameters: int | None) -> str:
    if parameters is None:
        return "–"
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


def _page(card: Card) -> str:
    facts = [
        ["Kind", card.kind],
        ["Runs on", card.backend],
        ["Source", f"`{card.source}`"],
        ["Revision", f"`{card.revision}`"],
        ["Architecture", card.architecture],
        ["Parameters", _size(card.parameters)],
        ["Vector", _vector(card)],
        ["Pooling", card.pooling],
        ["Similarity", card.similarity],
        ["Tokens of a query, of a document", f"{card.query_length:,}, {card.document_length:,}"],
        ["Precision", card.dtype or "not stated"],
        ["Licence", card.licence],
        ["Released", card.released or "–"],
        ["Proven by", markdown_text(card.proven) or "–"],
    ]
    if card.note:
        facts.append(["Not known, or done otherwise elsewhere", markdown_text(card.note)])
    if card.document_source:
        facts.append(["Documents are read by", f"`{card.document_source}`"])
    if card.base_source:
        facts.append(["Adapter of", f"`{card.base_source}`"])
    lines = [
        f"# {card.name}",
        "",
        f"{markdown_text(card.summary)}. {ABOUT[card.kind]}",
        "",
        Table(["Property", "Value"], facts, left=2).markdown(ready=True),
        "",
    ]
    return "\n".join([*lines, *_text(card), *_paper(card), *_use(card)])


def _vector(card: Card) -> str:
    """Its length, and those it can be cut to."""
    whole = str(card.dimension or "–")
    if card.dimensions[1:]:
        return f"{whole}; `dim` takes {', '.join(map(str, card.dimensions))}"
    return f"{whole}; `dim` takes {card.shortest} or more" if card.shortest else whole


def _text(card: Card) -> list[str]:
    """What the model reads."""
    if card.kind == "cross-encoder" or card.is_api:
        return []
    lines = ["## What it reads", ""]
    rows = [["Query", f"`{_shown(card.query_template)}`"], ["Document", f"`{_shown(card.document_template)}`"]]
    lines += [Table(["Side", "Template"], rows, left=2).markdown(ready=True), ""]
    if card.takes_instructions and card.instructions.query:
        told = [[family, f"`{_shown(line)}`"] for family, line in card.instructions.query.items()]
        lines += [
            "Instructions for queries, by task family:",
            "",
            Table(["Family", "Instruction"], told, left=2).markdown(ready=True),
            "",
        ]
    return lines


def _shown(text: str) -> str:
    return text.replace("\n", "⏎").replace("`", "'")


def _paper(card: Card) -> list[str]:
    """What the R2MED paper's scripts did otherwise."""
    changed = {name: getattr(card.paper, name) for name in card.paper.__struct_fields__}
    rows = [[name.replace("_", " "), f"`{value}`"] for name, value in changed.items() if value and name != "note"]
    if not rows and not card.paper.note:
        return []
    lines = ["## In the R2MED paper", ""]
    lines += [Table(["Setting", "Theirs"], rows, left=2).markdown(ready=True), ""] if rows else []
    return [*lines, *([f"{markdown_text(card.paper.note).capitalize()}.", ""] if card.paper.note else [])]


def _use(card: Card) -> list[str]:
    lines = ["## Using it", ""]
    if card.is_api:
        lines.append(f"It runs at its owner's; the key is read from `{card.key}`.")
        if card.price:
            lines.append(
                f"It took ${card.price.per_million:g} a million tokens in {card.price.seen} ({card.price.source})."
            )
        else:
            lines.append("Its price is not known, so `--max-cost` refuses it.")
        return [*lines, "", "<!-- not run: a paid API -->", *_console(f"r2med run -r {card.name} --dry-run")]
    fetch = f"r2med models fetch {card.name}{' --allow-pickle' if card.pickled else ''}"
    notes = []
    if card.gated:
        notes.append("Its terms have to be accepted on the hub, and `HF_TOKEN` set.")
    if card.remote_code:
        notes.append("It needs code of its own: `--trust-remote-code` lets it run.")
    if card.pickled:
        notes.append("The hub has pickled weights only, and unpickling can run code: hence `--allow-pickle`.")
    if card.carrier:
        notes.append(
            f"Its weights also ride in the package `{card.carrier.package}`, for where the hub is out of reach."
        )
    run = {
        "cross-encoder": f"r2med run -r bm25 --rerank {card.name}@100",
        "late-interaction": f"r2med run -r bm25 --rerank {card.name}@50",
    }.get(card.kind, f"r2med run -r {card.name}")
    run += " --trust-remote-code" if card.remote_code else ""
    return [*lines, *([" ".join(notes), ""] if notes else []), NOT_RUN, *_console(fetch, run)]


def _console(*commands: str) -> list[str]:
    return ["", "```console", *(f"$ {command}" for command in commands), "```", ""]
