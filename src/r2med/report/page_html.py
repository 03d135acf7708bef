"""Task and group pages as HTML: the Markdown that r2med writes, turned into elements, with pictures and links.

Only what those pages use is known: headings, paragraphs, lists, quotations, tables, code, bold, links. Everything else
means itself, so a page out of a folder of somebody else's is as harmless as any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from ..core.untrusted import printable

_INLINE = re.compile(
    r"\\(?P<escaped>.)|`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|\[(?P<text>[^\]]*)\]\((?P<href>[^)\s]*)\)"
)
_LOCAL = re.compile(r"\[([^\]]*)\]\((?!https://)[^)\s]*\)")
_HEADING = re.compile(r"(#{1,4}) (.*)")
_CELL = re.compile(r"(?<!\\)\|")
_PER_CENT = re.compile(r"(?<=\d) %")  # a line does not break there
_OWN_PAGE = re.compile(r"[\w.-]+\.(?:md|json|html)")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · r2med</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="masthead">
<a class="brand" href="index.html"><span aria-hidden="true">◎</span> r2med</a>
<nav aria-label="Pages"><ul>{links}</ul></nav>
</header>
<main id="main" class="written" tabindex="-1">
{body}
</main>
<footer class="bottom"><p>Scores lie between 0 and 1. Not a clinical decision system.</p></footer>
</body>
</html>
"""


def markdown_html(text: str, pictures: Mapping[str, str] | None = None, *, linked: bool = True) -> str:
    """The elements of a page; `pictures` are SVG by the heading below which they stand.

    Without `linked`, links to files beside the page are only their text.
    """
    shown, out = dict(pictures or {}), list[str]()
    if not linked:
        text = _LOCAL.sub(r"\1", text)
    for kind, lines in groupby(text.splitlines(), key=_kind):
        block = list(lines)
        if kind == "heading":
            for line in block:
                out += _heading(line, shown)
        elif kind == "table":
            out.append(_table(block))
        elif kind == "list":
            out.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in block) + "</ul>")
        elif kind == "quote":
            parts = " ".join(line[1:].strip() or "\n" for line in block).split("\n")
            out.append("<blockquote>" + "".join(f"<p>{_inline(part.strip())}</p>" for part in parts) + "</blockquote>")
        elif kind == "text":
            out.append(f'<p class="lead">{_inline(" ".join(block))}</p>')
    return "\n".join(out)


def _kind(line: str) -> str:
    if _HEADING.match(line):
        return "heading"
    starts = {"|": "table", ">": "quote"}
    return "" if not line.strip() else "list" if line.startswith("- ") else starts.get(line[0], "text")


def _heading(line: str, pictures: dict[str, str]) -> Iterator[str]:
    match = _HEADING.match(line)
    assert match is not None
    level, title = len(match[1]), match[2]
    yield f"<h{level}>{_inline(title)}</h{level}>"
    if picture := pictures.get(title):
        yield figure(picture)


def figure(picture: str) -> str:
    """An SVG picture with its own title as the caption."""
    caption = picture.partition("<title>")[2].partition("</title>")[0]
    return f'<figure class="chart">{picture}<figcaption>{caption}.</figcaption></figure>'


def _table(lines: Sequence[str]) -> str:
    head, marks, *rows = ([cell.strip() for cell in _CELL.split(line.strip())[1:-1]] for line in lines)
    left = [mark.startswith(":") for mark in marks]

    def row(tag: str, cells: Sequence[str]) -> str:
        columns = zip(cells, left, strict=False)
        return "".join(f"<{tag}{' class=left' * at_left}>{_inline(cell)}</{tag}>" for cell, at_left in columns)

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    whole = f"<table><thead><tr>{row('th', head)}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="Table" tabindex="0">{whole}</div>'


def _inline(text: str) -> str:
    out, at = list[str](), 0
    for match in _INLINE.finditer(text):
        out += [_plain(text[at : match.start()]), _element(match)]
        at = match.end()
    return "".join([*out, _plain(text[at:])])


def _element(match: re.Match[str]) -> str:
    if match["escaped"] is not None:
        return _plain(match["escaped"])
    if match["code"] is not None:
        return f"<code>{_plain(match['code'])}</code>"
    if match["bold"] is not None:
        return f"<strong>{_inline(match['bold'])}</strong>"
    href = match["href"].replace("\\", "")
    if href.startswith("https://"):
        return f'<a href="{escape(href)}" rel="noreferrer">{_inline(match["text"])}</a>'
    if _OWN_PAGE.fullmatch(href):
        return f'<a href="{escape(re.sub("[.]md$", ".html", href))}">{_inline(match["text"])}</a>'
    return _inline(match["text"])


def _plain(text: str) -> str:
    return escape(_PER_CENT.sub("\u00a0%", printable(text)))


def whole_page(title: str, body: str, links: Sequence[tuple[str, str]], here: str) -> str:
    """One page of the site: `links` are addresses and names of all pages, `here` the address of this one."""
    style = files("r2med.report.web").joinpath("static", "app.css").read_text("utf-8")
    items = "".join(
        f'<li><a href="{escape(address)}"{" aria-current=page" * (address == here)}>{_plain(name)}</a></li>'
        for address, name in links
    )
    return _PAGE.format(policy=_POLICY, title=_plain(title), style=style, links=items, body=body)
