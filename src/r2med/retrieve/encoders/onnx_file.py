"""ONNX files without ONNX: the nodes and constants of a graph, read from protocol buffers with every bound checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = 1 << 28
"""Bytes of a file that is read; an encoder of bytes that has more is none that we know."""
MOST_FIELDS = 1 << 18
Array = npt.NDArray[Any]
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8"}
"""Types of tensors, by their numbers in ONNX."""


class Unreadable(ValueError):
    """A file is none of ONNX, or holds what this reader does not know."""


@dataclass(frozen=True)
class Node:
    """One operation."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    """Numbers, lists of whole numbers and tensors by name; those of other types are None."""


@dataclass(frozen=True)
class Graph:
    """Operations by the names of what they make, constants by theirs."""

    makers: dict[str, Node] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read_graph(path: Path) -> Graph:
    """The graph of a file; `Unreadable` where there is none or it is too large."""
    if path.stat().st_size > LARGEST:
        raise Unreadable("too large")
    return _Reader(path.read_bytes()).graph()


def _text(data: object) -> str:
    if not isinstance(data, memoryview):
        raise Unreadable("no text")
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise Unreadable("no text") from None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where the next one begins."""
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise Unreadable("ends inside a number")
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise Unreadable("a number has no end")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


class _Reader:
    """Walks the fields of messages; their number is limited, so that no file takes for ever."""

    def __init__(self, data: bytes) -> None:
        self.data, self.left = memoryview(data), MOST_FIELDS

    def fields(self, data: object) -> Iterator[tuple[int, int | memoryview]]:
        """The number and the value of each field of a message: a whole number, or bytes."""
        if not isinstance(data, memoryview):
            raise Unreadable("no message")
        at = 0
        while at < len(data):
            self.left -= 1
            if self.left < 0:
                raise Unreadable("too many fields")
            key, at = _varint(data, at)
            if key & 7 == 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            if key & 7 == 2:
                size, at = _varint(data, at)
            elif key & 7 in (1, 5):
                size = 8 if key & 7 == 1 else 4
            else:
                raise Unreadable("a field of no known type")
            if size > len(data) - at:
                raise Unreadable("ends inside a field")
            yield key >> 3, data[at : at + size]
            at += size

    def numbers(self, value: int | memoryview) -> list[int]:
        """Whole numbers of a repeated field, packed or one at a time."""
        if isinstance(value, int):
            return [_signed(value)]
        found, at = [], 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(_signed(number))
        return found

    def graph(self) -> Graph:
        """The only graph of the model."""
        graphs = [value for number, value in self.fields(self.data) if number == 7]
        if len(graphs) != 1:
            raise Unreadable("has no graph, or several")
        graph = Graph()
        for number, value in self.fields(graphs[0]):
            if number == 1:
                self._add(graph, self.node(value))
            elif number == 5:
                name, tensor = self.tensor(value)
                if name in graph.constants:
                    raise Unreadable(f"{name} twice")
                graph.constants[name] = tensor
            elif number in (11, 12):
                names = [_text(part) for kind, part in self.fields(value) if kind == 1]
                (graph.inputs if number == 11 else graph.outputs).extend(names)
            elif number == 15:
                raise Unreadable("sparse constants")
        if set(graph.constants) & set(graph.inputs) or set(graph.makers) & (set(graph.constants) | set(graph.inputs)):
            raise Unreadable("one name for two things")
        return graph

    def _add(self, graph: Graph, node: Node) -> None:
        for name in node.outputs:
            if name in graph.makers:
                raise Unreadable(f"{name} twice")
            if node.op == "Constant" and isinstance(value := node.attributes.get("value"), np.ndarray):
                graph.constants[name] = value
            else:
                graph.makers[name] = node

    def node(self, data: object) -> Node:
        """An operation; the name of a domain that is not ONNX's own is part of its name."""
        node, domain, op = Node("", [], [], {}), "", ""
        for number, value in self.fields(data):
            if number in (1, 2):
                (node.inputs if number == 1 else node.outputs).append(_text(value))
            elif number == 4:
                op = _text(value)
            elif number == 5:
                self._attribute(value, node.attributes)
            elif number == 7:
                domain = _text(value)
        return Node(f"{domain}:{op}" if domain else op, node.inputs, node.outputs, node.attributes)

    def _attribute(self, data: object, found: dict[str, Any]) -> None:
        name, several = "", list[int]()
        value: object = None
        for number, part in self.fields(data):
            if number == 1:
                name = _text(part)
            elif number == 2 and isinstance(part, memoryview) and len(part) == 4:
                value = float(np.frombuffer(part, "<f4")[0])
            elif number == 3 and isinstance(part, int):
                value = _signed(part)
            elif number == 5:
                value = self.tensor(part)[1]
            elif number == 8:
                several += self.numbers(part)
        found[name] = several or value

    def tensor(self, data: object) -> tuple[str, Array]:
        """A constant with its name."""
        name, kind, shape = "", 0, list[int]()
        raw, floats, wholes = bytearray(), bytearray(), list[int]()
        for number, value in self.fields(data):
            if number == 1:
                shape += self.numbers(value)
            elif number == 2 and isinstance(value, int):
                kind = value
            elif number == 8:
                name = _text(value)
            elif number in (5, 7):
                wholes += self.numbers(value)
            elif number in (4, 9) and isinstance(value, memoryview):
                (floats if number == 4 else raw).extend(value)
            elif number == 13 or (number == 14 and value):
                raise Unreadable("constants in another file")
        return name, _array(kind, shape, raw, floats, wholes)


def _array(kind: int, shape: list[int], raw: bytearray, floats: bytearray, wholes: list[int]) -> Array:
    """Numbers that stand as bytes, as floats or as whole numbers, in the shape that they should have."""
    if kind not in DTYPES or min(shape, default=0) < 0 or bool(raw) + bool(floats) + bool(wholes) > 1:
        raise Unreadable("a constant of another type")
    dtype = np.dtype(DTYPES[kind])
    held = raw or floats
    if len(held) % dtype.itemsize or (floats and kind != 1):
        raise Unreadable("a constant of another size")
    try:
        made: Array = np.frombuffer(held, dtype) if held else np.array(wholes, dtype)
        if made.size == prod(shape):
            return made.reshape(shape)
    except (OverflowError, ValueError):  # a number too large for its type, more dimensions than an array can have
        pass
    raise Unreadable("a constant of another size")
