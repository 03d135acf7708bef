from __future__ import annotations

import pytest

from r2med.core import UsageError
from r2med.core.parameters import parse_size, show_size


def test_one_kind_of_gigabyte() -> None:
    assert parse_size("2GB") == parse_size("2 gib") == parse_size("2G") == 2 << 30
    assert [parse_size(t) for t in ("7", "64k", "500MB", "1.5GiB")] == [7, 64 << 10, 500 << 20, 3 << 29]
    assert [show_size(n) for n in (0, 1, 1 << 20, 3 << 29)] == ["0KB", "1KB", "1MB", "1.5GB"]
    for wrong in ("", "x", "-1", "0", "1.2.3GB", "5 parsecs"):
        with pytest.raises(UsageError, match="as a size: write 500MB or 2GB"):
            parse_size(wrong)
    assert parse_size("0", least=0) == 0
