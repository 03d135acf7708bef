from typing import Any

def dots(
    queries: Any, rows: Any, places: Any, out: Any, dimension: int, width: int, begin: int, end: int, offset: int, /
) -> None: ...
def pairs(
    queries: Any, rows: Any, query: Any, place: Any, out: Any, dimension: int, begin: int, end: int, /
) -> None: ...
