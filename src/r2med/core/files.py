"""Files and folders on disk: where ours lie, how they are opened, written and known by their content; bounded TOML.

Files are opened only where they are plain files. What is written is whole or not there: it has a temporary name first
and is then renamed. What a killed command leaves under such a name is removed by the next one that writes into the
same folder. A living command holds a lock on its temporary file or folder, so that nothing in use is ever removed. On
Windows, where what is locked cannot be renamed, there are no such locks, and what a killed command leaves stays.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, BinaryIO, Literal, TypeVar

import msgspec

from .errors import DataError, ResultError, UsageError
from .portable import BINARY, lock, lock_temporary, open_folder_lock, replace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BLOCK = 1 << 20
SMALL = 1 << 18  # files up to this size are hashed anew each time, which takes a fraction of a millisecond

HashKind = Literal["sha256", "git"]
Digest = TypeVar("Digest", bound="hashlib._Hash | hashlib.blake2b")
# Machines that share a disk may not see each other's locks: each removes only what was written on it.
_HOST = hashlib.blake2b(os.uname().nodename.encode() if hasattr(os, "uname") else b"", digest_size=4).hexdigest()
_TEMPORARY = re.compile(rf"\..+\.{_HOST}-[a-z0-9_]{{8}}\.tmp", re.DOTALL)
_LOOKED_THROUGH: set[str] = set()  # folders in which this process has removed what was abandoned


def home() -> Path:
    """`R2MED_HOME`, or `r2med` in the XDG cache folder."""
    if explicit := os.environ.get("R2MED_HOME"):
        return Path(explicit).expanduser()
    return _xdg_cache() / "r2med"


def hub_cache() -> Path:
    """The cache of huggingface_hub, found as it finds it itself."""
    if explicit := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(explicit).expanduser()
    root = os.environ.get("HF_HOME")
    return (Path(root).expanduser() if root else _xdg_cache() / "huggingface") / "hub"


def typed_path(text: str) -> Path:
    """A path as somebody typed it, with `~` resolved."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"{text!r} is no path here ({error})") from None


def exists(path: Path) -> bool:
    """Whether something is there; a name that no file system takes is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def open_regular(path: Path) -> BinaryIO:
    """A plain file for reading; a pipe, a device or a folder, which may never answer, is an `OSError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | BINARY)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(handle, "rb", buffering=1 << 18)


def open_file(path: Path) -> BinaryIO:
    """A plain file for reading; anything else is refused in one line."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({getattr(error, 'strerror', None) or error})", path=path) from None


def free_space(path: Path) -> int | None:
    """Free bytes on the disk that holds a folder, or would hold it; None where it does not say."""
    try:
        return shutil.disk_usage(nearest_existing(path)).free
    except OSError:
        return None


def nearest_existing(path: Path) -> Path:
    """The folder itself or the closest one above it that is there."""
    path = path.absolute()
    return next((place for place in (path, *path.parents) if place.exists()), path)


def _xdg_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when the block ends well."""
    with _temporary(path, _make_file) as temporary:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644 & ~_umask())
        replace(temporary, path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file at once."""
    with atomic_file(path) as stream:
        stream.write(data)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder that appears under its name only when the block ends well; `path` must be absent or empty."""
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise _cannot_write(path, error) from None
    if taken:
        raise DataError("already exists and is not an empty folder", path=path)
    with _temporary(path, _make_folder) as temporary:
        yield temporary
        temporary.chmod(0o755 & ~_umask())
        if path.exists():
            path.rmdir()
        replace(temporary, path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` for the length of a block."""
    with _temporary(path, _make_folder) as temporary:
        yield temporary
        _remove(temporary)


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary file or folder beside `path`, locked until the block ends and removed where it ends badly."""
    # The name is known before anything is there, so that an interrupt at any moment finds what to remove.
    temporary, handle = _new_name(path), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        while not temporary.exists():  # also where another process took it for abandoned before it was locked
            if handle is not None:
                os.close(handle)
            temporary, handle = _new_name(path), None
            make(temporary)
            handle = lock_temporary(temporary, wait=True)
        yield temporary
    except OSError as error:
        _remove(temporary)
        raise _cannot_write(path, error) from None
    except BaseException:
        _remove(temporary)
        raise
    finally:
        if handle is not None:
            os.close(handle)


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:50]}.{_HOST}-{secrets.token_hex(4)}.tmp")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A block that one process at a time is in, of those that name the same folder; it is made where it is missing.

    Where locks do not work (some network disks) processes are not kept apart.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open_folder_lock(folder)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    try:
        with suppress(OSError):
            lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders of commands that are dead; each process looks once through a folder."""
    if str(folder) in _LOOKED_THROUGH:
        return
    _LOOKED_THROUGH.add(str(folder))
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and (handle := lock_temporary(Path(entry.path), wait=False)):
                _remove(Path(entry.path))
                os.close(handle)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _cannot_write(path: Path, error: OSError) -> ResultError:
    return ResultError(f"{path}: cannot be written ({error.strerror or error})")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


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


def content_digest(path: Path) -> str:
    """The hash of a file, or of all files of a folder with their names."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        if path.is_file():
            digest.update(_hash(path))
        else:
            for file, first in _files(path):
                # Names hold no NUL, those of files no slash at their end, and hashes have one length: no two folders
                # give the same bytes.
                name = os.fsencode(file.relative_to(path).as_posix())
                digest.update(name + b"\0" + _hash(file) if first is None else name + b"/\0" + first)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    return digest.hexdigest()


def _hash(file: Path) -> bytes:
    return hash_file(file, hashlib.blake2b(digest_size=16)).digest()


def _files(folder: Path) -> list[tuple[Path, bytes | None]]:
    """All files that are not hidden, also behind links; and folders that were met before, with a hash of where."""
    if not folder.is_dir():
        raise DataError("no such file or folder", path=folder)

    def fail(error: OSError) -> None:
        raise error

    found, seen = list[tuple[Path, bytes | None]](), dict[str, Path]()
    for place, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        here = Path(place)
        if (first := seen.setdefault(os.path.realpath(place), here)) is not here:
            folders.clear()
            met = os.fsencode(first.relative_to(folder).as_posix())
            found.append((here, hashlib.blake2b(met, digest_size=16).digest()))
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place, name) for name in names if not name.startswith("."))
        found += [(file, None) for file in files if file.is_file()]
    return sorted(found)


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
