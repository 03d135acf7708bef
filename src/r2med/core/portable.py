"""What POSIX systems and Windows do differently: locks, processes, memory, reading at an offset, replacing a file.

Calls that only one of them has are made here and nowhere else; tests/test_architecture.py holds that.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)
"""For `os.open`: Windows would change line ends in a file that is not opened with it."""
_AGAIN = 0.02  # seconds between two attempts, where the system cannot wait in a way that Ctrl-C ends

if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _WHOLE = 1 << 62  # the byte that stands for a file; locks of Windows keep others from reading, so it holds no data
    _EXCLUSIVE_AT_ONCE = 3
    _LOCK_VIOLATION = 33
    _ACCESS_DENIED = 5
    _QUERY_LIMITED_INFORMATION = 0x1000
    _STILL_ACTIVE = 259

    class _Overlapped(ctypes.Structure):
        """Where in a file a call of the system applies."""

        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("internal_high", ctypes.c_void_p),
            ("offset", wintypes.DWORD),
            ("offset_high", wintypes.DWORD),
            ("event", wintypes.HANDLE),
        )

    class _MemoryStatus(ctypes.Structure):
        """What the system says about its memory."""

        _fields_ = (
            ("length", wintypes.DWORD),
            ("load", wintypes.DWORD),
            ("total", ctypes.c_ulonglong),
            ("others", ctypes.c_ulonglong * 6),
        )

    def _at(offset: int) -> _Overlapped:
        return _Overlapped(offset=offset & 0xFFFFFFFF, offset_high=offset >> 32)

    def _system_handle(handle: int) -> wintypes.HANDLE:
        return wintypes.HANDLE(msvcrt.get_osfhandle(handle))

    def lock_byte(handle: int, offset: int) -> bool:
        """Lock one byte of a file; False where another process has it. It need not exist."""
        if _kernel.LockFileEx(_system_handle(handle), _EXCLUSIVE_AT_ONCE, 0, 1, 0, ctypes.byref(_at(offset))):
            return True
        if (code := ctypes.get_last_error()) == _LOCK_VIOLATION:
            return False
        raise ctypes.WinError(code)

    def unlock_byte(handle: int, offset: int) -> None:
        """Give a byte back."""
        _kernel.UnlockFileEx(_system_handle(handle), 0, 1, 0, ctypes.byref(_at(offset)))

    def lock(handle: int, *, wait: bool) -> bool:
        """Lock an open file until `unlock` or its end; False where somebody else has it and `wait` is not set."""
        while not (locked := lock_byte(handle, _WHOLE)) and wait:
            time.sleep(_AGAIN)
        return locked

    def unlock(handle: int) -> None:
        """End a lock."""
        unlock_byte(handle, _WHOLE)

    def open_folder_lock(folder: Path) -> int:
        """A handle to lock a folder by: a file in it, as folders cannot be opened here."""
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | BINARY)

    def lock_temporary(path: Path, *, wait: bool) -> int | None:
        """No lock: what is open here cannot be renamed."""
        del path, wait
        return None

    def process_lives(pid: int) -> bool:
        """Whether a process runs. `os.kill(pid, 0)` would send it Ctrl-C here, or end it."""
        _kernel.OpenProcess.restype = wintypes.HANDLE
        process = _kernel.OpenProcess(_QUERY_LIMITED_INFORMATION, False, wintypes.DWORD(pid & 0xFFFFFFFF))
        if not process:
            return ctypes.get_last_error() == _ACCESS_DENIED  # somebody else's process
        code = wintypes.DWORD()
        _kernel.GetExitCodeProcess(wintypes.HANDLE(process), ctypes.byref(code))
        _kernel.CloseHandle(wintypes.HANDLE(process))
        return code.value == _STILL_ACTIVE

    def total_memory() -> int | None:
        """Bytes of memory of this machine; None where it does not say."""
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        return int(status.total) if _kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None

    def allow_open_files(wanted: int) -> None:
        """Nothing: there is no such limit here."""
        del wanted

    def read_at(handle: int, size: int, offset: int) -> bytes:
        """Bytes of a file at an offset; moves the place of the next `os.read`."""
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)

    def replace(source: Path, target: Path) -> None:
        """Rename over what is there; a reader of it, or a virus scanner, holds that up for a moment."""
        for _ in range(50):
            try:
                source.replace(target)
            except PermissionError:
                time.sleep(_AGAIN)
            else:
                return
        source.replace(target)

else:
    import fcntl
    import resource

    def lock_byte(handle: int, offset: int) -> bool:
        """Lock one byte of a file; False where another process has it. It need not exist."""
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock_byte(handle: int, offset: int) -> None:
        """Give a byte back."""
        fcntl.lockf(handle, fcntl.LOCK_UN, 1, offset)

    def lock(handle: int, *, wait: bool) -> bool:
        """Lock an open file until `unlock` or its end; False where somebody else has it and `wait` is not set."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def unlock(handle: int) -> None:
        """End a lock."""
        fcntl.flock(handle, fcntl.LOCK_UN)

    def open_folder_lock(folder: Path) -> int:
        """A handle to lock a folder by: that of the folder itself."""
        return os.open(folder, os.O_RDONLY)

    def lock_temporary(path: Path, *, wait: bool) -> int | None:
        """Lock a file or folder until the handle is closed; None where somebody else has it or locks do not work."""
        handle = None
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            if lock(handle, wait=wait):
                return handle
        except OSError:
            pass
        if handle is not None:
            os.close(handle)
        return None

    def process_lives(pid: int) -> bool:
        """Whether a process runs."""
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):  # no process has a number that large
            return False
        except OSError:  # somebody else's process
            return True
        return True

    def total_memory() -> int | None:
        """Bytes of memory of this machine; None where it does not say."""
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            return None

    def allow_open_files(wanted: int) -> None:
        """Let this process open as many files and connections, or as many as the machine permits."""
        with suppress(OSError, ValueError):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != resource.RLIM_INFINITY and soft < wanted:
                most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def read_at(handle: int, size: int, offset: int) -> bytes:
        """Bytes of a file at an offset."""
        return os.pread(handle, size, offset)

    def replace(source: Path, target: Path) -> None:
        """Rename over what is there."""
        source.replace(target)
