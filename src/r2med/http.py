"""The one HTTP client: JSON in, JSON out, for chat models and embedding services.

A key goes to the host it was meant for and into no message or stored text. Rate limits are kept, what may pass by
itself is repeated, and a server can cost no more memory and time than it was given. Needs the extra `api`, but not
before the first request has to be sent.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from .core import MissingExtra, ModelError, Unavailable, UsageError
from .core.budget import Usage
from .core.keys import Secrets, read_key, secrets_of, warn_once
from .core.parallel import in_time, shall_end, sleep
from .core.stores import inflated

T = TypeVar("T")
FIRST_WAIT, LONGEST_BACKOFF, LONGEST_WAIT = 0.5, 30.0, 120.0
"""Seconds between attempts: the first, the longest of ours, the longest a server may ask for."""
RETRY_DELAY, LONGEST_REFUSAL = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"'), 1 << 16
"""Where Google says how long to wait, and the bytes of a refusal that are searched for it."""
CONNECT_SECONDS = 10.0
MOST_TOKENS = 1 << 40
PASSING = {408, 409, 425, 429}
"""Refusals that may be gone the next time, besides everything from 500 up."""
THIS_REQUEST = {400, 413, 422}
TOO_LONG = (
    *("context length", "context_length", "context size", "too long", "maximum input", "too many tokens", "exceed"),
    *("tokens must be", "token limit", "max allowed tokens"),
)
FILTERED = ("content_filter", "content management policy", "content_policy", "safety system", "responsibleai")
NO_MONEY = ("insufficient_quota", "billing", "exceeded your current quota", "credit balance")


class Rejected(Exception):
    """This request cannot be answered, though others may be."""

    def __init__(self, message: str, *, filtered: bool = False, too_long: bool = False) -> None:
        super().__init__(message)
        self.filtered, self.too_long = filtered, too_long


class _TryAgain(Exception):
    """Something that may pass by itself."""

    def __init__(self, problem: str, wait: float | None = None, *, rate_limited: bool = False) -> None:
        super().__init__(problem)
        self.wait, self.rate_limited = wait, rate_limited


class Answer(NamedTuple):
    """A decoded body, how long it took, and how often it had to be asked for again, also because of a rate limit."""

    body: dict[str, Any]
    seconds: float
    retries: int = 0
    rate_limits: int = 0


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is served, and which key it takes."""

    name: str
    # What people call the model, for messages.
    base_url: str
    path: str
    # Below the base URL: `/chat/completions`.
    key: str = ""
    # Environment variable of the key.
    key_header: str = ""
    # Header that carries it; empty: `Authorization`, as a bearer's.
    home: str = ""
    # Base URL of the service that has the model; a server of one's own often asks for no key, that one always does.

    @property
    def url(self) -> str:
        """Where requests go; a query (Azure's version) stays at the end."""
        try:
            parts = urlsplit(self.base_url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # half an IPv6 address, or a port that is none
            fine = False
        if not fine:
            shown = f"the base URL of {self.name}" if re.search("[@?]", self.base_url) else self.base_url
            raise UsageError(f"{shown!r} is not the URL of a service (http://host/v1)")
        path = parts.path.rstrip("/").removesuffix(self.path) + self.path
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    @property
    def host(self) -> str:
        """The host's name alone."""
        return urlsplit(self.url).hostname or ""

    @property
    def place(self) -> str:
        """What tells one server from another: host, port, path and query, as far as they are not the usual ones.

        A query may choose another model behind a gateway and may hold a key: a hash stands for it.
        """
        parts = urlsplit(self.url)
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f":{parts.port}"
        path = parts.path.removesuffix(self.path) or "/"
        query = f"?{hashlib.blake2b(parts.query.encode(), digest_size=4).hexdigest()}" if parts.query else ""
        return f"{host}{port}{'' if path == '/v1' else path}{query}"

    @property
    def is_home(self) -> bool:
        """Whether this is the service that has the model, however its base URL is spelled."""
        return bool(self.home) and msgspec.structs.replace(self, base_url=self.home).place == self.place


class RateLimit:
    """Spreads requests and tokens over a minute; each request learns when its turn is."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests, self._tokens = requests_per_minute, tokens_per_minute
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, tokens: int, stop: threading.Event) -> None:
        """Sleep until a request of so many tokens may go out, or until `stop`."""
        span = max(60 / self._requests if self._requests else 0, 60 * tokens / self._tokens if self._tokens else 0)
        if span == 0:
            return
        with self._lock:
            now = time.monotonic()
            turn = max(self._free_at, now)
            self._free_at = turn + span
        sleep(turn - now, stop)


class Client:
    """Sends requests to one service, from any number of threads."""

    def __init__(
        self, service: Service, usage: Usage, *, timeout: float, attempts: int, limit: RateLimit, most_bytes: int
    ) -> None:
        self.service, self.url, self.host = service, service.url, service.host
        self._usage, self._timeout, self._attempts, self._limit = usage, timeout, attempts, limit
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._client: Any = None
        self._secrets, self._has_key = Secrets(), False

    def check(self) -> None:
        """Raise what would keep the first request from being sent: a missing extra, a missing or unusable key."""
        self._import()
        self._key()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def post(
        self,
        body: dict[str, object],
        tokens: int,
        stop: threading.Event | None = None,
        on_send: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Ask until an answer comes; `on_send` is called once, before anything goes out."""
        content = msgspec.json.encode(body)

        def ask(deadline: float) -> Answer:
            begun = time.monotonic()
            response, raw = self._exchange("POST", content, deadline)
            return Answer(self._judge(response, raw), time.monotonic() - begun)

        answer, retries, rate_limits = self._repeat(ask, tokens, stop or threading.Event(), on_send)
        return answer._replace(retries=retries, rate_limits=rate_limits)

    def get(self) -> bytes:
        """The file at the service's address."""

        def ask(deadline: float) -> bytes:
            response, raw = self._exchange("GET", b"", deadline)
            if response.status_code != 200:
                raise self._refusal(response.status_code, raw, response.headers)
            return raw

        return self._repeat(ask, 0, threading.Event(), lambda: None)[0]

    def _repeat(
        self, ask: Callable[[float], T], tokens: int, stop: threading.Event, on_send: Callable[[], None]
    ) -> tuple[T, int, int]:
        """Ask until an answer comes, waiting longer each time; what cannot change is not asked twice.

        Returns the answer, how often it was asked for again, and how many of the refusals were rate limits.
        """
        self._open()
        problem, rate_limits = "was not asked", 0
        for attempt in range(self._attempts):
            if attempt:
                self._usage.add(retries=1)
            self._limit.wait(tokens, stop)
            if shall_end(stop):
                why = "the work was stopped" if stop.is_set() else "interrupted"
                raise Unavailable(f"{self.host} {problem}: {why}")
            if not attempt:
                on_send()
            self._usage.add(attempts=1)
            try:
                return self._attempt(ask), attempt, rate_limits
            except _TryAgain as why:
                problem = str(why)
                rate_limits += why.rate_limited
                self._usage.add(rate_limited=int(why.rate_limited))
                if attempt + 1 < self._attempts:
                    begun = time.monotonic()
                    sleep(_backoff(attempt) if why.wait is None else why.wait, stop)
                    self._usage.add(waited=time.monotonic() - begun)
        times = "once" if self._attempts == 1 else f"{self._attempts} times"
        raise Unavailable(f"{self.host} {problem}, {times}; what was finished is kept, run it again later")

    def _attempt(self, exchange: Callable[[float], T]) -> T:
        deadline = time.monotonic() + self._timeout
        try:
            return in_time(lambda: exchange(deadline), self._timeout)
        except TimeoutError:
            raise _TryAgain("did not answer in time") from None

    def _exchange(self, method: str, content: bytes, deadline: float) -> tuple[Any, bytes]:
        """One request: the response and its body."""
        httpx, client = self._import(), self._open()
        try:
            with client.stream(method, self.url, content=content) as response:
                return response, self._read(response, deadline)
        except httpx.TimeoutException:
            raise _TryAgain("did not answer in time") from None
        except (httpx.TransportError, httpx.StreamError, zlib.error) as error:
            raise _TryAgain(f"cannot be reached ({self._clean(str(error)) or type(error).__name__})") from None
        except RuntimeError:
            if not client.is_closed:
                raise
            raise _TryAgain("was closed by another thread") from None

    def _read(self, response: Any, deadline: float) -> bytes:
        """The whole body, unpacked, within its size and time."""
        parts, size = [], 0
        for part in _unpacked(response):
            size += len(part)
            if size > self._most_bytes:
                raise Rejected(f"{self.host} answered with more than {self._most_bytes >> 20} MB")
            if time.monotonic() > deadline:
                raise _TryAgain("did not answer in time")
            parts.append(part)
        return b"".join(parts)

    def _judge(self, response: Any, raw: bytes) -> dict[str, Any]:
        """The body of a good answer; raises what any other means."""
        status = response.status_code
        if status == 200:
            try:
                body: dict[str, Any] = self._secrets.hide_in(msgspec.json.decode(raw, type=dict[str, Any]), raw)
            except (ValueError, RecursionError):
                kind = self._clean(response.headers.get("content-type", "something").split(";")[0])
                raise _TryAgain(f"answered with {kind} that is not the JSON of an answer") from None
            error = body.get("error")
            if not error:
                return body
            # Some gateways say 200 to everything and put what happened into the body.
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
        raise self._refusal(status, raw, response.headers)

    def _refusal(self, status: int, raw: bytes, headers: Mapping[str, str]) -> Exception:
        """What an answer other than 200 means."""
        message, delay = self._clean(_message(raw)), stated_delay(raw)
        wait, said = retry_after(headers) if delay is None else delay, message.lower()
        if status in (401, 403):
            return UsageError(f"{self.host} {'refused the' if self._has_key else 'wants an'} API key ({status})")
        if status == 429 and delay is None and any(hint in said for hint in NO_MONEY):
            return UsageError(f"{self.host}: the account has no credit left ({message})")
        if status in PASSING or status >= 500:
            problem = f"answered {status} ({message})" if message else f"answered {status}"
            return _TryAgain(problem, wait, rate_limited=status == 429)
        filtered, too_long = (any(hint in said for hint in hints) for hints in (FILTERED, TOO_LONG))
        if status in THIS_REQUEST and (filtered or too_long):
            why = f"{self.host} refused this request ({status}): {message}"
            return Rejected(why, filtered=filtered, too_long=too_long)
        if status < 400:
            return ModelError(f"{self.host} answered {status}, not an answer: check the base URL")
        return ModelError(f"{self.host} refused the request ({status}): {message}")

    def _open(self) -> Any:
        """The connections, made on first use."""
        with self._lock:
            if self._client is None:
                httpx, key = self._import(), self._key()
                self._secrets, self._has_key = Secrets(key, *secrets_of(self.url)), bool(key)
                if key and self.url.startswith("http:") and not _is_loopback(self.host):
                    warn_once(
                        f"the key of {self.service.name} goes to {self.host} over plain http, readable on the way"
                    )
                self._client = httpx.Client(
                    headers=self._headers(key),
                    timeout=httpx.Timeout(self._timeout, connect=min(CONNECT_SECONDS, self._timeout), pool=None),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                    follow_redirects=False,  # a key goes to the host it was meant for
                )
            return self._client

    def _headers(self, key: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if not key:
            return headers
        header = self.service.key_header or ("api-key" if self.host.endswith(".azure.com") else "")
        return headers | ({header: key} if header else {"Authorization": f"Bearer {key}"})

    def _key(self) -> str:
        """The key, if it can be sent at all; a message about it never shows it."""
        service = self.service
        key = read_key(service.key) if service.key else ""
        if not key and service.is_home:
            raise UsageError(f"{service.name} needs a key: export {service.key}=… or {service.key}_FILE=FILE")
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageError(f"{service.key} holds characters that no key has (spaces, line breaks or accents)")
        return key

    def _import(self) -> Any:
        try:
            import httpx
        except ImportError:
            raise MissingExtra(f"calling {self.service.name}", "api") from None
        return httpx

    def _clean(self, message: str) -> str:
        """One short line without a secret."""
        return " ".join(self._secrets.hide(message).split())[:200]


def download(url: str, *, most_bytes: int, timeout: float = 20.0, attempts: int = 2) -> bytes:
    """A file that needs no key; not one byte more than `most_bytes`."""
    service = Service(name=url, base_url=url, path="")
    client = Client(
        service, Usage(), timeout=timeout, attempts=attempts, limit=RateLimit(None, None), most_bytes=most_bytes
    )
    try:
        return client.get()
    finally:
        client.close()


def token_count(value: object) -> int | None:
    """A number of tokens as a server gives it; None where it is anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the service asks for: `retry-after-ms`, or `retry-after` as seconds or a date."""
    from email.utils import parsedate_to_datetime

    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif not (value := headers.get("retry-after")):
            return None
        elif re.fullmatch(r"[\d.]+", value):
            seconds = float(value)
        else:
            seconds = (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) else min(max(seconds, 0.01), LONGEST_WAIT)


def stated_delay(raw: bytes) -> float | None:
    """Seconds that the body of a refusal asks for, as Google's do: then the quota is one of a minute, not of money."""
    found = RETRY_DELAY.search(raw[:LONGEST_REFUSAL])
    return None if found is None else min(max(float(found[1]), 0.01), LONGEST_WAIT)


def _backoff(attempt: int) -> float:
    """Half a second doubled each time, give or take half, so that parallel requests do not come back together."""
    return float(min(FIRST_WAIT * 2**attempt, LONGEST_BACKOFF) * random.uniform(0.5, 1.5))


def _unpacked(response: Any) -> Iterator[bytes]:
    """The decompressed body in pieces of bounded size."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise _TryAgain("answered in a compression that was not asked for")
    yield from inflated(response.iter_raw())


def _message(raw: bytes) -> str:
    """The error message in a reply's JSON, or its plain text."""
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        text = raw[:2000].decode("utf-8", "replace").lstrip()
        return "" if text.startswith("<") else text
    code = ""
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
            if isinstance(found, dict) and isinstance(found.get("code"), str):
                code = found["code"]
    words = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return f"{code}: {words}" if code and code not in words else words


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
