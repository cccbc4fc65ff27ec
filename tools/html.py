"""Converts HTML to plain text: headings, lists, links and tables as a model reads them.

The parser is our own: that of the standard library takes hours for some pages of a few megabytes,
and raises for others. Here each step continues where the one before it ended.
"""

from __future__ import annotations

import html
import re
from collections import Counter

MAX_HREF = 300  # characters of a link's address

_SKIPPED = frozenset({"script", "style", "template", "svg", "noscript", "head", "iframe", "object"})
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table"),
        *("tr", "ul"),
    }
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKUP = re.compile(r"<[a-zA-Z/!?]")
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_TAG_STEP = re.compile(r""">|=\s*(["'])""")  # the end of a tag, or a value with ">" perhaps
_ATTRIBUTE = re.compile(r"""([^\s/>=]++)\s*+(?:=\s*+("[^"]*+"|'[^']*+'|[^\s>]*+))?""")
_RAW_END = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style")}


def html_to_text(page: str) -> str:
    """Return the text of a page, blocks on lines of their own; any page is accepted."""
    reader = _Reader()
    at = 0
    while (found := _MARKUP.search(page, at)) is not None:
        start = found.start()
        reader.data(page[at:start])
        name = _NAME.match(page, start + (2 if found[0] == "</" else 1))
        if name is None:  # a comment, a declaration, or what is read as one
            mark = "-->" if page.startswith("<!--", start) else ">"
            end = page.find(mark, start + 2)
            at = len(page) if end < 0 else end + len(mark)
            continue
        if (end := _tag_end(page, name.end())) < 0:
            at = start  # it never ends: text
            break
        tag, at = name[0].lower(), end + 1
        if found[0] == "</":
            reader.end(tag)
            continue
        reader.start(tag, page[name.end() : end])
        if page[end - 1] == "/":
            reader.end(tag)
        elif tag in _RAW_END:
            raw_end = _RAW_END[tag].search(page, at)
            at = len(page) if raw_end is None else raw_end.start()
    reader.data(page[at:])
    return reader.text()


def _tag_end(page: str, at: int) -> int:
    """Return the index of a tag's unquoted ">", or -1."""
    while (found := _TAG_STEP.search(page, at)) is not None:
        if found[0] == ">":
            return found.start()
        close = page.find(found[1], found.end())
        at = found.end() if close < 0 else close + 1
    return -1


def _attribute(text: str, name: str) -> str:
    """Return the value of an attribute; empty for none."""
    for found in _ATTRIBUTE.finditer(text):
        if found[1].lower() == name:
            value = found[2] or ""
            return _unescaped(value[1:-1] if value[:1] in ('"', "'") else value)
    return ""


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


class _Reader:
    """Takes the tags and the text between them, in order."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._title: list[str] = []
        self._skipping: list[str] = []
        self._skipped = Counter[str]()  # how often each is in that list, which may be long
        self._link: tuple[str, int] | None = None  # the open one, and where its text begins
        self._in_title = False
        self._pre = 0

    def start(self, tag: str, attributes: str) -> None:
        """Take the start of an element."""
        if tag == "title" and not self._title:
            self._in_title = True
        if tag in _SKIPPED:
            self._skipping.append(tag)
            self._skipped[tag] += 1
        if tag == "body" or (tag in _BLOCKS and self._skipping == ["head"]):
            self._skipping.clear()  # a head that was never closed
            self._skipped.clear()
        if self._skipping:
            return
        if tag in _BLOCKS or tag == "br":
            self._out.append("\n")
        self._pre += tag == "pre"
        if tag in _HEADINGS:
            self._out.append(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self._out.append("- ")
        elif tag in ("td", "th"):
            self._out.append(" | ")
        elif tag == "img" and (alt := _attribute(attributes, "alt")):
            self._out.append(f"[image: {alt}]")
        elif tag == "a":
            self._link = _attribute(attributes, "href"), len(self._out)

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        if tag == "title":
            self._in_title = False
        if self._skipping:
            if self._skipped[tag]:
                while (last := self._skipping.pop()) != tag:
                    self._skipped[last] -= 1
                self._skipped[tag] -= 1
            return
        if tag == "a" and self._link is not None:
            (href, start), self._link = self._link, None
            text = "".join(self._out[start:]).strip()
            if text and re.match(r"https?:|/|\.", href) and len(href) <= MAX_HREF and text != href:
                self._out.append(f" ({href})")
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag in _BLOCKS:
            self._out.append("\n")

    def data(self, data: str) -> None:
        """Add text as it is in the page."""
        data = _unescaped(data)
        if self._in_title:
            self._title.append(data)
        elif not self._skipping:
            if not self._pre:
                data = re.sub(r"\s+", " ", data)
                if not self._out or self._out[-1].endswith(("\n", " ")):
                    data = data.lstrip()
            if data:
                self._out.append(data)

    def text(self) -> str:
        """Return the text so far, with at most one blank line in a row."""
        body = "\n".join(line.rstrip(" \t") for line in "".join(self._out).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        title = " ".join("".join(self._title).split())
        return f"{title}\n\n{body}" if title else body
