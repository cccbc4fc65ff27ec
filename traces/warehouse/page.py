"""Reports as one self-contained HTML page without a script: tables, and bars as SVG.

A warehouse holds foreign text: control characters become escapes and markup becomes
text, and the page's policy allows its own style and nothing else.
"""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from typing import Any

from ..events import REGIMES
from ..html_page import header, markup, section, wide_table
from ..html_page import page as whole_page
from ..sanitize import printable
from .reports import Found, Report

_BOUNDS = {name: bound for (_, bound), name in REGIMES.items()}
_LONG = ("file", "example")


def page(title: str, about: str, found: Sequence[tuple[Report, Found]]) -> str:
    """Return the page of some reports, in their order."""
    stamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    links = [(report.name, report.title) for report, _ in found]
    sections = [_section(report, rows) for report, rows in found]
    about = f"{about}; made {stamp}"
    return whole_page(title, header(title, about, links=links), "<main>", *sections, "</main>")


def _section(report: Report, found: Found) -> str:
    body = _table(report, found) if found.rows else '<p class="quiet">No data.</p>'
    sql = report.sql
    query = f"<details><summary>SQL</summary><pre>{html.escape(sql)}</pre></details>" if sql else ""
    return section(report.title, body, query, about=report.about, name=report.name)


def _table(report: Report, found: Found) -> str:
    """Return a row for each; a bar by the report's bar column after the first word."""
    head, bar = [], _bar_after(report, found)
    for number, column in enumerate(found.columns):
        kind = ' class="word"' if column.kind == "text" else ""
        head.append(f'<th scope="col"{kind}>{markup(column.heading)}</th>')
        if number == bar:
            heading = next(c.heading for c in found.columns if c.name == report.bar)
            head.append(f'<th scope="col" class="word">{markup(heading)}</th>')
    largest = max((row[report.bar] or 0 for row in found.rows), default=0) if report.bar else 0
    rows = [_row(report, found, row, bar, largest) for row in found.rows]
    kind = ' class="matrix"' if report.matrix else ""
    return wide_table("".join(head), "".join(rows), kind)


def _bar_after(report: Report, found: Found) -> int | None:
    """Return the column that the bar follows: the last of the leading words."""
    if not report.bar:
        return None
    words = [column.kind == "text" for column in found.columns]
    return max(words.index(False) - 1, 0) if False in words else 0


def _row(report: Report, found: Found, row: dict[str, Any], bar: int | None, largest: float) -> str:
    cells = []
    for number, column in enumerate(found.columns):
        value = row[column.name]
        # A path or an answer is given whole: a page has room for it.
        shown = column.shown(value) if column.name not in _LONG else printable(str(value or ""))
        if report.matrix and column.kind == "share":
            cells.append(_heat(column.name, value, shown))
            continue
        kind = "word long" if column.name in _LONG else "word"
        attribute = f' class="{kind}"' if column.kind == "text" else ""
        cells.append(f"<td{attribute}>{html.escape(shown)}</td>")
        if number == bar:
            bound = _BOUNDS.get(str(row.get("regime")), "")
            cells.append(f'<td class="bar">{_bar(row[report.bar], largest, bound)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _bar(value: float | None, largest: float, bound: str) -> str:
    width = 100 * (value or 0) / largest if largest > 0 else 0
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.2f}" height="10"{_class(bound)}/></svg>'
    )


def _heat(regime: str, share: float | None, shown: str) -> str:
    """Return a matrix cell, darker for larger counts, up to a readable contrast."""
    return (
        '<td class="heat"><svg viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="1" height="1" fill-opacity="{0.45 * (share or 0):.3f}"'
        f"{_class(_BOUNDS.get(regime, ''))}/></svg><span>{html.escape(shown)}</span></td>"
    )


def _class(bound: str) -> str:
    return f' class="{bound}"' if bound else ""
