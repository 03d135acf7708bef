from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, ResultError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.core.untrusted import file_name
from r2med.llm import (
    Choice,
    Generation,
    GenerationStore,
    Replay,
    Reply,
    Sampling,
    StoreKey,
    get_llm,
    read_reply,
    watch_answers,
)
from r2med.llm.store import read_store
from tests.llm.conftest import ask, asks

SAMPLING = Sampling(max_tokens=64)


def key(**changes: object) -> StoreKey:
    chat = Replay({"q": ["x"]}, "test")
    facts = {"method": "hyde", "chat": chat, "template": "t1", "sampling": SAMPLING, "task": "fp1"} | changes
    return StoreKey.of(**facts)  # type: ignore[arg-type]


def answer(index: int, text: str = "Measles é 𝛼\n\nwith a line break") -> list[Generation]:
    request = ask(f"Case {index}", f"q{index}")
    return read_reply(request, Reply(key=request.key, choices=(Choice(text),), cost=0.01, completion_tokens=3))


def test_the_answers_that_are_used_are_noted(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:
        store.append([*answer(1), *answer(2)])
        with watch_answers() as used:
            store.reuse(store.begun(ask("Case 1", "q1")))
            store.reuse(store.begun(ask("Case 9", "q9")))
            store.append(answer(3))
            with watch_answers() as inner:
                store.reuse(store.begun(ask("Case 2", "q2")))
        store.reuse(store.begun(ask("Case 2", "q2")))
    prompts = [ask(f"Case {i}", f"q{i}").prompt_hash for i in range(4)]
    assert used == {("hyde", key().digest): {(prompt, "") for prompt in prompts[1:4]}}
    assert inner == {("hyde", key().digest): {(prompts[2], "")}}


def test_what_is_appended_is_there_and_stays(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:
        assert store.get(ask("Case 1", "q1")) is None
        store.append(answer(1))
        assert store.get(ask("Case 1", "q1")) == answer(1)
    with GenerationStore(key(), tmp_path) as store:
        assert store.get(ask("Case 1", "q1")) == answer(1)
        assert store.get(ask("another prompt", "q1")) is None
        assert store.get(ask("Case 1", "q1", n=2)) is None
        assert (len(store), store.torn, dict(store.statuses())) == (1, 0, {"ok": 1})
        found, generations, torn = read_store(store.path)
    assert (found, generations, torn) == (key(), answer(1), 0)
    assert store.path.parent == tmp_path / "hyde" / file_name("replay:test")


def test_it_lies_in_the_home_folder() -> None:
    with GenerationStore(key()) as store:
        assert store.path.is_relative_to(home() / "generations")


def test_everything_that_changes_an_answer_is_another_file() -> None:
    other = Replay({"q": ["y"]}, "test")
    changes: list[dict[str, object]] = [
        {"method": "query2doc"},
        {"chat": other},
        {"template": "t2"},
        {"sampling": Sampling(max_tokens=65)},
        {"sampling": Sampling(max_tokens=64, temperature=0.0)},
        {"task": "fp2"},
        {"settings": {"retriever": "bm25"}},
    ]
    root = Path("generations")
    names = {key(**change).path(root) for change in changes} | {key().path(root)}
    assert len(names) == len(changes) + 1
    reworded = msgspec.structs.replace(key(), llm="another name", model=key().model | {"warning": "other words"})
    assert reworded.digest == key().digest
    assert ".." not in key(method="../../etc").path(root).parts


def test_the_server_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a server that calls itself gpt-4o, or of the first edition, which did not say, are not gpt4's."""

    def of(url: str) -> StoreKey:
        return key(chat=get_llm("gpt4", Options(base_url=url)))

    servers = [of(url) for url in ("", "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", "http://other/v1")]
    assert [k.model["host"] for k in servers] == ["api.openai.com", "127.0.0.1:1", "127.0.0.1:2", "other"]
    first_edition = msgspec.structs.replace(
        servers[0], model={"backend": "openai", "model": "gpt-4o-2024-11-20", "marking": "none"}
    )
    assert len({k.digest for k in [*servers, first_edition]}) == 5
    gateways = [of(f"http://gateway/v1{query}") for query in ("", "?to=a&key=secret", "?to=b&key=secret")]
    assert len({k.digest for k in gateways}) == 3
    assert not any("secret" in str(k) for k in gateways)


def test_one_model_under_two_names_has_one_file(tmp_path: Path) -> None:
    """Also the first edition's `local`, which is smollm2 now."""
    named = msgspec.structs.replace(key(), llm="local")
    with GenerationStore(named, tmp_path) as store:
        store.append(answer(1))
    renamed = msgspec.structs.replace(key(), llm="smollm2")
    with GenerationStore(renamed, tmp_path) as again:
        assert again.path == store.path
        assert again.get(ask("Case 1", "q1")) == answer(1)


def test_a_store_of_the_first_edition_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    model = {"backend": "openai", "model": "gpt-4o-2024-11-20", "marking": "none"}
    first = {"method": "hyde", "llm": "gpt4", "model": model, "template": "t", "sampling": {}, "task": "f"}
    header = {"schema": 1, "key": first}
    line = {"query_id": "q1", "prompt_hash": ask().prompt_hash, "status": "ok", "final": "Measles.", "raw": "Measles."}
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in (header, line)))
    replayed = get_llm(f"replay:{path}")
    assert replayed.complete_one(ask()).text == "Measles."


def test_several_answers_to_one_prompt(tmp_path: Path) -> None:
    request = ask("Case", "q", n=2)
    reply = Reply(key="q", choices=(Choice("one"), Choice("two")), prompt_tokens=5, completion_tokens=9, cost=0.2)
    with GenerationStore(key(), tmp_path) as store:
        store.append(read_reply(request, reply))
        found = store.get(request)
        assert found
        assert [g.final for g in found] == ["one", "two"]
        assert [g.completion_tokens for g in found] == [9, 0]
        assert [g.cost for g in found] == [0.2, 0.0]
        assert store.get(ask("Case", "q", n=1)) == found[:1]


def test_failures_are_not_kept(tmp_path: Path) -> None:
    request = ask()
    failed = read_reply(request, Reply(key="q1", choices=(Choice("", "", "error"),), error="too long"))
    assert [(g.status, g.error, g.usable) for g in failed] == [("failed", "too long", False)]
    with GenerationStore(key(), tmp_path) as store:
        store.append(failed)
        assert store.get(request) is None
        assert len(store) == 0


def test_the_prompt_is_kept_on_request_only() -> None:
    request, reply = ask("Secret case"), Reply(key="q1", choices=(Choice("x"),))
    assert read_reply(request, reply)[0].prompt == ()
    assert read_reply(request, reply, keep_prompt=True)[0].prompt == request.messages


@given(st.integers(1, 400))
def test_a_torn_line_is_skipped_counted_and_written_past(cut: int) -> None:
    with GenerationStore(key(method=f"torn{cut}")) as store:
        store.path.unlink()
    with GenerationStore(key(method=f"torn{cut}")) as store:
        store.append(answer(1))
        size = store.path.stat().st_size
        store.append(answer(2, "y" * 300))
    whole = store.path.stat().st_size
    os.truncate(store.path, max(whole - cut, size))
    with GenerationStore(store.key) as again:
        assert again.get(ask("Case 1", "q1")) == answer(1)
        # Cutting only the line break leaves a whole record, which counts once it is closed.
        torn = again.torn
        again.append(answer(3))
    with GenerationStore(store.key) as last:
        assert last.get(ask("Case 3", "q3")) == answer(3)
        assert (last.get(ask("Case 2", "q2")) is not None) == (cut == 1)
        assert last.torn == torn - (cut == 1) == (1 < cut < whole - size)


def test_a_line_of_garbage_hurts_nobody_else(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:
        store.append(answer(1))
        with store.path.open("ab") as stream:
            stream.write(b'\xff\xfe\x00 {"query_id": 3}\n{}\n[]\nnull\n\n')
        store.append(answer(2))
    with GenerationStore(key(), tmp_path) as store:
        assert (len(store), store.torn) == (2, 4)


def test_a_newer_file_and_an_unwritable_one(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:
        pass
    store.path.write_bytes(b'{"schema":99,"key":{}}\n')
    with pytest.raises(ResultError, match="written by a newer r2med"):
        GenerationStore(key(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        GenerationStore(key(), tmp_path / "file")
    with pytest.raises(DataError, match="is not a generation store"):
        read_store(tmp_path / "file")


def test_many_threads(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:

        def write(first: int) -> None:
            for i in range(20):
                store.append(answer(first + i))

        threads = [threading.Thread(target=write, args=(100 * t,)) for t in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    _, generations, torn = read_store(store.path)
    assert (len(generations), torn) == (160, 0)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.llm.test_store import answer, key
from r2med.llm import GenerationStore
with GenerationStore(key(), Path(sys.argv[1])) as store:
    for i in range(100):
        store.append(answer(int(sys.argv[2]) + i, "z" * 20_000))
"""


def test_many_processes_write_one_file(tmp_path: Path) -> None:
    """Records of several pages each, so that a write that could be torn apart would be."""
    root = str(Path(__file__).parents[2])
    with GenerationStore(key(), tmp_path) as store:
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        writers = [subprocess.Popen([*command, str(1000 * n), root]) for n in range(3)]
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        assert len(store) == 0
        store.refresh()
        assert (len(store), store.torn) == (300, 0)
        assert store.get(ask("Case 2050", "q2050")) == answer(2050, "z" * 20_000)


HOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.llm.conftest import ask
from tests.llm.test_store import key
from r2med.llm import GenerationStore
store = GenerationStore(key(), Path(sys.argv[1]))
print(store.claim(ask("Case 1", "q1")), flush=True)
sys.stdin.read()
"""


def test_a_claim_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    with GenerationStore(key(), tmp_path) as store:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with holder:
            assert holder.stdout
            assert holder.stdout.readline() == "True\n"
            assert not store.claim(ask("Case 1", "q1"))
            assert store.claim(ask("Case 2", "q2"))
            assert not store.claim(ask("Case 2", "q2"))
            store.release(ask("Case 2", "q2"))
            assert store.claim(ask("Case 2", "q2"))
            holder.kill()
        assert store.claim(ask("Case 1", "q1"))


def test_a_claim_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    """Another process may answer and let go between our look at the store and our claim."""
    request = ask("Case 1", "q1")
    with GenerationStore(key(), tmp_path) as late, GenerationStore(key(), tmp_path) as early:
        assert late.get(request) is None
        early.append(answer(1))
        assert not late.claim(request)
        assert late.get(request) == answer(1)


def test_a_look_makes_no_file(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path, read_only=True) as store:
        store.refresh()
        assert (len(store), store.get(ask("Case 1", "q1"))) == (0, None)
    assert not list(tmp_path.iterdir())
    with GenerationStore(key(), tmp_path) as store:
        store.append(answer(1))
    before = store.path.read_bytes()
    store.path.with_suffix(".lock").unlink()
    with GenerationStore(key(), tmp_path, read_only=True) as store:
        assert store.get(ask("Case 1", "q1")) == answer(1)
    assert store.path.read_bytes() == before
    assert not store.path.with_suffix(".lock").exists()


def test_records_are_plain_json(tmp_path: Path) -> None:
    with GenerationStore(key(), tmp_path) as store:
        store.append(answer(1))
    header, record = (msgspec.json.decode(line) for line in store.path.read_bytes().splitlines())
    assert header["schema"] == 1
    assert header["key"]["sampling"]["max_tokens"] == 64
    assert {"query_id", "prompt_hash", "status", "final", "raw", "completion_tokens", "cost"} <= set(record)
    assert asks(2)[0].prompt_hash != asks(2)[1].prompt_hash
