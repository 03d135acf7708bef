"""Broken inputs without end, the same ones for the same seed: real files, flipped, cut, spliced and poisoned."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

LONGEST = 1 << 14
"""Bytes of one input: enough for structure, small enough for thousands a second."""

HOSTILE = (
    b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", "𝔘🧬".encode(),
    "\u2028\u2029\x85".encode(), "e\u0301\u200d\ufb01".encode(), b"\r", b"\r\n", b"\n\n", b"\t", b"\x1a", b"\x1b[2J",
    b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b",", b":", b"=", b"#",
    b"[[", b"]]", b"{{", b"}}", b"{{query}}", b"{text}", b"{0.__class__}", b"%s%n", b"${HOME}", b"`id`", b"$(id)",
    b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"1e999", b"-0", b"0x10", b"1_000",
    "٣".encode(), b"0", b"-1", b"1.5", b"2147483647", b"2147483648", b"-2147483649", b"9223372036854775807",
    b"18446744073709551616", b"1" * 400, b"[" * 2000, b'{"a":' * 2000, b"a" * 5000, b"((((((((((",
    b"../../../etc/passwd", b"/dev/zero", b"C:\\x", b"<script>alert(1)</script>", b"</think>", b"<think>",
    b"<answer>", b"</answer>", b"<|begin_of_solution|>", b"<|end_search_query|>", b"[1] > [2]", b"> > >",
    b"__class__", b"__proto__", b"!!python/object:os.system", b"\x80\x04.",
)  # fmt: skip
"""What breaks parsers, shells, templates and people's assumptions."""


class Mutator:
    """Makes inputs out of seeds."""

    def __init__(self, seeds: Sequence[bytes], seed: int) -> None:
        self.seeds = [s[:LONGEST] for s in seeds]
        self.random = random.Random(seed)
        self._changes = (
            self._flip_bit, self._set_byte, self._truncate, self._cut_out, self._duplicate, self._insert_hostile,
            self._replace_hostile, self._splice, self._swap_lines, self._repeat_line, self._swap_fields, self._noise,
            self._number,
        )  # fmt: skip

    def __iter__(self) -> Iterator[bytes]:
        yield from self.seeds  # the untouched ones first: they must be read too
        while True:
            yield self.one()

    def one(self) -> bytes:
        """A seed after one change, mostly, or a few."""
        data = self.random.choice(self.seeds)
        for _ in range(1 + min(int(self.random.expovariate(0.7)), 8)):
            data = self.random.choice(self._changes)(data)
        return data[: 2 * LONGEST]

    def _at(self, data: bytes) -> int:
        return self.random.randrange(len(data) + 1)

    def _span(self, data: bytes) -> tuple[int, int]:
        begin = self._at(data)
        return begin, min(len(data), begin + 1 + int(self.random.expovariate(0.05)))

    def _flip_bit(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1 :]

    def _set_byte(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + bytes([self.random.randrange(256)]) + data[at + 1 :]

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._at(data)]

    def _cut_out(self, data: bytes) -> bytes:
        begin, end = self._span(data)
        return data[:begin] + data[end:]

    def _duplicate(self, data: bytes) -> bytes:
        begin, end = self._span(data)
        return data[:end] + data[begin:end] * self.random.choice((1, 1, 2, 16)) + data[end:]

    def _insert_hostile(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self.random.choice(HOSTILE) + data[at:]

    def _replace_hostile(self, data: bytes) -> bytes:
        begin, end = self._span(data)
        return data[:begin] + self.random.choice(HOSTILE) + data[end:]

    def _splice(self, data: bytes) -> bytes:
        other = self.random.choice(self.seeds)
        return data[: self._at(data)] + other[self._at(other) :]

    def _swap_lines(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        a, b = self.random.randrange(len(lines)), self.random.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return b"\n".join(lines)

    def _repeat_line(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        at = self.random.randrange(len(lines))
        return b"\n".join([*lines[:at], lines[at], *lines[at:]])

    def _swap_fields(self, data: bytes) -> bytes:
        mark = self.random.choice((b" ", b"\t", b",", b'"', b":", b"="))
        fields = data.split(mark)
        a, b = self.random.randrange(len(fields)), self.random.randrange(len(fields))
        fields[a], fields[b] = fields[b], fields[a]
        return mark.join(fields)

    def _noise(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self.random.randbytes(self.random.choice((1, 2, 4, 8, 64))) + data[at:]

    def _number(self, data: bytes) -> bytes:
        """A little-endian number where a binary format may keep a size or an offset."""
        size = self.random.choice((1, 2, 4, 8))
        value = self.random.choice((0, 1, 0x7F, 0xFF, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1))
        at = self._at(data)
        return data[:at] + (value & ((1 << 8 * size) - 1)).to_bytes(size, "little") + data[at + size :]
