"""Two different things never share a name, a result or a vector.

A machine makes systems of everything there is (names and parameters, objects with every kind of state, stored runs,
model folders, prompt packs, expanders, rerankers), runs them into one results folder and one cache in any order, and
compares what is stored with what a fresh system ranks that knows no cache.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import r2med
from r2med.api.experiments import LoadedTask, _built
from r2med.core import Document, Documents, Qrels, Query, Run, Task, UsageError
from r2med.core.options import Options
from r2med.pipeline import System, run_experiment
from r2med.results import ResultStore, TaskResult
from r2med.results.store import read_result
from tests.pipeline.by_hand import ranked
from tests.retrieve.encoders import tiny

DEPTH = 8
PHASES = [Phase.explicit, Phase.generate]
VARIANTS = (1, 2, 3)
"""What a thing of one kind comes in: two variants of it rank differently."""


def a_task() -> Task:
    return Task(
        "small",
        tuple(Query(f"q{i}", text, answer=text.split()[0]) for i, text in enumerate(tiny.texts(3, longest=6, seed=1))),
        Documents.of(Document(f"d{i:02d}", text) for i, text in enumerate(tiny.texts(10, longest=8))),
        Qrels.from_judgments([("q0", "d03", 1), ("q1", "d05", 2), ("q2", "d01", 1)]),
        family="Clinical case",
    )


TASK = a_task()


def vectors(texts: Any, salt: float) -> Any:
    """Words hashed into seven buckets, otherwise for every salt."""
    made = np.zeros((len(texts), 7), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in str(text).split():
            made[row, zlib.crc32(f"{salt} {word}".encode()) % 7] += 1
    return made


# Objects as people write them; `n` shapes what they rank, each time through another kind of state.


class ByAttribute:
    def __init__(self, n: int) -> None:
        self.n = n

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self.n)


class BySlot:
    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self.n)


class ByArray:
    def __init__(self, n: int) -> None:
        self.table = np.random.default_rng(n).integers(0, 99, 4)

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, int(self.table.sum()))


class ByTable(dict[str, int]):
    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self["n"])


class ByLookup:
    def __init__(self, n: int) -> None:
        self.look = {"n": n}.get

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self.look("n") or 0)


class ByProperty:
    """Its state lies two objects away."""

    def __init__(self, n: int) -> None:
        self.held = SimpleNamespace(inner=[ByAttribute(n)])

    def encode(self, texts: list[str]) -> Any:
        return self.held.inner[0].encode(texts)


class ByVersion:
    """Known by the version that each object says."""

    def __init__(self, n: int) -> None:
        self.hidden, self.version = n, f"v{n}"

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self.hidden)


class ByClassVersion:
    """The version is the class's; its arguments are the object's."""

    version = "1"

    def __init__(self, n: int) -> None:
        self.n = n

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, self.n)


class ByConstructorsEnvironment:
    def __init__(self) -> None:
        self.n = os.environ["R2MED_TEST_N"]

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, int(self.n))


class ByEnvironment:
    """Reads the environment when it is called: nothing of it may be reused."""

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, int(os.environ["R2MED_TEST_N"]))


class ByGenerator:
    """Holds what cannot be read."""

    def __init__(self, n: int) -> None:
        self.numbers = itertools.repeat(n).__iter__()
        self.stream = (n for _ in itertools.count())

    def encode(self, texts: list[str]) -> Any:
        return vectors(texts, next(self.stream))


class Retrieving:
    """A retriever with `retrieve`."""

    def __init__(self, n: int) -> None:
        self.n = n

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        scores = vectors(list(task.query_texts), self.n) @ vectors(list(task.documents.contents), self.n).T
        docs = np.tile(np.arange(len(task.documents), dtype=np.int32), (len(task.queries), 1))
        return Run(task.query_ids, task.documents.ids, docs, scores.astype(np.float32)).top(depth)


class Searching:
    """A searcher of MTEB's."""

    def __init__(self, n: int) -> None:
        self.n = n

    def index(self, corpus: Any, **more: Any) -> None:
        self.ids, self.rows = list(corpus["id"]), vectors(list(corpus["text"]), self.n)

    def search(self, queries: Any, **more: Any) -> Mapping[str, Mapping[str, float]]:
        scores = vectors(list(queries["text"]), self.n) @ self.rows.T
        return {
            q: dict(zip(self.ids, map(float, row), strict=True)) for q, row in zip(queries["id"], scores, strict=True)
        }


class OwnBM25(r2med.BM25):
    """A subclass of ours that says of itself what ours says."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def prepare(self, task: Task) -> Any:
        return SimpleNamespace(search=lambda queries, depth: Retrieving(self.n).retrieve(task, depth=depth))

    def describe(self) -> dict[str, object]:
        return r2med.BM25().describe()


def by_closure(n: int) -> Any:
    return lambda texts: vectors(texts, n)


def with_salt(n: int, texts: list[str]) -> Any:
    return vectors(texts, n)


def by_default(n: int) -> Any:
    def encode(texts: list[str], salt: int = n) -> Any:
        return vectors(texts, salt)

    return encode


def by_code(source: str) -> Callable[[int], Any]:
    """Code that was typed into a session; `N` stands for the variant."""

    def make(n: int) -> Any:
        space: dict[str, Any] = {"__name__": "session", "vectors": vectors}
        exec(source.replace("N", str(n)), space)
        found = space["f"]
        return found() if isinstance(found, type) else found

    return make


class ByWeights:
    """A layer of torch's with random weights."""

    def __init__(self, n: int) -> None:
        torch = pytest.importorskip("torch")
        torch.manual_seed(n)
        self.net = torch.nn.Linear(7, 3)

    def encode(self, texts: list[str]) -> Any:
        import torch

        with torch.no_grad():
            return self.net(torch.from_numpy(vectors(texts, 0)))


class BySetting(ByWeights):
    """A layer of torch's without weights: what it computes lies in a setting."""

    def __init__(self, n: int) -> None:
        torch = pytest.importorskip("torch")
        self.net = torch.nn.Sequential(torch.nn.LeakyReLU(n / 2))

    def encode(self, texts: list[str]) -> Any:
        import torch

        with torch.no_grad():
            return self.net(torch.from_numpy(vectors(texts, 0)) - 0.5)


OBJECTS: dict[str, Callable[[int], Any]] = {
    "attribute": ByAttribute,
    "slot": BySlot,
    "array": ByArray,
    "table": lambda n: ByTable(n=n),
    "lookup": ByLookup,
    "property": ByProperty,
    "version": ByVersion,
    "class version": ByClassVersion,
    "generator": ByGenerator,
    "retrieve": Retrieving,
    "search": Searching,
    "subclass": OwnBM25,
    "closure": by_closure,
    "partial": lambda n: functools.partial(with_salt, n),
    "method": lambda n: ByAttribute(n).encode,
    "default": by_default,
    "constant": by_code("def f(texts): return vectors(texts, N)"),
    "helper": by_code("def salt(): return N\ndef f(texts): return vectors(texts, salt())"),
    "global": by_code("SALT = [N]\ndef f(texts): return vectors(texts, SALT[0])"),
    "class attribute": by_code("class f:\n salt = N\n def encode(self, texts): return vectors(texts, self.salt)"),
    "inner code": by_code("def f(texts):\n def salt(): return N\n return vectors(texts, salt())"),
    "torch": ByWeights,
    "torch setting": BySetting,
}
IN_ENVIRONMENT: dict[str, type] = {"constructor": ByConstructorsEnvironment, "call": ByEnvironment}


def reranker(n: int) -> Any:
    return lambda pairs: [zlib.crc32(f"{n} {q} {d}".encode()) % 1000 for q, d in pairs]


class VersionedReranker:
    version = "1"

    def __init__(self, n: int) -> None:
        self.n = n

    def predict(self, pairs: Any) -> Any:
        return reranker(self.n)(pairs)


def expander(n: int) -> Any:
    return lambda text: [tiny.WORDS[3 * n], tiny.WORDS[7 * n]]


@dataclass(frozen=True)
class Subject:
    """What may be run: how its parts are made, with a variant each."""

    kind: str
    name: str
    n: int
    place: str = "p"
    fuse: str = ""
    weights: tuple[float, ...] = ()
    rerank: tuple[str, int, int, str] | None = None
    """Kind, variant, depth and rest."""
    expand: tuple[int, str | None] | None = None
    """Variant and policy."""

    def retriever(self, root: Path) -> Any:
        """The retriever, made anew; what lies in files is written where the last variant lay."""
        if self.kind == "object":
            return OBJECTS[self.name](self.n)
        if self.kind == "environment":
            os.environ["R2MED_TEST_N"] = str(self.n)
            return IN_ENVIRONMENT[self.name]()
        if self.kind == "stored":
            return f"run:{stored(root / self.place / self.name, self.n)}"
        if self.kind == "folder":
            return f"{model_folder(root / self.place / self.name, self.n)}:max_length=32,threads=1"
        if self.kind == "prompts":
            pack = root / self.place / "pack.toml"
            pack.parent.mkdir(parents=True, exist_ok=True)
            pack.write_text(f'[query]\ndefault = "{" ".join(tiny.WORDS[4 * self.n : 4 * self.n + 3])} "\n')
            model_folder(Path(os.environ["R2MED_HOME"]) / "models" / "bge", 1)
            return f"bge:max_length=32,threads=1,prompts={pack}"
        return ("bm25", f"bm25:k1={self.n}", f"bm25-lucene:b={self.n / 4}")[VARIANTS.index(self.n)]

    def arguments(self, root: Path) -> dict[str, Any]:
        """What stands before and behind the retriever."""
        made: dict[str, Any] = {"fuse": self.fuse or None, "weights": self.weights}
        if self.rerank is not None:
            kind, n, depth, rest = self.rerank
            makers: dict[str, Any] = {"function": reranker, "class": VersionedReranker}
            if kind in makers:
                made["rerank"] = (makers[kind](n), depth)
            else:
                made["rerank"] = f"{kind}:model={model_folder(root / self.place / 'tiny', n)}@{depth}"
            made["rest"] = rest
        if self.expand is not None:
            made |= {"expand": expander(self.expand[0]), "policy": self.expand[1]}
        return made


def stored(path: Path, n: int) -> Path:
    """A run of one name, whatever it holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_suffix(".run")
    r2med.write_run(Retrieving(n).retrieve(TASK, depth=6), file)
    return file


@functools.cache
def saved_model(n: int) -> Path:
    """A tiny model with weights of its own, made once."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    pytest.importorskip("transformers", reason="the torch extra is not installed")
    folder = Path(tempfile.mkdtemp(prefix="tiny")) / "model"
    tiny.save_model(folder, "bert", seed=n)
    tiny.save_tokenizer(folder, "bert")
    return folder


def model_folder(folder: Path, n: int) -> Path:
    if folder.is_dir():
        shutil.rmtree(folder)
    shutil.copytree(saved_model(n), folder)
    return folder


@contextmanager
def systems_of(root: Path, *subjects: Subject, cache: bool = True) -> Iterator[list[System]]:
    """The systems of subjects, made from fresh objects."""
    given: list[Any] = [subject.retriever(root) for subject in subjects]
    arguments = subjects[0].arguments(root)
    if arguments["fuse"]:
        given.append("bm25-lucene")
    with _built(given, Options(device="cpu", threads=1, cache=cache), **arguments) as made:
        yield made.systems


def hits(run: Run) -> list[list[tuple[str, float]]]:
    return [[(h.doc_id, h.score) for h in hits] for _, hits in run]


PLACES = st.sampled_from(["p", "q"])
SIMPLE = (
    st.builds(Subject, st.just("text"), st.just("bm25"), st.sampled_from(VARIANTS))
    | st.builds(Subject, st.just("object"), st.sampled_from(sorted(OBJECTS)), st.sampled_from(VARIANTS))
    | st.builds(Subject, st.just("environment"), st.sampled_from(sorted(IN_ENVIRONMENT)), st.sampled_from(VARIANTS))
    | st.builds(Subject, st.just("stored"), st.sampled_from(["one", "a,b+c"]), st.sampled_from(VARIANTS), PLACES)
)
MODELS = st.builds(Subject, st.just("folder"), st.just("tiny"), st.sampled_from(VARIANTS), PLACES) | st.builds(
    Subject, st.just("prompts"), st.just("bge"), st.sampled_from(VARIANTS), PLACES
)
RERANKERS = (
    st.none()
    | st.none()
    | st.tuples(
        st.sampled_from(["function", "class"]),
        st.sampled_from(VARIANTS),
        st.integers(2, 4),
        st.sampled_from(["keep", "drop"]),
    )
)
EXPANDERS = (
    st.none()
    | st.none()
    | st.tuples(st.sampled_from(VARIANTS), st.sampled_from([None, "passages", "query*2+passages"]))
)
FUSED = (
    ("", ()), ("rrf", ()), ("rrf:k=1", ()), ("weighted", (0.9, 0.1)), ("weighted", (0.1, 0.9)),
    ("combsum:norm=rank", ()), ("combmnz", ()), ("tuned:folds=2", ()), ("tuned:folds=3", ()),
)  # fmt: skip
FUSIONS = st.sampled_from(FUSED[:1] * 6 + FUSED)
POLICIES = (None, "passages", "query*2+passages")


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    simple = draw(SIMPLE | SIMPLE | SIMPLE | MODELS)
    fuse, weights = draw(FUSIONS)
    expand = None if simple.kind == "stored" else draw(EXPANDERS)
    return Subject(simple.kind, simple.name, simple.n, simple.place, fuse, weights, draw(RERANKERS), expand)


class Made(SimpleNamespace):
    """A system that was run: what it ranks, and under what it is kept."""

    name: str
    fingerprint: str
    ranking: list[Any]


def changes(subject: Subject) -> Iterator[Subject]:
    """Subjects that differ from one in one thing."""
    yield from (replace(subject, n=n) for n in VARIANTS if n != subject.n)
    yield from (replace(subject, fuse=fuse, weights=weights) for fuse, weights in FUSED if fuse != subject.fuse)
    yield from (replace(subject, weights=weights) for fuse, weights in FUSED if fuse == subject.fuse)
    kind, n, depth, rest = subject.rerank or ("function", 1, 3, "keep")
    yield replace(subject, rerank=("class" if kind == "function" else "function", n, depth, rest))
    yield replace(subject, rerank=(kind, n % 3 + 1, depth, rest))
    yield replace(subject, rerank=(kind, n, depth + 1, rest))
    yield replace(subject, rerank=(kind, n, depth, "drop" if rest == "keep" else "keep"))
    if subject.kind != "stored":
        made, policy = subject.expand or (1, None)
        yield replace(subject, expand=(made % 3 + 1, policy))
        yield from (replace(subject, expand=(made, other)) for other in POLICIES if other != policy)


FRESH: dict[Subject, list[Any]] = {}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where writing to disk need not be waited for."""


class Machine(RuleBasedStateMachine):
    """Runs systems in any order and looks for two that differ and meet."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="identity", dir=MEMORY))
        self.store = ResultStore(self.root / "results")
        self.before = {key: os.environ.get(key) for key in ("R2MED_HOME", "R2MED_TEST_N")}
        os.environ["R2MED_HOME"] = str(self.root / "home")
        self.made: list[Made] = []
        self.known: list[Subject] = []

    def teardown(self) -> None:
        for key, value in self.before.items():
            os.environ.pop(key, None) if value is None else os.environ.__setitem__(key, value)
        shutil.rmtree(self.root)

    def oracle(self, subject: Subject) -> list[Any]:
        """What the systems of a subject rank, made anew with no cache."""
        if subject not in FRESH:
            with systems_of(self.root, subject, cache=False) as systems:
                FRESH[subject] = [hits(ranked(system, TASK, DEPTH)) for system in systems]
        return FRESH[subject]

    def run_and_check(self, systems: list[System], expected: list[Any], *, overwrite: bool) -> None:
        results = run_experiment([LoadedTask(TASK)], systems, self.store, depth=DEPTH, overwrite=overwrite).results
        assert len(results) == len(expected)
        for result, ranking in zip(results, expected, strict=True):
            self.check(result, ranking)

    def check(self, result: TaskResult, ranking: list[Any]) -> None:
        stored = read_result(self.store.path(result.system.name, "", "small"))
        assert stored.fingerprint == result.fingerprint
        assert hits(self.store.run(stored)) == ranking, f"{result.system.name} is not what it ranks"
        for other in self.made:
            if other.ranking != ranking:
                assert other.fingerprint != result.fingerprint, f"{other.name} and {result.system.name} share a result"
        self.made.append(Made(name=result.system.name, fingerprint=result.fingerprint, ranking=ranking))

    @rule(subject=subjects(), overwrite=st.booleans())
    def run_one(self, subject: Subject, overwrite: bool) -> None:
        expected = self.oracle(subject)
        with systems_of(self.root, subject) as systems:
            self.run_and_check(systems, expected, overwrite=overwrite)
        self.known.append(subject)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), overwrite=st.booleans())
    def run_again(self, data: st.DataObject, overwrite: bool) -> None:
        self.run_one(data.draw(st.sampled_from(self.known)), overwrite=overwrite)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def run_changed(self, data: st.DataObject) -> None:
        """The same with one thing changed: all that it shares with the first is what it may share."""
        known = data.draw(st.sampled_from(self.known))
        self.run_one(data.draw(st.sampled_from(list(changes(known)))), overwrite=False)

    @rule(one=SIMPLE, other=SIMPLE)
    def run_together(self, one: Subject, other: Subject) -> None:
        """Two in one experiment: they are refused, or have two names wherever they rank differently."""
        if one.kind == other.kind == "environment" and one.n != other.n:
            return  # there is one environment
        if one.kind == other.kind == "stored" and (one.place, one.name) == (other.place, other.name):
            return  # and one file of a name in a folder
        expected = [*self.oracle(one), *self.oracle(other)]
        try:
            with systems_of(self.root, one, other) as systems:
                if expected[0] != expected[1]:
                    assert len(systems) == 2, f"{one} and {other} are taken for one system"
                self.run_and_check(systems, expected[: len(systems)], overwrite=False)
        except UsageError as error:
            if "two different" not in str(error):
                raise


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.teardown()


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_every_kind_of_state_tells_objects_apart(name: str, machine: Machine) -> None:
    for n in (1, 2, 1, 3, 2):
        machine.run_one(Subject("object", name, n), overwrite=False)
    together = [Subject("object", name, n) for n in (1, 2)]
    machine.run_together(*together)


@pytest.mark.parametrize("name", sorted(IN_ENVIRONMENT))
def test_objects_that_read_the_environment(name: str, machine: Machine) -> None:
    for n in (1, 2, 1):
        machine.run_one(Subject("environment", name, n), overwrite=False)


@pytest.mark.parametrize("kind", ["stored", "folder", "prompts"])
def test_files_are_known_by_their_content(kind: str, machine: Machine) -> None:
    """The same path with another content, and another path with the same."""
    for n, place in ((1, "p"), (2, "p"), (1, "p"), (2, "q"), (3, "q")):
        machine.run_one(Subject(kind, "one", n, place), overwrite=place == "q")
    assert len({made.name for made in machine.made}) == 3


@pytest.mark.parametrize("kind", ["maxsim", "neighbours"])
def test_a_folder_that_a_parameter_names_is_known_by_its_content(kind: str, machine: Machine) -> None:
    for n, place in ((1, "p"), (2, "p"), (1, "p"), (2, "q"), (3, "q")):
        subject = Subject("text", "bm25", 1, place, rerank=(kind, n, 6, "keep"))
        machine.run_one(subject, overwrite=place == "q")
    assert len({made.name for made in machine.made if kind in made.name}) == 3


@pytest.mark.parametrize("change", range(16))
def test_every_part_of_a_system_counts(change: int, machine: Machine) -> None:
    """A whole system, and each that differs from it in one thing."""
    first = Subject("object", "attribute", 1, "p", "weighted", (0.9, 0.1), ("function", 1, 3, "keep"), (1, None))
    others = list(changes(first))
    assert len(others) > 15
    for subject in (first, *others[change : change + 1 if change < 15 else None], first):
        machine.run_one(subject, overwrite=False)


def test_different_things_never_meet() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=20, stateful_step_count=12, phases=PHASES))


@pytest.mark.slow
def test_different_things_never_meet_at_length() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=400, stateful_step_count=25))


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_variants_rank_differently(name: str) -> None:
    """Else the machine would look for nothing."""
    made = [r2med.get_retriever(OBJECTS[name](n)).retrieve(TASK, depth=DEPTH) for n in VARIANTS]
    assert len({repr(hits(run)) for run in made}) == 3
