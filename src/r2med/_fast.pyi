from typing import Any

Buffer = Any

def analyze(text: bytes, /) -> list[str]: ...
def count_terms(
    data: Buffer, offsets: Buffer, analyzer: int, /
) -> tuple[bytes, bytes, bytearray, bytearray, bytearray]: ...
