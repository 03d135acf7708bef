"""Bundles that contradict themselves or try to do harm: refused in one line, with nothing written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.publish import bundle as command
from r2med.core import Hasher, R2MedError, fingerprint
from r2med.core.files import home
from r2med.results.beside import open_run

PLACE = "results/bm25/mini@1/Biology"
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a bundle that holds."""
    folder = tmp_path_factory.mktemp("good")
    r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology", results=folder / "results")
    path = r2med.pack_bundle(folder / "a.zip", results=folder / "results").path
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def manifest_of(members: Members) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(members["manifest.json"])
    return found


def listed(members: Members, **changes: Any) -> Members:
    """The members with a manifest that states their hashes."""
    rest = {name: data for name, data in members.items() if name != "manifest.json"}
    stated = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in rest.items()}
    manifest = manifest_of(members) | {"members": stated} | changes
    return rest | {"manifest.json": json.dumps(manifest).encode()}


def zipped(members: Members, more: Callable[[zipfile.ZipFile], object] = lambda archive: None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        more(archive)
    return out.getvalue()


def result(members: Members, change: Callable[[dict[str, Any]], object], *, seal: bool = True) -> Members:
    """A result changed, with the checksum and the hashes of what it then holds."""
    document = json.loads(members[f"{PLACE}.json"])
    change(document)
    if seal:
        del document["checksum"]
        document["checksum"] = fingerprint("stored-result", document)
    return listed(members | {f"{PLACE}.json": json.dumps(document).encode()})


def beside(members: Members, suffix: str, data: bytes) -> Members:
    """A file beside a result replaced, and the result told its hash."""
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return result(members | {PLACE + suffix: data}, lambda document: document["files"].update({suffix: digest}))


def renamed(members: Members, new: str) -> Members:
    """The files of a result under another name."""
    moved = {new + name.removeprefix(PLACE) if name.startswith(PLACE) else name: d for name, d in members.items()}
    return listed(moved)


def with_member(members: Members, name: str, data: bytes = b"{}") -> bytes:
    return zipped(listed(members | {name: data}))


def a_link(members: Members) -> bytes:
    info = zipfile.ZipInfo(f"{PLACE}.run.gz")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    rest = {name: data for name, data in members.items() if name != info.filename}
    return zipped(rest, lambda archive: archive.writestr(info, "/etc/passwd"))


def twice(members: Members) -> bytes:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return zipped(members, lambda archive: archive.writestr(f"{PLACE}.json", b"{}"))


def run_bomb(members: Members) -> Members:
    """A run of some kilobytes that unpacks to thirty megabytes, with hashes that fit."""
    text = b"q1 Q0 d1 1 1 t\n" * (2 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(text) + packer.flush() + struct.pack("<II", zlib.crc32(text), len(text))
    size, digest = 36 + len(body), hashlib.blake2b(text, digest_size=16).digest()
    hasher = Hasher("run blocks")
    hasher.data(size.to_bytes(8, "little") + digest)
    head = struct.pack("<4s6sH2sHI16s", b"\x1f\x8b\x08\x04", b"\0\0\0\0\0\xff", 24, b"R2", 20, size, digest)
    bomb = members | {f"{PLACE}.run.gz": head + body}
    return result(bomb, lambda document: document["files"].update({".run.gz": hasher.digest()}))


def other_queries(members: Members, change: Callable[[dict[str, float]], object]) -> bytes:
    lines = [json.loads(line) for line in members[f"{PLACE}.queries.jsonl"].splitlines()]
    change(lines[0]["measures"])
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def raised(members: Members) -> Members:
    """A better score, stated everywhere alike: only the judgments tell."""
    lines = [json.loads(line) for line in members[f"{PLACE}.queries.jsonl"].splitlines()]
    for line in lines:
        line["measures"]["ndcg_at_10"] = 1.0
    changed = beside(members, ".queries.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return result(changed, lambda document: document["measures"].update(ndcg_at_10=1.0))


def named(members: Members, name: str) -> Members:
    """A system of another name, in the result and in the manifest."""
    changed = result(members, lambda document: document["system"].update(name=name))
    systems = [{**s, "name": name if s["name"] == "bm25" else s["name"]} for s in manifest_of(members)["systems"]]
    return listed(changed, systems=systems)


def own_data(members: Members, task: str) -> Members:
    """A result that says it was made on the data of another task."""
    content = r2med.load(task).fingerprint
    return result(members, lambda document: document["task"].update(fingerprint=content))


def answers(members: Members, name: str, text: str = '{"schema":1,"key":1}\n') -> bytes:
    return with_member(members, f"generations/hyde/gpt4/{name}.jsonl", text.encode())


DIGEST = "0" * 32
HOSTILE: dict[str, tuple[Callable[[Members], bytes], str]] = {
    "a name that leads out": (lambda m: with_member(m, "../evil.json"), "outside itself"),
    "a name from the root on": (lambda m: with_member(m, "/etc/evil.json"), "outside itself"),
    "a drive letter": (lambda m: with_member(m, "C:/evil.json"), "outside itself"),
    "backslashes": (lambda m: with_member(m, "..\\..\\evil.json"), "outside itself"),
    "a link": (a_link, "holds a link"),
    "a reserved name": (lambda m: with_member(m, "results/con/mini@1/Biology.json"), "no bundle has"),
    "a hidden name": (lambda m: with_member(m, "results/.bm25/mini@1/Biology.json"), "no bundle has"),
    "a name that ends in a dot": (lambda m: with_member(m, "results/bm25./mini@1/Biology.json"), "no bundle has"),
    "a name of another kind": (lambda m: with_member(m, "results/bm25/mini@1/run.py"), "no bundle has"),
    "a zip inside": (lambda m: with_member(m, "results/bm25/mini@1/more.zip", zipped(m)), "no bundle has"),
    "a name twice": (twice, "two files called"),
    "names that differ in capitals": (
        lambda m: with_member(m, "results/BM25/mini@1/Biology.json", m[f"{PLACE}.json"]),
        "differ in capitals",
    ),
    "too many members": (
        lambda m: zipped(listed(m | {f"results/x{i}/mini@1/T.json": b"{}" for i in range(20_001)})),
        "over 20,000 members",
    ),
    "a bomb": (lambda m: with_member(m, f"{PLACE}.expansions.jsonl", b" " * (66 << 20)), "out of all proportion"),
    "a bomb that states another size": (
        lambda m: zipped(
            listed(m | {f"{PLACE}.expansions.jsonl": b"{}"}) | {f"{PLACE}.expansions.jsonl": b" " * (1 << 20)}
        ),
        "more of .* than its manifest states",
    ),
    "a bomb for a run": (lambda m: zipped(run_bomb(m)), "out of all proportion"),
    "a bomb for a manifest": (
        lambda m: zipped({**m, "manifest.json": m["manifest.json"] + b" " * (17 << 20)}),
        r"manifest\.json of over 16 MiB",
    ),
    "no zip": (lambda m: b"PK\5\6 or not", "not a readable zip file"),
    "a truncated file": (lambda m: zipped(m)[:-3000], "not a readable zip file"),
    "no manifest": (lambda m: zipped({n: d for n, d in m.items() if n != "manifest.json"}), "has no manifest"),
    "another format": (lambda m: zipped(listed(m, format="other")), "is not a bundle"),
    "a newer schema": (lambda m: zipped(listed(m, schema=2)), "written by a newer r2med"),
    "a field that nobody knows": (lambda m: zipped(listed(m, run="rm -rf /")), "is not a bundle"),
    "a manifest nested without end": (
        lambda m: zipped({**m, "manifest.json": b'{"format":' + b"[" * 100_000}),
        "is not a bundle",
    ),
    "a wrong hash": (lambda m: zipped({**m, f"{PLACE}.run.gz": m[f"{PLACE}.run.gz"] + b"\0"}), "manifest states"),
    "another size": (lambda m: zipped({**m, f"{PLACE}.run.gz": b""}), "manifest states"),
    "a member too few": (lambda m: zipped({n: d for n, d in m.items() if n != f"{PLACE}.run.gz"}), "lacks"),
    "a member too many": (lambda m: zipped({**m, f"{PLACE}.expansions.jsonl": b""}), "beside what its manifest lists"),
    "a file that no result states": (
        lambda m: with_member(m, f"{PLACE}.expansions.jsonl", b""),
        "is not what the result beside it states",
    ),
    "a packed way that cannot be bounded": (
        lambda m: zipped(
            {n: d for n, d in m.items() if n != f"{PLACE}.json"},
            lambda archive: archive.writestr(f"{PLACE}.json", m[f"{PLACE}.json"], zipfile.ZIP_LZMA),
        ),
        "packed with LZMA",
    ),
    "a score that is not a number": (
        lambda m: zipped(
            listed(m | {f"{PLACE}.json": m[f"{PLACE}.json"].replace(b'"ndcg_at_10": 0', b'"ndcg_at_10": NaN //0')})
        ),
        "not a result file",
    ),
    "an infinite score": (
        lambda m: zipped(result(m, lambda d: d["measures"].update(ndcg_at_10=1e308), seal=True)),
        "not between 0 and 1",
    ),
    "an absurd score": (lambda m: zipped(result(m, lambda d: d["measures"].update(ndcg_at_10=1.5))), "between 0 and 1"),
    "time that went backwards": (lambda m: zipped(result(m, lambda d: d["seconds"].update(load=-1))), "seconds"),
    "a count below zero": (lambda m: zipped(result(m, lambda d: d.update(missing_queries=-1))), "below 0"),
    "a result that was changed": (
        lambda m: zipped(result(m, lambda d: d["measures"].update(ndcg_at_10=0.9), seal=False)),
        "was changed after it was written",
    ),
    "scores that do not add up": (
        lambda m: zipped(beside(m, ".queries.jsonl", other_queries(m, lambda q: q.update(ndcg_at_10=0.99)))),
        "do not add up",
    ),
    "a query with an absurd score": (
        lambda m: zipped(beside(m, ".queries.jsonl", other_queries(m, lambda q: q.update(ndcg_at_10=-7)))),
        "do not add up",
    ),
    "a better score": (lambda m: zipped(raised(m)), "ndcg_at_10 is 0.18.*, stated is 1"),
    "control characters in a name": (lambda m: zipped(named(m, "bm25\x1b[2J")), "no name needs"),
    "letters that run backwards": (lambda m: zipped(named(m, "bm25\u202e52mb")), "no name needs"),
    "markup in a name": (lambda m: zipped(named(m, "<script>alert(1)</script>")), "no name needs"),
    "markup in a title": (lambda m: zipped(listed(m, title="<img src=x onerror=alert(1)>")), "no name needs"),
    "an address that runs": (lambda m: zipped(listed(m, url="javascript:alert(1)")), "not one of the web"),
    "a date that is none": (lambda m: zipped(listed(m, date="2026-13-01")), "not a year, month and day"),
    "a system under another name": (lambda m: zipped(named(m, "nv")), "holds a result of 'nv'"),
    "the spec of another system": (
        lambda m: zipped(result(m, lambda d: d["system"].update(spec={"retrievers": [{"name": "nv"}]}))),
        "spec of 'bm25' is that of another system",
    ),
    "a spec that is none": (
        lambda m: zipped(result(m, lambda d: d["system"].update(spec={"retrievers": []}))),
        "spec of 'bm25' is that of another system",
    ),
    "systems that are not there": (
        lambda m: zipped(listed(m, systems=manifest_of(m)["systems"][:1])),
        "other systems than it holds",
    ),
    "another protocol": (
        lambda m: zipped(listed(m, systems=[{**s, "protocol": "r2med-paper"} for s in manifest_of(m)["systems"]])),
        "another protocol",
    ),
    "a protocol with other choices": (
        lambda m: zipped(listed(m, protocols={"default": {**manifest_of(m)["protocols"]["default"], "bm25": None}})),
        "tells of another protocol",
    ),
    "a protocol that no system follows": (
        lambda m: zipped(listed(m, protocols={**manifest_of(m)["protocols"], "mine": {"name": "mine"}})),
        "tells of another protocol",
    ),
    "a result in the place of another task": (
        lambda m: zipped(renamed(m, "results/bm25/mini@1/MedQA-Diag")),
        "holds a result of 'bm25' on 'mini@1/Biology'",
    ),
    "the data of another task": (
        lambda m: zipped(own_data(m, "mini@1/MedQA-Diag")),
        "made on the data of mini@1/MedQA-Diag",
    ),
    "a task that is a path": (
        lambda m: zipped(result(m, lambda d: d["task"].update(name="../Biology"))),
        "holds a result of|cannot be part of a path",
    ),
    "answers that are none": (lambda m: answers(m, DIGEST), "is not a generation store"),
    "answers of another store": (
        lambda m: answers(
            m,
            DIGEST,
            '{"schema":1,"key":{"method":"hyde","llm":"gpt4","model":{},"template":"t","sampling":{},"task":"f"}}\n',
        ),
        "answers that belong elsewhere",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_and_nothing_is_written(
    name: str, good: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, message = HOSTILE[name]
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "evil.zip"
    path.write_bytes(make(good))
    done = CliRunner().invoke(command, ["add", str(path), "--results", str(tmp_path / "results")])
    assert isinstance(done.exception, R2MedError), done.output
    assert done.exception.exit_code
    said = str(done.exception)
    assert said.startswith(f"{path}")
    assert "\n" not in said
    assert str(tmp_path / "tmp") not in said
    with pytest.raises(R2MedError, match=message):
        raise done.exception
    assert not list((tmp_path / "tmp").iterdir())
    assert not (tmp_path / "results").exists()
    assert not (home() / "generations").exists()
    assert sorted(os.listdir(tmp_path)) == ["evil.zip", "tmp"]


def test_the_good_one_is_good(good: Members, tmp_path: Path) -> None:
    """The tests above refuse what was done to it, not how it was rebuilt."""
    (tmp_path / "a.zip").write_bytes(zipped(listed(good)))
    assert r2med.check_bundle(tmp_path / "a.zip").verified == 2
    (tmp_path / "b.zip").write_bytes(zipped(result(good, lambda document: document["notes"].update(said="fine"))))
    assert r2med.check_bundle(tmp_path / "b.zip").verified == 2


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zip")
    with pytest.raises(R2MedError, match="no such bundle"):
        r2med.check_bundle(tmp_path / "a.zip")


def test_any_tool_reads_the_files(good: Members, tmp_path: Path) -> None:
    (tmp_path / "x.run.gz").write_bytes(good[f"{PLACE}.run.gz"])
    lines = gzip.decompress(good[f"{PLACE}.run.gz"]).splitlines()
    assert len(lines) == sum(len(hits) for _, hits in open_run(tmp_path / "x.run.gz").whole())
