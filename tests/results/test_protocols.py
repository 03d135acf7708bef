from __future__ import annotations

from typing import Any

import pytest

import r2med.models.prompts
from r2med.core import DataError, UnknownName
from r2med.expand import Expansions, expanders
from r2med.expand.contract import R2MED
from r2med.expand.generated import API_LLMS, API_SAMPLING, OPEN_LLMS, OPEN_SAMPLING, PASSAGE_WORDS
from r2med.expand.policy import policy_for
from r2med.results import SystemInfo
from r2med.results.protocols import (
    SAMPLING,
    Expected,
    differences,
    get_protocol,
    parse_protocol,
    parts,
    protocol_names,
    unstated,
)
from r2med.results.schema import OWN_WORDS
from r2med.retrieve import BM25
from r2med.retrieve.bm25 import BM25Lucene, BM25Nano

PAPER = get_protocol("r2med-paper")


def info(name: str, *described: dict[str, Any], **more: object) -> SystemInfo:
    return SystemInfo(name=name, kind="lexical", description={"retrievers": list(described), **more})


def expanded(method: str) -> Expansions:
    """What a method makes of no queries: its policies."""
    return Expansions(method, {}, {}, policies=expanders[method].target.policies)


def test_three_protocols_and_their_fingerprints() -> None:
    assert {"default", "r2med-paper", "mteb"} <= set(protocol_names())
    protocols = [get_protocol(name) for name in protocol_names()]
    assert len({p.fingerprint for p in protocols}) == len(protocol_names())
    assert all(p.name == name for p, name in zip(protocols, protocol_names(), strict=True))
    with pytest.raises(UnknownName, match="did you mean mteb"):
        get_protocol("mtep")


def test_words_do_not_change_a_fingerprint_and_choices_do() -> None:
    text = 'name = "{}"\ntitle = "t"\nsummary = "s"\ninstructions = "x"\ntruncation = "model"\nsimilarity = "{}"\n'
    text += 'identical_ids = "kept"\n'
    made = []
    for name, similarity in (("a", "model"), ("b", "model"), ("a", "cosine")):
        made.append(parse_protocol(text.format(name, similarity), "p.toml").fingerprint)
    assert made[0] == made[1] != made[2]
    with pytest.raises(DataError, match=r"p\.toml: not a protocol"):
        parse_protocol(text.format("a", "loose"), "p.toml")


def test_the_default_protocol_is_what_r2med_does() -> None:
    default = get_protocol("default")
    assert differences(info("bm25", BM25().describe()), default) == []
    for kind, methods in default.expansion.items():
        assert methods == {method: policy_for(expanded(method), kind).name for method in methods}


def test_the_papers_expansion_policies_are_those_that_expand_calls_r2med() -> None:
    for kind, methods in PAPER.expansion.items():
        for method, policy in methods.items():
            assert policy == policy_for(expanded(method), kind, R2MED).name


def test_bm25_flavours() -> None:
    assert differences(info("bm25", BM25().describe()), PAPER) == []
    assert differences(info("bm25", BM25(k1=1.2).describe()), PAPER) == ["BM25 k1 is 1.2, r2med-paper has 0.9"]
    assert differences(info("bm25", BM25Lucene().describe()), PAPER) == ["BM25 query is count, r2med-paper has bm25"]
    assert differences(info("bm25-lucene", BM25Lucene().describe()), PAPER) == []
    assert len(differences(info("bm25", BM25().describe()), get_protocol("mteb"))) == 4
    nano = get_protocol("nano-profile")
    assert differences(info("bm25-nano", BM25Nano().describe()), nano) == unstated(nano, "lexical") == []
    assert len(differences(info("bm25", BM25().describe()), nano)) == 4
    assert unstated(get_protocol("nano-profile"), "dense") == ["instructions", "truncation", "similarity", "precision"]
    assert unstated(PAPER, "lexical") == unstated(PAPER, "dense") == []


def dense(similarity: str = "cosine", length: int = 512) -> dict[str, Any]:
    side = {"max_length": length}
    return {"kind": "dense", "similarity": similarity, "query": side, "document": side}


def test_dense_choices() -> None:
    expected = {"contriever": Expected(512, 512, "cosine", own_wording=False)}
    assert differences(info("contriever@r2med-paper", dense()), PAPER, expected) == []
    assert differences(info("contriever", dense("dot")), PAPER, expected) == [
        "similarity is dot, r2med-paper has cosine"
    ]
    cut = differences(info("contriever", dense(length=64)), PAPER, expected)
    assert cut == [f"a {side} keeps 64 tokens, under r2med-paper 512" for side in ("query", "document")]
    own = differences(info("e5", dense()), PAPER, {"e5": Expected(own_wording=True)})
    assert own == ["instructions: r2med's own, r2med-paper has those of r2med-repository"]
    assert "leaves it to its library" in differences(info("bge", dense()), get_protocol("mteb"))[0]


def test_a_fused_system_is_checked_part_by_part() -> None:
    system = info("bm25+contriever.rrf", BM25(b=0.75).describe(), dense("dot"), fusion={"method": "rrf"})
    assert len(differences(system, PAPER, {"contriever": Expected(512, 512)})) == 2


@pytest.mark.parametrize(("policy", "expected"), [("query*2+passages.r2med", 0), ("query*5+passages", 1), ("", 1)])
def test_expansion_policies(policy: str, expected: int) -> None:
    system = info("query2doc:gpt4+bm25", BM25().describe(), expander={"method": "query2doc"}, policy="default")
    assert len(differences(system, PAPER, policies={"bm25": policy} if policy else {})) == expected


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("bm25+contriever.rrf", {"fusion": {"method": "rrf"}}, ["bm25", "contriever"]),
        ("bm25+contriever.combsum+maxsim@50", {"fusion": {"method": "combsum"}}, ["bm25", "contriever"]),
        ("hyde:gpt4+bm25+nv.tuned", {"fusion": {"method": "tuned"}, "expander": {"method": "hyde"}}, ["bm25", "nv"]),
        ("hyde:gpt4+bm25,policy=query*2+passages", {"expander": {"method": "hyde"}}, ["bm25"]),
        ("hyde:published:gpt4+nv@r2med-paper,policy=r2med", {"expander": {"method": "hyde"}}, ["nv"]),
        ("nv+bge-reranker@10", {}, ["nv"]),
        ("bm25,k1=1.2,b=0.75", {}, ["bm25,k1=1.2,b=0.75"]),
    ],
)
def test_the_retrievers_inside_a_name(name: str, more: dict[str, object], expected: list[str]) -> None:
    described = [BM25().describe() if n.startswith("bm25") else dense() for n in expected]
    assert [part.name for part in parts(info(name, *described, **more))] == expected


def test_retrievers_are_named_by_the_spec_not_by_the_system() -> None:
    """A name that reads like another system's: what it is made of stands in the spec."""
    dense = {"kind": "dense", "similarity": "cosine"}
    system = info("x+y.rrf+z@9", BM25().describe(), dense, fusion={"method": "rrf"})
    system.spec = {"retrievers": [{"name": "bm25"}, {"name": "org/a+b.rrf", "parameters": {"max_length": 64}}]}
    assert [(part.name, part.kind) for part in parts(system)] == [("bm25", "lexical"), ("org/a+b.rrf", "dense")]


def told(prompts: str, dtype: str = "float32") -> dict[str, Any]:
    side = {"max_length": 2048, "dtype": dtype}
    return {"kind": "dense", "query": side, "document": side, "similarity": "cosine", "prompts": prompts}


def test_instructions_are_compared_by_the_hash_of_their_pack() -> None:
    expected = {"e5": Expected(2048, 2048, "cosine", own_wording=True)}
    assert differences(info("e5", told(f"any-name~{PAPER.prompts}")), PAPER, expected) == []
    for prompts in (f"r2med-paper~{PAPER.prompts[:8]}", "r2med-paper~0", OWN_WORDS):
        (reason,) = differences(info("e5", told(prompts)), PAPER, expected)
        assert reason == f"instructions: {prompts}, r2med-paper has those of r2med-repository"
    (reason,) = differences(info("e5", told(f"x~{PAPER.prompts}")), get_protocol("default"), expected)
    assert "default has those of r2med" in reason


def test_precision_is_part_of_the_protocol() -> None:
    expected = {"e5": Expected(dtype="float32")}
    assert differences(info("e5", told("", "float32")), PAPER, expected) == []
    assert differences(info("e5", told("", "bfloat16")), PAPER, expected) == [
        "precision is bfloat16, r2med-paper has float32"
    ]
    assert differences(info("e5", told("", "bfloat16")), get_protocol("default"), {"e5": Expected()}) == []


def generated(llm: str = "gpt4", prompts: str = PAPER.prompts, **more: object) -> dict[str, object]:
    sampling = {"temperature": 0.8, "top_p": 0.8, "max_tokens": None, "seed": None}
    pack = {"pack": f"r2med-paper~{prompts}"} if prompts else {"qa-reference": "1234"}
    described = {"method": "oracle", "llm": llm, "sampling": sampling, "prompts": pack, "protocol": "r2med-paper"}
    return {"expander": {**described, **more}}


def test_how_texts_were_generated() -> None:
    bm25 = BM25().describe()
    assert differences(info("x", bm25, **generated()), PAPER) == []
    own = info("x", bm25, **generated(prompts=""))
    assert differences(own, PAPER) == ["prompts: r2med's own, r2med-paper has those of r2med-repository"]
    assert own.own_words == ["prompts: r2med's own"]
    chain = info("x", bm25, **generated(then=[generated(prompts="")["expander"]]))
    assert chain.own_words == ["prompts: r2med's own"]  # of the second method
    assert differences(info("x", bm25, **generated("qwen-7b:host=here")), PAPER) == [
        "temperature is 0.8, r2med-paper has 0.7",
        "top_p is 0.8, r2med-paper has not set",
        "max_tokens is not set, r2med-paper has 10240",
        "seed is not set, r2med-paper has 42",
    ]
    lamer = generated(first_stage={}, passage_tokens=128)
    assert differences(info("x", bm25, **lamer), PAPER) == [
        "a passage in the prompt keeps unknown words, under r2med-paper 512"
    ]
    assert differences(info("x", bm25, **generated("smollm2")), PAPER) == [
        "r2med-paper generates no texts with smollm2"
    ]
    assert differences(info("x", bm25, **generated("smollm2")), get_protocol("default")) == []


def test_what_a_cross_encoder_cuts_off() -> None:
    bm25, scorer = BM25().describe(), {"kind": "pointwise", "logit": 0}
    cut = info("x", bm25, reranking={"reranker": {**scorer, "truncation": "longest-first"}})
    assert differences(cut, PAPER) == []
    assert differences(info("x", bm25, reranking={"reranker": scorer}), PAPER) == [
        "pairs are cut document-first, under r2med-paper longest-first"
    ]
    assert differences(cut, get_protocol("default")) == ["pairs are cut longest-first, under default document-first"]
    assert differences(info("x", bm25, reranking={"reranker": {"kind": "listwise"}}), PAPER) == []


def test_the_papers_generation_is_what_expand_does_under_the_protocol() -> None:
    kinds = PAPER.generation
    assert (kinds["open"].llms, kinds["api"].llms) == (OPEN_LLMS, API_LLMS)
    for kind, sampling in (("open", OPEN_SAMPLING), ("api", API_SAMPLING)):
        assert {n: getattr(kinds[kind], n) for n in SAMPLING} == {n: getattr(sampling, n) for n in SAMPLING}
        assert kinds[kind].passage_words == PASSAGE_WORDS
    assert OWN_WORDS == r2med.models.prompts.OWN


def test_texts_for_a_service() -> None:
    side = {"max_length": 6000, "dtype": "service"}
    system = {"kind": "dense", "query": side, "document": side, "similarity": "cosine"}
    assert differences(info("openai", system), PAPER) == [
        "texts go to the service as they are, r2med-paper cuts and quotes them"
    ]
    quoted = {**system, "document": {**side, "sent": {"quoted": True}}}
    assert differences(info("openai", quoted), PAPER) == []
