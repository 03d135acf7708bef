"""The real hub client, in a process of its own, against a real server on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from r2med.tasks import TaskEntry, collections, write_task
from r2med.tasks.formats import Expansion
from tests.builders import small_task
from tests.hub_server import Hub, running_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"corpus.jsonl", "query.jsonl", "qrels.jsonl"}

CLIENT = """
import json, sys, msgspec
from r2med.core import R2MedError
from r2med.tasks import TaskEntry
from r2med.tasks.download import download
for entry, force in json.loads(sys.argv[1]):
    try:
        print(json.dumps(download(msgspec.convert(entry, TaskEntry), force=force)._asdict()))
    except R2MedError as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
"""


class Client(NamedTuple):
    """Runs `download` as a user's process would."""

    home: Path
    endpoint: str

    def calls(self, *requests: tuple[TaskEntry, bool], **environment: str) -> list[dict[str, Any]]:
        """Results of several calls in one process, which prints nothing else."""
        inherited = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}
        settings = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home / "hf"), "R2MED_HOME": str(self.home / "r")}
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, json.dumps([(msgspec.to_builtins(entry), f) for entry, f in requests])],
            env=inherited | settings | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(requests)
        return [answer | {"stderr": done.stderr} for answer in answers]

    def download(self, entry: TaskEntry, **environment: str) -> dict[str, Any]:
        """The result of one call."""
        return self.calls((entry, False), **environment)[0]

    def failure(self, entry: TaskEntry, **environment: str) -> str:
        """The one line of an expected failure."""
        return str(self.download(entry, **environment)["error"])


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as server:
        yield server


@pytest.fixture
def client(tmp_path: Path, hub: Hub) -> Client:
    return Client(tmp_path / "home", hub.url)


def stand_in(collection: str = "r2med", **changes: Any) -> TaskEntry:
    """A catalogue entry whose counts are those of the small task."""
    entry = collections()[collection].tasks[0]
    small = {"queries": 2, "documents": 3, "judgments": 4, "dataset": "R2MED/Small", "revision": COMMIT}
    return msgspec.structs.replace(entry, **(small | changes))


@pytest.fixture
def dataset(tmp_path: Path, hub: Hub) -> Path:
    folder = tmp_path / "repository"
    generated = [Expansion("hyde", "gpt4", {"q1": ("x",), "q2": ("y",)})]
    write_task(small_task(), folder, to="r2med", expansions=generated)
    (folder / "README.md").write_text("# small")
    hub.add("R2MED/Small", folder, commit=COMMIT)
    return folder


@pytest.mark.usefixtures("dataset")
def test_a_task_is_fetched_once(hub: Hub, client: Client) -> None:
    first = client.download(stand_in())
    assert (first["queries"], first["documents"], first["judgments"], first["fetched"]) == (2, 3, 4, True)
    assert first["stderr"] == "", "no bars and no chatter away from a terminal"
    fetched = {r.path.rpartition("/")[2] for r in hub.contents()}
    assert fetched == {*FILES, "README.md", "query_with_hydoc.jsonl"}
    assert all(COMMIT in r.path for r in hub.contents())
    assert Path(first["path"]) == client.home / "hf/hub/datasets--R2MED--Small/snapshots" / COMMIT
    hub.requests.clear()
    second = client.download(stand_in())
    assert second["fetched"] is False
    assert hub.requests == []
    assert client.download(stand_in(), HF_HUB_OFFLINE="1")["path"] == first["path"]


@pytest.mark.usefixtures("dataset")
def test_force_fetches_again(hub: Hub, client: Client) -> None:
    answers = client.calls((stand_in(), False), (stand_in(), True))
    assert [a["fetched"] for a in answers] == [True, True]
    assert len(hub.contents()) == 10


@pytest.mark.usefixtures("dataset")
def test_counts_that_are_not_those_of_the_catalogue(client: Client) -> None:
    entry = stand_in(queries=103, documents=57_359)
    message = client.failure(entry)
    assert message.startswith("DataError: ")
    assert message.endswith("it has 2 queries instead of 103, 3 documents instead of 57,359")


@pytest.mark.parametrize("honest_headers", [True, False])
@pytest.mark.parametrize(
    ("layout", "name"), [("r2med", "corpus.jsonl"), ("hub", "corpus/corpus-00000-of-00001.parquet")]
)
def test_content_that_is_not_what_the_hub_states_is_refused_and_removed(
    tmp_path: Path, hub: Hub, client: Client, layout: str, name: str, honest_headers: bool
) -> None:
    """Wrong bytes of the right size used to be taken: only counts were checked."""
    write_task(small_task(), tmp_path / "repository", to=layout)
    hub.add("R2MED/Small", tmp_path / "repository", commit=COMMIT)
    true = (tmp_path / "repository" / name).read_bytes()
    hub.replaced[name], hub.honest_headers = true.replace(b"first", b"worst"), honest_headers
    if layout == "hub":  # a valid file of the same size is not easily had: any byte will do
        hub.replaced[name] = true[:-20] + bytes([true[-20] ^ 1]) + true[-19:]
    assert len(hub.replaced[name]) == len(true)
    message = client.failure(stand_in())
    assert message.startswith(f"Unavailable: R2MED/Small: {name} came with hash ")
    assert "but the hub's list says" in message
    snapshot = client.home / "hf/hub/datasets--R2MED--Small/snapshots" / COMMIT
    assert not (snapshot / name).exists()
    assert client.failure(stand_in(), HF_HUB_OFFLINE="1").startswith("Unavailable: ")
    hub.replaced.clear()
    assert client.download(stand_in())["documents"] == 3


@pytest.mark.usefixtures("dataset")
def test_what_changed_after_the_download_is_noticed_by_the_next_use(client: Client) -> None:
    first = client.download(stand_in())
    corpus = Path(first["path"]) / "corpus.jsonl"
    original = corpus.read_bytes()
    corpus.resolve().write_bytes(original.replace(b"first", b"worst"))
    message = client.failure(stand_in(), HF_HUB_OFFLINE="1")
    assert message.startswith(f"DataError: {corpus}: was changed since it was downloaded (r2med data download --force")
    again = client.calls((stand_in(), True))[0]
    assert (again["documents"], corpus.read_bytes()) == (3, original)


@pytest.mark.usefixtures("dataset")
def test_a_pinned_fingerprint(client: Client) -> None:
    pinned = client.download(stand_in(fingerprint=small_task().fingerprint))
    assert pinned["documents"] == 3
    message = client.failure(stand_in(fingerprint="0" * 32))
    assert "is not r2med/Biology as published: it has the fingerprint" in message


def test_a_repository_with_hostile_names(tmp_path: Path, hub: Hub, client: Client) -> None:
    write_task(small_task(), tmp_path / "nano", to="nano", split="x")
    for path in sorted((tmp_path / "nano").rglob("x-*.parquet")):
        path.rename(path.with_name("..-00000-of-00001.parquet"))
    hub.add("hakari-bench/NanoR2MED", tmp_path / "nano")
    entry = stand_in("nano", dataset="hakari-bench/NanoR2MED", revision="main", split="..")
    assert "split '..' cannot be part of a path" in client.failure(entry)


@pytest.mark.usefixtures("dataset")
def test_a_hub_that_names_files_outside_the_repository(hub: Hub, client: Client, tmp_path: Path) -> None:
    hub.outside = {"../../../../evil.jsonl": b"evil"}
    message = client.failure(stand_in())
    assert message.startswith(("Unavailable: ", "HostileData: ", "DataError: "))
    assert not list(tmp_path.rglob("evil.jsonl"))


def test_parquet_from_the_hub(tmp_path: Path, hub: Hub, client: Client) -> None:
    write_task(small_task(), tmp_path / "hub", to="hub")
    hub.add("R2MED/Small", tmp_path / "hub", commit=COMMIT)
    assert client.download(stand_in())["documents"] == 3


def test_one_split_of_nano_at_its_branch(tmp_path: Path, hub: Hub, client: Client) -> None:
    for split in ("NanoR2MEDBiology", "NanoR2MEDMedQADiag"):
        write_task(small_task(), tmp_path / "nano", to="nano", split=split)
    hub.add("hakari-bench/NanoR2MED", tmp_path / "nano")
    entry = stand_in("nano", dataset="hakari-bench/NanoR2MED", revision="main")
    assert client.download(entry)["fetched"] is True
    assert len(hub.contents()) == 3
    assert all("NanoR2MEDBiology" in r.path for r in hub.contents())
    hub.requests.clear()
    assert client.download(entry)["fetched"] is False
    assert hub.contents() == []


def test_a_broken_connection_is_resumed_in_the_middle_of_the_file(hub: Hub, client: Client, dataset: Path) -> None:
    with (dataset / "corpus.jsonl").open("ab") as stream:
        stream.writelines(b'{"id": "x%d", "text": "%s"}\n' % (i, b"word " * 1000) for i in range(2500))
    hub.break_after["corpus.jsonl"] = 11 << 20  # the client keeps what came in blocks of 10 MiB
    assert client.download(stand_in(documents=2503))["documents"] == 2503
    first, second = (r.range for r in hub.contents() if r.path.endswith("/corpus.jsonl"))
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 11 << 20


@pytest.mark.usefixtures("dataset")
def test_an_interrupted_download_goes_on(hub: Hub, client: Client) -> None:
    client.download(stand_in())
    snapshot = client.home / "hf/hub/datasets--R2MED--Small/snapshots" / COMMIT
    lost = ["hyde/gpt4/query_with_hydoc.jsonl", "query.jsonl"]
    for name in lost:  # as after a process that was killed
        (snapshot / name).resolve().unlink()
        (snapshot / name).unlink()
    hub.requests.clear()
    assert client.download(stand_in())["queries"] == 2
    assert sorted(r.path.rpartition(COMMIT + "/")[2] for r in hub.contents()) == lost


@pytest.mark.usefixtures("dataset")
def test_a_token_is_sent_and_needed(hub: Hub, client: Client) -> None:
    hub.token = "hf_secret"
    message = client.failure(stand_in())
    assert message == "Unavailable: the hub has no dataset R2MED/Small, or HF_TOKEN has no access to it"
    assert client.failure(stand_in(), HF_TOKEN="hf_wrong") == message
    hub.requests.clear()
    assert client.download(stand_in(), HF_TOKEN="hf_secret")["fetched"] is True
    assert {r.authorization for r in hub.requests if "R2MED/Small" in r.path} == {"Bearer hf_secret"}


@pytest.mark.usefixtures("dataset")
def test_what_the_hub_does_not_have(hub: Hub, client: Client) -> None:
    other = "f" * 40
    requests = [(stand_in(dataset="R2MED/Absent"), False), (stand_in(revision=other), False)]
    assert [a["error"] for a in client.calls(*requests)] == [
        "Unavailable: the hub has no dataset R2MED/Absent, or HF_TOKEN has no access to it",
        f"Unavailable: the hub has no revision {other} of R2MED/Small",
    ]
    assert hub.contents() == []


def test_offline_and_without_a_server(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
    client = Client(tmp_path, endpoint)
    advice = f"put the files into {tmp_path / 'r/data/r2med/Biology'}, or give r2med a folder instead of the name"
    for answer in client.calls((stand_in(), False), (stand_in(), True)):
        assert answer["error"].startswith(f"Unavailable: cannot download r2med/Biology from {endpoint} (")
        assert answer["error"].endswith(advice)
        assert "\n" not in answer["error"]
        assert answer["stderr"] == ""
    assert client.failure(stand_in(), HF_HUB_OFFLINE="1") == (
        f"Unavailable: r2med/Biology is not in the cache and HF_HUB_OFFLINE forbids the network: {advice}"
    )


@pytest.mark.parametrize("path", ["/nowhere", None])
def test_an_endpoint_that_is_no_hub(tmp_path: Path, hub: Hub, path: str | None) -> None:
    endpoint = "no-url" if path is None else hub.url + path
    assert Client(tmp_path, endpoint).failure(stand_in()).startswith("Unavailable: ")


def test_a_repository_without_a_task(tmp_path: Path, hub: Hub, client: Client) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("# nothing else")
    hub.add("R2MED/Small", tmp_path / "empty", commit=COMMIT)
    assert "is in no layout r2med knows" in client.failure(stand_in())


def test_files_dropped_in_are_checked_and_nothing_is_asked(hub: Hub, client: Client) -> None:
    write_task(small_task(), client.home / "r/data/r2med/Biology", to="r2med")
    right, wrong = client.calls((stand_in(), False), (stand_in(queries=7), False))
    assert (right["fetched"], right["path"]) == (False, str(client.home / "r/data/r2med/Biology"))
    assert wrong["error"].endswith("r2med/Biology as published: it has 2 queries instead of 7")
    assert hub.requests == []


def test_mini_needs_no_download(client: Client) -> None:
    entry = collections()["mini@1"].tasks[0]
    usual, forced = client.calls((entry, False), (entry, True))
    assert usual["fetched"] is False
    assert forced["error"] == "DataError: mini@1/Biology is built in; there is nothing to download"
