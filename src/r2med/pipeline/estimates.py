"""What a system needs and would cost on R2MED, estimated from its name: memory, calls, tokens, dollars, seconds.

The estimate reads sizes from facts on published models and from cards, lengths from R2MED's statistics, and speed from
rates that were measured once (`estimates.toml`). It loads no data and no model, and says how each figure was made.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pkgutil import get_data
from typing import Literal, NamedTuple

import msgspec

from ..core.files import parse_toml
from ..core.options import show_size
from ..core.table import counted
from ..expand.generated import ANSWER_TOKENS, REASONING_TOKENS
from ..llm.parsing import REASONING
from ..models import Card, ModelCard, find_chat_card, named_card
from ..results.published_models import FUSIONS, SERVED, find_facts
from .experiment import EMBEDDED

Role = Literal["expander", "retriever", "reranker"]
CHARACTERS_A_TOKEN = 4.0
PROMPT_TOKENS = 300  # Our words around the texts of one call.
BYTES_A_WEIGHT = 2  # bfloat16
ROOM = 1.2  # Weights and a fifth more, for what is computed with them.
SMALL = 150_000_000  # Parameters up to which a model is run on a CPU.
BY_VECTORS = ("maxsim", "neighbours")  # Rerankers whose model is the embedded one where they name none.


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured rates of one GPU."""

    device: str
    parameters: list[int]
    tokens_per_second: list[int]
    bytes_per_second: int
    in_flight: int

    def rate(self, parameters: int) -> float:
        """Tokens a second that a model of some size reads: between two measured sizes on a line of logarithms."""
        sizes, rates = self.parameters, self.tokens_per_second
        if parameters <= sizes[0]:
            return float(rates[0])
        if parameters >= sizes[-1]:
            return rates[-1] * sizes[-1] / parameters
        above = next(i for i, size in enumerate(sizes) if size >= parameters)
        share = math.log(parameters / sizes[above - 1]) / math.log(sizes[above] / sizes[above - 1])
        return float(rates[above - 1] * (rates[above] / rates[above - 1]) ** share)

    def writing(self, parameters: int) -> float:
        """Seconds a token of one call takes while the others in flight are answered: all weights are read once."""
        return BYTES_A_WEIGHT * parameters / self.bytes_per_second / self.in_flight


class Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measured rate of one core."""

    device: str
    tokens_per_second: int
    parameters: int
    float32: float

    def rate(self, parameters: int, *, eight_bits: bool) -> float:
        """Tokens a second, in proportion to the parameters of the model that was measured."""
        return self.tokens_per_second * self.parameters / parameters * (1.0 if eight_bits else self.float32)


class Lexical(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """BM25."""

    seconds_per_query: float
    index_seconds: float


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a method asks of a chat model for one query."""

    shape: Literal["one", "groups", "windows", "each"]
    size: int = 1
    step: int = 1
    passages: int = 0
    answer: int | None = None
    source: str = ""

    def calls(self, depth: int) -> int:
        """Calls for one query."""
        if self.shape == "one":
            return 1
        if self.shape == "windows":
            return 1 + max(0, math.ceil((depth - self.size) / self.step))
        return math.ceil(depth / self.size)

    def read(self, depth: int) -> int:
        """Passages that stand in a call."""
        return self.passages if self.shape == "one" else min(self.size, depth)


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Our own figures on other collections, × 100."""

    source: str
    sets: list[str]
    systems: dict[str, list[float]]


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    gpu: Gpu
    cpu: Cpu
    lexical: Lexical
    r2med: dict[str, tuple[int, float, int, float]]
    methods: dict[str, Method]
    measured: Measured

    @property
    def queries(self) -> int:
        return sum(n for n, *_ in self.r2med.values())

    def query_tokens(self, most: float = math.inf) -> float:
        """Of a query, on average, if texts are cut at a length."""
        found = sum(n * min(length / CHARACTERS_A_TOKEN, most) for n, length, *_ in self.r2med.values())
        return found / self.queries

    def corpus_tokens(self, most: float = math.inf) -> float:
        """Of all documents."""
        return sum(n * min(length / CHARACTERS_A_TOKEN, most) for *_, n, length in self.r2med.values())

    def document_tokens(self, most: float = math.inf) -> float:
        """Of a document, on average over queries: each searches its own task."""
        found = sum(n * min(length / CHARACTERS_A_TOKEN, most) for n, _, _, length in self.r2med.values())
        return found / self.queries


@cache
def rates() -> Rates:
    """What was measured."""
    data = get_data(__package__, "estimates.toml")
    assert data is not None
    return msgspec.convert(parse_toml(data.decode()), Rates)


class Part(NamedTuple):
    """One component of a system."""

    role: Role
    method: str
    model: str  # Empty where it has none.
    depth: int = 100
    times: int = 1  # How often a reranker asks the same.


def parts_of(system: str) -> list[Part]:
    """The components that a system's name lists, whether or not r2med has them all."""
    found: list[Part] = []
    pieces = system.split("+")
    for place, piece in enumerate(pieces):
        text, at, behind = piece.rpartition("@")
        depth = int(behind) if at and behind.isdigit() else 0
        name, _, given = (text if depth else piece).partition(":")
        for suffix in FUSIONS:
            name = name.removesuffix(suffix)
        argument = given.partition(",")[0]
        argument = "" if "=" in argument else argument.removeprefix(SERVED)
        if depth:
            named = re.search(r"model=([^,@]+)", given)
            own = named[1] if named else EMBEDDED if name in BY_VECTORS else name
            if name == "neighbours" and any(part.model == own for part in found):
                continue  # the first stage has made its vectors
            again = re.search(r"(?:repeats|samples)=(\d+)", given)
            found.append(Part("reranker", name, argument or own, depth, int(again[1]) if again else 1))
        elif place == 0 and argument and len(pieces) > 1:
            found.append(Part("expander", name, argument))
        elif argument and len(pieces) == 1:  # a reranker whose first stage nobody named
            found.append(Part("reranker", name, argument))
        else:
            found.append(Part("retriever", name, "" if name.startswith("bm25") else name))
    return found


class ModelNeed(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a system, and how to get it."""

    name: str
    role: Role
    source: str  # Hub id, or the name at a service.
    parameters: int | None
    gpu_memory: int | None  # Bytes; 0 where none is needed, None where the size is not known.
    licence: str
    chat: bool  # Asked through a chat endpoint.
    api: bool  # Somebody else's service.
    get: str  # The command, or what to do.


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a system needs, and what it would cost on R2MED once."""

    system: str
    models: list[ModelNeed]
    gpu_memory: int | None  # Of its largest model, for stages run one after another.
    gpu_memory_together: int | None  # Of all its models at once.
    chat_calls: int | None  # For all queries; None where that depends on the answers.
    prompt_tokens: int | None
    answer_tokens: int | None  # At most.
    dollars: float | None  # At most, for services; None where a price is not known.
    service_dollars: float | None  # At most, if open weights are asked at a service too; None where no price is known.
    index_seconds: float | None
    seconds_per_query: float | None
    how: list[str]  # How the figures were made.


def needs(system: str, *, gpu_speed: float = 1.0, at_service: bool = False) -> Needs:
    """Estimate a system; `gpu_speed` is a GPU's share of the speed of the one that was measured.

    `at_service` asks chat models with open weights at a service, where a price of one is known.
    """
    known, how = rates(), dict[str, None]()
    models: list[ModelNeed] = []
    work = _Work()
    for part in parts_of(system):
        need = _model(part, at_service=at_service) if part.model else None
        models += [need] if need is not None else []
        if need is None:
            work.seconds.append(known.lexical.seconds_per_query)
            work.index.append(known.lexical.index_seconds)
            how[f"BM25: {known.lexical.seconds_per_query * 1000:g} ms a query, measured"] = None
        elif part.role == "retriever" or not need.chat:
            _encoding(part, need, known, gpu_speed, work, how)
        else:
            _asking(part, need, known, gpu_speed, work, how)
    sizes = [model.gpu_memory for model in models]
    if any(sizes):
        how["memory: two bytes a weight and a fifth more"] = None
    return Needs(
        system=system,
        models=models,
        gpu_memory=None if None in sizes else max((size or 0 for size in sizes), default=0),
        gpu_memory_together=None if None in sizes else sum(size or 0 for size in sizes),
        chat_calls=_total(work.calls),
        prompt_tokens=_total(work.prompt),
        answer_tokens=_total(work.answers),
        dollars=None if None in work.dollars else sum(d or 0.0 for d in work.dollars),
        service_dollars=None
        if None in (*work.dollars, *work.service) or not work.service
        else sum(d or 0.0 for d in (*work.dollars, *work.service)),
        index_seconds=None if None in work.index else sum(s or 0.0 for s in work.index),
        seconds_per_query=None if None in work.seconds else sum(s or 0.0 for s in work.seconds),
        how=list(how),
    )


class _Work:
    """Sums that are not known as soon as one summand is not."""

    def __init__(self) -> None:
        self.calls: list[float | None] = []
        self.prompt: list[float | None] = []
        self.answers: list[float | None] = []
        self.dollars: list[float | None] = []
        self.service: list[float | None] = []
        self.index: list[float | None] = []
        self.seconds: list[float | None] = []


def _total(counts: list[float | None]) -> int | None:
    return None if None in counts else round(sum(count or 0 for count in counts))


def _model(part: Part, *, at_service: bool) -> ModelNeed:
    facts, card = find_facts(part.model), _card(part.model)
    embedded = card is not None and card.carrier is not None
    parameters = (facts.parameters if facts else None) or (card.parameters if card else None)
    licence = (facts.licence if facts else "") or (card.licence if card else "")
    source = (facts.hub if facts else "") or (card.source if card else "") or part.model
    asked = part.role == "expander" or (part.role == "reranker" and part.method not in (part.model, *BY_VECTORS))
    hosted = at_service and asked and facts is not None and facts.price is not None
    api = licence == "proprietary" or hosted
    small = parameters is not None and parameters <= SMALL and not asked
    memory = None if parameters is None else round(ROOM * BYTES_A_WEIGHT * parameters)
    if hosted:
        get = f"a key of a service that has {source} (OPENAI_BASE_URL, OPENAI_API_KEY)"
    elif api:
        get = f"a key ({card.key})" if card and card.key else "a key of the service"
    elif asked:
        called = "" if part.model == source or card is not None else f" under the name {part.model}"
        get = f"serve {source}{called} behind an OpenAI-compatible endpoint (OPENAI_BASE_URL)"
    elif card is None:
        get = f"download {source} from the hub"
    else:
        get = "" if embedded else f"r2med models fetch {part.model}"
    return ModelNeed(
        name=part.model, role=part.role, source=source, parameters=None if api else parameters,
        gpu_memory=0 if api or small else memory, licence=licence, chat=asked, api=api, get=get,
    )  # fmt: skip


def _card(name: str) -> ModelCard | None:
    return named_card(name) or find_chat_card(name)


def _encoding(
    part: Part, need: ModelNeed, known: Rates, speed: float, work: _Work, how: dict[str, None]
) -> None:  # fmt: skip
    """A model that reads the corpus and the queries, or pairs of them."""
    card = _card(need.name)
    length = card.document_length if isinstance(card, Card) else math.inf
    pair = known.document_tokens(length) + (known.query_tokens() if part.method != "maxsim" else 0.0)
    corpus = known.corpus_tokens(length) if part.role == "retriever" else 0.0
    query = known.query_tokens(length) if part.role == "retriever" else part.depth * pair
    if need.api:
        tokens = corpus + known.queries * query
        work.dollars.append(card.cost(round(tokens)) if card else None)
        work.index.append(None)
        work.seconds.append(None)
        how[f"{need.name}: {tokens / 1e6:,.0f} million tokens at the card's price; time is up to the service"] = None
        return
    if need.parameters is None:
        work.index.append(None)
        work.seconds.append(None)
        how[f"{need.name}: its size is not known, so neither memory nor time is"] = None
        return
    on_gpu = bool(need.gpu_memory)
    device = known.gpu.device if on_gpu else known.cpu.device
    eight_bits = card is not None and card.backend == "onnx"
    on_cpu = known.cpu.rate(need.parameters, eight_bits=eight_bits)
    rate = known.gpu.rate(need.parameters) * speed if on_gpu else on_cpu
    work.index.append(corpus / rate)
    work.seconds.append(query / rate)
    share = f" × {speed:g}" if on_gpu and speed != 1 else ""
    how[f"{need.name}: {rate:,.0f} tokens a second by its size, from rates measured on {device}{share}"] = None


def _asking(
    part: Part, need: ModelNeed, known: Rates, speed: float, work: _Work, how: dict[str, None]
) -> None:  # fmt: skip
    """A chat model that is asked for every query."""
    method = known.methods.get(part.method)
    if method is None:
        for sums in (work.calls, work.prompt, work.answers, work.service, work.seconds):
            sums.append(None)
        work.dollars.append(None if need.api else 0.0)
        how[f"{part.method}: how often it asks depends on the answers"] = None
        return
    card = find_chat_card(need.name)
    reasons = card is None or card.marking in REASONING
    answer = method.answer or (REASONING_TOKENS if reasons else ANSWER_TOKENS)
    calls = part.times * method.calls(part.depth)
    prompt = calls * (PROMPT_TOKENS + known.query_tokens() + method.read(part.depth) * known.document_tokens())
    work.calls.append(calls * known.queries)
    work.prompt.append(prompt * known.queries)
    work.answers.append(calls * answer * known.queries)
    tokens = round(prompt * known.queries), calls * answer * known.queries
    facts = find_facts(need.name)
    price = facts.price if facts else None
    hosted = price.cost(*tokens) if price else None
    if need.api:
        work.dollars.append(hosted if price else card.cost(*tokens) if card else None)
    else:
        work.dollars.append(0.0)
        work.service.append(hosted)
    if price:
        rate = f"{price.per_million:.2f} and {price.completion:.2f} dollars a million"
        how[f"{need.name} at a service: {rate} ({price.source}, {price.seen})"] = None
    asked = f"{part.method}: {counted(calls, 'call')} a query, answers of at most {answer:,} tokens"
    how[asked + (f" ({method.source})" if method.source else "")] = None
    if need.api or need.parameters is None:
        work.seconds.append(None)
        how[f"{need.name}: time is up to the service" if need.api else f"{need.name}: its size is not known"] = None
        return
    active = (facts.active if facts else None) or need.parameters
    reading, writing = prompt / (known.gpu.rate(active) * speed), calls * answer * known.gpu.writing(active) / speed
    work.seconds.append(reading + writing)
    how[f"{need.name}: reads at the measured rate of its size and writes at the speed of the memory that "
        f"{known.gpu.device.partition(',')[0]} is sold with, {known.gpu.in_flight} calls together"] = None  # fmt: skip


def memory_text(size: int | None) -> str:
    """Bytes for people; `none` where no GPU is needed."""
    return "unknown" if size is None else show_size(size) if size else "none"
