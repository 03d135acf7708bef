"""The state of objects: what behaves differently has another hash or none, what does not has the same one."""

from __future__ import annotations

import collections
import decimal
import enum
import functools
import io
import logging
import operator
import os
import random
import re
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from r2med.core.code import Unreadable, library
from r2med.core.identity import state_digest
from tests.retrieve.encoders import tiny

Make = Callable[[], Any]


def digest(value: Any) -> str:
    """The hash, or a text of its own for what cannot be read."""
    try:
        return state_digest(value)
    except Unreadable as why:
        return f"unreadable: {why}"


class Model:
    """An encoder by its attributes."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)

    def encode(self, texts: list[str]) -> Any:
        return [[len(t) * self.__dict__.get("factor", 1)] for t in texts]


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Hiding:
    __slots__ = ("__factor",)

    def __init__(self, factor: float) -> None:
        self.__factor = factor


class Filling(collections.defaultdict[str, int]):
    """Fills itself as its factory says."""


class Point(NamedTuple):
    x: int
    y: int


class Table(dict[str, int]):
    """A dictionary with an attribute."""

    offset = 0


class Whole(int):
    """A number with an attribute."""

    scale: int


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Settings:
    size: int = 3
    tags: list[str] = field(default_factory=list)


class Scaled:
    """Wraps a function as `functools.wraps` does, and has a state of its own."""

    def __init__(self, function: Callable[[int], int], factor: int) -> None:
        functools.update_wrapper(self, function)
        self.function, self.factor = function, factor

    def __call__(self, number: int) -> int:
        return self.factor * self.function(number)


def closure(value: Any) -> Callable[[Any], Any]:
    def inner(texts: Any) -> Any:
        return value, texts

    return inner


def compiled(source: str, **scope: Any) -> Any:
    """What a source defines as `f`, as a notebook would define it."""
    space = {"__name__": "somewhere", **scope}
    exec(source, space)
    return space["f"]


def with_attribute(value: Any) -> Any:
    function = compiled("def f(x): return f.table, x")
    function.table = value
    return function


def table_of(**items: int) -> Table:
    made = Table(items)
    made.offset = items.get("offset", 0)
    return made


def whole(number: int, scale: int) -> Whole:
    made = Whole(number)
    made.scale = scale
    return made


def helper_module(text: str) -> types.ModuleType:
    module = types.ModuleType("helpers_of_mine")
    exec(text, vars(module))
    return module


FUNCTIONS = [
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("def f(x): return x + 1", "def f(x): return x - 1"),
    ("def f(x, y=1): return y", "def f(x, y=2): return y"),
    ("def f(x, *, y=1): return y", "def f(x, *, y=2): return y"),
    ("def f(x): return [y + 1 for y in x]", "def f(x): return [y + 2 for y in x]"),
    ("def f(x): return (lambda y: y * 2)(x)", "def f(x): return (lambda y: y * 3)(x)"),
    ("def g(x): return 1\ndef f(x): return g(x)", "def g(x): return 2\ndef f(x): return g(x)"),
    ("G = 1\ndef f(x): return G", "G = 2\ndef f(x): return G"),
    ("G = [1, [2]]\ndef f(x): return G", "G = [1, [3]]\ndef f(x): return G"),
    ("def f(x): return x.lower()", "def f(x): return x.upper()"),
    ("def f(x): return f'{x:>3}'", "def f(x): return f'{x:>4}'"),
    ("def f(x): return 0.1", "def f(x): return 0.1000000001"),
    ("def f(x): return 1", "def f(x): return 1.0"),
    ("def f(x): return 0.0", "def f(x): return -0.0"),
    ("def f(x): return 'a'", "def f(x): return b'a'"),
    ("def f(x): return (1, 2)", "def f(x): return (1, 3)"),
    ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
    ("class f:\n def encode(self, x): return 1", "class f:\n def encode(self, x): return 2"),
    ("class f:\n a = 1\n def encode(self, x): return self.a", "class f:\n a = 2\n def encode(self, x): return self.a"),
    ("class B:\n a = 1\nclass f(B): pass", "class B:\n a = 2\nclass f(B): pass"),
    ("class M(type):\n def __call__(c): return 1\nclass f(metaclass=M): pass",
     "class M(type):\n def __call__(c): return 2\nclass f(metaclass=M): pass"),
    ("class f:\n @property\n def p(self): return 1", "class f:\n @property\n def p(self): return 2"),
    ("class f:\n @staticmethod\n def p(): return 1", "class f:\n @staticmethod\n def p(): return 2"),
    ("class f:\n @classmethod\n def p(c): return 1", "class f:\n @classmethod\n def p(c): return 2"),
    ("import functools\nclass f:\n @functools.cached_property\n def p(s): return 1",
     "import functools\nclass f:\n @functools.cached_property\n def p(s): return 2"),
    ("import functools\n@functools.cache\ndef f(x): return 1",
     "import functools\n@functools.cache\ndef f(x): return 2"),
    ("def f(*x): return max(x)", "def f(x): return max(x)"),
    ("def f(**x): return len(x)", "def f(x): return len(x)"),
    ("def f(x, /, y=1): return y", "def f(x, y=1): return y"),
    ("def f(x):\n try: return x[0]\n except KeyError: return 1",
     "def f(x):\n try: return x[0]\n except IndexError: return 1"),
]  # fmt: skip


def masked(*mask: bool) -> Any:
    """An array with some of its values hidden."""
    return np.ma.masked_array([1, 2], list(mask))


def coloured(body: str) -> Any:
    """A member of an enumeration with a property, and with a method of a class beside it."""
    source = f"import enum\nclass B:\n def m(self): {body}\nclass f(B, enum.Enum):\n A = 1\n p = property(B.m)"
    return compiled(source).A


RECORD = [("x", "<f4"), ("y", "<f4")]
HELD = [("x", "<f4"), ("held", "O")]
VALUES: list[tuple[Make, Make]] = [
    (lambda: Model(dim=64), lambda: Model(dim=4096)),
    (lambda: Model(a=1), lambda: Model(b=1)),
    (lambda: Model(a=1), lambda: Model(a=True)),
    (lambda: Model(a=1), lambda: Model(a=1.0)),
    (lambda: Model(a="1"), lambda: Model(a=1)),
    (lambda: Model(a=[1, 2]), lambda: Model(a=[2, 1])),
    (lambda: Model(a=[1, 2]), lambda: Model(a=(1, 2))),
    (lambda: Model(a=[[1], 2]), lambda: Model(a=[[1, 2]])),
    (lambda: Model(a={1, 2}), lambda: Model(a={1, 3})),
    (lambda: Model(a={(1, 2)}), lambda: Model(a={(1, 3)})),
    (lambda: Model(a={"x": 1}), lambda: Model(a={"x": 2})),
    (lambda: Model(a=np.zeros(3)), lambda: Model(a=np.ones(3))),
    (lambda: Model(a=np.zeros((2, 3))), lambda: Model(a=np.zeros((3, 2)))),
    (lambda: Model(a=np.zeros(2, np.float32)), lambda: Model(a=np.zeros(2, np.int32))),
    (lambda: Model(a=np.array([1, "x"], dtype=object)), lambda: Model(a=np.array([1, "y"], dtype=object))),
    (lambda: Model(a=masked(False, True)), lambda: Model(a=masked(True, False))),
    (lambda: Model(a=np.zeros(2, [("x", "<f4")])), lambda: Model(a=np.zeros(2, [("y", "<f4")]))),
    (lambda: Model(a=np.float32(1)), lambda: Model(a=np.float64(1))),
    (lambda: Model(a=np.random.default_rng(1)), lambda: Model(a=np.random.default_rng(2))),
    (lambda: Model(a=np.random.RandomState(1)), lambda: Model(a=np.random.RandomState(2))),
    (lambda: Model(a=random.Random(1)), lambda: Model(a=random.Random(2))),
    (lambda: Model(a=re.compile("a" * 300 + "b")), lambda: Model(a=re.compile("a" * 300 + "c"))),
    (lambda: Model(a=re.compile("a")), lambda: Model(a=re.compile("a", re.IGNORECASE))),
    (lambda: Model(a=Path("a")), lambda: Model(a=Path("b"))),
    (lambda: Model(a=Colour.RED), lambda: Model(a=Colour.BLUE)),
    (lambda: Model(a=decimal.Decimal("1.0")), lambda: Model(a=decimal.Decimal("1.1"))),
    (lambda: Model(a=collections.Counter("ab")), lambda: Model(a=collections.Counter("abb"))),
    (lambda: Model(a=collections.deque([1])), lambda: Model(a=collections.deque([2]))),
    (lambda: Model(a=collections.defaultdict(int)), lambda: Model(a=collections.defaultdict(list))),
    (lambda: Model(a=collections.OrderedDict(x=1)), lambda: Model(a=collections.OrderedDict(x=2))),
    (lambda: Model(a=types.SimpleNamespace(x=1)), lambda: Model(a=types.SimpleNamespace(x=2))),
    (lambda: Model(a=types.MappingProxyType({"x": 1})), lambda: Model(a=types.MappingProxyType({"x": 2}))),
    (lambda: Model(a=bytearray(b"a")), lambda: Model(a=bytearray(b"b"))),
    (lambda: Model(a=slice(1, 2)), lambda: Model(a=slice(1, 3))),
    (lambda: Model(a=operator.itemgetter(1)), lambda: Model(a=operator.itemgetter(2))),
    (lambda: Model(a={"x": 1}.get), lambda: Model(a={"x": 2}.get)),
    (lambda: Model(a=[1].__getitem__), lambda: Model(a=[2].__getitem__)),
    (lambda: Model(a=np.sin), lambda: Model(a=np.cos)),
    (lambda: Model(a=len), lambda: Model(a=sum)),
    (lambda: Model(a=str.upper), lambda: Model(a=str.lower)),
    (lambda: Model(a=int), lambda: Model(a=float)),
    (lambda: Model(a=functools.partial(max, 1)), lambda: Model(a=functools.partial(max, 2))),
    (lambda: Model(a=functools.partial(max, key=len)), lambda: Model(a=functools.partial(max, key=sum))),
    (lambda: Model(a=Slotted(1)), lambda: Model(a=Slotted(2))),
    (lambda: Model(a=Hiding(1)), lambda: Model(a=Hiding(2))),
    (lambda: Model(a=Filling(lambda: 1)), lambda: Model(a=Filling(lambda: 2))),
    (lambda: Model(a=Filling(int, x=1)), lambda: Model(a=Filling(int, x=2))),
    (lambda: Model(a=coloured("return 1")), lambda: Model(a=coloured("return 2"))),
    (lambda: Model(a=np.zeros(1, RECORD)[0]), lambda: Model(a=np.zeros(1, RECORD[::-1])[0])),
    (lambda: Model(a=np.array([(1, [2])], HELD)[0]), lambda: Model(a=np.array([(1, [3])], HELD)[0])),
    (lambda: Model(a=Point(1, 2)), lambda: Model(a=Point(1, 3))),
    (lambda: Model(a=Settings(tags=["x"])), lambda: Model(a=Settings(tags=["y"]))),
    (lambda: Model(a=table_of(x=1)), lambda: Model(a=table_of(x=2))),
    (lambda: Model(a=table_of(x=1)), lambda: Model(a=table_of(x=1, offset=1))),
    (lambda: Model(a=whole(1, 1)), lambda: Model(a=whole(2, 1))),
    (lambda: Model(a=whole(1, 1)), lambda: Model(a=whole(1, 2))),
    (lambda: Model(a=Scaled(abs, 2)), lambda: Model(a=Scaled(abs, 3))),
    (lambda: Model(a=Scaled(abs, 2)), lambda: Model(a=Scaled(hash, 2))),
    (lambda: closure(1), lambda: closure(2)),
    (lambda: closure([1]), lambda: closure([2])),
    (lambda: closure(closure(1)), lambda: closure(closure(2))),
    (lambda: functools.partial(closure(1), 1), lambda: functools.partial(closure(2), 1)),
    (lambda: with_attribute(1), lambda: with_attribute(2)),
    (lambda: Model(dim=1).encode, lambda: Model(dim=2).encode),
    (
        lambda: compiled("def f(x): return h.g(x)", h=helper_module("def g(x): return 1")),
        lambda: compiled("def f(x): return h.g(x)", h=helper_module("def g(x): return 2")),
    ),
    (
        lambda: compiled("def f(x): return h.W", h=helper_module("W = [1]")),
        lambda: compiled("def f(x): return h.W", h=helper_module("W = [2]")),
    ),
    (
        lambda: compiled("def f(x): return getattr(h, 'g')(x)", h=helper_module("def g(x): return 1")),
        lambda: compiled("def f(x): return getattr(h, 'g')(x)", h=helper_module("def g(x): return 2")),
    ),
]


@pytest.mark.parametrize("pair", FUNCTIONS, ids=lambda pair: pair[0].replace("\n", " ")[:60])
def test_code_that_differs(pair: tuple[str, str]) -> None:
    one, other = (compiled(source) for source in pair)
    assert digest(one) == digest(compiled(pair[0])), "the same code has the same hash"
    assert digest(one) != digest(other)
    if isinstance(one, type):
        assert digest(one()) != digest(other())


@pytest.mark.parametrize("pair", VALUES, ids=lambda pair: "")
def test_values_that_differ(pair: tuple[Make, Make]) -> None:
    one, other = pair
    assert digest(one()) == digest(one()), "the same state has the same hash"
    assert digest(one()) != digest(other())
    assert not digest(one()).startswith("unreadable")


def reads_at_call(kind: str, place: str) -> Any:
    lines = {
        "environ": "os.environ['X']",
        "getenv": "os.getenv('X')",
        "file": "open('x').read()",
        "server": "urllib.request.urlopen('x')",
    }
    source = {
        "function": f"import os, urllib.request\ndef f(x): return {lines[kind]}",
        "helper": f"import os, urllib.request\ndef g(): return {lines[kind]}\ndef f(x): return g()",
        "method": f"import os, urllib.request\nclass f:\n def encode(self, x): return {lines[kind]}",
        "inner": "import os, urllib.request\nclass f:\n def encode(self, x): return self.go()\n"
                 f" def go(self): return {lines[kind]}",
        "constructor": "import os, urllib.request\nclass f:\n def __init__(self): self.x = ''\n"
                       f" def later(self): return {lines[kind]}",
        "both": f"import os, urllib.request\ndef g(): return {lines[kind]}\nclass f:\n"
                " def __init__(self): self.g = 1\n def a(self): return g()\n def encode(self, x): return self.a()",
        "twice": f"import os, urllib.request\ndef g(): return {lines[kind]}\nclass f:\n"
                 " def __init__(self, go=False):\n  self.x = g() if go else ''\n def encode(self, x): return g()",
    }[place]  # fmt: skip
    made = compiled(source)
    return made() if isinstance(made, type) else made


@pytest.mark.parametrize("kind", ["environ", "getenv", "file", "server"])
@pytest.mark.parametrize("place", ["function", "helper", "method", "inner", "both", "twice"])
def test_what_is_read_when_it_is_called_is_refused(kind: str, place: str) -> None:
    with pytest.raises(Unreadable, match="when it is called"):
        state_digest(reads_at_call(kind, place))


def test_what_the_constructor_reads_is_in_the_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os\nclass f:\n def __init__(self): self.x = os.environ['DIM']\n def encode(self, t): return self.x"
    found = []
    for value in ("1", "2", "1"):
        monkeypatch.setenv("DIM", value)
        found.append(state_digest(compiled(source)()))
    assert found[0] == found[2] != found[1]
    with_import = source.replace("import os", "from os import environ").replace("os.environ", "environ")
    assert not digest(compiled(with_import)()).startswith("unreadable")


def test_methods_that_r2med_never_calls_may_read_files() -> None:
    source = (
        "class f:\n def encode(self, x): return 1\n def save(self, p): open(p)\n @classmethod\n def load(c, p): open(p)"
    )
    assert not digest(compiled(source)()).startswith("unreadable")
    assert digest(compiled(source)()) != digest(compiled(source.replace("open(p)", "print(p)"))())


@pytest.mark.parametrize(
    "value",
    [
        lambda: io.StringIO("x").__iter__(),
        lambda: Path(os.devnull).open(),  # noqa: SIM115
        lambda: (x for x in [1]),
        threading.local,
        lambda: os.environ,
        lambda: memoryview(b"x"),
        lambda: functools.reduce(lambda inner, _: [inner], range(100_000), list[Any]()),
    ],
    ids=["iterator", "file", "generator", "thread-local", "environment", "view", "depth"],
)
def test_what_cannot_be_read_is_refused(value: Make) -> None:
    made = value()
    if isinstance(made, io.StringIO):  # its own state can be read: it holds its text
        assert state_digest(Model(a=made)) != state_digest(Model(a=io.StringIO("y")))
        return
    with pytest.raises(Unreadable):
        state_digest(Model(a=made))
    if isinstance(made, io.TextIOBase):
        made.close()


def test_locks_and_loggers_say_nothing() -> None:
    def model(**more: Any) -> Model:
        return Model(lock=threading.Lock(), rlock=threading.RLock(), log=logging.getLogger("a"), **more)

    assert state_digest(model()) == state_digest(model())
    assert state_digest(model(x=1)) != state_digest(model(x=2))


def test_cycles_end() -> None:
    def loop(value: int) -> Model:
        made = Model(value=value)
        made.__dict__["me"] = [made, {"me": made}]
        return made

    assert state_digest(loop(1)) == state_digest(loop(1)) != state_digest(loop(2))


def torch_pairs() -> list[tuple[str, Make, Make]]:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def seeded(seed: int, make: Make) -> Any:
        torch.manual_seed(seed)
        return make()

    class Own(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, slope: float) -> None:
            super().__init__()
            self.slope = slope

        def forward(self, x: Any) -> Any:
            return x * self.slope

    return [
        ("weights", lambda: seeded(0, lambda: nn.Linear(2, 2)), lambda: seeded(1, lambda: nn.Linear(2, 2))),
        ("slope", lambda: nn.LeakyReLU(0.1), lambda: nn.LeakyReLU(0.9)),
        ("inside", lambda: nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.1)),
         lambda: nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.9))),
        ("kind", lambda: nn.Sequential(nn.ReLU()), lambda: nn.Sequential(nn.Tanh())),
        ("order", lambda: nn.Sequential(nn.ReLU(), nn.Tanh()), lambda: nn.Sequential(nn.Tanh(), nn.ReLU())),
        ("heads", lambda: seeded(0, lambda: nn.MultiheadAttention(8, 2)),
         lambda: seeded(0, lambda: nn.MultiheadAttention(8, 4))),
        ("eps", lambda: nn.LayerNorm(4, eps=1e-5), lambda: nn.LayerNorm(4, eps=1e-1)),
        ("own part", lambda: nn.Sequential(Own(1.0)), lambda: nn.Sequential(Own(2.0))),
        ("held", lambda: Model(net=nn.LeakyReLU(0.1)), lambda: Model(net=nn.LeakyReLU(0.9))),
        ("tensor", lambda: Model(a=torch.zeros(2)), lambda: Model(a=torch.ones(2))),
        ("half", lambda: Model(a=torch.zeros(2).bfloat16()), lambda: Model(a=torch.ones(2).bfloat16())),
        ("complex", lambda: Model(a=torch.tensor([1 + 2j]).conj()), lambda: Model(a=torch.tensor([1 + 3j]).conj())),
        ("dtype", lambda: Model(a=torch.float32), lambda: Model(a=torch.float16)),
        ("device", lambda: Model(a=torch.device("cpu")), lambda: Model(a=torch.device("cuda"))),
        ("parameter", lambda: Model(a=nn.Parameter(torch.zeros(1))), lambda: Model(a=nn.Parameter(torch.ones(1)))),
    ]  # fmt: skip


def test_torch_modules() -> None:
    for name, one, other in torch_pairs():
        assert digest(one()) == digest(one()), name
        assert digest(one()) != digest(other()), name
        assert not digest(one()).startswith("unreadable"), name


def test_sparse_tensors_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(Unreadable, match="tensor"):
        state_digest(Model(a=torch.eye(2).to_sparse()))


def test_buffers_that_are_not_saved_count() -> None:
    torch = pytest.importorskip("torch")

    def made(value: float) -> Any:
        module = torch.nn.Sequential()
        module.register_buffer("scale", torch.tensor(value), persistent=False)
        return module

    assert digest(made(1.0)) == digest(made(1.0)) != digest(made(2.0))


def test_models_of_sentence_transformers(tmp_path: Path) -> None:
    """Encoding changes nothing; weights, prompts and lengths do; where the folder lies does not matter."""
    library = pytest.importorskip("sentence_transformers")
    for name in ("one", "two"):
        tiny.save_model(tmp_path / name, "bert")
        tiny.save_tokenizer(tmp_path / name, "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def made(name: str = "one", **options: Any) -> Any:
            return library.SentenceTransformer(str(tmp_path / name), device="cpu", **options)

        model = made()
        first = state_digest(model)
        model.encode(["fever", "a cough"], show_progress_bar=False)
        model.encode_query(["rash"], prompt="q: ", show_progress_bar=False)
        assert state_digest(model) == state_digest(made()) == state_digest(made("two")) == first
        short = made()
        short.max_seq_length = 7
        changed = made()
        next(iter(changed.parameters())).data.add_(1.0)
        others = [made(prompts={"query": "a"}), made(similarity_fn_name="dot"), made(truncate_dim=4), short, changed]
        found = {state_digest(other) for other in [*others, model]}
        assert len(found) == 6


def test_models_of_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")

    def made(*texts: str, **settings: Any) -> Any:
        return text.TfidfVectorizer(**settings).fit(texts)

    assert digest(made("a cat", "a dog")) == digest(made("a cat", "a dog"))
    assert (
        len(
            {
                digest(made("a cat", "a dog")),
                digest(made("a cat", "a cow")),
                digest(made("a cat", "a dog", ngram_range=(1, 2))),
            }
        )
        == 3
    )
    tokens = (lambda t: t.split(), lambda t: [*t])
    assert digest(made("a cat", tokenizer=tokens[0], token_pattern=None)) != digest(
        made("a cat", tokenizer=tokens[1], token_pattern=None)
    )


FILES = {
    "plain.py": "X = {n}\ndef encode(texts): return [[X]] * len(texts)\n",
    "by_helper.py": "import helper\ndef encode(texts): return [[helper.value()]] * len(texts)\n",
    "by_name.py": "from helper import value\ndef encode(texts): return [[value()]] * len(texts)\n",
    "late.py": "def encode(texts):\n    import helper\n    return [[helper.value()]] * len(texts)\n",
    "late_name.py": "def encode(texts):\n    from helper import value\n    return [[value()]] * len(texts)\n",
    "deep.py": "import through\ndef encode(texts): return [[through.value()]] * len(texts)\n",
    "profile.py": "X = {n}\ndef encode(texts): return [[X]] * len(texts)\n",  # a name of Python's own
    "table.py": "import helper\ndef encode(texts): return [[helper.TABLE[0]]] * len(texts)\n",
}
SCRIPT = """
import sys, importlib
from r2med.core.identity import state_digest
print(state_digest(importlib.import_module(sys.argv[1]).encode))
"""


@pytest.mark.parametrize("file", FILES)
def test_modules_in_other_processes(file: str, tmp_path: Path) -> None:
    """The hash is the same in every process, and follows what helpers hold, wherever they are imported."""
    (tmp_path / "through.py").write_text("import helper\ndef value(): return helper.value()\n")
    found: list[str] = []
    for n in (1, 1, 2, 1):
        (tmp_path / file).write_text(FILES[file].replace("{n}", str(n)))
        (tmp_path / "helper.py").write_text(f"TABLE = [{n}]\n\ndef value():\n    return TABLE[0]\n")
        path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-B", "-c", SCRIPT, file.removesuffix(".py")],
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": str(len(found))},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found.append(done.stdout)
    assert found[0] == found[1] == found[3] != found[2]


def test_packages_are_known_by_their_versions() -> None:
    assert library("numpy") == np.__version__
    assert library("json") == library("functools") == sys.version.split()[0]
    assert library("r2med.core") == library("r2med")
    assert library("tests.core") == library("__main__") == library("nowhere") == ""


def test_the_version_of_a_package_is_the_same_before_it_is_imported_and_after() -> None:
    script = (
        "import sys; from r2med.core.code import library, _version; before = library('torch')\n"
        "assert 'torch' not in sys.modules; import torch; torch.__version__ = 'other'; _version.cache_clear()\n"
        "assert before == library('torch') != '', (before, library('torch'))"
    )
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_function_that_was_executed_belongs_to_nobody() -> None:
    """Code without a module of its own is not taken for Python's or a package's."""
    functions = []
    for number in (1, 2):
        space: dict[str, Any] = {}
        exec(f"def f(x): return {number}", space)
        functions.append(space["f"])
    assert functions[0].__module__ in (None, "builtins")
    assert digest(functions[0]) != digest(functions[1])
    for function in functions:
        function.__module__ = "numpy"
    assert digest(functions[0]) != digest(functions[1])


def test_packages_installed_from_a_folder_are_known_by_their_code(tmp_path: Path) -> None:
    """`pip install .` of one's own package keeps its version while its code changes."""
    pytest.importorskip("setuptools")
    found = []
    for number in (1, 2):
        source = tmp_path / f"source{number}"
        (source / "own_encoder").mkdir(parents=True)
        (source / "own_encoder" / "__init__.py").write_text(f"def encode(texts): return [[{number}]] * len(texts)\n")
        (source / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
            '[project]\nname = "own-encoder"\nversion = "1.0"\n[tool.setuptools]\npackages = ["own_encoder"]\n'
        )
        target = tmp_path / f"site{number}"
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
        pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
        subprocess.run(pip, capture_output=True, check=True)
        script = f"import site; site.getsitepackages = lambda: [{str(target)!r}]\n" + SCRIPT
        path = os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-c", script, "own_encoder"], env=os.environ | {"PYTHONPATH": path}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        found.append(done.stdout)
    assert found[0] != found[1]
