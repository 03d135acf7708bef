"""A server on loopback that speaks the formats of four embedding services, and refuses what they refuse.

Fields, limits and error bodies are those of the services' documentation and clients. Vectors depend on the model, the
side and the text, so that a request that says the wrong thing gets other numbers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tests.serving import in_background

KEY = "a-very-secret-key"
QUOTA = "You exceeded your current quota, please check your plan and billing details. For more information, see …"


class Refused(Exception):
    """A status and the body that goes with it."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(body)
        self.status, self.body = status, body


class Asked(NamedTuple):
    """One request, as the service understood it."""

    service: str
    model: str
    side: str
    texts: list[str]
    dimension: int | None


def vector(model: str, side: str, text: str, length: int) -> npt.NDArray[np.float32]:
    """A vector of unit length, whole."""
    seed = int.from_bytes(hashlib.sha256(f"{model}|{side}|{text}".encode()).digest()[:8], "little")
    made = np.random.default_rng(seed).standard_normal(length).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made), dtype=np.float32)


def cut(whole: npt.NDArray[np.float32], length: int, *, scaled: bool) -> list[float]:
    part = whole[:length]
    return [float(number) for number in (part / np.linalg.norm(part) if scaled else part)]


def fields(body: dict[str, Any], needed: set[str], optional: set[str], refuse: Any) -> None:
    if missing := needed - set(body):
        raise refuse(f"missing {sorted(missing)}")
    if unknown := set(body) - needed - optional:
        raise refuse(f"unknown fields {sorted(unknown)}")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.in_base64 = False
        self.too_fast = 0
        # Requests of Gemini's that are refused because a minute's quota is spent.
        self.lock = threading.Lock()

    def url(self, service: str) -> str:
        version = {"gemini": "v1beta", "cohere": "v2"}.get(service, "v1")
        return f"http://127.0.0.1:{self.server_address[1]}/{service}/{version}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        service, _, path = self.path.removeprefix("/").partition("/")
        try:
            status, answer = 200, getattr(self, service)(path, body)
        except Refused as why:
            status, answer = why.status, why.body
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def note(self, asked: Asked) -> None:
        with self.server.lock:
            self.server.asked.append(asked)

    def bearer(self) -> bool:
        return bool(self.headers["authorization"] == f"Bearer {KEY}")

    def openai(self, path: str, body: dict[str, Any]) -> object:
        def refuse(said: str, status: int = 400, code: str | None = None) -> Refused:
            error = {"message": said, "type": "invalid_request_error", "param": None, "code": code}
            return Refused(status, {"error": error})

        if path != "v1/embeddings":
            raise refuse(f"Invalid URL (POST /{path})", 404)
        if not self.bearer():
            raise refuse("Incorrect API key provided", 401, "invalid_api_key")
        fields(body, {"model", "input"}, {"encoding_format", "dimensions", "user"}, refuse)
        lengths = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072}
        if (whole := lengths.get(body["model"])) is None:
            raise refuse(f"The model `{body['model']}` does not exist", 404, "model_not_found")
        texts = body["input"]
        if not texts or len(texts) > 2048 or not all(isinstance(text, str) and text for text in texts):
            raise refuse("'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs")
        if any(len(text.split()) > 8191 for text in texts):
            raise refuse("This model's maximum context length is 8192 tokens, however you requested more")
        dimension = body.get("dimensions")
        if dimension is not None and not 1 <= dimension <= whole:
            raise refuse(f"Invalid value for 'dimensions' = {dimension}. Must be less than or equal to {whole}.")
        self.note(Asked("openai", body["model"], "", texts, dimension))
        data = []
        for i, text in enumerate(texts):
            made = cut(vector(body["model"], "", text, whole), dimension or whole, scaled=True)
            shown: object = made
            if self.server.in_base64 or body.get("encoding_format") == "base64":
                shown = base64.b64encode(np.array(made, dtype="<f4").tobytes()).decode()
            data.append({"object": "embedding", "index": i, "embedding": shown})
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def voyage(self, path: str, body: dict[str, Any]) -> object:
        def refuse(said: str, status: int = 400) -> Refused:
            return Refused(status, {"detail": said})

        if path != "v1/embeddings":
            raise refuse("Not Found", 404)
        if not self.bearer():
            raise refuse("Provided API key is invalid.", 401)
        optional = {"input_type", "truncation", "output_dimension", "output_dtype", "encoding_format"}
        fields(body, {"model", "input"}, optional, refuse)
        if body["model"] not in ("voyage-3", "voyage-3.5", "voyage-3-large"):
            raise refuse(f"Model {body['model']} is not supported.")
        if body.get("input_type") not in ("query", "document", None):
            raise refuse("Argument 'input_type' is not one of query, document")
        texts, dimension = body["input"], body.get("output_dimension")
        if len(texts) > 128:
            raise refuse("The batch size limit is 128.")
        if dimension not in (None, 256, 512, 1024, 2048):
            raise refuse("Argument 'output_dimension' is not one of 256, 512, 1024, 2048")
        if body.get("truncation") is False and any(len(text.split()) > 32000 for text in texts):
            raise refuse("Request to model has a text that exceeds the context length of 32000 tokens.")
        self.note(Asked("voyage", body["model"], body.get("input_type") or "", texts, dimension))
        data = [
            {
                "object": "embedding",
                "embedding": cut(
                    vector(body["model"], body.get("input_type") or "", text, 2048), dimension or 1024, scaled=True
                ),
                "index": i,
            }
            for i, text in enumerate(texts)
        ]
        usage = {"total_tokens": sum(len(text.split()) for text in texts)}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def gemini(self, path: str, body: dict[str, Any]) -> object:
        def refuse(said: str, status: int = 400, code: str = "INVALID_ARGUMENT") -> Refused:
            return Refused(status, {"error": {"code": status, "message": said, "status": code}})

        if path != "v1beta/models/gemini-embedding-001:batchEmbedContents":
            raise refuse(f"{path} is not found for API version v1beta", 404, "NOT_FOUND")
        if self.headers["x-goog-api-key"] != KEY or self.headers["authorization"]:
            raise refuse("API key not valid. Please pass a valid API key.")
        if self.server.too_fast:
            self.server.too_fast -= 1
            spent = refuse(QUOTA, 429, "RESOURCE_EXHAUSTED")
            retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"}
            raise Refused(429, {"error": {**spent.body["error"], "details": [retry]}})
        fields(body, {"requests"}, set(), refuse)
        if len(body["requests"]) > 100:
            raise refuse("* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch")
        asked, answers = [], []
        for request in body["requests"]:
            fields(request, {"model", "content"}, {"taskType", "title", "outputDimensionality"}, refuse)
            if request["model"] != "models/gemini-embedding-001":
                raise refuse("* BatchEmbedContentsRequest.model: unexpected model name format")
            ((part,), side) = request["content"]["parts"], request.get("taskType", "")
            if side not in ("RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"):
                raise refuse(f"Invalid value at 'requests[0].task_type': {side!r}")
            dimension = request.get("outputDimensionality")
            whole = vector("gemini-embedding-001", side, part["text"], 3072)
            # Only whole vectors come with length one.
            answers.append({"values": cut(whole, dimension or 3072, scaled=False)})
            asked.append((side, part["text"], dimension))
        ((side, dimension),) = {(side, dimension) for side, _, dimension in asked}
        self.note(Asked("gemini", "gemini-embedding-001", side, [text for _, text, _ in asked], dimension))
        return {"embeddings": answers}

    def cohere(self, path: str, body: dict[str, Any]) -> object:
        def refuse(said: str, status: int = 400) -> Refused:
            return Refused(status, {"id": "0b1f", "message": said})

        if path != "v2/embed":
            raise refuse("404 page not found", 404)
        if not self.bearer():
            raise refuse("invalid api token", 401)
        optional = {"truncate", "output_dimension", "max_tokens", "priority"}
        fields(body, {"model", "texts", "input_type", "embedding_types"}, optional, refuse)
        if body["model"] != "embed-v4.0":
            raise refuse(f"model '{body['model']}' not found", 404)
        if body["input_type"] not in ("search_query", "search_document", "classification", "clustering"):
            raise refuse("invalid request: valid input_type must be provided with the provided model")
        texts, dimension = body["texts"], body.get("output_dimension")
        if len(texts) > 96:
            raise refuse(f"invalid request: total number of texts must be at most 96 - received {len(texts)}")
        if dimension not in (None, 256, 512, 1024, 1536):
            raise refuse("invalid request: output_dimension must be one of 256, 512, 1024, 1536")
        if body["embedding_types"] != ["float"]:
            raise refuse("this server gives floats")
        self.note(Asked("cohere", body["model"], body["input_type"], texts, dimension))
        made = [
            cut(vector("embed-v4.0", body["input_type"], text, 1536), dimension or 1536, scaled=True) for text in texts
        ]
        units = {"input_tokens": sum(len(text.split()) for text in texts)}
        meta = {"api_version": {"version": "2"}, "billed_units": units}
        return {"id": "5c2a", "embeddings": {"float": made}, "texts": texts, "meta": meta}


@contextmanager
def serving() -> Iterator[Server]:
    with in_background(Server()) as server:
        yield server
