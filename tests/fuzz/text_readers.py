"""Readers of text that comes from people and models: names, options, addresses, answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from r2med.core import R2MedError
from r2med.core.literals import read_tables
from r2med.core.options import Options
from r2med.core.untrusted import file_name, printable
from r2med.expand import expanders
from r2med.expand.answers import answer_forms, names_answer
from r2med.fuse import fusions
from r2med.llm import Choice, Message, Request, Sampling, chats, get_llm
from r2med.llm.parsing import MARKINGS, TOOLS, open_call, parse
from r2med.llm.protocol import fill
from r2med.llm.reading import read_choice, read_grade, read_grades, read_order, read_verdict
from r2med.pipeline import SystemSpec
from r2med.rerank import rerankers
from r2med.retrieve import retrievers
from r2med.scoring import Measure
from r2med.tasks import resolve
from r2med.text import get_analyzer
from tests.fuzz.cases import Case, Maker, as_text, some_results
from tests.paper_files import example_file, instruction_file

ANSWERS = [
    "<think>\nFever, then a rash: measles.\n</think>\n\nMeasles is a viral infection.",
    "## Thinking\n\nIt hurts.\n\n## Final Response\n\nInflammation.",
    "<|begin_of_thought|>\na\n<|end_of_thought|>\n<|begin_of_solution|>\nb\n<|end_of_solution|>",
    "<think>I search.</think><search>koplik spots</search><information>Doc 1</information><answer>Measles</answer>",
    "Certainly! Here is a passage that answers the question:\n\n```\nPassage: fever\n```\n\nI hope this helps!",
    "I'm sorry, but I can't help with that.",
    "<|begin_search_query|>rash<|end_search_query|>",
]
ORDERS = [
    "[3] > [1] > [2]", "The order is [2, 1, 3].", "1. Passage [2]\n2. Passage [1]", "[1], [3], [2]", "best: [2]",
    "Yes, it is relevant.", "no",
]  # fmt: skip
COMPLETION = msgspec.json.encode(
    {
        "model": "m",
        "choices": [{"message": {"content": "x", "reasoning_content": "y"}, "finish_reason": "stop",
                     "logprobs": {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": []}]}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 11},
    }
)  # fmt: skip


def model_answers(folder: Path) -> Case:
    def read(text: str) -> None:
        for marking in MARKINGS:
            parse(Choice(text), marking)
        parse(Choice(text, "apart", "length"), "auto")
        for begin, end in TOOLS:
            open_call(text, begin, end)

    return as_text(ANSWERS, read)


def python_tables(folder: Path) -> Case:
    """Instruction files of somebody's repository, as bytes: read as data or refused."""
    examples = read_tables(example_file().encode(), "example.py")
    seeds = [instruction_file().encode(), b"x = {'a': 'b' + f'c', **{}}\n", b"t = {k: v for k, v in t.items()}"]
    return Case(seeds, lambda data: read_tables(data, "own.py", {"example": examples}))


def rankings(folder: Path) -> Case:
    def read(text: str) -> None:
        order = read_order(text, 5)
        assert sorted(order.places) == list(range(5))
        chosen = read_choice(text, 5)
        assert chosen is None or 0 <= chosen < 5
        assert read_verdict(text) in (True, False, None)
        grades = read_grades(text, 5, 10)
        assert all(value is None or 0 <= value <= 10 for value in grades.values)
        grade = read_grade(text, 100).value
        assert grade is None or 0 <= grade <= 100

    return as_text(ORDERS, read)


def answers_named(folder: Path) -> Case:
    answer = "Primary adrenal insufficiency (Addison disease), autoimmune"

    def read(text: str) -> None:
        answer_forms(text)
        names_answer([text], answer)
        names_answer(["it is Addison disease of the adrenal gland"], text)

    return as_text([answer, "TTR amyloidosis [heart] – late", *ANSWERS], read)


def prompts(folder: Path) -> Case:
    """Whatever a query holds, it stands in the prompt as it is."""

    def read(text: str) -> None:
        made = fill("Q: {{query}} |", query=text)
        assert made == f"Q: {text} |".strip()

    return as_text(["{{query}}", "{query} {0} %s %(x)s ${x} </think> <|im_end|> {{passage}}"], read)


def chat_bodies(folder: Path) -> Case:
    """What a server sends, through the code that reads it."""
    os.environ.setdefault("OPENAI_API_KEY", "sk-fuzz")
    chat: Any = get_llm("openai:any-model", Options(base_url="http://127.0.0.1:9/v1"))
    request = Request((Message("user", "x"),), Sampling(max_tokens=8), "q1")

    def read(data: bytes) -> object:
        import httpx

        from r2med.http import Answer

        answer = httpx.Response(200, headers={"content-type": "application/json"})
        try:
            body = chat._client._judge(answer, data)
        except R2MedError:
            raise
        except Exception as error:
            if type(error).__name__ in ("_TryAgain", "Rejected"):  # asked again, or counted as one failed query
                return None
            raise
        return chat._read(request, Answer(body, 0.1))

    return Case([COMPLETION, b'{"error": {"message": "slow", "code": 429}}', b'{"choices": []}'], read)


def embedding_bodies(folder: Path) -> Case:
    from r2med.http import _message
    from r2med.retrieve.encoders.api import wire_format

    formats = [wire_format(name) for name in ("openai", "voyage")]

    def read(data: bytes) -> object:
        _message(data)
        try:
            body = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        for wire in formats:
            assert wire.tokens(body) is None or wire.tokens(body) >= 0  # type: ignore[operator]
            with suppress(KeyError, TypeError, ValueError, AttributeError):  # what the encoder calls no embeddings
                np.array(wire.vectors(body), dtype=np.float32)
        return body

    vectors = [{"index": i, "embedding": [0.5, 1.5]} for i in range(2)]
    return Case([msgspec.json.encode({"data": vectors, "usage": {"total_tokens": 3}})], read)


def names(folder: Path) -> Case:
    """Specs of every kind and of whole systems, measures, tasks and file names."""
    registries = (retrievers, rerankers, expanders, chats, fusions)
    readers: list[Callable[[str], object]] = [
        *(registry.parse for registry in registries), SystemSpec.parse, Measure.parse, file_name, printable, resolve,
    ]  # fmt: skip

    def read(text: str) -> None:
        for reader in readers:
            try:
                reader(text)
            except R2MedError as error:
                if "\n" in str(error).strip():
                    raise AssertionError("not one line") from error

    seeds = [
        "bm25:k1=1.2,b=0.75", "msmarco-minilm:max_length=64@100", "nDCG(dcg=exp)@10", "mini@1/MedQA-Diag",
        "rankgpt:gpt4,window=20@20", "hyde:gpt4,passages=2+bm25+bge-small.weighted:w=0.7/0.3+maxsim:model=bge-small@50",
        "search-r1:openai:o:1,retriever=bm25", "tests.own_models:Encoder,dim=64", "weighted:w=1/2,norm=rank",
        "hyde:replay:label~0123abcd", "gpt4:host=h", "org/model@revision:max_length=9",
    ]  # fmt: skip
    return as_text(seeds, read)


def addresses(folder: Path) -> Case:
    """Every page of the app under broken addresses: a page or an error page, never a failure."""
    from r2med.report.web.app import respond
    from r2med.report.web.pages.board import table_text
    from r2med.report.web.render import PageRequest
    from r2med.report.web.site import Site

    root = folder / "results"
    some_results(root)
    site = Site([root])
    seeds = [
        "/board/mini?measure=ndcg_at_10&sort=macro", "/task/mini@1/Biology?system=bm25&sort=score",
        "/query/mini@1/Biology/bio-q1?system=bm25&system=bm25-lucene", "/compare/mini?a=bm25&b=bm25-lucene",
        "/system/bm25", "/document/mini@1/Biology/x", "/progress", "/tradeoffs/mini", "/table/board/mini?format=csv",
    ]  # fmt: skip

    def read(text: str) -> None:
        path, _, query = text.partition("?")
        asked = PageRequest.of(path, query)
        respond(site, asked)
        with suppress(R2MedError):
            table_text(site, asked)

    return as_text(seeds, read)


def analyzers(folder: Path) -> Case:
    from r2med.core import TextColumn

    analyzer = get_analyzer("english")
    return as_text(
        ["The patients' fevers were β-thalassaemia-like, 38.5 °C; U.S.A. naïve", "𝔘𝔫𝔦 🧬🫀 can't won’t"],
        lambda text: analyzer.count(TextColumn.from_texts([text, text[::-1]])),
    )


TEXTS: dict[str, Maker] = {
    "LLM answers": model_answers,
    "LLM rankings and verdicts": rankings,
    "Python files as data": python_tables,
    "answers named": answers_named,
    "prompts": prompts,
    "chat completion bodies": chat_bodies,
    "embedding bodies": embedding_bodies,
    "names and specs": names,
    "addresses of the app": addresses,
    "analyzer": analyzers,
}
