"""Chat calls against the ideal of a slow server, store on; the embedded model against its runtime called directly.

The server is a process of its own that takes 200 ms a call. The embedded part needs the extra `local-llm` and the
weights (`r2med models fetch smollm2`), and says so where they are missing.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import report, skipped

from r2med.core.options import Options
from r2med.llm import Chat, GenerationStore, Message, Request, Sampling, StoreKey, generate, get_llm
from r2med.llm.local import SLOTS, LocalChat
from r2med.models import find_any_card, ready

SERVER = Path(__file__).parent.parent / "tests" / "llm" / "server.py"
CALLS, SECONDS, IN_FLIGHT = 876, 0.2, 16
PROMPTS, TOKENS, ROUNDS = 8, 48, 5
QUESTION = "Patient {}: fever, cough and a rash. Write a passage on the likely diagnosis, its causes and its treatment."


@contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, str(SERVER), str(SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def requests(first: int, count: int, sampling: Sampling) -> list[Request]:
    return [Request((Message("user", QUESTION.format(i)),), sampling, f"q{i}") for i in range(first, first + count)]


def timed(chat: Chat, prompts: list[Request], folder: str) -> tuple[float, int]:
    """Seconds for all prompts with the store on, and the tokens that came back."""
    with GenerationStore(StoreKey.of("bench", chat, "t", prompts[0].sampling, "task"), Path(folder)) as store:
        start = time.perf_counter()
        done = list(generate(chat, prompts, store))
        seconds = time.perf_counter() - start
    if any(g.status == "failed" for g in done) or len(done) != len(prompts):
        raise SystemExit("not all calls were answered")
    return seconds, sum(g.completion_tokens for g in done)


def bare_client(url: str) -> float:
    """The least a Python client can do on this machine now: 16 threads, a connection each, answers thrown away."""
    parts = urlsplit(url)
    bodies = iter(
        [
            json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION.format(i)}]})
            for i in range(CALLS)
        ]
    )
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        while True:
            with lock:
                body = next(bodies, None)
            if body is None:
                connection.close()
                return
            connection.request("POST", f"{parts.path}/chat/completions", body, {"Content-Type": "application/json"})
            connection.getresponse().read()

    threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def endpoint() -> bool:
    with server() as url, tempfile.TemporaryDirectory() as folder:
        chat = get_llm("openai:any-model", Options(base_url=url, concurrency=IN_FLIGHT))
        seconds, _ = timed(chat, requests(0, CALLS, Sampling(max_tokens=64)), folder)
        chat.close()
        bare = bare_client(url)
    ideal = CALLS * SECONDS / IN_FLIGHT
    print(
        f"{CALLS} calls of {1e3 * SECONDS:.0f} ms, {IN_FLIGHT} in flight: {seconds:.2f} s, ideal {ideal:.2f} s, "
        f"http.client that keeps nothing {bare:.2f} s"
    )
    return report("time / ideal, store on", seconds / ideal, 1.15, at_least=False)


def direct(runtime: Any, prompts: list[Request]) -> tuple[float, int]:
    """The same prompts handed to the runtime by nothing but a thread per slot."""

    def ask(request: Request) -> int:
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        answer = runtime.handle_chat_completions({"messages": messages, "max_tokens": TOKENS, "temperature": 0.0})
        tokens: int = answer["usage"]["completion_tokens"]
        return tokens

    start = time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        tokens = sum(pool.map(ask, prompts))
    return time.perf_counter() - start, tokens


def embedded() -> bool:
    if not find_spec("xllamacpp") or not ready(find_any_card("smollm2")):
        return skipped("the embedded model", "pip install 'r2med[local-llm]' && r2med models fetch smollm2")
    sampling = Sampling(max_tokens=TOKENS, temperature=0.0)
    chat = get_llm("smollm2")
    assert isinstance(chat, LocalChat)
    chat.complete_one(requests(0, 1, sampling)[0])
    ratios, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            # Prompts of their own for both and every round: nothing comes from the runtime's prompt cache.
            first = 1000 + 100 * number
            seconds, tokens = timed(chat, requests(first, PROMPTS, sampling), folder)
            plain_seconds, plain_tokens = direct(chat._loaded(), requests(first + 50, PROMPTS, sampling))
            ratios.append((tokens / seconds) / (plain_tokens / plain_seconds))
            rates.append(tokens / seconds)
    chat.close()
    print(f"embedded: {statistics.median(rates):.1f} tokens/s, {SLOTS} prompts together, one thread")
    return report("tokens/s through r2med / of the runtime", statistics.median(ratios), 0.9)


def main() -> None:
    met = [endpoint(), embedded()]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
