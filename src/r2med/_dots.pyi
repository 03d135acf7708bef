from typing import Any

def dots(
    queries: Any, rows: Any, places: Any, out: Any, dimension: int, width: int, begin: int, end: int, offset: int, /
) -> None: ...
