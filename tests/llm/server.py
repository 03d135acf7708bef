"""A real chat endpoint on loopback that behaves as well or as badly as it is told to.

In a test: `with serving() as server: server.plan = ["hang", "ok"]`. As a process: `python server.py SECONDS` serves
`ok` after so many seconds, prints its address, and answers GET with the prompts it was asked. GET /more/30 lets it
answer thirty requests more and hold those that come after them.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HUGE = "fever " * 1_750_000  # 10.5 MB


def packed_spaces() -> bytes:
    """A gigabyte of spaces in a megabyte."""
    packer = zlib.compressobj(9, wbits=31)
    first = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + 1023 * again + packer.flush()


class ChatServer(ThreadingHTTPServer):
    """Keeps what it was asked and answers by plan."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seconds = seconds
        self.plan: list[str] = []
        # One behaviour a request; `default` when it is used up.
        self.default = "ok"
        self.text: Callable[[dict[str, Any]], str] = lambda body: f"On {body['messages'][-1]['content']}"
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.together = 0
        # Nothing is answered before so many requests were in flight at once.
        self.most: int | None = None
        # Requests that are answered; others wait till it is raised.
        self.lock = threading.Condition()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def may_answer(self, number: int) -> bool:
        """Whether the request of a number has waited long enough."""
        early = self.most_in_flight < self.together or (self.most is not None and number >= self.most)
        return self.closing.is_set() or not early

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that give up are part of the game."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
    server: ChatServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        with self.server.lock:
            asked = [body["messages"][-1]["content"] for body in self.server.asked]
            _, more, count = self.path.rpartition("/more/")
            if more:
                self.server.most = len(asked) + int(count)
                self.server.lock.notify_all()
        self.send(200, json.dumps(asked).encode())

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.asked)
            server.asked.append(body)
            server.headers.append(dict(self.headers.items()))
            behaviour = server.plan.pop(0) if server.plan else server.default
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
            server.lock.notify_all()
            server.lock.wait_for(lambda: server.may_answer(number))
        try:
            if server.seconds:
                time.sleep(server.seconds)
            BEHAVIOURS[behaviour](self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.lock:
                server.in_flight -= 1

    def send(self, status: int, content: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)


def completion(handler: Handler, body: dict[str, Any], **changes: Any) -> bytes:
    text = handler.server.text(body)
    message = {"role": "assistant", "content": text} | changes.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": changes.pop("finish_reason", "stop")}
    usage = {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18}
    whole = {"id": "1", "model": f"{body['model']}-0001", "choices": [choice] * body.get("n", 1), "usage": usage}
    return json.dumps(whole | changes).encode()


def error(handler: Handler, status: int, message: str, code: str | int | None = None, **headers: str) -> None:
    handler.send(status, json.dumps({"error": {"message": message, "code": code}}).encode(), **headers)


def ok(handler: Handler, body: dict[str, Any]) -> None:
    handler.send(200, completion(handler, body))


def hang(handler: Handler, _: dict[str, Any]) -> None:
    handler.server.closing.wait(30)
    handler.close_connection = True


def drop(handler: Handler, _: dict[str, Any]) -> None:
    handler.close_connection = True


def drip(handler: Handler, body: dict[str, Any]) -> None:
    """A byte at a time: no single read ever times out."""
    content = completion(handler, body)
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    for byte in content:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        if handler.server.closing.wait(0.05):
            break


def half(handler: Handler, body: dict[str, Any]) -> None:
    content = completion(handler, body)
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    handler.close_connection = True


def half_stream(handler: Handler, _: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    part = b'data: {"choices": [{"delta": {"content": "Fev'
    handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    handler.close_connection = True


def echo_key(handler: Handler, body: dict[str, Any]) -> None:
    sent = handler.headers.get("Authorization", "")
    handler.send(200, completion(handler, body, message={"content": f"You sent {sent}"}))


def echo_escaped(handler: Handler, body: dict[str, Any]) -> None:
    """The key in the spelling of JSON and of addresses, in the answer and in a name inside it."""
    key = handler.headers.get("Authorization", "").removeprefix("Bearer ")
    escaped = "".join(f"\\u{ord(c):04X}" if i % 2 else c for i, c in enumerate(key))
    percent = "".join(f"%{ord(c):02x}" for c in key)
    whole = completion(handler, body, message={"content": "You sent ONE and TWO and THREE"})
    spelled = whole.replace(b"ONE", escaped.encode()).replace(b"TWO", percent.encode())
    handler.send(200, spelled.replace(b"THREE", escaped.replace("\\", "\\\\").encode()))


def refuse_escaped(handler: Handler, _: dict[str, Any]) -> None:
    key = handler.headers.get("Authorization", "").removeprefix("Bearer ")
    escaped = "".join(f"\\u{ord(c):04x}" for c in key)
    handler.send(404, f'{{"error": {{"message": "no model for {escaped}"}}}}'.encode())


def packed(handler: Handler, body: dict[str, Any]) -> None:
    handler.send(200, gzip.compress(completion(handler, body)), Content_Encoding="gzip")


def bomb(handler: Handler, _: dict[str, Any]) -> None:
    handler.send(200, packed_spaces(), Content_Encoding="gzip")


def drip_headers(handler: Handler, _: dict[str, Any]) -> None:
    """A header without end, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b"a")
        handler.wfile.flush()


def content(**changes: Any) -> Callable[[Handler, dict[str, Any]], None]:
    return lambda handler, body: handler.send(200, completion(handler, body, **changes))


def raw(content: bytes, kind: str = "application/json") -> Callable[[Handler, dict[str, Any]], None]:
    return lambda handler, _: handler.send(200, content, kind)


def refuse(
    status: int, message: str, code: str | int | None = None, **headers: str
) -> Callable[[Handler, dict[str, Any]], None]:
    return lambda handler, _: error(handler, status, message, code, **headers)


BEHAVIOURS: dict[str, Callable[[Handler, dict[str, Any]], None]] = {
    "ok": ok,
    "no-temperature": lambda handler, _: error(handler, 400, "Unsupported parameter: 'temperature' with this model."),
    "hang": hang,
    "drop": drop,
    "drip": drip,
    "half": half,
    "half-stream": half_stream,
    "echo-key": echo_key,
    "echo-escaped": echo_escaped,
    "404-escaped": refuse_escaped,
    "gzip": packed,
    "bomb": bomb,
    "drip-headers": drip_headers,
    "brotli": lambda handler, body: handler.send(200, completion(handler, body), Content_Encoding="br"),
    "429-nan": refuse(429, "slow down", retry_after="nan", retry_after_ms="nan"),
    "usage-null": content(usage={"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}),
    "usage-odd": content(usage={"prompt_tokens": -1, "completion_tokens": 10**30}),
    "html": raw(b"<html><body><h1>Bad gateway</h1></body></html>", "text/html; charset=utf-8"),
    "wrong-json": raw(b'{"choices": [{"message": }'),
    "not-utf8": raw(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "list": raw(b"[1, 2]"),
    "choices-text": raw(b'{"choices": "none today"}'),
    "no-choice": content(choices=[]),
    "odd-choice": content(choices=[3, None]),
    "null": content(message={"content": None}),
    "parts": content(message={"content": [{"type": "text", "text": "Measles "}, {"type": "text", "text": "it is."}]}),
    "reasoning": content(message={"content": "Measles.", "reasoning_content": "Fever, then a rash."}),
    "refusal": content(message={"content": None, "refusal": "I can't help with that."}),
    "cut": content(finish_reason="length"),
    "filtered": content(message={"content": ""}, finish_reason="content_filter"),
    "no-usage": content(usage=None),
    "one-choice": lambda handler, body: ok(handler, body | {"n": 1}),
    "huge": content(message={"content": HUGE}),
    "error-200": refuse(200, "upstream is overloaded", 503),
    "error-200-plain": raw(b'{"error": "something broke"}'),
    "error-200-key": refuse(200, "bad key", 401),
    "429": refuse(429, "slow down", retry_after="0.3"),
    "429-ms": refuse(429, "slow down", retry_after_ms="250"),
    "429-quota": refuse(429, "You exceeded your current quota", "insufficient_quota"),
    "500": refuse(500, "oops"),
    "503-html": lambda handler, _: handler.send(503, b"<html>down</html>", "text/html"),
    "400": refuse(400, "Unsupported parameter: 'logit_bias'"),
    "400-length": refuse(400, "maximum context length is 8192 tokens", "context_length_exceeded"),
    "400-filter": refuse(400, "triggered the content management policy", "content_filter"),
    "401": lambda handler, _: error(handler, 401, f"Incorrect API key: {handler.headers.get('Authorization')}"),
    "403": refuse(403, "no access"),
    "404": refuse(404, "The model 'gpt-9' does not exist", "model_not_found"),
    "redirect": lambda handler, _: handler.send(307, b"", Location="http://127.0.0.1:9/elsewhere"),
}


@contextmanager
def serving(seconds: float = 0.0) -> Iterator[ChatServer]:
    server = ChatServer(seconds)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        with server.lock:
            server.lock.notify_all()
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with serving(float(sys.argv[1])) as alone:
        print(alone.url, flush=True)
        sys.stdin.read()  # until whoever started it is gone
