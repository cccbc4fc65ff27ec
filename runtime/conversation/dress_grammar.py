"""Constrains the arguments of a call that is written as plain text (see `call_dress`).

Free text keeps its fixed mask: a plain check of what was written sees where a known tool's name
and its arguments stand, and a matcher of that tool alone takes over up to the end of the call.
Where Python's arguments have no names it does not: they are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import GrammarError
from .dressed_call import Head
from .formats.lfm2 import Lfm2
from .formats.schemas import HARD, strict
from .formats.toolcalls import JSON_STYLE, quoted
from .matcher_tables import fresh_matcher

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from ..tokens.tokenizer import Tokenizer

_BLANK = r"[ \t\r\n]{0,60}"
_SPREAD = {
    "whitespace_flexible": True,
    "whitespace_pattern": _BLANK,
    "json_allowed_escapes": JSON_STYLE["json_allowed_escapes"],
}
"""JSON style of unconstrained models: flexible whitespace, often over several lines."""
_MORE = "MORE: /(?s:.*)/"  # a token may go on behind the call


def dress_matcher(
    tokenizer: Tokenizer, tool: Mapping[str, Any], head: Head, begun: str
) -> LLMatcher | None:
    """Return a matcher of the rest of a call whose arguments begin with `begun`.

    None where the tool has no grammar, or `begun` does not fit it.

    Args:
        tokenizer: of the model.
        tool: OpenAI-style schema.
        head: of the call.
        begun: of its arguments.
    """
    tokens = tokenizer.encode(f"{head.name}({begun}" if head.python else begun)
    for lenient in (False, True):
        try:
            rules = _python(tool, lenient) if head.python else _json(tool, head, lenient)
        except GrammarError:
            return None
        matcher = fresh_matcher(tokenizer, f"{rules}\n{_MORE}")
        if not matcher.is_error():
            fits = matcher.try_consume_tokens(tokens) == len(tokens)
            return matcher if fits and not matcher.is_accepting() else None
    return None


def _json(tool: Mapping[str, Any], head: Head, lenient: bool) -> str:
    schema = strict(tool["function"].get("parameters") or {}, HARD if lenient else ())
    style = {**_SPREAD, "lenient": lenient}
    rule = json.dumps({**schema, "type": "object", "x-guidance": style}, ensure_ascii=False)
    closers = " ".join(f'BLANK "{closer}"' for closer in head.closers)
    return f"start: arguments {closers} MORE\narguments: %json {rule}\nBLANK: /{_BLANK}/"


def _python(tool: Mapping[str, Any], lenient: bool) -> str:
    names = [tool["function"]["name"]] if lenient else []
    return f"start: call_0 MORE\n{Lfm2().grammar([tool], quoted, names)}"
