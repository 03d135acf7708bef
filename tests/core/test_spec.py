"""Specs: every component and every system prints to one text, and that text reads back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from r2med.core import DataError, UsageError, fingerprint
from r2med.core.files import content_digest
from r2med.core.options import Parameter, _extra, _kinds
from r2med.core.registry import Entry, Registry
from r2med.core.spec import Content, Spec, SpecData
from r2med.expand import expanders
from r2med.fuse import fusions
from r2med.llm import chats
from r2med.models.registry import HUB_ID
from r2med.pipeline import Builder, SystemSpec
from r2med.rerank import rerankers
from r2med.rerank.neighbours import NeighboursParameters
from r2med.retrieve import get_retriever, retrievers

REGISTRIES: dict[str, Registry[Any]] = {
    "retrievers": retrievers,
    "rerankers": rerankers,
    "expanders": expanders,
    "fusions": fusions,
    "chats": chats,
}
HOSTILE = (
    "a+b", "a,b", "k=v", "x@12", "@12", "50%", "%41", "%2B", "two words", " edge ", "x.rrf", "x.rrf:k=3",
    "nano:bm25", "expand=x", "device=cpu", "threads=3", "label~0123abcd", "maxsim@50", "bm25+bge.rrf",
    "µ-β 🫀", "\u2028", "a\nb", "a\tb", "/", "a/b", "~", "C:\\x", "'\"",
    "none", "yes", "0", "-", "rest=drop", "policy=mean", "host=h", "é", "１２", "@１２",
)  # fmt: skip
TEXTS = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)
WITHOUT_SHRINKING = [Phase.explicit, Phase.generate]
LABELS = TEXTS.filter(lambda t: "/" not in t and t not in (".", "..") and len(os.fsencode(t)) < 200)


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)  # with it, any name is a chat model


def entries(registry: Registry[Any]) -> list[Entry[Any]]:
    """All that a registry offers by name."""
    return [registry[name] for name in registry.names()]


OFFERED = {id(registry): entries(registry) for registry in REGISTRIES.values()}


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """Content under a hostile name; where it lies plays no part."""
    return Content(draw(LABELS), f"{draw(st.integers(0, 2**32 - 1)):08x}")


def values(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Values of a parameter's declared type, within its bounds."""
    kinds, meta = _kinds(parameter.type), _extra(parameter.type, msgspec.Meta) or msgspec.Meta()
    low: Any
    high: Any
    low, high = (meta.ge if meta.gt is None else meta.gt), (meta.le if meta.lt is None else meta.lt)
    (kind,) = kinds
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(low, high).filter(lambda n: n not in (meta.gt, meta.lt))
    if kind is float:
        return st.floats(
            low,
            high,
            exclude_min=meta.gt is not None,
            exclude_max=meta.lt is not None,
            allow_nan=False,
            allow_infinity=False,
        )
    if get_origin(kind) is tuple:
        return st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4).map(tuple)
    if kind is Content:
        return contents()
    if kind is Spec:
        return specs_of(retrievers)
    assert kind is str, f"{parameter.name}: no values are known for {kind}"
    return TEXTS


@st.composite
def specs(draw: st.DrawFn, registry: Registry[Any], entry: Entry[Any]) -> Spec:
    """A spec of one entry, with some of its parameters set."""
    argument: Spec | Content | str | None = None
    if entry.argument and (entry.needs_argument or draw(st.booleans())):
        nested: dict[str, st.SearchStrategy[Any]] = {"chat": specs_of(chats), "file": contents(), "text": TEXTS}
        argument = draw(nested[entry.argument])
    chosen = draw(st.sets(st.sampled_from(sorted(entry.parameters)), max_size=4)) if entry.parameters else set()
    given = {name: draw(values(entry.parameters[name])) for name in sorted(chosen)}
    made = registry.spec(entry.name, argument, **given)
    return made.at(draw(st.integers(1, 10**6))) if registry.depth is not None else made


def specs_of(registry: Registry[Any]) -> st.SearchStrategy[Spec]:
    return st.sampled_from(OFFERED[id(registry)]).flatmap(lambda entry: specs(registry, entry))


ALL = [(kind, entry.name) for kind, registry in REGISTRIES.items() for entry in OFFERED[id(registry)]]


def test_the_registries_offer_something() -> None:
    counts = {kind: len(OFFERED[id(registry)]) for kind, registry in REGISTRIES.items()}
    assert counts["retrievers"] > 15
    assert counts["rerankers"] > 8
    assert {entry.name for entry in expanders} >= {"hyde", "query2doc", "lamer", "search-o1", "search-r1", "oracle"}
    assert {entry.name for entry in fusions} == {"rrf", "weighted", "combsum", "combmnz", "tuned"}
    assert counts["chats"] > 10


@pytest.mark.parametrize(("kind", "name"), ALL, ids=lambda value: value)
@settings(max_examples=15, phases=WITHOUT_SHRINKING)
@given(data=st.data())
def test_every_entry_reads_what_it_prints(kind: str, name: str, data: st.DataObject) -> None:
    registry = REGISTRIES[kind]
    spec = data.draw(specs(registry, registry[name]))
    text = str(spec)
    assert registry.parse(text) == spec
    assert str(registry.parse(text)) == text
    assert "\n" not in text
    assert msgspec.json.decode(msgspec.json.encode(spec.data()))["name"] == spec.name


@pytest.mark.parametrize("kind", REGISTRIES)
@settings(max_examples=60)
@given(data=st.data())
def test_different_specs_print_differently(kind: str, data: st.DataObject) -> None:
    registry = REGISTRIES[kind]
    one, other = data.draw(specs_of(registry)), data.draw(specs_of(registry))
    assert (str(one) == str(other)) == (one == other)


@st.composite
def systems(draw: st.DrawFn) -> SystemSpec:
    """Whole systems of anything there is: names, stored runs, folders, hub ids, addresses."""
    kinds = specs_of(retrievers) | folders(retrievers) | hub_ids(retrievers) | addresses(retrievers)
    retrieved = tuple(draw(st.lists(kinds, min_size=1, max_size=3)))
    fusion = draw(specs_of(fusions)) if len(retrieved) > 1 else None
    expander = draw(st.none() | specs_of(expanders) | addresses(expanders))
    behind = specs_of(rerankers) | folders(rerankers) | hub_ids(rerankers) | addresses(rerankers)
    links = draw(st.lists(behind, max_size=3))
    return SystemSpec(retrieved, fusion, expander, Spec.chain(links) if links else None)


def parameters_of(registry: Registry[Any], entry: Entry[Any]) -> st.SearchStrategy[dict[str, Any]]:
    names = sorted(entry.parameters)
    return st.sets(st.sampled_from(names), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: values(entry.parameters[name]) for name in sorted(chosen)})
    )


@st.composite
def hub_ids(draw: st.DrawFn, registry: Registry[Any]) -> Spec:
    name = draw(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}/[A-Za-z0-9_.-]{1,9}(@[A-Za-z0-9_.-]{1,9})?", fullmatch=True)
    )
    assume(HUB_ID.fullmatch(name))
    (entry,) = (found for found in [registry._ask(registry.places, name)] if found is not None)
    spec = registry.spec(name, **draw(parameters_of(registry, entry)))
    return spec.at(draw(st.integers(1, 500))) if registry.depth is not None else spec


@st.composite
def folders(draw: st.DrawFn, registry: Registry[Any]) -> Spec:
    """Folders by their printed names: `label~digest`."""
    name = str(draw(contents()))
    assume("/" not in name and not name.startswith(("~", ".")))
    (entry,) = (found for found in [registry._ask(registry.places, name)] if found is not None)
    spec = registry.spec(name, **draw(parameters_of(registry, entry)))
    return spec.at(draw(st.integers(1, 500))) if registry.depth is not None else spec


NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)


@st.composite
def addresses(draw: st.DrawFn, registry: Registry[Any]) -> Spec:
    """`module:attr` with arguments for whatever is there."""
    module, attribute = ".".join(draw(st.lists(NAMES, min_size=1, max_size=3))), draw(NAMES)
    assume(registry.find(module) is None)
    given = draw(st.dictionaries(NAMES, TEXTS, max_size=3))
    assume(not set(given) & {*registry.options, *registry.shared})
    shared = {key: draw(values(p)) for key, p in registry.shared.items() if draw(st.booleans())}
    shared = {key: value for key, value in shared.items() if value != registry.shared[key].default}
    made = Spec(f"{module}:{attribute}", parameters=tuple(sorted((given | shared).items())))
    return made.at(draw(st.integers(1, 500))) if registry.depth is not None else made


@pytest.mark.parametrize("kind", ["retrievers", "rerankers", "expanders"])
@given(data=st.data())
def test_addresses_read_what_they_print(kind: str, data: st.DataObject) -> None:
    registry = REGISTRIES[kind]
    spec = data.draw(addresses(registry))
    assert registry.parse(str(spec)) == spec


@pytest.mark.parametrize("kind", ["retrievers", "rerankers"])
@given(data=st.data())
def test_places_read_what_they_print(kind: str, data: st.DataObject) -> None:
    registry = REGISTRIES[kind]
    spec = data.draw(hub_ids(registry) | folders(registry))
    assert registry.parse(str(spec)) == spec


@settings(max_examples=120, phases=WITHOUT_SHRINKING)
@given(systems())
def test_systems_read_what_they_print(system: SystemSpec) -> None:
    text = str(system)
    assert SystemSpec.parse(text) == system
    stored = msgspec.json.decode(msgspec.json.encode(system.data()))
    assert text in SystemSpec.printed(stored)  # what a file holds prints the same, with nothing looked up


@settings(max_examples=50)
@given(systems(), systems())
def test_different_systems_print_differently(one: SystemSpec, other: SystemSpec) -> None:
    assert (str(one) == str(other)) == (one == other)


@settings(max_examples=25)
@given(label=LABELS, folder=st.booleans(), suffix=st.sampled_from(["", ".run", ".run.gz", ".jsonl", ".toml"]))
def test_files_by_their_paths(tmp_path_factory: pytest.TempPathFactory, label: str, folder: bool, suffix: str) -> None:
    """A path as it is typed gives the spec that its printed form gives; the same content elsewhere is the same."""
    specs = []
    for _ in range(2):
        place = tmp_path_factory.mktemp("p") / f"{label}{suffix}"
        if folder:
            place.mkdir()
        file = place / "Task.run" if folder else place
        file.write_text("q Q0 d 1 1.0 x\n")
        if "," in label or "%" in label or label.strip() != label or "@" in label:
            specs.append(retrievers.spec("run", Content.of(place)))
        else:
            specs.append(retrievers.parse(f"run:{place}"))
    assert specs[0] == specs[1]
    assert retrievers.parse(str(specs[0])) == specs[0]
    file.write_text("q Q0 d 1 2.0 x\n")
    assert retrievers.spec("run", Content.of(place)) != specs[0]


def model_folder(place: Path, **config: Any) -> Path:
    """A folder that describes a dense model; nothing in it is loaded here."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 128, **config}))
    (place / "model.safetensors").write_bytes(b"weights")
    return place


@settings(max_examples=25)
@given(label=LABELS.filter(lambda t: t.strip() == t and "@" not in t))
def test_model_folders_by_their_paths(tmp_path_factory: pytest.TempPathFactory, label: str) -> None:
    place = model_folder(tmp_path_factory.mktemp("m") / label)
    spec = retrievers.parse(str(place))
    assert spec.path == place.resolve()
    changed = retrievers.parse(f"{place}:max_length=7")
    assert changed.get("max_length") == 7
    for made in (spec, changed):
        assert retrievers.parse(str(made)) == made
    copy = model_folder(tmp_path_factory.mktemp("n") / label)
    assert retrievers.parse(str(copy)) == spec
    (copy / "model.safetensors").write_bytes(b"other weights")
    assert retrievers.parse(str(copy)) != spec
    with pytest.raises(DataError, match="names content that is not at hand"):
        get_retriever(str(spec))


def test_a_rerankers_folder_by_its_path(tmp_path: Path) -> None:
    place = model_folder(tmp_path / "pairs", architectures=["BertForSequenceClassification"])
    spec = rerankers.parse(f"{place}:logit=1,rest=drop@7")
    assert (spec.depth, dict(spec.parameters)) == (7, {"logit": 1, "rest": "drop"})
    assert rerankers.parse(str(spec)) == spec
    with pytest.raises(UsageError, match="is a cross-encoder model, not a retriever"):
        retrievers.parse(str(place))


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("bm25", "bm25"),
        (" bm25 ", "bm25"),
        ("BM25", "bm25"),
        ("bm25_lucene", "bm25-lucene"),
        ("bm25:k1=0.9", "bm25"),
        ("bm25:k1=0.90,b=.4", "bm25"),
        ("bm25:k1=1.2,b=0.75", "bm25:b=0.75,k1=1.2"),
        ("bm25: k1 = 1.2 ", "bm25:k1=1.2"),
        ("bm25:k1=1e-3", "bm25:k1=0.001"),
        ("bm25:k1=2.0", "bm25:k1=2"),
        ("bm25:b=-0.0", "bm25:b=0"),
        ("bge-small:device=cpu,threads=2", "bge-small"),
        ("bge-small:variant=float32,oversample=4", "bge-small"),
        ("bge-small:max_length=512", "bge-small"),
        ("bge-small:max_length=256,device=cuda:1", "bge-small:max_length=256"),
        ("my.models:Encoder,dim=64,device=cpu", "my.models:Encoder,dim=64"),
        ("my.models:Encoder,b=1,a=2", "my.models:Encoder,a=2,b=1"),
        ("org/model@main", "org/model@main"),
    ],
)
def test_one_thing_has_one_name(written: str, normal: str) -> None:
    spec = retrievers.parse(written)
    assert str(spec) == normal
    assert retrievers.parse(normal) == spec
    assert fingerprint("spec", retrievers.parse(normal).data()) == fingerprint("spec", spec.data())


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("hyde:gpt4", "hyde:gpt4"),
        ("hyde:local", "hyde:smollm2"),
        ("HyDE:GPT4,passages=1", "hyde:gpt4"),
        ("hyde:openai:my/model:free", "hyde:openai:my/model:free"),
        ("hyde:gpt4,policy=mean", "hyde:gpt4,policy=mean"),
        ("hyde:gpt4,served=x", "hyde:gpt4,served=x"),
        ("query2doc:published:gpt4", "query2doc:published:gpt4"),
        ("oracle", "oracle"),
        ("lamer:gpt4,retriever=BM25", "lamer:gpt4"),
        ("lamer:gpt4,retriever=bm25:k1=0.90", "lamer:gpt4"),
        ("lamer:gpt4,retriever=bm25:k1=1.2%2Cb=.5", "lamer:gpt4,retriever=bm25:b=0.5%2Ck1=1.2"),
        ("search-o1:gpt4,retriever=bge_small", "search-o1:gpt4,retriever=bge-small"),
    ],
)
def test_expanders_have_one_name(written: str, normal: str) -> None:
    assert str(expanders.parse(written)) == normal
    assert str(expanders.parse(normal)) == normal


@pytest.mark.parametrize("written", ["maxsim:model=BGE-small@50", "MaxSim:model=bge_small@50", "maxsim@050"])
def test_rerankers_have_one_name(written: str) -> None:
    assert str(rerankers.parse(written)) == "maxsim@50"
    assert str(rerankers.spec("maxsim", model="BGE_small").at(50)) == "maxsim@50"


def test_a_component_as_a_value_keeps_how_it_is_run() -> None:
    for text, declared in (
        ("neighbours:model=e5:device=cpu@9", "neighbours:model=e5@9"),
        ("neighbours:model=bge-small:device=cpu@9", "neighbours@9"),
    ):
        spec = rerankers.parse(text)
        assert str(spec) == declared
        assert spec.values(NeighboursParameters).model.options == {"device": "cpu"}
        assert spec.at(None).values(NeighboursParameters).model.options == {"device": "cpu"}
    assert rerankers.parse("neighbours@9").values(NeighboursParameters).model.options == {}
    for text in ("maxsim:model=bge-small:device=cpu", "maxsim:model=e5:max_length=9"):
        with pytest.raises(UsageError, match="is set on maxsim, not on its model"), Builder() as builder:
            builder.reranker(text)


WITH_COMPONENTS = [
    (registry, entry, parameter)
    for registry in REGISTRIES.values()
    for entry in registry
    for parameter in entry.parameters.values()
    if Spec in _kinds(parameter.type)
]


@pytest.mark.parametrize(
    ("registry", "entry", "parameter"), WITH_COMPONENTS, ids=[f"{e.name}-{p.name}" for _, e, p in WITH_COMPONENTS]
)
def test_a_file_as_a_value_is_known_by_its_content(
    registry: Registry[Any], entry: Entry[Any], parameter: Parameter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One relative path in two folders names two systems, and what is printed reads back."""
    head = f"{entry.name}:gpt4," if entry.argument else f"{entry.name}:"
    read = []
    for folder, text in (("one", "q Q0 d 1 1 x\n"), ("two", "q Q0 d 1 2 x\n"), ("like-one", "q Q0 d 1 1 x\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a,b+c.run").write_text(text)
        monkeypatch.chdir(tmp_path / folder)
        read.append(registry.parse(f"{head}{parameter.name}=run:a%2Cb%2Bc.run"))
        value = read[-1].get(parameter.name)
        assert isinstance(value, Spec)
        assert isinstance(value.argument, Content)
        assert value.argument.located() == tmp_path / folder / "a,b+c.run"
    one, two, like_one = read
    assert one == like_one != two
    assert str(one) == str(like_one) != str(two)
    for spec in read:
        assert ".run" not in str(spec)
        assert registry.parse(str(spec)) == spec
        assert msgspec.convert(spec.data(), SpecData).spec().data() == spec.data()
        assert str(msgspec.convert(spec.data(), SpecData).spec()) == str(spec)


def test_results_of_earlier_versions_name_such_files_by_their_path() -> None:
    data = {
        "retrievers": [{"name": "bm25"}],
        "reranker": {"name": "maxsim", "parameters": {"model": "./m"}, "depth": 9},
    }
    assert "bm25+maxsim:model=./m@9" in SystemSpec.printed(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty text names no retriever"),
        ("   ", "an empty text names no retriever"),
        ("bm26", "did you mean bm25"),
        ("bm25:analyser=none", "bm25 has no parameter 'analyser'; did you mean analyzer"),
        ("bm25:speed=1", "bm25 has no parameter 'speed'; it has k1, b, analyzer"),
        ("bm25:k1", "parameters look like name:key=value"),
        ("bm25:k1=", "parameters look like name:key=value"),
        ("bm25:=1", "parameters look like name:key=value"),
        ("bm25:k1=1,k1=2", "parameters look like name:key=value"),
        ("bm25:k1=1,,b=0", "parameters look like name:key=value"),
        ("bm25:k1=high", "k1 of bm25 must be a number of at least 0, not 'high'"),
        ("bm25:k1=inf", "k1 of bm25 must be a number of at least 0, not 'inf'"),
        ("bm25:k1=nan", "k1 of bm25 must be a number of at least 0, not 'nan'"),
        ("bm25:k1=1_0", "k1 of bm25 must be a number of at least 0, not '1_0'"),
        ("bm25:k1=１.5", "k1 of bm25 must be a number of at least 0, not '１.5'"),
        ("bm25:k1=1e999", "k1 of bm25 must be a number of at least 0, not inf"),
        ("bm25:b=2", "b of bm25 must be a number of at least 0 and at most 1"),
        ("bge-small:variant=int4", "must be float32, float16, bfloat16, int8 or binary"),
        ("bge-small:trust_remote_code=maybe", "must be yes or no"),
        ("bge-small:threads=few", "must be a number"),
        ("bge-small:prompts=nowhere.toml", "there is no nowhere.toml"),
        ("run", "it looks like run:FILE"),
        ("run:nowhere", "there is no nowhere"),
        ("nano", "it looks like nano:NAME"),
        ("bm25:fever", "parameters look like name:key=value"),
        ("./nowhere", "no such folder"),
        ("my:thing,dim", "parameters look like name:key=value"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises((UsageError, Exception), match=words) as caught:
        retrievers.parse(text)
    assert "\n" not in str(caught.value)


def test_python_values_are_checked_like_texts() -> None:
    assert retrievers.spec("bm25", k1=0.9, b=None) == Spec("bm25")
    assert retrievers.spec("bm25", k1=2) == retrievers.parse("bm25:k1=2")
    for wrong in ({"k1": -1}, {"k1": float("inf")}, {"b": "x"}, {"k3": 1}):
        with pytest.raises(UsageError):
            retrievers.spec("bm25", **wrong)
    with pytest.raises(UsageError, match="must be a text"):
        retrievers.spec("bge-small", dtype="")
    assert retrievers.changed(Spec("bm25"), k1=1.5, b=0.4) == Spec("bm25", None, (("k1", 1.5),))
    with pytest.raises(UsageError, match="no parameter 'k3'"):
        retrievers.changed(Spec("bm25"), k3=1)


def test_options_say_how_and_not_what() -> None:
    spec = retrievers.parse("bge-small:device=cpu,threads=2,max_length=9")
    assert spec.options == {"device": "cpu", "threads": 2}
    assert spec == retrievers.parse("bge-small:max_length=9")
    assert spec.at(None).with_parameters(max_length=8).options == spec.options


def test_folders_are_told_apart_by_every_file(tmp_path: Path) -> None:
    """Names and contents cannot be shifted into each other, links count, hidden files do not."""

    def folder(name: str, files: dict[str, str]) -> Path:
        for path, text in files.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return tmp_path / name

    made = [
        folder("one", {"a": "x", "b": "y"}),
        folder("shifted", {"a": "xb\0y"}),
        folder("swapped", {"a": "y", "b": "x"}),
        folder("nested", {"a/b": "x"}),
        folder("flat", {"ab": "x"}),
        folder("empty", {"a": "x", "b": ""}),
        folder("longer", {"a": "x", "b": "y", "c": ""}),
    ]
    linked = folder("linked", {"a": "x"})
    (linked / "more").symlink_to(folder("elsewhere", {"b": "y"}))
    (linked / "back").symlink_to(linked)
    twice = folder("twice", {"a/b": "x"})
    (twice / "c").symlink_to("a")
    made += [linked, twice, folder("once", {"c/b": "x"})]
    digests = [content_digest(place) for place in made]
    assert len(set(digests)) == len(made)
    folder("elsewhere", {"b": "z"})
    assert content_digest(linked) not in digests
    folder("one", {".hidden": "x", ".git/x": "y"})
    assert content_digest(made[0]) == digests[0]


def test_undecodable_names_are_hashed_too(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"\xff\xfe")).write_text("x")
    except OSError:
        pytest.skip("this file system takes Unicode names only")
    assert len(content_digest(tmp_path)) == 32


def test_content_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        Content.of(tmp_path / "nowhere")
    assert Content.read("no digest") is None
    assert Content.read("a~b~0123abcd") == Content("a~b", "0123abcd")


def test_objects_cannot_be_made_from_their_names() -> None:
    with pytest.raises(UsageError, match="is an object: it cannot be made from its name"):
        Builder().build(SystemSpec((Spec("mine~0123abcd", own=True),)))
