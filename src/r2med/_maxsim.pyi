from typing import Any

def scores(
    queries: Any,
    ends: Any,
    rows: Any,
    starts: Any,
    sizes: Any,
    out: Any,
    dimension: int,
    width: int,
    begin: int,
    end: int,
    offset: int,
    way: int,
    /,
) -> None: ...
def ways() -> list[str]: ...
