"""Embeddings over HTTP: a client, and the wire formats of services, which cards name as their `backend`.

Texts are sent as they are. A text is cut only when the service says that it is too long, and to the model's limit.
Under the paper's protocol texts are cut before, by the service's own tokenizer, and quoted.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...core import ModelError, UsageError
from ...core.budget import Budget, Usage, estimate_tokens
from ...core.files import home, sha256_of
from ...core.options import Options
from ...core.parallel import in_parallel
from ...core.queries import Side
from ...core.untrusted import file_name
from ...http import Client, RateLimit, Rejected, Service, token_count
from ...models import Card
from ...models.locate import snapshot
from . import (
    UNKNOWN_TOKENS,
    BaseEncoder,
    Batch,
    Float32,
    check_vectors,
    length_facts,
    normalized,
    shortened,
)
from .onnx import FileTokenizer

TOKENS_PER_REQUEST = 60_000
BYTES_PER_TOKEN = 4
MOST_BYTES = 64 << 20
"""Of one answer: 64 vectors of 8,192 numbers in full precision are 12 million bytes."""
CONCURRENCY, TIMEOUT = 8, 60.0
"""Requests in flight; seconds for one answer."""
NOTED = {"requests": "attempts", "retries": "retries", "tokens": "prompt_tokens"}
"""What a run's notes call the counters."""


class TextBatch(NamedTuple):
    """The texts of one request."""

    rows: list[int]
    contents: list[str]


class PaperTexts:
    """Texts as the R2MED paper's scripts sent them: cut, blanks for line breaks, quoted as JSON strings."""

    def __init__(self, card: Card) -> None:
        self.card, self.source = card, card.service_tokenizer

    @cached_property
    def file(self) -> Path | None:
        """The tokenizer, in the model's folder or in the hub's cache; None where it is not on this machine."""
        found = [home() / "models" / file_name(self.card.name), snapshot(self.source, "main")]
        files = (folder / "tokenizer.json" for folder in found if folder is not None)
        return next((file for file in files if file.is_file()), None)

    def describe(self) -> dict[str, object]:
        """What changes a text besides its limit."""
        digest = sha256_of(self.file) if self.file else "not here"
        return {"tokenizer": self.source, "sha256": digest, "line_breaks": "blanks", "quoted": True}

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; nothing is sent without it, since what was sent could not be told from what should be."""
        if self.file is None:
            put = f"put the tokenizer.json of {self.source} into {home() / 'models' / file_name(self.card.name)}"
            raise ModelError(f"{self.card.name} under the paper's protocol cuts texts by tokens: {put}")
        return FileTokenizer(self.file.parent).backend

    def sent(self, text: str, limit: int) -> str:
        """One text as it goes out."""
        ids = self.tokenizer.encode(text).ids
        if len(ids) > limit:
            text = self.tokenizer.decode(ids[:limit], skip_special_tokens=False)
        return json.dumps(text.replace("\n", " "))


class ApiEncoder(BaseEncoder):
    """A model behind an embeddings endpoint. No key is read before the first request has to be sent."""

    runs_here = False

    def __init__(self, card: Card, options: Options) -> None:
        super().__init__()
        self.card, self.name, self.options = card, card.name, options
        self.budget = options.budget if options.budget is not None else Budget(None)
        if self.budget.limit is not None and card.price is None:
            raise UsageError(f"the price of {card.name} is not known, so a limit on cost cannot be kept")
        self.usage = Usage()
        self._lock = threading.Lock()
        self._format = wire_format(card.backend)
        self._paper = PaperTexts(card) if card.service_tokenizer else None
        base_url = options.base_url or os.environ.get(card.url_variable) or card.base_url
        self._service = Service(
            name=card.name,
            base_url=base_url,
            path=self._format.path(card.source),
            key=card.key,
            key_header=self._format.key_header,
            home=card.base_url,
        )
        self.other_host = "" if self._service.is_home else self._service.place
        """The server, where it is not the model's own."""
        self._client = Client(
            self._service,
            self.usage,
            timeout=options.timeout or TIMEOUT,
            attempts=options.attempts,
            limit=RateLimit(options.requests_per_minute, options.tokens_per_minute),
            most_bytes=MOST_BYTES,
        )

    def check(self) -> None:
        """Raise what would keep a request from being sent: a missing key or extra."""
        self._client.check()

    @property
    def cost(self) -> float:
        """Dollars spent by this encoder so far, as far as the price is known."""
        return self.usage.cost

    def close(self) -> None:
        """Give the connections back; the next text opens new ones."""
        self._client.close()

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return {
            "backend": self.card.backend,
            "host": self._service.place,
            "model": self.card.source,
            "revision": self.card.revision,
            "normalize": self.card.normalize,
            "dtype": "service",
            "max_length": self.max_length(side),
            **length_facts(self.card),
            **({"sent": self._paper.describe()} if self._paper else {}),
        }

    def max_length(self, side: Side) -> int | None:
        """The model's limit in its own tokens."""
        return self.card.length(side)

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Several requests at a time; the first that fails for good stops the rest, after those under way."""
        before = self.usage.snapshot()

        def encode(batch: TextBatch, stop: threading.Event) -> Batch:
            place = np.array(batch.rows, dtype=np.int64)
            vectors = check_vectors(self._paid(batch.contents, side, stop), place, texts, self.name)
            tokens = np.full(len(batch.rows), UNKNOWN_TOKENS, dtype=np.int32)
            whole = normalized(vectors) if self.card.normalize else vectors
            return Batch(place, shortened(whole, self.card), tokens)

        try:
            contents = self._contents(texts, side, instruction)
            batches = _batches(contents, self._format.most_texts)
            yield from in_parallel(batches, encode, self.options.concurrency or CONCURRENCY)
        finally:
            self.close()
            after = self.usage.snapshot()
            self.notes.update({note: after[name] - before[name] for note, name in NOTED.items()})

    def _contents(self, texts: Sequence[str], side: Side, instruction: str) -> Iterator[str]:
        """What is sent for each text."""
        for text in texts:
            whole = instruction + text
            yield whole if self._paper is None else self._paper.sent(whole, self.card.length(side))

    def _paid(self, contents: list[str], side: Side, stop: threading.Event) -> Float32:
        """The vectors of one request, within the budget."""
        ahead = self.card.cost(sum(map(estimate_tokens, contents))) or 0.0
        spent = Usage()
        with self.budget.hold(ahead) as hold:
            try:
                return self._ask(contents, side, stop, spent)
            finally:
                hold.actual = self.card.cost(spent.prompt_tokens)
                counted = {"prompt_tokens": spent.prompt_tokens, "calls": spent.calls, "estimated": spent.estimated}
                self.usage.add(**counted, seconds=spent.seconds, cost=hold.actual or 0.0)

    def _ask(self, contents: list[str], side: Side, stop: threading.Event, spent: Usage) -> Float32:
        tokens = sum(map(estimate_tokens, contents))
        try:
            body = self._format.body(self.card.source, contents, side, self.card.cut_to)
            answer = self._client.post(body, tokens, stop)
        except Rejected as why:
            if not why.too_long:
                raise ModelError(f"{self.name}: {why}") from None
            return self._ask_shorter(contents, side, stop, spent, str(why))
        counted = self._format.tokens(answer.body)
        spent.add(
            calls=1,
            prompt_tokens=tokens if counted is None else counted,
            estimated=int(counted is None),
            seconds=answer.seconds,
        )
        try:
            vectors = np.array(self._format.vectors(answer.body), dtype=np.float32)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ModelError(f"{self.name} returned something else than embeddings") from None
        if len(vectors) != len(contents):
            raise ModelError(f"{self.name} returned {len(vectors)} embeddings for {len(contents)} texts")
        return vectors

    def _ask_shorter(
        self, contents: list[str], side: Side, stop: threading.Event, spent: Usage, message: str
    ) -> Float32:
        """Find the text that is too long by halving the request, then shorten it by tenths until it fits."""
        if len(contents) > 1:
            middle = len(contents) // 2
            parts = (contents[:middle], contents[middle:])
            return np.concatenate([self._ask(part, side, stop, spent) for part in parts])
        (text,) = contents
        limit = self.card.length(side)
        if len(text.encode()) <= limit:
            raise ModelError(f"{self.name}: {message}")
        with self._lock:
            self.notes["shortened_requests"] += 1
        # A token is a byte or more, so nothing below the limit in bytes needs cutting.
        return self._ask([text[: max(int(len(text) * 0.9), limit // BYTES_PER_TOKEN)]], side, stop, spent)


def _batches(texts: Iterable[str], most: int) -> Iterator[TextBatch]:
    """All texts in requests of bounded size."""
    rows: list[int] = []
    contents: list[str] = []
    size = 0
    for row, text in enumerate(texts):
        tokens = estimate_tokens(text)
        if rows and (len(rows) == most or size + tokens > TOKENS_PER_REQUEST):
            yield TextBatch(rows, contents)
            rows, contents, size = [], [], 0
        rows.append(row)
        contents.append(text)
        size += tokens
    if rows:
        yield TextBatch(rows, contents)


class WireFormat:
    """How a service is asked for vectors and how it answers; the answer here is OpenAI's, which most others copied."""

    known: ClassVar[dict[str, type[WireFormat]]] = {}
    """All formats by the `backend` of cards."""
    key_header = ""
    """Header that the key goes in; empty: `Authorization`, as a bearer's."""
    most_texts = 64
    """Texts in one request."""

    def __init_subclass__(cls, backend: str) -> None:
        cls.known[backend] = cls

    def path(self, model: str) -> str:
        """What is asked for, below the base URL."""
        del model
        return "/embeddings"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        """The request for some texts of one side; `dimension` is a length of vectors other than the usual one."""
        raise NotImplementedError

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        """The vectors of an answer, in the order of the texts; a KeyError or TypeError says that it is no answer."""
        placed = {item["index"]: item["embedding"] for item in answer["data"]}
        return [numbers(placed[at]) for at in range(len(answer["data"]))]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        """How many tokens the service counted; None where it does not say."""
        usage = answer.get("usage")
        return token_count(usage.get("total_tokens")) if isinstance(usage, dict) else None


def numbers(embedding: Any) -> list[float]:
    """A vector: a list of numbers, or the bytes of its float32 in base64, which some gateways always send."""
    if not isinstance(embedding, str):
        made: list[float] = embedding
        return made
    return [float(number) for number in np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")]


def wire_format(backend: str) -> WireFormat:
    """The format that a card names."""
    if backend not in WireFormat.known:
        raise ModelError(f"no embedding service speaks {backend!r}")
    return WireFormat.known[backend]()


class OpenAIFormat(WireFormat, backend="openai"):
    """OpenAI's, and what speaks its protocol (vLLM, TEI, Azure). Both sides are asked for alike."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "encoding_format": "float"}
        return asked if dimension is None else asked | {"dimensions": dimension}


class VoyageFormat(WireFormat, backend="voyage"):
    """Voyage's. The side is part of the request, and the service cuts what is too long."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "input_type": side, "truncation": True}
        return asked if dimension is None else asked | {"output_dimension": dimension}


class CohereFormat(WireFormat, backend="cohere"):
    """Cohere's, version 2 of the protocol. The side is part of the request, and the service cuts what is too long.

    Vectors come by their type of number. A request holds 96 texts at most.
    """

    def path(self, model: str) -> str:
        del model
        return "/embed"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {
            "model": model,
            "texts": texts,
            "input_type": f"search_{side}",
            "embedding_types": ["float"],
            "truncate": "END",
        }
        return asked if dimension is None else asked | {"output_dimension": dimension}

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        made: list[list[float]] = answer["embeddings"]["float"]
        return made

    def tokens(self, answer: dict[str, Any]) -> int | None:
        billed = (answer.get("meta") or {}).get("billed_units")
        return token_count(billed.get("input_tokens")) if isinstance(billed, dict) else None


class GeminiFormat(WireFormat, backend="gemini"):
    """That of Google's Gemini API. The model stands in the address, the side in every text's own request.

    A batch holds 100 of them at most.
    """

    key_header = "x-goog-api-key"

    def path(self, model: str) -> str:
        return f"/models/{model}:batchEmbedContents"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        how: dict[str, object] = {"model": f"models/{model}", "taskType": f"RETRIEVAL_{side.upper()}"}
        if dimension is not None:
            how["outputDimensionality"] = dimension
        return {"requests": [{**how, "content": {"parts": [{"text": text}]}} for text in texts]}

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        return [item["values"] for item in answer["embeddings"]]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        usage = answer.get("usageMetadata")
        return token_count(usage.get("promptTokenCount")) if isinstance(usage, dict) else None
