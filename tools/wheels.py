"""Build a release: the source archive and one wheel per Linux platform, the same bytes every time, each checked.

    python tools/wheels.py [--out dist] [x86_64] [aarch64]

The wheels are built from the source archive, and that from the files that git tracks. Zig (the package `ziglang`) is
the compiler: it targets the glibc of manylinux2014 and other processors without a container. `make dist` sets up what
this needs (requirements/release.txt). Wheels for macOS and Windows are built where those run, by
.github/workflows/release.yml; `tools/try_wheel.py` installs and runs what was built.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLIBC = (2, 17)  # of manylinux2014
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
EXTENSIONS = sorted(path.stem for path in (ROOT / "src" / "r2med").glob("_*.pyi"))  # each has a stub
LARGEST = 5_000_000  # bytes of anything released


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("machines", nargs="*", default=[], metavar="MACHINE", help="x86_64 and aarch64 unless given")
    given = parser.parse_args()
    if platform.python_version_tuple()[:2] != ("3", "10"):
        parser.error("only Python 3.10 builds wheels for every Python (setup.py says why)")
    if unknown := set(given.machines) - ELF_MACHINES.keys():
        parser.error(f"no wheels are built for {', '.join(sorted(unknown))} here")
    os.umask(0o022)  # modes of files are part of an archive
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    built = [build_sdist(given.out)]
    for machine in given.machines or ELF_MACHINES:
        built.append(build_wheel(built[0], machine, given.out))
        check_wheel(built[-1], machine)
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)])
    for path in built:
        assert path.stat().st_size <= LARGEST, f"{path.name} has {path.stat().st_size:,} bytes"
        print(f"{path.stat().st_size:>9,}  {path}")


def run(command: list[str], folder: Path = ROOT, **environment: str) -> str:
    """What a command prints; where it fails, the release does."""
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CFLAGS", "LDFLAGS")}
    done = subprocess.run(
        command, cwd=folder, env=settings | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(command)} failed")
    return done.stdout


def commit_time() -> str:
    """When the sources were committed, in seconds: the time that every file in an archive carries."""
    return run(["git", "log", "-1", "--format=%ct"]).strip()


def backend(function: str, out: Path, folder: Path, *options: str, **environment: str) -> Path:
    """Call setuptools' build backend in a folder of sources."""
    settings = {"--build-option": list(options)} if options else {}
    code = f"import setuptools.build_meta as b; b.{function}({str(out)!r}, {settings!r})"
    before = set(out.iterdir())
    run([sys.executable, "-c", code], folder, SOURCE_DATE_EPOCH=commit_time(), **environment)
    (made,) = set(out.iterdir()) - before
    return made


def build_sdist(out: Path) -> Path:
    """The source archive of the files that git tracks; what else lies in the folder cannot get into it."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for name in run(["git", "ls-files", "-z"]).split("\0"):
            if name and (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, tree / name)
        made = backend("build_sdist", out, tree)
    repack(made, int(commit_time()))
    return made


def repack(archive: Path, when: int) -> None:
    """Write an archive again without the traces of this machine: times, owners, modes, order."""
    plain = archive.with_suffix(".repacked")
    with (
        tarfile.open(archive) as source,
        plain.open("wb") as stream,
        gzip.GzipFile("", "wb", 9, stream, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = when, {}
            member.mode = 0o755 if member.isdir() else 0o644
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    plain.replace(archive)


def build_wheel(sdist: Path, machine: str, out: Path) -> Path:
    """The wheel of one processor, by Zig."""
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as source:
            source.extractall(scratch, filter="data")
        (tree,) = Path(scratch).iterdir()
        return backend(
            "build_wheel", out, tree, "--plat-name", f"manylinux2014_{machine}",
            CC=compiler, LDSHARED=f"{compiler} -shared", CFLAGS="-g0 -fno-sanitize=all -Werror=ignored-attributes",
            LDFLAGS="-s",
        )  # fmt: skip


def check_wheel(wheel: Path, machine: str) -> None:
    """Every extension is there, for this processor, needs no newer glibc and nothing but the stable ABI."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in EXTENSIONS:
            assert f"r2med/{name}.abi3.so" in names, f"{wheel.name}: {name} was not built"
            header = archive.read(f"r2med/{name}.abi3.so")[:20]
            assert int.from_bytes(header[18:20], "little") == ELF_MACHINES[machine], f"{name} is for another processor"
    said = run([sys.executable, "-m", "auditwheel", "show", str(wheel)])
    found = re.search(rf'platform tag:\s+"manylinux_(\d+)_(\d+)_{machine}"', said)
    assert found, said
    assert (int(found[1]), int(found[2])) <= GLIBC, said
    run([sys.executable, "-m", "abi3audit", "--strict", str(wheel)])


if __name__ == "__main__":
    main()
