"""HTML pages in one file without network access: a common shell and style.

The content security policy allows the page's script and style by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from .sanitize import converted, printable

_ASSETS = Path(__file__).with_name("assets")


def asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def page(
    title: str,
    *body: str,
    styles: Iterable[str] = (),
    script: str = "",
    data: Any = None,
    allowed: str = "",
    head: str = "",
) -> str:
    """Return a whole HTML document with inline style and script.

    Args:
        title: any text.
        body: markup, in which foreign text went through `markup`.
        styles: assets in addition to those of every page.
        script: runs at the end of the page.
        data: what the script finds as JSON in the element ``data``.
        allowed: more of a content security policy, such as ``connect-src 'self'; ``.
        head: markup for the head of the page.
    """
    style = "\n".join(asset(name) for name in ("theme.css", "charts.css", *styles))
    parts = list(body)
    if data is not None:
        parts.append(f'<script type="application/json" id="data">{embedded(data)}</script>')
    if script:
        parts += ["<noscript>This page needs the script that it carries.</noscript>"]
        parts += [f"<script>{script}</script>"]
        allowed += f"script-src '{_source(script)}'; "
    known = {
        "POLICY": f"default-src 'none'; {allowed}style-src '{_source(style)}'; "
        "base-uri 'none'; form-action 'none'",
        "TITLE": markup(title),
        "HEAD": head,
        "STYLE": style,
        "BODY": "\n".join(parts),
    }
    # One pass over the template: nothing that was put in is looked at again.
    head, *rest = asset("page.html").split("%%")
    return head + "".join(known[part] if i % 2 == 0 else part for i, part in enumerate(rest))


def _source(text: str) -> str:
    """Return the source expression by which a policy allows one script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def markup(text: str) -> str:
    """Escape foreign text for HTML and SVG, control characters included."""
    return html.escape(printable(text))


def embedded(value: Any) -> str:
    """Return JSON that is safe in a ``script`` element: it has no ``<``, ``>`` or ``&``."""
    clean = converted(value, _clean, lambda name: printable(str(name)))
    text = json.dumps(clean, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _clean(value: Any) -> Any:
    """Return a text as printable, and a number that JSON has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return printable(str(value), block=True)


def header(title: str, *about: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """Return a page's HTML header: title, lines about it, links to sections by id and title."""
    lines = "".join(f'<p class="quiet">{markup(line)}</p>' for line in about)
    anchors = " ".join(f'<a href="#{name}">{markup(text)}</a>' for name, text in links)
    navigation = f'<nav aria-label="sections">{anchors}</nav>' if links else ""
    return f"<header><h1>{markup(title)}</h1>{lines}{navigation}</header>"


def section(title: str, *body: str, about: str = "", name: str = "") -> str:
    """Return an HTML section with its title; ``name`` is its id for links of the header."""
    given = f' id="{name}"' if name else ""
    quiet = f'<p class="quiet">{markup(about)}</p>' if about else ""
    return f"<section{given}><h2>{markup(title)}</h2>{quiet}{''.join(body)}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return an HTML table of texts; ``words`` are the left-aligned columns."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        kinds = (' class="word"' if n in words else "" for n in range(len(texts)))
        found = zip(kinds, texts, strict=True)
        return "".join(f"<{tag}{kind}>{markup(text)}</{tag.split()[0]}>" for kind, text in found)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return wide_table(cells('th scope="col"', head), body)


def wide_table(head: str, body: str, kind: str = "") -> str:
    """Return an HTML table, from markup, that scrolls where it is wider than its page."""
    return (
        f'<div class="wide" tabindex="0"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
