"""Write the word-break tables of the analyzer, for Python and for C, from `wordbreak_ranges.txt`.

The tokenizer is a deterministic automaton over character classes: the longest match from a position is a token, and
where nothing matches one character is skipped. This tool holds the grammar (UAX #29 word boundaries, with the emoji
sequences of UTS #51 and the special cases of Lucene's StandardTokenizer), turns it into the smallest automaton, and
writes both languages' tables, so that the two implementations cannot drift apart.

Run `python tools/wordbreak_tables.py` after a change; with `--check` it only says whether the files are up to date.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain
from pathlib import Path

HERE = Path(__file__).resolve().parent
RANGES = HERE / "wordbreak_ranges.txt"
PYTHON_DATA = HERE.parent / "src/r2med/text/wordbreak.txt"
C_TABLES = HERE.parent / "src/r2med/_native/tables.h"
CODE_POINTS = 0x110000
HIGH = 0x20000  # from here on there is little but Han and the tags: C looks up ranges, not pages
PAGE = 64

Range = tuple[int, int]
Lower = tuple[int, int, int, int]  # first, last, step, lower case of first


# --- the source -------------------------------------------------------------------------------------------------


def read_source(path: Path) -> tuple[dict[str, list[Range]], list[Lower]]:
    """Read the ranges of each class in file order, and the lower-case mappings."""
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = current = []
        elif line and not line.startswith("#"):
            current.extend(line.split())
    lower = [parse_lower(item) for item in sections.pop("Lower")]
    return {name: [parse_range(item) for item in items] for name, items in sections.items()}, lower


def parse_range(item: str) -> Range:
    first, _, last = item.partition("-")
    return int(first, 16), int(last or first, 16)


def parse_lower(item: str) -> Lower:
    source, _, target = item.partition(">")
    span, _, step = source.partition("/")
    return *parse_range(span), int(step or "1", 16), int(target, 16)


# --- the grammar ------------------------------------------------------------------------------------------------


class Nfa:
    """A non-deterministic automaton under construction; its states are numbers."""

    def __init__(self) -> None:
        self.moves: list[dict[str, list[int]]] = []  # by state: where a character of a class leads
        self.links: list[list[int]] = []  # by state: where nothing leads

    def state(self) -> int:
        """Add a state."""
        self.moves.append({})
        self.links.append([])
        return len(self.moves) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """Collect all states reached without reading a character."""
        seen = set(states)
        todo = list(seen)
        while todo:
            new = set(self.links[todo.pop()]) - seen
            seen |= new
            todo += new
        return frozenset(seen)


# A regular expression over classes: it adds itself to an automaton behind a state, and gives the state behind itself.
Pattern = Callable[[Nfa, int], int]


def one(*classes: str) -> Pattern:
    """Match one character of any of the classes."""

    def add(nfa: Nfa, at: int) -> int:
        end = nfa.state()
        for name in classes:
            nfa.moves[at].setdefault(name, []).append(end)
        return end

    return add


def seq(*parts: Pattern) -> Pattern:
    return lambda nfa, at: reduce(lambda state, part: part(nfa, state), parts, at)


def either(*parts: Pattern) -> Pattern:
    def add(nfa: Nfa, at: int) -> int:
        end = nfa.state()
        for part in parts:
            nfa.links[part(nfa, at)].append(end)
        return end

    return add


def some(part: Pattern) -> Pattern:
    """Match one or more."""

    def add(nfa: Nfa, at: int) -> int:
        start = nfa.state()
        nfa.links[at].append(start)
        end = part(nfa, start)
        nfa.links[end].append(start)
        return end

    return add


def maybe(part: Pattern) -> Pattern:
    return either(part, seq())


def many(part: Pattern) -> Pattern:
    return maybe(some(part))


# WB4: combining marks and format characters belong to the character before them.
SELECTORS = ("TextSelector", "EmojiSelector")
MARKS = ("Extend", "ComplexExtend", "ZWJ", "Keycap", "EmojiModifier", "TagSpec", "TagTerm")
EXTEND = many(one(*MARKS, *SELECTORS))
EXTEND_PLAIN = many(one(*MARKS))  # inside emoji the selectors have a meaning of their own


def extended(*classes: str) -> Pattern:
    return seq(one(*classes), EXTEND)


def joined(part: Pattern, *middles: str) -> Pattern:
    """Match runs of `part`, where a single middle character between two of them, or connectors, do not break."""
    return seq(part, many(seq(either(CONNECTORS, extended(*middles)), part)))


CONNECTORS = many(extended("ExtendNumLet"))
LETTER = extended("ALetter", "HebrewLetter", "LetterPictograph")
NUMBER = extended("Numeric", "Digit")
KATAKANA = joined(extended("Katakana"), "ExtendNumLet")
HEBREW = seq(  # WB7a-c: geresh after, gershayim between Hebrew letters
    extended("HebrewLetter"),
    either(extended("SingleQuote"), seq(extended("DoubleQuote"), extended("HebrewLetter"))),
)
LETTERS = joined(LETTER, "MidLetter", "MidNumLet", "SingleQuote")  # WB5-7
NUMBERS = joined(NUMBER, "MidNum", "MidNumLet", "SingleQuote")  # WB8, 11, 12
STRETCH = either(KATAKANA, some(either(HEBREW, LETTERS, NUMBERS)))  # WB9, 10, 13
WORD = seq(  # WB13a, b
    CONNECTORS,
    STRETCH,
    many(seq(some(extended("ExtendNumLet")), STRETCH)),
    CONNECTORS,
)

# UTS #51, instead of WB3c, 15 and 16: an emoji sequence is one token.
PICTOGRAPH = seq(many(one("ZWJ")), one("Pictograph", "LetterPictograph"), EXTEND_PLAIN, maybe(one("EmojiSelector")))
TONED = seq(one("EmojiModifier"), EXTEND_PLAIN)
ELEMENT = either(PICTOGRAPH, TONED)
EMOJI = seq(
    ELEMENT,
    either(many(seq(one("ZWJ"), ELEMENT)), seq(some(one("TagSpec")), one("TagTerm"))),
)
KEYCAP = seq(one("Digit", "KeycapSymbol"), EXTEND_PLAIN, maybe(one("EmojiSelector")), one("Keycap"), EXTEND_PLAIN)
FLAG = seq(extended("RegionalIndicator"), extended("RegionalIndicator"))

# Scripts written without spaces: South-East Asian runs are kept whole, Han and Hiragana stand alone.
COMPLEX = some(extended("ComplexContext", "ComplexExtend"))
TOKEN = either(WORD, EMOJI, KEYCAP, FLAG, COMPLEX, extended("Han"), extended("Hiragana"))


# --- the automaton ----------------------------------------------------------------------------------------------


def determinise(pattern: Pattern, classes: list[str]) -> tuple[list[list[int]], list[bool]]:
    """Make transition rows by state and class, and say which states accept; state 0 is dead, 1 the start."""
    nfa = Nfa()
    entry = nfa.state()
    end = pattern(nfa, entry)
    order = [frozenset[int](), nfa.closure([entry])]
    number = {subset: i for i, subset in enumerate(order)}
    rows = []
    for subset in order:  # it grows as it is walked
        row = []
        for name in classes:
            target = nfa.closure(chain.from_iterable(nfa.moves[state].get(name, ()) for state in subset))
            if target not in number:
                number[target] = len(order)
                order.append(target)
            row.append(number[target])
        rows.append(row)
    return rows, [end in subset for subset in order]


def minimise(rows: list[list[int]], accepts: list[bool]) -> tuple[list[list[int]], list[bool]]:
    """Find the smallest equal automaton (Moore's refinement); states keep the order of their first member."""
    group = [int(flag) for flag in accepts]
    while True:
        keys: dict[tuple[int, ...], int] = {}
        refined = [keys.setdefault((group[s], *(group[t] for t in row)), len(keys)) for s, row in enumerate(rows)]
        if len(keys) == len(set(group)):
            break
        group = refined
    first = [refined.index(g) for g in range(len(keys))]
    return [[refined[t] for t in rows[s]] for s in first], [accepts[s] for s in first]


# --- the files --------------------------------------------------------------------------------------------------


def show(ranges: Iterable[Range]) -> str:
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in ranges)


def python_tables(
    classes: dict[str, list[Range]], lower: list[Lower], rows: list[list[int]], accepts: list[bool]
) -> str:
    """Sections of words, as `r2med.text.english` reads them."""
    accepting = " ".join(str(s) for s, flag in enumerate(accepts) if flag)
    mapping = " ".join(f"{show([(a, b)])}/{step:X}>{target:X}" for a, b, step, target in lower)
    sections = {f"class {name}": show(ranges) for name, ranges in classes.items()}
    sections |= {"transitions": " ".join(bytes(row).hex() for row in rows), "accepting": accepting, "lower": mapping}
    parts = [
        "# Word-break classes, automaton and lower-casing: written by tools/wordbreak_tables.py, do not edit.\n"
        "# Classes are numbered from 1 (0 is Other), with ranges of code points in hexadecimal. Transitions: a row\n"
        "# of classes per state, a byte each; state 0 is the dead one, 1 the start. Lower: first-last/step>lower.\n"
    ]
    for name, words in sections.items():
        parts.append(f"[{name}]\n{textwrap.fill(words, 118, break_on_hyphens=False, break_long_words=False)}\n")
    return "\n".join(parts)


def c_array(kind: str, name: str, size: str, values: Iterable[object]) -> str:
    body = textwrap.fill(", ".join(str(v) for v in values), 116, break_on_hyphens=False)
    return f"static const {kind} {name}{size} = {{\n{body}}};"


def c_header(classes: dict[str, list[Range]], lower: list[Lower], rows: list[list[int]], accepts: list[bool]) -> str:
    of = bytearray(CODE_POINTS)
    for number, ranges in enumerate(classes.values(), 1):
        for first, last in ranges:
            of[first : last + 1] = bytes([number]) * (last + 1 - first)
    pages: dict[bytes, int] = {}
    index = [pages.setdefault(bytes(of[at : at + PAGE]), len(pages)) for at in range(0, HIGH, PAGE)]
    high = [
        (max(first, HIGH), last, number)
        for number, ranges in enumerate(classes.values(), 1)
        for first, last in ranges
        if last >= HIGH
    ]
    states, width = len(rows), len(rows[0])
    return "\n".join(
        [
            "/* Word-break classes, automaton and lower-casing: written by tools/wordbreak_tables.py, do not edit. */",
            "#ifndef R2MED_TABLES_H",
            "#define R2MED_TABLES_H",
            "#include <stdint.h>",
            "",
            f"#define WB_CLASSES {width}",
            f"#define WB_STATES {states}",
            f"#define WB_PAGE_BITS {PAGE.bit_length() - 1}",
            f"#define WB_HIGH 0x{HIGH:X} /* classes from here on: wb_high */",
            "",
            c_array("uint8_t" if len(pages) <= 256 else "uint16_t", "wb_index", f"[{len(index)}]", index),
            c_array("uint8_t", "wb_pages", f"[{len(pages) * PAGE}]", chain.from_iterable(pages)),
            "",
            "static const struct { uint32_t first, last; uint8_t cls; }",
            f"wb_high[{len(high)}] = {{",
            textwrap.fill(", ".join(f"{{0x{a:X},0x{b:X},{c}}}" for a, b, c in sorted(high)), 116) + "};",
            "",
            "/* next state by state and class; 0 is the dead state, 1 the start */",
            c_array(
                "uint8_t", "wb_next", f"[{states}][{width}]", ("{" + ",".join(map(str, row)) + "}" for row in rows)
            ),
            c_array("uint8_t", "wb_accepts", f"[{states}]", map(int, accepts)),
            "",
            "/* simple lower-casing: every step-th code point of first..last, the first one going to lower */",
            "static const struct { uint32_t first, last; uint32_t step; uint32_t lower; }",
            f"lower_ranges[{len(lower)}] = {{",
            textwrap.fill(", ".join(f"{{0x{a:X},0x{b:X},{s},0x{t:X}}}" for a, b, s, t in sorted(lower)), 116) + "};",
            "",
            "#endif",
            "",
        ]
    )


def build() -> dict[Path, str]:
    """Make the content of each generated file."""
    classes, lower = read_source(RANGES)
    rows, accepts = minimise(*determinise(TOKEN, ["Other", *classes]))
    return {
        PYTHON_DATA: python_tables(classes, lower, rows, accepts),
        C_TABLES: c_header(classes, lower, rows, accepts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    check = parser.parse_args().check
    texts = build()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="ascii") != text]
    for path in stale:
        if check:
            sys.stderr.write(f"{path.name} is out of date: run python tools/wordbreak_tables.py\n")
        else:
            path.write_text(texts[path], encoding="ascii")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
