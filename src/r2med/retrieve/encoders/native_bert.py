"""BERT in bytes without ONNX Runtime: its graph recognised, its weights handed to C, the states of a text computed.

The graph is the one that `torch.onnx` and dynamic quantization make of BERT. It is followed back from its output, and
each operation and constant on the way must be the one that the C code stands for. Of a graph that differs anywhere
nothing is made here: it runs in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...core import ModelError
from ...core.columns import Int32
from . import Float32
from .onnx_file import Array, Graph, Node, Unreadable, read_graph

native: ModuleType | None = None
try:
    from ... import _bert

    native = _bert
except ImportError:  # no compiler at install time: ONNX Runtime computes the vectors
    pass

BACKEND = "native-int8"
"""What results and cache keys call this arithmetic."""
SLOW = "plain"
"""The way that every processor has: kept to prove the others, and slower than ONNX Runtime."""
LONGEST = 1 << 10
"""Tokens of a text: the weights of attention are whole numbers whose steps suit no more."""


class Linear(NamedTuple):
    """A matrix of bytes with the scale and the bias of each column."""

    weights: Array
    scale: Float32
    bias: Float32


class Table(NamedTuple):
    """Embeddings as bytes."""

    rows: Array
    scale: float
    zero: float


class Layer(NamedTuple):
    """What one layer multiplies with; each pair of a norm is its weight and its bias."""

    heads: list[Linear]
    out: Linear
    attended: tuple[Float32, Float32]
    wide: Linear
    narrow: Linear
    made: tuple[Float32, Float32]


class Bert(NamedTuple):
    """All that the C code is given."""

    words: Table
    types: Table
    positions: Table
    embedded: tuple[Float32, Float32]
    layers: list[Layer]
    heads: int
    epsilon: float
    divisor: float


def refuse(reason: str) -> Unreadable:
    """Why a graph is none that we know."""
    return Unreadable(reason)


class Recognition:
    """Follows a graph back from its output."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.epsilons: set[float] = set()
        self.divisors: set[float] = set()
        self.heads: set[int] = set()

    def bert(self) -> Bert:
        """The whole model; `Unreadable` where it is another one."""
        if not {"input_ids", "attention_mask"} <= set(self.graph.inputs) <= {
            "input_ids", "attention_mask", "token_type_ids",
        }:  # fmt: skip
            raise refuse("other inputs")
        if not self.graph.outputs:
            raise refuse("no output")
        name, layers = self.graph.outputs[0], list[Layer]()
        while self.ends_layer(name):
            layer, name = self.layer(name)
            layers.insert(0, layer)
        words, types, positions, embedded = self.embeddings(name)
        if not layers or len(self.epsilons) != 1 or len(self.divisors) != 1 or len(self.heads) != 1:
            raise refuse("layers that differ")
        (epsilon,), (divisor,), (heads,) = self.epsilons, self.divisors, self.heads
        made = Bert(words, types, positions, embedded, layers, heads, epsilon, divisor)
        check_shapes(made)
        return made

    def node(self, name: str, op: str, inputs: int) -> Node:
        """What makes a tensor, which must be this operation."""
        made = self.graph.makers.get(name)
        if made is None or made.op != op or len(made.inputs) != inputs or made.outputs[0] != name:
            raise refuse(f"{name} is not made by {op}")
        return made

    def constant(self, name: str) -> Array:
        """A tensor of the file."""
        if name not in self.graph.constants:
            raise refuse(f"{name} is no constant")
        return self.graph.constants[name]

    def number(self, name: str) -> float:
        """A constant of one number."""
        found = self.constant(name)
        if found.size != 1:
            raise refuse(f"{name} is not one number")
        return float(found.reshape(-1)[0])

    def vector(self, name: str) -> Float32:
        """A constant of float32 numbers, finite and in one row."""
        found = self.constant(name)
        if found.dtype != np.float32 or found.ndim != 1 or not np.isfinite(found).all():
            raise refuse(f"{name} is no vector")
        return found

    def with_constant(self, name: str, op: str) -> tuple[str, str]:
        """What is added to or multiplied by a constant, and the constant; they may stand in either order."""
        first, second = self.node(name, op, 2).inputs
        if first in self.graph.constants:
            first, second = second, first
        if first in self.graph.constants or second not in self.graph.constants:
            raise refuse(f"{name} has no constant")
        return first, second

    def norm(self, name: str) -> tuple[str, tuple[Float32, Float32]]:
        """What is normalized, and the weight and bias of LayerNorm, written out in single operations."""
        product, bias = self.with_constant(name, "Add")
        quotient, weight = self.with_constant(product, "Mul")
        rest, deviation = self.node(quotient, "Div", 2).inputs
        before, mean = self.node(rest, "Sub", 2).inputs
        variance, epsilon = self.with_constant(self.node(deviation, "Sqrt", 1).inputs[0], "Add")
        square = self.mean(variance)
        base, power = self.node(square, "Pow", 2).inputs
        if self.mean(mean) != before or base != rest or self.number(power) != 2:
            raise refuse(f"{name} is no LayerNorm")
        self.epsilons.add(self.number(epsilon))
        return before, (self.vector(weight), self.vector(bias))

    def mean(self, name: str) -> str:
        node = self.node(name, "ReduceMean", 1)
        if node.attributes.get("axes") != [-1] or node.attributes.get("keepdims", 1) != 1:
            raise refuse(f"{name} is a mean of another kind")
        return node.inputs[0]

    def linear(self, name: str) -> tuple[str, Linear]:
        """What is quantized and multiplied by a matrix, scaled and moved by a bias."""
        product, bias = self.with_constant(name, "Add")
        cast, scales = self.node(product, "Mul", 2).inputs
        whole = self.node(cast, "Cast", 1)
        left, right, left_zero, right_zero = self.node(whole.inputs[0], "MatMulInteger", 4).inputs
        step, scale = self.with_constant(scales, "Mul")
        made = self.graph.makers.get(left)
        if (
            made is None or made.op != "DynamicQuantizeLinear" or made.outputs != [left, step, left_zero]
            or len(made.inputs) != 1 or whole.attributes.get("to") != 1
        ):  # fmt: skip
            raise refuse(f"{name} is no product of bytes")
        weights, zero = self.constant(right), self.constant(right_zero)
        if weights.ndim != 2 or weights.dtype not in (np.int8, np.uint8) or weights.dtype != zero.dtype:
            raise refuse(f"{right} is no matrix of bytes")
        columns = weights.shape[1]
        steps = self.constant(scale)
        if any(part.size not in (1, columns) or part.ndim > 1 for part in (zero, steps)):
            raise refuse(f"{right} is scaled in another way")
        if weights.dtype == np.uint8 or zero.any():
            moved = weights.astype(np.int16) - zero.astype(np.int16)
            if moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
                raise refuse(f"{right} does not fit into signed bytes")
            weights = moved.astype(np.int8)
        if steps.dtype != np.float32 or not np.isfinite(steps).all():
            raise refuse(f"{scale} is no scale")
        return made.inputs[0], Linear(weights, np.broadcast_to(steps, columns), self.vector(bias))

    def ends_layer(self, name: str) -> bool:
        """Whether a normalized sum is the end of a layer rather than the embeddings."""
        before, _ = self.norm(name)
        return self.graph.constants.keys().isdisjoint(inputs := self.node(before, "Add", 2).inputs) and any(
            self.graph.makers[i].op == "Add" and not self.graph.constants.keys().isdisjoint(self.graph.makers[i].inputs)
            for i in inputs
            if i in self.graph.makers
        )

    def residual(self, name: str) -> tuple[str, Linear, str, tuple[Float32, Float32]]:
        """A normalized sum of a product and what it began from."""
        before, norm = self.norm(name)
        made, beside = self.node(before, "Add", 2).inputs
        source, linear = self.linear(made)
        return source, linear, beside, norm

    def layer(self, name: str) -> tuple[Layer, str]:
        """One layer, and what it is given."""
        source, narrow, middle, made = self.residual(name)
        source, wide = self.linear(self.gelu(source))
        if source != middle:
            raise refuse(f"{name} is given something else")
        source, out, given, attended = self.residual(middle)
        heads = self.attention(source, given)
        return Layer(heads, out, attended, wide, narrow, made), given

    def gelu(self, name: str) -> str:
        """What GELU is taken of: x (1 + erf(x / sqrt 2)) / 2, in this order."""
        product, half = self.with_constant(name, "Mul")
        left, right = self.node(product, "Mul", 2).inputs
        error, one = self.with_constant(right, "Add")
        quotient = self.node(self.node(error, "Erf", 1).inputs[0], "Div", 2)
        values = (self.number(half), self.number(one), self.number(quotient.inputs[1]))
        if quotient.inputs[0] != left or values != (0.5, 1.0, float(np.float32(np.sqrt(2)))):
            raise refuse(f"{name} is no GELU")
        return left

    def attention(self, name: str, given: str) -> list[Linear]:
        """Queries, keys and values of the heads whose attention to each other this is."""
        joined = self.node(name, "Reshape", 2)
        turned = self.transposed(joined.inputs[0], [0, 2, 1, 3])
        weights, value = self.node(turned, "MatMul", 2).inputs
        softmax = self.node(weights, "Softmax", 1)
        if softmax.attributes.get("axis", -1) not in (-1, 3):
            raise refuse(f"{name} sums over something else")
        scores, mask = self.node(softmax.inputs[0], "Add", 2).inputs
        self.mask(mask)
        product, divisor = self.node(scores, "Div", 2).inputs
        self.divisors.add(self.number(divisor))
        query, key = self.node(product, "MatMul", 2).inputs
        found, sizes = [], set()
        for part, order in ((query, [0, 2, 1, 3]), (key, [0, 2, 3, 1]), (value, [0, 2, 1, 3])):
            split = self.node(self.transposed(part, order), "Reshape", 2)
            source, linear = self.linear(split.inputs[0])
            *same, heads, size = self.shape(split.inputs[1], split.inputs[0])
            if source != given or same != [-1, -2]:
                raise refuse(f"{name} has heads of something else")
            sizes.add((heads, size))
            found.append(linear)
        ((heads, size),) = sizes if len(sizes) == 1 else [(0, 0)]
        if self.shape(joined.inputs[1], turned and joined.inputs[0]) != [-1, -2, heads * size] or not heads:
            raise refuse(f"{name} joins its heads in another way")
        self.heads.add(heads)
        return found

    def transposed(self, name: str, order: list[int]) -> str:
        node = self.node(name, "Transpose", 1)
        if node.attributes.get("perm") != order:
            raise refuse(f"{name} is turned in another way")
        return node.inputs[0]

    def shape(self, name: str, of: str) -> list[int]:
        """A computed shape: -1 and -2 stand for the first and the second size of the tensor that is given it."""
        found = []
        for part in (node := self.node(name, "Concat", len(self.graph.makers[name].inputs))).inputs:
            if part in self.graph.constants:
                found.append(int(self.number(part)))
                continue
            inside = self.node(part, "Unsqueeze", 1)
            gathered = self.node(inside.inputs[0], "Gather", 2)
            whole = self.node(gathered.inputs[0], "Shape", 1)
            place = self.number(gathered.inputs[1])
            if whole.inputs != [of] or whole.attributes or place not in (0, 1) or inside.attributes != {"axes": [0]}:
                raise refuse(f"{name} is another shape")
            found.append(-1 if place == 0 else -2)
        if node.attributes != {"axis": 0}:
            raise refuse(f"{name} is another shape")
        return found

    def mask(self, name: str) -> None:
        """Nothing is added where all tokens count, as they do in a text alone."""
        kept, lowest = self.with_constant(name, "Mul")
        one, cast = self.node(kept, "Sub", 2).inputs
        wide = self.node(cast, "Cast", 1)
        outer = self.node(wide.inputs[0], "Unsqueeze", 1)
        inner = self.node(outer.inputs[0], "Unsqueeze", 1)
        if (
            (wide.attributes, outer.attributes, inner.attributes) != ({"to": 1}, {"axes": [2]}, {"axes": [1]})
            or inner.inputs != ["attention_mask"] or self.number(one) != 1 or not np.isfinite(self.number(lowest))
        ):  # fmt: skip
            raise refuse(f"{name} is another mask")

    def embeddings(self, name: str) -> tuple[Table, Table, Table, tuple[Float32, Float32]]:
        """The tables of words, types and positions, whose sum is normalized."""
        before, norm = self.norm(name)
        first, place = self.node(before, "Add", 2).inputs
        word, kind = self.node(first, "Add", 2).inputs
        words, types = self.table(word, "input_ids"), self.table(kind, "token_type_ids")
        positions = self.table(place, None)
        return words, types, positions, norm

    def table(self, name: str, of: str | None) -> Table:
        """Rows of a table of bytes that are looked up; `of` is None for positions, which count from 0."""
        rows, scale, zero = self.node(name, "DequantizeLinear", 3).inputs
        gathered = self.node(rows, "Gather", 2)
        table = self.constant(gathered.inputs[0])
        if table.dtype != np.uint8 or table.ndim != 2 or gathered.attributes.get("axis", 0) != 0:
            raise refuse(f"{name} is no table of bytes")
        if of is None:
            self.counting(gathered.inputs[1], len(table))
        elif gathered.inputs[1] != of:
            raise refuse(f"{name} is looked up by something else")
        return Table(table, self.number(scale), self.number(zero))

    def counting(self, name: str, count: int) -> None:
        """The first whole numbers, as many as a text has tokens."""
        source, begin, end, axis, step = self.node(name, "Slice", 5).inputs
        wide = self.node(end, "Unsqueeze", 1)
        gathered = self.node(wide.inputs[0], "Gather", 2)
        shape = self.node(gathered.inputs[0], "Shape", 1)
        numbers = self.constant(source)
        wanted = np.arange(count).reshape(1, -1)
        if (
            not np.array_equal(numbers, wanted) or shape.inputs != ["input_ids"] or shape.attributes
            or [self.number(part) for part in (begin, axis, step, gathered.inputs[1])] != [0, 1, 1, 1]
        ):  # fmt: skip
            raise refuse(f"{name} does not count")


def check_shapes(bert: Bert) -> None:
    """Refuse parts whose sizes do not fit each other."""
    hidden, wide = bert.words.rows.shape[1], bert.layers[0].wide.weights.shape[1]
    for table in (bert.words, bert.types, bert.positions):
        if table.rows.shape[1] != hidden or not 0 <= table.zero <= 255 or not np.isfinite(table.scale):
            raise refuse("tables that differ")
    norms, linears = [bert.embedded], list[tuple[Linear, tuple[int, int]]]()
    for layer in bert.layers:
        norms += [layer.attended, layer.made]
        linears += [(part, (hidden, hidden)) for part in (*layer.heads, layer.out)]
        linears += [(layer.wide, (hidden, wide)), (layer.narrow, (wide, hidden))]
    if any(part.shape != (hidden,) for norm in norms for part in norm) or any(
        linear.weights.shape != shape or len(linear.bias) != shape[1] for linear, shape in linears
    ):
        raise refuse("matrices that differ")
    if not bert.epsilon > 0 or not bert.divisor > 0 or len(bert.positions.rows) > LONGEST or hidden % bert.heads:
        raise refuse("numbers out of range")


def parts(bert: Bert) -> tuple[Array, Array, Array, Array]:
    """Sizes, matrices, numbers and tables in the order in which the C code takes them."""
    tables = (bert.words, bert.types, bert.positions)
    numbers: list[Any] = [[bert.epsilon, bert.divisor], *((t.scale, t.zero) for t in tables), *bert.embedded]
    weights: list[Array] = []
    for layer in bert.layers:
        for group in (layer.heads, [layer.out], layer.attended, [layer.wide], [layer.narrow], layer.made):
            linears = [part for part in group if isinstance(part, Linear)]
            weights += [part.weights.reshape(-1) for part in linears]
            numbers += [part.scale for part in linears] + [part.bias for part in linears]
            numbers += [part for part in group if not isinstance(part, Linear)]
    shape = (bert.words.rows.shape[1], bert.heads, bert.layers[0].wide.weights.shape[1], len(bert.layers))
    sizes = np.array([*shape, *(len(table.rows) for table in tables)], dtype=np.int64)
    flat = np.concatenate([np.asarray(part, dtype=np.float32) for part in numbers])
    return sizes, np.concatenate(weights), flat, np.concatenate([table.rows.reshape(-1) for table in tables])


class NativeBert:
    """A model that computes the states of one text after the other; many threads may use it at once."""

    def __init__(self, path: Path, bert: Bert, way: int = 0) -> None:
        assert native is not None
        self.path, self.hidden = path, bert.words.rows.shape[1]
        self.most = len(bert.positions.rows)
        self.model = native.make(way, *parts(bert))

    def states(
        self, ids: Sequence[int] | Int32, types: Sequence[int] | Int32 | None = None, first: bool = False
    ) -> Float32:
        """One row a token, or (`first`) that of the first alone."""
        assert native is not None
        tokens = np.asarray(ids, dtype=np.int32)
        kinds = np.zeros_like(tokens) if types is None else np.asarray(types, dtype=np.int32)
        out: Float32 = np.empty((1 if first else len(tokens), self.hidden), dtype=np.float32)
        try:
            native.states(self.model, tokens, kinds, out)
        except ValueError as error:
            raise ModelError(f"{self.path} fails on texts of {len(tokens)} tokens: {error}") from None
        return out


@lru_cache(4)
def _recognized(path: Path, size: int, changed: int) -> Bert | None:
    del size, changed
    try:
        return Recognition(read_graph(path)).bert()
    except (Unreadable, OSError, RecursionError):
        return None


def recognized(path: Path) -> Bert | None:
    """The model of a file, where it is one that the C code computes, and fast, on this processor; else None."""
    if native is None or native.ways()[0] == SLOW:
        return None
    facts = path.stat()
    return _recognized(path, facts.st_size, facts.st_mtime_ns)
