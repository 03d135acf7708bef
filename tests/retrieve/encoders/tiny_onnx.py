"""A BERT in bytes as an ONNX file, written without ONNX: the operations in the order of torch.onnx and quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from r2med.retrieve.encoders.native_bert import Bert, Layer, Linear, Table

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7}


def linear(numbers: np.random.Generator, rows: int, columns: int) -> Linear:
    weights = numbers.integers(-128, 128, (rows, columns), np.int8)
    scale = numbers.uniform(0.5, 1.0, columns).astype(np.float32) / np.float32(60 * np.sqrt(rows))
    return Linear(weights, scale, numbers.normal(0, 0.1, columns).astype(np.float32))


def tiny(hidden: int, heads: int, wide: int, layers: int, seed: int = 0) -> Bert:
    """A model of random numbers."""
    numbers = np.random.default_rng(seed)

    def norm() -> Any:
        return tuple(numbers.normal(mean, 0.1, hidden).astype(np.float32) for mean in (1, 0))

    def table(count: int) -> Table:
        return Table(numbers.integers(0, 256, (count, hidden)).astype(np.uint8), 0.01, 128.0)

    def layer() -> Layer:
        several = [linear(numbers, hidden, hidden) for _ in range(4)]
        wider, narrower = linear(numbers, hidden, wide), linear(numbers, wide, hidden)
        return Layer(several[:3], several[3], norm(), wider, narrower, norm())

    return Bert(
        table(50), table(2), table(40), norm(), [layer() for _ in range(layers)], heads, 1e-12, (hidden / heads) ** 0.5
    )


def number(value: int) -> bytes:
    """A whole number of variable length."""
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def field(place: int, value: int | bytes | str) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return number(place << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(data)) + data


def tensor(name: str, values: Any) -> bytes:
    array = np.asarray(values)
    shape = b"".join(field(1, size) for size in array.shape)
    return shape + field(2, TYPES[array.dtype.name]) + field(8, name) + field(9, array.tobytes())


class Writer:
    """Adds operations; each gives back the name of what it makes."""

    def __init__(self) -> None:
        self.body, self.count = b"", 0

    def constant(self, values: Any) -> str:
        self.count += 1
        name = f"constant_{self.count}"
        self.body += field(5, tensor(name, values))
        return name

    def real(self, value: float) -> str:
        return self.constant(np.float32(value))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: int | list[int]) -> str:
        self.count += 1
        names = [f"{op}_{self.count}", *(f"{op}_{self.count}_{place}" for place in range(1, outputs))]
        made = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in names) + field(4, op)
        for name, value in attributes.items():
            held = field(3, value) if isinstance(value, int) else b"".join(field(8, part) for part in value)
            made += field(5, field(1, name) + held + field(20, 2 if isinstance(value, int) else 7))
        self.body += field(1, made)
        return names[0]

    def size(self, of: str, place: int) -> str:
        gathered = self.node("Gather", self.node("Shape", of), self.constant(np.int64(place)), axis=0)
        return self.node("Unsqueeze", gathered, axes=[0])

    def norm(self, of: str, by: tuple[Any, Any], epsilon: float) -> str:
        rest = self.node("Sub", of, self.node("ReduceMean", of, axes=[-1]))
        square = self.node("ReduceMean", self.node("Pow", rest, self.real(2)), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", square, self.real(epsilon)))
        scaled = self.node("Mul", self.node("Div", rest, deviation), self.constant(by[0]))
        return self.node("Add", scaled, self.constant(by[1]))

    def quantized(self, of: str) -> tuple[str, str, str]:
        name = self.node("DynamicQuantizeLinear", of, outputs=3)
        return name, f"{name}_1", f"{name}_2"

    def times(self, of: tuple[str, str, str], by: Linear) -> str:
        zero = self.constant(np.zeros(by.weights.shape[1], np.int8))
        whole = self.node("MatMulInteger", of[0], self.constant(by.weights), of[2], zero)
        scale = self.node("Mul", of[1], self.constant(by.scale))
        return self.node("Add", self.constant(by.bias), self.node("Mul", self.node("Cast", whole, to=1), scale))

    def table(self, table: Table, by: str) -> str:
        rows = self.node("Gather", self.constant(table.rows), by)
        return self.node("DequantizeLinear", rows, self.real(table.scale), self.constant(np.uint8(table.zero)))

    def split(self, of: str, heads: int, size: int, order: list[int]) -> str:
        sizes = [self.constant(np.array([part])) for part in (heads, size)]
        shape = self.node("Concat", self.size(of, 0), self.size(of, 1), *sizes, axis=0)
        return self.node("Transpose", self.node("Reshape", of, shape), perm=order)


def write_bert(path: Path, bert: Bert) -> Path:
    """The file of a model, which ONNX Runtime reads too."""
    to = Writer()
    hidden = bert.words.rows.shape[1]
    wide = to.node("Unsqueeze", to.node("Unsqueeze", "attention_mask", axes=[1]), axes=[2])
    kept = to.node("Sub", to.real(1), to.node("Cast", wide, to=1))
    mask = to.node("Mul", kept, to.real(float(np.finfo(np.float32).min)))
    zero, one = to.constant(np.array([0])), to.constant(np.array([1]))
    counting = to.constant(np.arange(len(bert.positions.rows)).reshape(1, -1))
    places = to.node("Slice", counting, zero, to.size("input_ids", 1), one, one)
    sums = to.node("Add", to.table(bert.words, "input_ids"), to.table(bert.types, "token_type_ids"))
    states = to.norm(to.node("Add", sums, to.table(bert.positions, places)), bert.embedded, bert.epsilon)
    for layer in bert.layers:
        given, size = to.quantized(states), hidden // bert.heads
        query, key, value = (to.times(given, part) for part in layer.heads)
        left, right = to.split(query, bert.heads, size, [0, 2, 1, 3]), to.split(key, bert.heads, size, [0, 2, 3, 1])
        scores = to.node("Div", to.node("MatMul", left, right), to.real(bert.divisor))
        weights = to.node("Softmax", to.node("Add", scores, mask), axis=3)
        seen = to.node("MatMul", weights, to.split(value, bert.heads, size, [0, 2, 1, 3]))
        turned = to.node("Transpose", seen, perm=[0, 2, 1, 3])
        width = to.constant(np.array([hidden]))
        shape = to.node("Concat", to.size(turned, 0), to.size(turned, 1), width, axis=0)
        joined = to.quantized(to.node("Reshape", turned, shape))
        states = to.norm(to.node("Add", to.times(joined, layer.out), states), layer.attended, bert.epsilon)
        inner = to.times(to.quantized(states), layer.wide)
        error = to.node("Erf", to.node("Div", inner, to.real(2**0.5)))
        curved = to.node("Mul", to.node("Mul", inner, to.node("Add", error, to.real(1))), to.real(0.5))
        outer = to.times(to.quantized(curved), layer.narrow)
        states = to.norm(to.node("Add", outer, states), layer.made, bert.epsilon)
    ends = field(2, "bert")
    for place, name, kind in (
        (11, "input_ids", 7),
        (11, "attention_mask", 7),
        (11, "token_type_ids", 7),
        (12, states, 1),
    ):
        ends += field(place, field(1, name) + field(2, field(1, field(1, kind))))
    path.write_bytes(field(1, 6) + field(7, to.body + ends) + field(8, field(2, 11)))
    return path
