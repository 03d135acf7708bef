"""Publishing through the real client to a hub on loopback, and loading it back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

import r2med
from r2med.core import DataError, HostileData, R2MedError, UsageError
from r2med.integrations.hub import prepare, upload
from r2med.pipeline.nano_build import build_nano
from r2med.results import ResultStore
from r2med.retrieve import get_retriever
from r2med.tasks import load_all, resolve, write_task
from r2med.tasks.nano import PoolSettings
from r2med.tasks.nano.folder import read_manifest
from tests.hub_uploads import WritableHub, writable_hub

pytest.importorskip("pyarrow")
TOKEN = "hf_SecretOfThisTest"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[WritableHub]:
    with writable_hub(tmp_path / "repositories") as server:
        server.writers = {TOKEN: "lab", "hf_OtherToken": "others"}
        yield server


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "nano"
    refs = [*resolve("mini@1/Biology"), *resolve("mini@1/MedQA-Diag")]
    build_nano(refs, folder, PoolSettings(docs=60), bm25=get_retriever("bm25-lucene"), dense=None)
    return folder


def export(hub: WritableHub | None, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`r2med export hub …` as a user runs it; Xet's store is not part of the loopback hub."""
    place = {"HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9", "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "export", "hub", *map(str, arguments)],
        env={**os.environ, **place, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_nano_dataset_goes_up_and_comes_back(hub: WritableHub, nano: Path, tmp_path: Path) -> None:
    asked = (nano, "--repo", "lab/nano-mini", "--out", tmp_path / "out", "--upload", "--json")
    done = export(hub, *asked)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["uploaded"]["url"] == f"{hub.url}/datasets/lab/nano-mini"
    assert report["licence"] == "CC BY 4.0"
    assert any("/large/" in r.path for r in hub.requests), "parquet goes up as a large file"
    served = hub.datasets["lab/nano-mini"].files()
    assert {path: file.stat().st_size for path, file in served.items()} == report["files"]
    code = (
        "import sys, huggingface_hub, datasets\n"
        "print(huggingface_hub.snapshot_download('lab/nano-mini', repo_type='dataset'))\n"
        "rows = datasets.load_dataset('lab/nano-mini', 'corpus', split='NanoMini_1Biology')\n"
        "print(len(rows))"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    back = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert back.returncode == 0, back.stderr
    folder, rows = back.stdout.split()
    assert int(rows) == 60
    assert [t.fingerprint for t in load_all(Path(folder))] == [t.fingerprint for t in load_all(nano)]
    again = export(hub, *asked)
    assert again.returncode == 0, again.stderr
    assert len(hub.commits) == 1, "the same files again are no second commit"


def test_results_go_up_with_a_card(hub: WritableHub, results: Path, tmp_path: Path) -> None:
    done = export(hub, results, "--repo", "lab/results", "--out", tmp_path / "out", "--upload", "--private")
    assert done.returncode == 0, done.stderr
    assert f"uploaded to {hub.url}/datasets/lab/results" in done.stdout
    assert "lab/results" in hub.private
    folder = hub.datasets["lab/results"].folder
    header, body = (folder / "README.md").read_text().split("---\n")[1:3]
    assert yaml.safe_load(header)["license"] == "cc-by-4.0"
    assert "not a clinical decision system" in body
    assert "| built in, revision 1 |" in body
    published = list(ResultStore(folder / "results"))
    assert [r.measures for r in published] == [r.measures for r in ResultStore(results)]
    average = 100 * sum(r.measures["ndcg_at_10"] for r in published if r.system.name == "bm25") / 2
    assert any(line.startswith("| bm25 |") and f"{average:.2f}" in line for line in body.splitlines())
    code = "import datasets, sys; print(*datasets.load_dataset(sys.argv[1], 'scores', split='train')['system'])"
    asked = [sys.executable, "-c", code, str(folder)]
    rows = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(rows) == sorted(r.system.name for r in published)


def test_a_folder_may_be_named_from_here(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)
    made = prepare(Path(results.name), "lab/results", tmp_path / "out")
    assert "results/bm25/mini@1/Biology.json" in made.files


def test_nothing_leaves_the_machine_unless_asked(hub: WritableHub, nano: Path, tmp_path: Path) -> None:
    done = export(hub, nano, "--repo", "lab/nano-mini", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "nothing was uploaded" in done.stderr
    assert not hub.requests


def test_a_broken_upload_is_one_line_and_goes_on(hub: WritableHub, nano: Path, tmp_path: Path) -> None:
    asked = (nano, "--repo", "lab/nano-mini", "--out", tmp_path / "out", "--upload")
    hub.drop_next = "/commit/"
    broken = export(hub, *asked)
    assert broken.returncode == 1
    assert broken.stderr.splitlines()[-1].startswith("r2med: cannot upload to lab/nano-mini")
    assert "to run it again is safe" in broken.stderr
    assert not hub.datasets["lab/nano-mini"].files(), "a commit is there whole or not at all"
    sent = sum("/large/" in r.path for r in hub.requests)
    again = export(hub, *asked)
    assert again.returncode == 0, again.stderr
    assert sum("/large/" in r.path for r in hub.requests) == sent, "what had arrived is not sent twice"


@pytest.mark.parametrize("place", ["/api/repos/create", "/large/"])
def test_an_interrupt_ends_an_upload_within_two_seconds(
    hub: WritableHub, nano: Path, tmp_path: Path, place: str
) -> None:
    """The client's own threads were waited for, as long as the server kept them."""
    hub.hang = place
    asked = ("export", "hub", str(nano), "--repo", "lab/nano-mini", "--out", str(tmp_path / "out"), "--upload")
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    for _ in range(4):  # the machine may have other work
        hub.hanging.clear()
        with subprocess.Popen(
            [sys.executable, "-m", "r2med", *asked], env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert hub.hanging.wait(60)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
        assert process.returncode == 130, said
        assert "interrupted" in said
        assert "Traceback" not in said
        if time.monotonic() - begun < 2:
            return
    pytest.fail("it took two seconds or more four times")


def test_refusals_are_one_line(hub: WritableHub, nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("lab/public", tmp_path)
    prepared = prepare(nano, "lab/x", tmp_path / "out")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))  # nobody is logged in
    for repo, private, environment, message in (
        ("lab/x", False, {"HF_TOKEN": ""}, "uploading needs a token"),
        ("lab/x", False, {"HF_TOKEN": "hf_Unknown"}, "does not accept the token"),
        ("others/x", False, {}, "no right to write to others/x"),
        ("lab/x", False, {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids"),
        ("lab/x", False, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot upload to lab/x at http://127.0.0.1:9"),
        ("lab/public", True, {}, "already and public"),
    ):
        with monkeypatch.context() as patch:
            for name, value in ({"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN} | environment).items():
                patch.setenv(name, value)
            with pytest.raises(R2MedError, match=message) as caught:
                upload(prepared._replace(repo=repo), private=private)
        assert len(str(caught.value).splitlines()) == 1
        assert TOKEN not in str(caught.value)
    assert not hub.commits


def test_the_command_line_refuses_in_one_line(hub: WritableHub, nano: Path, tmp_path: Path) -> None:
    for repo, code in (("others/x", 1), ("lab/a/b", 2)):
        done = export(hub, nano, "--repo", repo, "--out", tmp_path / "out", "--upload")
        assert done.returncode == code
        assert not done.stdout
        assert [line[:7] for line in done.stderr.splitlines()] == ["r2med: "]
    done = export(hub, nano, "--repo", "lab/nano", "--out", tmp_path / "private", "--private")
    assert done.returncode == 2
    assert "only a repository that is uploaded can be private" in done.stderr
    assert not (tmp_path / "private").exists()


def test_what_cannot_be_prepared(nano: Path, results: Path, tmp_path: Path) -> None:
    for folder, error, message in (
        (tmp_path / "absent", DataError, "no such folder"),
        (tmp_path, DataError, "neither a Nano folder"),
    ):
        with pytest.raises(error, match=message):
            prepare(folder, "lab/x", tmp_path / "out")
    with pytest.raises(UsageError, match="choose another --out"):
        prepare(nano, "lab/x", nano.parent)
    prepare(nano, "lab/x", tmp_path / "out")
    prepare(nano, "lab/x", tmp_path / "out")  # one's own earlier copy is replaced
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("somebody's own")
    with pytest.raises(DataError, match="not an empty folder"):
        prepare(results, "lab/other", tmp_path / "full")
    with pytest.raises(UsageError, match="--licence"):
        upload(prepare(nano, "lab/x", tmp_path / "out")._replace(licence=""), private=False)


def test_only_an_earlier_preparation_is_replaced(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(results, "lab/results", out)
    (out / "old").write_text("of an earlier one")
    prepare(results, "lab/results", out)
    assert not (out / "old").exists()
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    (tmp_path / "clone" / "README.md").write_bytes((out / "README.md").read_bytes())
    for kept in (tmp_path / "link", tmp_path / "clone"):
        with pytest.raises(DataError, match="not an empty folder"):
            prepare(results, "lab/results", kept)
    assert (tmp_path / "clone" / ".git").is_dir()


def test_a_changed_nano_folder_is_not_published(nano: Path, tmp_path: Path) -> None:
    copied = prepare(nano, "lab/x", tmp_path / "copy").folder
    assert read_manifest(copied) is not None
    prepare(copied, "lab/y", tmp_path / "again")  # the manifest of a prepared folder is still true
    (copied / "metadata" / "NanoMini_1Biology.json").write_text("{}")
    with pytest.raises(DataError, match="changed since the folder was built"):
        prepare(copied, "lab/x", tmp_path / "out")
    manifest = read_manifest(copied)
    assert manifest is not None
    manifest.files = {"../elsewhere": "0", **manifest.files}
    (copied / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(HostileData, match="cannot be part of a path"):
        prepare(copied, "lab/x", tmp_path / "out")


def test_paths_of_this_machine_stay_here(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from r2med.cli.run import command

    task = tmp_path / "home-of-somebody" / "mine"
    write_task(r2med.load("mini@1/Biology"), task, to="beir")
    done = CliRunner().invoke(command, ["--tasks", str(task), "-r", "bm25", "--results", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    prepared = prepare(tmp_path / "results", "lab/x", tmp_path / "out", licence="CC BY 4.0")
    for path in prepared.folder.rglob("*"):
        if path.is_file() and path.suffix != ".gz":
            assert b"home-of-somebody" not in path.read_bytes()
    (result,) = ResultStore(prepared.folder / "results")
    assert result.task.source == "mine"
    assert msgspec.to_builtins(result)["measures"]


def test_links_are_not_followed(nano: Path, results: Path, tmp_path: Path) -> None:
    """What a link leads to used to be copied, and uploaded."""
    (tmp_path / "secret").write_text("secret")
    copied = prepare(nano, "lab/x", tmp_path / "nano").folder
    metadata = copied / "metadata" / "NanoMini_1Biology.json"
    (tmp_path / "elsewhere.json").write_bytes(metadata.read_bytes())  # the right content at the wrong place
    metadata.unlink()
    metadata.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(HostileData, match="is a link that leads out of its folder"):
        prepare(copied, "lab/x", tmp_path / "out")
    mine = tmp_path / "results"
    shutil.copytree(results, mine)
    run = next(mine.rglob("*.run.gz"))
    run.unlink()
    run.symlink_to(tmp_path / "secret")
    with pytest.raises(HostileData, match="is a link that leads out of its folder"):
        prepare(mine, "lab/x", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run.unlink()
    os.mkfifo(run)  # not waited for
    prepared = prepare(mine, "lab/x", tmp_path / "out")
    assert not any(name.endswith(run.name) and run.parent.parent.name in name for name in prepared.files)
