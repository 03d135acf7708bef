"""One real server on loopback that chats and embeds, as OpenAI's does under one base URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.llm.server import ChatServer, error
from tests.llm.server import Handler as ChatHandler
from tests.retrieve.encoders.service import vector
from tests.serving import in_background


class Handler(ChatHandler):
    """Embeddings below `/embeddings`, everything else is a chat."""

    server: OneServer

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server looks for
        if not self.path.endswith("/embeddings"):
            super().do_POST()
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.headers.append(dict(self.headers.items()))
            self.server.embedded += len(body["input"])
        if self.server.refuse_embeddings:
            error(self, 400, f"no such model; you sent {self.headers.get('Authorization')}")
            return
        data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
        self.send(200, json.dumps({"data": data, "usage": {"total_tokens": len(data)}}).encode())


class OneServer(ChatServer):
    """Both services."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = Handler
        self.embedded = 0
        self.refuse_embeddings = False


@contextmanager
def serving() -> Iterator[OneServer]:
    with in_background(OneServer()) as server:
        yield server


def ranked(body: dict[str, Any]) -> str:
    """An order to whoever asks for one, a passage to everybody else."""
    asked = str(body["messages"][-1]["content"])
    return "[2] > [1] > [3]" if "[1]" in asked else f"A passage about {asked[-80:]}"
