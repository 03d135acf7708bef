"""What a reader of an SVG sees: its texts as boxes."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

from r2med.report.chart import BOLD, Box
from r2med.report.svg import Canvas, text_width

NAME = "{http://www.w3.org/2000/svg}"


def text_boxes(svg: str) -> list[tuple[str, Box]]:
    boxes = []
    for element in ET.fromstring(svg).iter(f"{NAME}text"):
        text, size = element.text or "", float(element.attrib["font-size"])
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        width = text_width(text, size) * (BOLD if element.get("font-weight") else 1)
        before = {"start": 0.0, "middle": width / 2, "end": width}[element.attrib["text-anchor"]]
        if re.match(r"rotate\(-90", element.get("transform", "")):
            boxes.append((text, Box(x - 0.75 * size, y - width + before, x + 0.2 * size, y + before)))
        else:
            boxes.append((text, Box(x - before, y - 0.75 * size, x - before + width, y + 0.2 * size)))
    return boxes


def check_legible(canvas: Canvas) -> list[str]:
    """No text overlaps another or leaves the picture, and none is tiny; returns the texts."""
    svg = canvas.render()
    page = Box(0, 0, canvas.width, canvas.height)
    boxes = text_boxes(svg)
    for text, box in boxes:
        assert box.within(page), text
    for (first, a), (second, b) in combinations(boxes, 2):
        assert not a.meets(b), (first, second)
    assert min(map(float, re.findall(r'font-size="([\d.]+)"', svg))) >= 11
    return [text for text, _ in boxes]
