"""The English analyzer, in Python and in C, against Lucene and against each other; NanoR2MED's; and the stemmers."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import re
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from r2med.core import TextColumn
from r2med.text import english, get_analyzer
from r2med.text.analyzers import PYTHON, Analyzer
from r2med.text.english import code_points, read_tables, stem, stem_nltk

ROOT = Path(__file__).resolve().parents[2]
CORPORA = ROOT.parent / "shared" / "data"
FIXTURES = Path(__file__).parent / "fixtures"
QUICK = {"scifact", "bioasq-snippets"}

Analyze = Callable[[str], list[str]]


def _load() -> Any:
    try:
        return importlib.import_module("r2med._fast")
    except ImportError:
        return None


fast = _load()
needs_c = pytest.mark.skipif(fast is None, reason="the C extension is not built")


def analyze_c(text: str) -> list[str]:
    tokens: list[str] = fast.analyze(text.encode("utf-8", "surrogatepass"))
    return tokens


BOTH = [pytest.param(english.analyze, id="python"), pytest.param(analyze_c, id="c", marks=needs_c)]


def load(name: str) -> list[Any]:
    items: list[Any] = json.loads((FIXTURES / name).read_text(encoding="ascii"))
    return items


def digest(texts: Iterable[list[str]]) -> tuple[int, str]:
    """How many tokens, and their blake2b, as the fixtures have it."""
    count, hasher = 0, hashlib.blake2b(digest_size=16)
    for tokens in texts:
        count += len(tokens)
        hasher.update("".join(token + "\n" for token in [*tokens, ""]).encode())
    return count, hasher.hexdigest()


# --- against Lucene ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("analyze", BOTH)
def test_hard_strings(analyze: Analyze) -> None:
    for text, expected in load("lucene_strings.json"):
        assert analyze(text) == expected, ascii(text)


def every_code_point(plane: int) -> Iterator[str]:
    for code in range(plane << 16, (plane + 1) << 16):
        if not 0xD800 <= code <= 0xDFFF:
            c = chr(code)
            yield f"a{c}b 1{c}2 {c}{c} א{c}' カ{c}カ ก{c}ก 😀{c}\u200d{c} _{c}_ X{c}eds"


def planes() -> Iterator[Any]:
    for item in load("lucene_planes.json"):
        usual = item["plane"] in (0, 1)
        marks = [] if usual else [pytest.mark.slow]
        yield pytest.param(analyze_c, item, id=f"c-{item['plane']}", marks=[needs_c, *marks])
        yield pytest.param(english.analyze, item, id=f"python-{item['plane']}", marks=pytest.mark.slow)


@pytest.mark.parametrize(("analyze", "expected"), list(planes()))
def test_every_code_point(analyze: Analyze, expected: dict[str, Any]) -> None:
    found = digest(map(analyze, every_code_point(expected["plane"])))
    assert found == (expected["tokens"], expected["blake2b"])


def corpora() -> Iterator[Any]:
    for item in load("lucene_corpora.json"):
        for name, analyze in (("c", analyze_c), ("python", english.analyze)):
            quick = item["part"] == "queries" or (name == "c" and item["corpus"] in QUICK)
            marks = [needs_c] if name == "c" else []
            case_id = f"{name}-{item['corpus']}-{item['part']}"
            yield pytest.param(analyze, item, id=case_id, marks=marks if quick else [*marks, pytest.mark.slow])


def texts_of(corpus: str, part: str) -> list[str]:
    folder = CORPORA / corpus
    if not folder.is_dir():
        pytest.skip(f"no {corpus} in ../shared/data")
    if part == "queries":
        lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines]
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [" ".join(filter(None, (record["title"], record["text"]))) for record in records]


@pytest.mark.parametrize(("analyze", "expected"), list(corpora()))
def test_real_corpora(analyze: Analyze, expected: dict[str, Any]) -> None:
    texts = texts_of(expected["corpus"], expected["part"])
    assert len(texts) == expected["texts"]
    assert digest(map(analyze, texts)) == (expected["tokens"], expected["blake2b"])


# --- the two against each other ---------------------------------------------------------------------------------


def _characters() -> st.SearchStrategy[str]:
    """Every class of characters as often as the next, and more of what makes English words hard."""
    classes = [
        st.sampled_from(list(map(code_points, items))).flatmap(lambda pair: st.integers(*pair).map(chr))
        for name, items in read_tables().items()
        if name.startswith("class ")
    ]
    return st.one_of(st.sampled_from(" ab1.'’_,:sS"), st.characters(), *classes)


hard_text = st.text(_characters(), max_size=40)
any_text = st.one_of(hard_text, st.text(max_size=60), st.text(st.sampled_from("ab1.,:;'_ \"#"), max_size=30))


@needs_c
@given(any_text)
@example("𐐀" * 128)
@example("_" * 300 + "a")
def test_c_equals_python(text: str) -> None:
    assert analyze_c(text) == english.analyze(text)


@needs_c
@given(st.text(_characters(), min_size=1, max_size=4), st.integers(50, 300))
def test_c_equals_python_on_long_words(unit: str, times: int) -> None:
    assert analyze_c(unit * times) == english.analyze(unit * times)


@needs_c
@given(st.one_of(st.binary(), any_text.map(lambda text: text.encode("utf-8", "replace")[1:-1])))
@example(b"a\xe2\x80b \xf0\x9f\x98 \xed\xa0\x80c\xff")
def test_malformed_bytes_read_as_replacement_characters(raw: bytes) -> None:
    assert fast.analyze(raw) == english.analyze(raw.decode("utf-8", "replace"))


# --- what must hold of any text ---------------------------------------------------------------------------------


@given(any_text)
def test_words_stand_in_the_text_in_order(text: str) -> None:
    at = 0
    for word in english.words(text):
        at = text.index(word, at) + len(word)
        assert len(word.encode("utf-16-le", "surrogatepass")) <= 2 * english.MAX_UNITS
        assert " " not in word


@given(st.text(st.sampled_from("abZ019.,:;'_ \"#*-"), max_size=40))
def test_the_ascii_expression_equals_the_automaton(text: str) -> None:
    assert english.words(text) == list(english._walk(text))


@pytest.mark.parametrize("analyze", BOTH)
@given(one=any_text, two=any_text)
def test_texts_joined_by_a_space(analyze: Analyze, one: str, two: str) -> None:
    assert analyze(f"{one} {two}") == analyze(one) + analyze(two)


@pytest.mark.parametrize("analyze", BOTH)
@given(text=any_text)
def test_terms(analyze: Analyze, text: str) -> None:
    terms = analyze(text)
    assert not re.search("[A-Z ]", "".join(terms))
    assert "" not in terms
    bare = [re.sub("['’＇][sS]$", "", word) for word in english.words(text)]
    lower = [word.translate(english.LOWER) for word in bare]
    assert terms == [stem(word) for word in lower if word not in english.ENGLISH_STOP_WORDS]


def test_stop_words() -> None:
    assert len(english.ENGLISH_STOP_WORDS) == 33
    assert english.analyze(" ".join(english.ENGLISH_STOP_WORDS).title()) == []


def test_the_memo_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(english, "_MEMO_MOST", 2)
    monkeypatch.setattr(english, "_TERMS", english._Terms())
    assert english.analyze("one two three two") == ["on", "two", "three", "two"]
    assert len(english._TERMS) == 2


def test_the_tables_are_up_to_date() -> None:
    tool = ROOT / "tools" / "wordbreak_tables.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- counting in C ----------------------------------------------------------------------------------------------

SPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def count(texts: list[bytes], analyzer: int = 0) -> tuple[list[str], list[list[tuple[str, int]]]]:
    """The vocabulary and, for each text, its terms and counts."""
    offsets = array("q", [0])
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    result = fast.count_terms(b"".join(texts), offsets, analyzer)
    assert [type(part) for part in result] == [bytes, bytes, bytearray, bytearray, bytearray]
    starts, indptr = array("q", result[1]), array("q", result[2])
    terms, counts = array("i", result[3]), array("i", result[4])
    vocabulary = [result[0][a:b].decode() for a, b in pairwise(starts)]
    assert len(indptr) == len(texts) + 1
    assert len(terms) == len(counts) == indptr[-1]
    rows = [[(vocabulary[t], n) for t, n in zip(terms[a:b], counts[a:b], strict=True)] for a, b in pairwise(indptr)]
    return vocabulary, rows


def expected_counts(tokens: list[list[str]]) -> tuple[list[str], list[list[tuple[str, int]]]]:
    vocabulary = list(dict.fromkeys(token for row in tokens for token in row))
    return vocabulary, [list(Counter(row).items()) for row in tokens]


@needs_c
@given(st.lists(any_text, max_size=6))
def test_counts_are_those_of_the_tokens(texts: list[str]) -> None:
    raw = [text.encode("utf-8", "replace") for text in texts]
    assert count(raw) == expected_counts([english.analyze(text.decode()) for text in raw])


@needs_c
@given(st.lists(st.one_of(st.binary(), any_text.map(lambda text: text.encode("utf-8", "replace"))), max_size=6))
@example(["x".join("\t\n\v\f\r \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\u200b\x1c").encode()])
@example([b"a\xc2\xa0b\xe3\x80\x80c\x1cd \xff\xfe \xf0\x9f\x98"])
def test_whitespace_counts(raw: list[bytes]) -> None:
    fields = [[field for field in SPACE.split(text.decode("utf-8", "replace")) if field] for text in raw]
    assert count(raw, 1) == expected_counts(fields)


@needs_c
def test_counts_of_many_terms_and_long_ones() -> None:
    """Enough to grow every table, and more tokens than are remembered; the stemmer leaves such tokens alone."""
    words = ["x" * (i % 40) + f"w{i}" for i in range(450_000)]
    texts = [" ".join(words[at : at + 50_000]) for at in range(0, len(words), 50_000)]
    texts.append(texts[-1])
    raw = [text.encode() for text in texts]
    expected = expected_counts([text.split() for text in texts])
    assert count(raw) == expected
    assert count(raw, 1) == expected
    assert count([b"y" * 300, b"y" * 5000], 1)[0] == ["y" * 300, "y" * 5000]


@needs_c
def test_counts_on_threads_are_the_same() -> None:
    raw = [f"patient {i} has anaemia and {i * i} platelets".encode() for i in range(2000)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(count, [raw] * 4))
    assert all(result == results[0] for result in results)


@needs_c
def test_offsets_may_leave_bytes_out_and_need_not_be_aligned() -> None:
    buffer = b"-" + array("q", [4, 7, 7, 11]).tobytes()
    result = fast.count_terms(memoryview(b"one two three four"), memoryview(buffer)[1:], 0)
    assert result[0] == b"twothr"
    assert list(array("q", result[2])) == [0, 1, 1, 2]


@needs_c
@pytest.mark.parametrize("offsets", [[], [0, 4], [-1, 2], [2, 1], [0, 2**62], [3, 9], [-(2**63), 2**63 - 1]])
def test_bad_offsets(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        fast.count_terms(b"abc", array("q", offsets), 0)


@needs_c
def test_bad_arguments() -> None:
    one = array("q", [0])
    with pytest.raises(ValueError, match="offsets"):
        fast.count_terms(b"", b"123456789", 0)
    with pytest.raises(ValueError, match="analyzer"):
        fast.count_terms(b"", one, 3)
    with pytest.raises(TypeError):
        fast.count_terms("text", one, 0)
    with pytest.raises(TypeError):
        fast.analyze("text")
    with pytest.raises(BufferError):
        fast.analyze(memoryview(b"abcd")[::2])
    assert fast.count_terms(b"", one, 0) == (b"", bytes(8), bytearray(8), bytearray(), bytearray())


LUCENE_STEMS: list[tuple[str, str]] = json.loads((Path(__file__).parent / "fixtures/lucene_stems.json").read_text())


def test_stems_are_lucenes() -> None:
    assert [(word, stem(word)) for word, _ in LUCENE_STEMS] == [(word, expected) for word, expected in LUCENE_STEMS]


@pytest.mark.parametrize("word", ["", "a", "is", "by", "é", "𐐨"])
def test_short_words_are_left_alone(word: str) -> None:
    assert stem(word) == word


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    assert stem("𐐨s") == "𐐨"
    assert stem("és") == "és"
    assert stem("x𐐨ated") == "x𐐨ate"


@given(st.text(st.sampled_from("aeiouylstzgnrbmdcfv" + "é𐐨ß"), max_size=14))
def test_a_stem_keeps_the_start_and_is_no_longer(word: str) -> None:
    result = stem(word)
    assert len(result) <= len(word)
    assert result[:-2] == word[: max(len(result) - 2, 0)]


@given(st.text())
def test_any_text_has_a_stem(word: str) -> None:
    assert bool(stem(word)) == bool(word)


NLTK_STEMS: list[tuple[str, str]] = json.loads((Path(__file__).parent / "fixtures/nltk_stems.json").read_text())


def test_stems_are_nltks() -> None:
    assert [(word, stem_nltk(word)) for word, _ in NLTK_STEMS] == [(word, expected) for word, expected in NLTK_STEMS]


@pytest.mark.parametrize("analyzer", [PYTHON["nano-english"], get_analyzer("nano-english")])
def test_nano_terms(analyzer: Analyzer) -> None:
    terms = [term for word, term in NLTK_STEMS if word not in english.NANO_STOP_WORDS]
    assert analyzer(" ".join(word.upper() for word, _ in NLTK_STEMS)) == terms
    assert analyzer("") == analyzer("ñ 漢字 — the THE was") == []
    assert analyzer("Naïve β-blocker, HbA1c 7.5% (patient's)") == [
        "na", "ve", "blocker", "hba1c", "7", "5", "patient", "s",
    ]  # fmt: skip


def test_the_stop_list_has_seventy_four_words() -> None:
    assert len(english.NANO_STOP_WORDS) == 74
    assert {"themselves", "yourselves", "i"} <= english.NANO_STOP_WORDS
    assert not {"not", "no", "do", "can"} & english.NANO_STOP_WORDS


@needs_c
def test_a_token_of_any_length_is_one_token() -> None:
    long = "ab" * 2500 + "s"
    assert get_analyzer("nano-english")(long) == PYTHON["nano-english"](long) == [long[:-1]]
    counted = get_analyzer("nano-english").count(TextColumn.from_texts([long, "a " + long]))
    assert list(counted.vocabulary.terms) == [long[:-1]]


@needs_c
@given(st.lists(st.text(st.one_of(st.sampled_from("aeiouylsdingrtAE 09-'é漢\ud800"), st.characters())), max_size=4))
def test_nano_terms_agree_in_c_and_python(texts: list[str]) -> None:
    native, python = get_analyzer("nano-english"), PYTHON["nano-english"]
    assert [native(text) for text in texts] == [python(text) for text in texts]
    clean = [text.encode(errors="replace").decode() for text in texts]
    one, other = (analyzer.count(TextColumn.from_texts(clean)) for analyzer in (native, python))
    assert list(one.vocabulary.terms) == list(other.vocabulary.terms)
    assert [a.tolist() for a in one[1:]] == [a.tolist() for a in other[1:]]
