"""How a table is laid out in a width: names and numbers stay whole, and the rest gives way.

A table that fits is one block. Otherwise, whichever takes the fewest lines: columns of long texts are wrapped or go
below their row, columns go to further blocks beside the names again, and a name that leaves no room beside it has a
line of its own. Widths are those of a terminal's cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.table import GAP as WIDE_GAP
from ..core.table import cell_len, padded

GAP, NARROW = len(WIDE_GAP), 2
"""Cells between two columns; in a table that does not fit, and before what stands below a name."""
LONG = 30
"""Cells of a text that may be wrapped; and the least that a wrapped one keeps."""
TITLE = 14
"""Cells of a title's word that is not broken for being longer than what stands below it."""
CANDIDATES = 12
"""About how many widths are tried for the names."""
_NUMBER = re.compile(r"[-+]?\d+(?:[.,:/–-]\d+)*(?:e[-+]?\d+)?")
_BREAK = re.compile(r"(?<=[,:/_-])|(?=[+.@])")

Cells = Sequence[Sequence[str]]


class Line(NamedTuple):
    """A line of a table, and whether it is of the head."""

    text: str
    head: bool = False


class Layout(NamedTuple):
    """Where things go: the names of a row in its first cells, columns in blocks beside them, others below the row."""

    keys: list[int]
    offset: int  # Cells for the names; a longer one has a line of its own.
    blocks: list[list[int]]
    below: list[int]
    widths: list[int]
    gap: int


def table_lines(titles: Sequence[str], rows: Cells, left: int, width: int) -> Iterator[Line]:
    """The lines of a table, none of them wider than `width`."""
    layout = lay_out(titles, rows, left, width)
    for number, block in enumerate(layout.blocks):
        if number:
            yield Line("")
        drawn = _Block(_with_room(layout, block, titles, width), block, left, width)
        head = drawn.row(titles, head=True)
        body = [drawn.row(row) + (_below_row(layout, titles, row, width) if not number else []) for row in rows]
        yield from (Line(line, head=True) for line in head)
        yield Line("─" * max(map(cell_len, (line for part in (head, *body) for line in part)), default=0))
        yield from (Line(line) for part in body for line in part)


def _with_room(layout: Layout, block: list[int], titles: Sequence[str], room: int) -> Layout:
    """The layout with titles on as few lines as a block has room for."""
    widths, spare = list(layout.widths), room - _across(layout, block)
    for i in block:
        most = max(min(cell_len(titles[i]), widths[i] + spare), widths[i])
        wider = min(range(widths[i], most + 1), key=lambda width: (len(wrapped(titles[i], width)), width))
        widths[i], spare = wider, spare - (wider - widths[i])
    return layout._replace(widths=widths)


class _Block(NamedTuple):
    """Some columns of a table, beside the names of its rows."""

    layout: Layout
    columns: list[int]
    left: int
    room: int

    def row(self, cells: Sequence[str], *, head: bool = False) -> list[str]:
        """One row: its names, then its cells side by side; those of the head stand on its last line."""
        layout, label = self.layout, _label(cells, self.layout, self.room)
        beside = cell_len(label) <= layout.offset
        lines = [] if beside else wrapped(label, self.room, indent=NARROW)
        broken = [wrapped(cells[i], layout.widths[i]) for i in self.columns]
        height = max(map(len, broken), default=int(beside))
        named = height - 1 if head else 0
        for number in range(height):
            parts = [padded(label if beside and number == named else "", layout.offset)] if layout.keys else []
            for i, of_cell in zip(self.columns, broken, strict=True):
                at = number - (height - len(of_cell) if head else 0)
                parts.append(
                    padded(of_cell[at] if 0 <= at < len(of_cell) else "", layout.widths[i], right=i >= self.left)
                )
            lines.append((" " * layout.gap).join(parts).rstrip())
        return lines


def _below_row(layout: Layout, titles: Sequence[str], row: Sequence[str], room: int) -> list[str]:
    texts = [f"{titles[i]}: {row[i]}" if titles[i] else row[i] for i in layout.below if row[i]]
    return [" " * NARROW + line for text in texts for line in wrapped(text, room - NARROW)]


def _label(row: Sequence[str], layout: Layout, room: int) -> str:
    """What names a row: its first columns, below each other where they fit."""
    widths = [layout.widths[i] for i in layout.keys]
    if sum(widths) + layout.gap * (len(widths) - 1) > room:
        return (" " * layout.gap).join(row[i] for i in layout.keys if row[i])
    return (" " * layout.gap).join(padded(row[i], layout.widths[i]) for i in layout.keys).rstrip()


def lay_out(titles: Sequence[str], rows: Cells, left: int, width: int) -> Layout:
    """The layout with the fewest lines."""
    body = [max((cell_len(row[i]) for row in rows), default=0) for i in range(len(titles))]
    keys = _keys(rows, min(left, len(titles)), body)
    others = list(range(len(keys), len(titles)))
    natural = [max(cells, cell_len(title)) for cells, title in zip(body, titles, strict=True)]
    offset = sum(natural[i] for i in keys) + GAP * max(len(keys) - 1, 0)
    whole = Layout(keys, offset, [others], [], natural, GAP)
    if _across(whole, others) <= width:
        return whole
    widths = [w if i in keys else max(body[i], _title_width(titles[i], body[i])) for i, w in enumerate(natural)]
    found = list(_candidates(titles, rows, left, widths, keys, width))
    return min(found, key=lambda layout: _lines(layout, titles, rows, width))


def _across(layout: Layout, block: Sequence[int]) -> int:
    shown = len(block) + bool(layout.keys)
    return layout.offset + sum(layout.widths[i] for i in block) + layout.gap * (shown - 1)


def _keys(rows: Cells, left: int, widths: Sequence[int]) -> list[int]:
    """The first columns that tell the rows apart, long texts excepted."""
    most = next((i for i in range(1, left) if _is_long(rows, i, widths[i])), left)
    counts = [len({tuple(row[: i + 1]) for row in rows}) for i in range(most)]
    return list(range(counts.index(max(counts)) + 1)) if counts else []


def _is_long(rows: Cells, column: int, width: int) -> bool:
    return width > LONG and any(" " in row[column] for row in rows)


def _candidates(
    titles: Sequence[str], rows: Cells, left: int, widths: list[int], keys: list[int], width: int
) -> Iterator[Layout]:
    """Layouts that fit: one block with wrapped texts, or several with names of any width and some columns below."""
    others = list(range(len(keys), len(widths)))
    offset = sum(widths[i] for i in keys) + NARROW * max(len(keys) - 1, 0)
    one = Layout(keys, offset, [others], [], widths, NARROW)
    if (spare := width - _across(one, others)) >= 0:
        yield one
        return
    long = [i for i in others if i < left and _is_long(rows, i, widths[i])]
    words = max((cell_len(word) for row in rows for i in long for word in row[i].split()), default=0)
    room = sum(widths[i] for i in long) + spare
    most = max((limit for limit in range(room + 1) if sum(min(widths[i], limit) for i in long) <= room), default=0)
    if long and most >= max(LONG, words):
        yield one._replace(widths=[min(w, most) if i in long else w for i, w in enumerate(widths)])
    labels = sorted({cell_len(_label(row, one, width)) for row in (titles, *rows)} | {NARROW}) if keys else [0]
    labels = sorted({labels[0], *labels[:: -(len(labels) // CANDIDATES) or -1]}, reverse=True)
    for below in _below(others, left, widths, width):
        beside = [i for i in others if i not in below]
        widest = max((widths[i] for i in beside), default=0)
        for offset in labels:
            if offset + NARROW + widest <= width or offset == labels[-1]:
                layout = one._replace(offset=offset, below=below)
                yield layout._replace(blocks=_blocks(layout, beside, width))


def _below(others: list[int], left: int, widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Columns that stand below their row: those that fit nowhere else, and then one wide column after the other."""
    forced = [i for i in others if widths[i] > width - 2 * NARROW]
    wide = [i for i in others if i not in forced and widths[i] > (TITLE if i < left else LONG)]
    wide.sort(key=lambda i: -widths[i])
    for count in range(len(wide) + 1):
        yield sorted([*forced, *wide[:count]])


def _blocks(layout: Layout, columns: list[int], width: int) -> list[list[int]]:
    """Columns from left to right in as many blocks as they need."""
    blocks: list[list[int]] = [[]]
    for column in columns:
        if blocks[-1] and _across(layout, [*blocks[-1], column]) > width:
            blocks.append([])
        blocks[-1].append(column)
    return blocks


def _lines(layout: Layout, titles: Sequence[str], rows: Cells, width: int) -> int:
    """Lines of a table; a name above its row counts as two more, or as three where others stand beside theirs."""
    above = [cell_len(_label(row, layout, width)) > layout.offset for row in (titles, *rows)]
    torn = sum(above) * (2 if all(above[1:]) else 3)
    heights = sum(max((len(wrapped(row[i], layout.widths[i])) for i in layout.blocks[0]), default=1) for row in rows)
    below = sum(len(_below_row(layout, titles, row, width)) for row in rows)
    return heights + (len(layout.blocks) - 1) * len(rows) + len(layout.blocks) * (3 + torn) + below


def _title_width(title: str, cells: int) -> int:
    """The width that a title needs above cells of a width: its words stay whole, a long name is broken."""
    return max((cell_len(piece) for word in title.split() for piece in _pieces(word, max(cells, TITLE))), default=0)


def wrapped(text: str, width: int, *, indent: int = 0, cut: bool = True) -> list[str]:
    """A text in lines of a width, broken between words; further lines begin with `indent` spaces.

    A word longer than a line is broken too, unless `cut` is false.
    """
    if cell_len(text) <= width:
        return [text]
    lines = [text[: len(text) - len(text.lstrip(" "))]]
    for number, found in enumerate(re.finditer(r"(\s*)(\S+)", text)):
        gap, word = found.groups()
        room = width - max(indent, 0 if number else cell_len(lines[0]))
        for part, piece in enumerate(_pieces(word, room) if cut else [word]):
            joined = lines[-1] + (gap if number and not part else "") + piece
            if cell_len(joined) <= width or not (number or part):
                lines[-1] = joined
            else:
                lines.append(" " * indent + piece)
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of a width at most, broken between its parts, never within a number that fits a line."""
    if cell_len(word) <= width:
        return [word]
    inside = {i for found in _NUMBER.finditer(word) for i in range(found.start() + 1, found.end())}
    breaks = {found.start() for found in _BREAK.finditer(word)} - inside - {0, len(word)}
    ends = [end for end in sorted(breaks) if cell_len(word[end])]  # a combining character stays with its letter
    pieces, begin = list[str](), 0
    while cell_len(word[begin:]) > width:
        fitting = [end for end in ends if end > begin and cell_len(word[begin:end]) <= width]
        end = fitting[-1] if fitting else _cut(word, begin, width, inside)
        pieces.append(word[begin:end])
        begin = end
    return [*pieces, word[begin:]]


def _cut(word: str, begin: int, width: int, inside: set[int]) -> int:
    """Where a word without parts is cut: before a number where one begins, and never before a combining character."""
    end = begin + 1
    while end < len(word) and cell_len(word[begin : end + 1]) <= width:
        end += 1
    while end < len(word) and not cell_len(word[end]):
        end += 1
    before = next((i for i in range(end, begin, -1) if i not in inside), end)
    return before if before > begin else end
