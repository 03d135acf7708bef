"""Files on disk: opened only where they are plain files, known by the hash of their content; and bounded TOML."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, TypeVar

import msgspec

from .atomic import write_bytes
from .errors import DataError, ResultError
from .places import exists, home, open_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


BLOCK = 1 << 20
SMALL = 1 << 18  # files up to this size are hashed anew each time, which takes a fraction of a millisecond

HashKind = Literal["sha256", "git"]
Digest = TypeVar("Digest", bound="hashlib._Hash | hashlib.blake2b")


def open_file(path: Path) -> BinaryIO:
    """A plain file for reading; anything else is refused in one line."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({getattr(error, 'strerror', None) or error})", path=path) from None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, which is how the hub names a large file."""
    return hash_file(path, hashlib.sha256()).hexdigest()


def git_blob_id(path: Path) -> str:
    """The hash git gives a file's content, which is how the hub names a small file."""
    return hash_file(path, hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)).hexdigest()


def hash_file(path: Path, digest: Digest) -> Digest:
    """A hash with the content of a file added to it."""
    with open_file(path) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest


def content_hashes(files: Sequence[tuple[Path, HashKind]]) -> list[str]:
    """Hashes of files; that of a large one is computed again only when its size or one of its times changed."""
    memory = home() / "hashes.json"
    known: dict[str, tuple[str, str]] = {}
    with suppress(OSError, ValueError, RecursionError):
        known = msgspec.json.decode(memory.read_bytes(), type=dict[str, tuple[str, str]])
    found, changed = [], False
    for path, kind in files:
        target = path.resolve()
        compute = sha256_of if kind == "sha256" else git_blob_id
        facts = target.stat()
        if facts.st_size <= SMALL:
            found.append(compute(target))
            continue
        state = f"{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}:{facts.st_ino}:{kind}"
        if known.get(str(target), ("", ""))[0] != state:
            known[str(target)], changed = (state, compute(target)), True
        found.append(known[str(target)][1])
    if changed:
        present = {name: entry for name, entry in known.items() if exists(Path(name))}
        with suppress(ResultError):  # a read-only home costs the hashes again, nothing else
            write_bytes(memory, msgspec.json.encode(present, order="sorted"))
    return found


def wrong_files(folder: Path, expected: Mapping[str, tuple[HashKind, str]] = MappingProxyType({})) -> list[str]:
    """Files of a snapshot in the hub's cache whose content is not the expected one.

    Expected is what the hub says of a file (by its relative name), else the hash by which the cache calls it: SHA-256
    for a large file, git's for a small one. Where links are not possible the cache has no such names.
    """
    wanted: dict[Path, tuple[HashKind, str]] = {}
    for path in sorted(p for p in folder.rglob("*") if not p.is_dir()):
        named = path.resolve().name if path.is_symlink() else ""
        if hashed := expected.get(path.relative_to(folder).as_posix()):
            wanted[path] = hashed
        elif re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", named):
            wanted[path] = ("sha256" if len(named) == 64 else "git", named)
    missing = [path for path in wanted if not path.is_file()]
    there = [path for path in wanted if path.is_file()]
    hashes = content_hashes([(path, wanted[path][0]) for path in there])
    changed = [path for path, digest in zip(there, hashes, strict=True) if digest != wanted[path][1]]
    return [path.relative_to(folder).as_posix() for path in sorted([*missing, *changed])]


LARGEST = 4 << 20  # characters of a document; the largest of our own has thirty thousand
DEEPEST = 64  # dots of a key: the parser's time and memory grow with the square of them
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*"""|\'\'\'(?:(?!\'\'\').)*\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*', re.DOTALL
)
_NAME_CHARACTERS = dict.fromkeys(map(ord, "_- \t" + "".join(chr(c) for c in range(128) if chr(c).isalnum())))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse one document; a mistake is a `ValueError`."""
    if len(text) > LARGEST:
        raise ValueError(f"is longer than {LARGEST:,} characters")
    if _has_deep_key(text):
        raise ValueError(f"holds a key with more than {DEEPEST} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _has_deep_key(text: str) -> bool:
    """Whether dots follow each other with nothing but the parts of a key between them."""
    if not any(line.count(".") > DEEPEST for line in text.splitlines()):
        return False
    outside = _STRING_OR_COMMENT.sub("", text)
    return "." * (DEEPEST + 1) in outside.translate(_NAME_CHARACTERS)
