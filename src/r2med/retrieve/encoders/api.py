"""Embeddings over HTTP: OpenAI and what speaks its protocol (vLLM, TEI, Azure), and Voyage.

Texts are sent as they are. A text is cut only when the service says that it is too long, and to the model's limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from ...core import ModelError, UsageError
from ...core.keys import read_key
from .http import RateLimit, Service, TextTooLong
from .protocol import UNKNOWN_TOKENS, BaseEncoder, Batch, Float32, Side, check_vectors, normalized

if TYPE_CHECKING:
    from .load import Options
    from .spec import ModelCard

HOMES = {"openai": "https://api.openai.com/v1", "voyage": "https://api.voyageai.com/v1"}
URL_VARIABLES = {"openai": "OPENAI_BASE_URL", "voyage": "VOYAGE_BASE_URL"}
KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "voyage": "VOYAGE_API_KEY"}
TEXTS_PER_REQUEST, TOKENS_PER_REQUEST = 64, 60_000
BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """About a token per four bytes; services bill what they count themselves."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1


class ApiEncoder(BaseEncoder):
    """A model behind an embeddings endpoint."""

    def __init__(
        self,
        model: str,
        base_url: str,
        key: str,
        options: Options,
        *,
        name: str = "",
        dialect: str = "openai",
        revision: str = "",
        limits: dict[Side, int] | None = None,
        normalize: bool = True,
        price: float | None = None,
        key_variable: str = "",
    ) -> None:
        super().__init__()
        if options.max_cost is not None and price is None:
            raise UsageError(f"the price of {name or model} is not known, so max_cost cannot be kept")
        self.name, self.model, self.dialect, self.revision = name or model, model, dialect, revision
        self.limits = limits or {}
        self.normalize, self.price, self.options = normalize, price, options
        self._base_url, self._key = base_url, key
        self._key_variable = key_variable or KEY_VARIABLES[dialect]
        self._service: Service | None = None
        self._lock = threading.Lock()
        self._tokens_spent = 0

    @classmethod
    def from_card(cls, card: ModelCard, options: Options) -> ApiEncoder:
        """The encoder of a card. Without a key it can say what it would cost, and no more: see `check`."""
        variable = card.key or KEY_VARIABLES[card.backend]
        base_url = options.base_url or os.environ.get(URL_VARIABLES[card.backend]) or HOMES[card.backend]
        return cls(
            card.source,
            base_url,
            read_key(variable),
            options,
            name=card.name,
            dialect=card.backend,
            revision=card.revision,
            limits={"query": card.query_length, "document": card.document_length},
            normalize=card.normalize,
            price=card.price.per_million if card.price else None,
            key_variable=variable,
        )

    def check(self) -> None:
        """Say what is missing before any work. A server of one's own often asks for no key; the services always do."""
        if not self._key and self._base_url == HOMES.get(self.dialect):
            variable = self._key_variable
            raise UsageError(f"{self.name} needs a key: export {variable}=… or {variable}_FILE=FILE")
        self._endpoint()

    @property
    def cost(self) -> float:
        """Dollars spent by this encoder so far, as far as the price is known."""
        return self._tokens_spent / 1e6 * (self.price or 0)

    @property
    def service(self) -> Service:
        """Opened on first use."""
        with self._lock:
            if self._service is None:
                self._service = Service(
                    self._endpoint(),
                    self._headers(),
                    self._key,
                    timeout=self.options.timeout,
                    attempts=self.options.max_attempts,
                    limit=RateLimit(self.options.requests_per_minute, self.options.tokens_per_minute),
                    notes=self.notes,
                )
            return self._service

    def close(self) -> None:
        """Give the connections back; the next text opens new ones."""
        with self._lock:
            if self._service is not None:
                self._service.close()
            self._service = None

    def _endpoint(self) -> str:
        """`/embeddings` behind the base URL; Azure's carries its version as a query, which stays at the end."""
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            shown = self._base_url if "@" not in self._base_url else URL_VARIABLES.get(self.dialect, "the base URL")
            raise UsageError(f"{shown!r} is not the URL of a service")
        path = parts.path.rstrip("/")
        path = path if path.endswith("/embeddings") else f"{path}/embeddings"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    def _headers(self) -> dict[str, str]:
        if not self._key:
            return {}
        if (urlsplit(self._base_url).hostname or "").endswith(".azure.com"):
            return {"api-key": self._key}
        return {"Authorization": f"Bearer {self._key}"}

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return {
            "backend": self.dialect,
            "host": urlsplit(self._base_url).hostname,
            "model": self.model,
            "revision": self.revision,
            "normalize": self.normalize,
            "dtype": "service",
            "max_length": self.max_length(side),
        }

    def max_length(self, side: Side) -> int | None:
        """The model's limit in its own tokens."""
        return self.limits.get(side)

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Several requests at a time; the first that fails for good stops the rest."""
        self.check()
        pool = ThreadPoolExecutor(self.options.concurrency)
        running: set[Future[Batch]] = set()
        failure: BaseException | None = None
        try:
            for rows, contents in self._requests(texts, instruction):
                failure = failure or self._budget_error(contents)
                if failure is not None:
                    break
                running.add(pool.submit(self._encode, texts, rows, contents, side))
                if len(running) == self.options.concurrency:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done if future.exception() is None)
                    failure = next((e for e in map(Future.exception, done) if e is not None), None)
            # What is under way has been paid for: it is taken, whatever stopped the rest.
            for future in as_completed(running):
                failure = failure or future.exception()
                if future.exception() is None:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self.close()
        if failure is not None:
            raise failure

    def _requests(self, texts: Sequence[str], instruction: str) -> Iterator[tuple[list[int], list[str]]]:
        rows: list[int] = []
        contents: list[str] = []
        size = 0
        for row, text in enumerate(texts):
            tokens = estimate_tokens(instruction + text)
            if rows and (len(rows) == TEXTS_PER_REQUEST or size + tokens > TOKENS_PER_REQUEST):
                yield rows, contents
                rows, contents, size = [], [], 0
            rows.append(row)
            contents.append(instruction + text)
            size += tokens
        if rows:
            yield rows, contents

    def _budget_error(self, contents: list[str]) -> UsageError | None:
        if self.options.max_cost is None:
            return None
        ahead = sum(map(estimate_tokens, contents)) / 1e6 * (self.price or 0)
        if self.cost + ahead > self.options.max_cost:
            return UsageError(
                f"the budget of ${self.options.max_cost:g} is spent (${self.cost:.4f} so far, the next request about "
                f"${ahead:.4f}); what was encoded is kept: allow more to go on"
            )
        return None

    def _encode(self, texts: Sequence[str], rows: list[int], contents: list[str], side: Side) -> Batch:
        vectors = self._ask(contents, side)
        place = np.array(rows, dtype=np.int64)
        checked = check_vectors(vectors, place, texts, self.name)
        tokens = np.full(len(rows), UNKNOWN_TOKENS, dtype=np.int32)
        return Batch(place, normalized(checked) if self.normalize else checked, tokens)

    def _ask(self, contents: list[str], side: Side) -> Float32:
        body: dict[str, object] = {"model": self.model, "input": contents}
        if self.dialect == "voyage":
            body |= {"input_type": side, "truncation": True}
        else:
            body |= {"encoding_format": "float"}
        try:
            answer = self.service.post(body, sum(map(estimate_tokens, contents)))
        except TextTooLong as error:
            return self._ask_shorter(contents, side, str(error))
        used = answer.get("usage")
        spent = used.get("total_tokens", 0) if isinstance(used, dict) else 0
        with self._lock:
            self._tokens_spent += int(spent)
            self.notes["tokens"] += int(spent)
        return _vectors(answer, len(contents), self.name)

    def _ask_shorter(self, contents: list[str], side: Side, message: str) -> Float32:
        """Find the text that is too long by halving the request, then shorten it by tenths until it fits."""
        if len(contents) > 1:
            middle = len(contents) // 2
            return np.concatenate((self._ask(contents[:middle], side), self._ask(contents[middle:], side)))
        (text,) = contents
        limit = self.max_length(side)
        if limit is None or len(text.encode()) <= limit:
            raise ModelError(f"{self.name}: {message}")
        with self._lock:
            self.notes["shortened_requests"] += 1
        # A token is a byte or more, so nothing below the limit in bytes needs cutting.
        return self._ask([text[: max(int(len(text) * 0.9), limit // BYTES_PER_TOKEN)]], side)


def _vectors(answer: dict[str, Any], count: int, name: str) -> Float32:
    """The vectors of an answer, in the order of the request."""
    try:
        data = sorted(answer["data"], key=lambda item: item["index"])
        made = np.array([item["embedding"] for item in data], dtype=np.float32)
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{name} returned something else than embeddings") from None
    if len(data) != count:
        raise ModelError(f"{name} returned {len(data)} embeddings for {count} texts")
    return made
