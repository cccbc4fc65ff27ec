"""A page in one file: a template of `assets/`, filled in, that loads nothing and runs only its own.

The content security policy allows the page's script and style by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from pathlib import Path

from .sanitize import printable

_ASSETS = Path(__file__).with_name("assets")


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its ``%%NAME%%`` filled in.

    Args:
        parts: texts by name, already safe where they stand; ``STYLE`` and, if there is one,
            ``SCRIPT`` make the ``POLICY``.
    """
    script = f"script-src '{source_of(parts['SCRIPT'])}'; " if "SCRIPT" in parts else ""
    policy = (
        f"default-src 'none'; {script}style-src '{source_of(parts['STYLE'])}'; "
        "base-uri 'none'; form-action 'none'"
    )
    known = {"POLICY": policy, **parts}
    # One pass over the template: nothing that was put in is looked at again.
    head, *rest = asset(template).split("%%")
    return head + "".join(known[part] if i % 2 == 0 else part for i, part in enumerate(rest))


def source_of(text: str) -> str:
    """Return the source expression by which a policy allows one script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def markup(text: str) -> str:
    """Return foreign text as HTML and SVG take it: no markup, no control characters."""
    return html.escape(printable(text))


def svg_text(style: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    """Return a text of SVG: its class, place, and which part of it is at x."""
    place = f'text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{style}" {place}>{markup(text)}</text>'
