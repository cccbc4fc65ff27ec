"""HTML as plain text: headings, lists, links and tables as a model reads them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

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


def html_to_text(html: str) -> str:
    """The text of a page, blocks on lines of their own; never fails, whatever the page is."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._title: list[str] = []
        self._skipping: list[str] = []
        self._link: tuple[str, int] | None = None  # the open one, and where its text begins
        self._in_title = False
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag in _SKIPPED:
            self._skipping.append(tag)
        if tag == "body" or (tag in _BLOCKS and self._skipping == ["head"]):
            self._skipping.clear()  # a head that was never closed
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
        elif tag == "img" and (alt := dict(attrs).get("alt")):
            self._out.append(f"[image: {alt}]")
        elif tag == "a":
            self._link = dict(attrs).get("href") or "", len(self._out)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipping:
            if tag in self._skipping:
                while self._skipping.pop() != tag:
                    pass
            return
        if tag == "a" and self._link is not None:
            (href, start), self._link = self._link, None
            said = "".join(self._out[start:]).strip()
            if said and re.match(r"https?:|/|\.", href) and len(href) <= MAX_HREF and said != href:
                self._out.append(f" ({href})")
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag in _BLOCKS:
            self._out.append("\n")

    def handle_data(self, data: str) -> None:
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
        """What was read, with no more than one blank line in a row."""
        body = "\n".join(line.rstrip(" \t") for line in "".join(self._out).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        title = " ".join("".join(self._title).split())
        return f"{title}\n\n{body}" if title else body
