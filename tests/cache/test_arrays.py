"""Arrays under a key: round trips, damage, races."""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, scalar_dtypes

from r2med.cache import ArrayCache, shards
from r2med.core import HostileData

KEY = "0123456789abcdef"
SHAPES = st.tuples(st.integers(0, 5)) | st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(st.dictionaries(st.sampled_from("abc"), arrays(scalar_dtypes(), SHAPES), max_size=3))
def test_what_goes_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory, given_arrays: dict[str, npt.NDArray[np.generic]]
) -> None:
    cache = ArrayCache(tmp_path_factory.mktemp("indexes"))
    assert cache.load(KEY) is None
    cache.save(KEY, given_arrays, {"of": "hypothesis"})
    loaded = cache.load(KEY)
    assert loaded is not None
    assert set(loaded) == set(given_arrays)
    for name, array in given_arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


def test_the_default_place_is_the_home() -> None:
    ArrayCache().save(KEY, {"a": np.arange(3)}, {})
    assert (Path(os.environ["R2MED_HOME"]) / "indexes" / KEY / "a.npy").is_file()


@pytest.mark.parametrize("file", ["a.npy", "index.json"])
def test_a_damaged_file_is_never_used_and_is_replaced(tmp_path: Path, file: str) -> None:
    cache = ArrayCache(tmp_path)
    cache.save(KEY, {"a": np.arange(100, dtype=np.int32)}, {})
    assert cache.load(KEY) is not None
    path = tmp_path / KEY / file
    data = path.read_bytes()
    for changed in (data[:-3] + bytes([data[-3] ^ 4]) + data[-2:], data[: len(data) // 2], b""):
        path.write_bytes(changed)
        assert cache.load(KEY) is None
    cache.save(KEY, {"a": np.arange(7)}, {})
    again = cache.load(KEY)
    assert again is not None
    assert again["a"].tolist() == list(range(7))


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path)
    cache.save(KEY, {"a": np.arange(3), "b": np.arange(3)}, {})
    (tmp_path / KEY / "b.npy").unlink()
    assert cache.load(KEY) is None


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArrayCache(tmp_path)
    cache.save(KEY, {"a": np.arange(3)}, {})
    path = tmp_path / KEY / "a.npy"
    monkeypatch.setattr(shards, "SETTLED_SECONDS", -1.0)
    reads: list[Path] = []

    def counted(path: Path) -> int:
        reads.append(path)
        return zlib.crc32(path.read_bytes())

    monkeypatch.setattr("r2med.cache.arrays._checksum", counted)
    for _ in range(3):
        assert cache.load(KEY) is not None
    assert len(reads) == 1
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))
    assert cache.load(KEY) is not None
    assert len(reads) == 2


def test_a_file_that_has_just_changed_is_read_every_time(tmp_path: Path) -> None:
    """Two writes within one tick of the file system's clock leave the same times."""
    cache = ArrayCache(tmp_path)
    cache.save(KEY, {"a": np.arange(3)}, {})
    path = tmp_path / KEY / "a.npy"
    assert cache.load(KEY) is not None
    times = path.stat().st_mtime_ns
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x07")
    os.utime(path, ns=(times, times))
    assert cache.load(KEY) is None


def test_many_savers_leave_one_whole_set(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path)
    errors: list[BaseException] = []

    def save() -> None:
        try:
            cache.save(KEY, {"a": np.arange(1000)}, {})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert cache.load(KEY) is not None
    assert [p.name for p in tmp_path.iterdir()] == [KEY]


@pytest.mark.parametrize("key", ["..", "a/b", ""])
def test_a_key_is_one_component_of_a_path(tmp_path: Path, key: str) -> None:
    with pytest.raises(HostileData):
        ArrayCache(tmp_path).save(key, {"a": np.arange(3)}, {})
