"""Starts the same generation again and again and kills it with SIGKILL in the middle; run by test_kill.py.

Arguments: folder of the store, URL of the server, rounds, calls a round. The imports are done once; each round is a
fork. In every round the server answers so many calls and no more, so that none is over before it is killed, however
fast or slow the machine is; the kill comes when the server was asked for some of them.
Prints one JSON document: what was stored and what the server had been asked at the end of every round.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import urllib.request
from pathlib import Path

from r2med.core.options import Options
from r2med.llm import GenerationStore, Message, Request, Sampling, StoreKey, generate, get_llm
from r2med.llm.store import read_store

import httpx  # noqa: F401  isort: skip - loaded before the forks

SAMPLING = Sampling(max_tokens=64)


def work(folder: Path, url: str, calls: int) -> None:
    chat = get_llm("openai:any-model", Options(base_url=url, concurrency=8))
    requests = [Request((Message("user", f"q{i}"),), SAMPLING, f"q{i}") for i in range(calls)]
    with GenerationStore(StoreKey.of("hyde", chat, "t", SAMPLING, "task"), folder) as store:
        for _ in generate(chat, requests, store):
            pass


def run(folder: Path, url: str, calls: int, kill_after: int | None) -> bool:
    """Whether the work was done; with `kill_after` it is killed when the server was asked so many times more."""
    begun = len(asked(url))
    child = os.fork()
    if child == 0:
        work(folder, url, calls)
        os._exit(0)
    if kill_after is not None:
        while len(asked(url)) < begun + kill_after:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status == 0


def stored(folder: Path) -> tuple[list[str], int]:
    keys, torn = [], 0
    for path in folder.rglob("*.jsonl"):
        if path.stat().st_size:
            _, generations, bad = read_store(path)
            keys += [g.query_id for g in generations]
            torn += bad
    return keys, torn


def lost(folder: Path, url: str) -> int:
    """Calls that the store knows to have been lost."""
    chat = get_llm("openai:any-model", Options(base_url=url))
    with GenerationStore(StoreKey.of("hyde", chat, "t", SAMPLING, "task"), folder) as store:
        return store.lost_calls()


def asked(url: str) -> list[str]:
    with urllib.request.urlopen(url) as response:
        found: list[str] = json.load(response)
    return found


def main(folder: Path, url: str, rounds: int, a_round: int) -> None:
    random.seed(7)
    report = []
    for number in range(rounds + 1):
        last = number == rounds
        asked(f"{url}/more/{rounds * a_round * 2 if last else a_round}")
        done = run(folder, url, rounds * a_round, None if last else random.randint(1, a_round))
        keys, torn = stored(folder)
        report.append({"done": done, "stored": keys, "torn": torn, "asked": len(asked(url)), "lost": lost(folder, url)})
    print(json.dumps({"rounds": report, "asked": asked(url)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
