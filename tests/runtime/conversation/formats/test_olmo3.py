"""OLMo 3's calls: one a line, with JSON as its template writes it, or Python as models do."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.format_checks import same

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall

FORM = FORMATS["olmo3"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("f()", {}),
        ('f(a="x", b=-1.5e3, c=true, d=null)', {"a": "x", "b": -1500.0, "c": True, "d": None}),
        ('f(a="two\\nlines\\/\\u00e9", b="it\'s True")', {"a": "two\nlines/é", "b": "it's True"}),
        ("f(a='say \"q\"', b=True, c=None)", {"a": 'say "q"', "b": True, "c": None}),
        ('f( a = [1, {"k": [2]}] )', {"a": [1, {"k": [2]}]}),
        ('f(a="</function_calls>")', {"a": "</function_calls>"}),
    ],
)
def test_reads_json_and_python(text: str, arguments: dict[str, Any]) -> None:
    """A call alone, and two of them: a line each, or with commas between them."""
    (call,) = FORM.parse(text)

    assert (call.name, call.arguments) == ("f", arguments)
    for between in ("\n", " \n\n ", ", "):
        both = FORM.parse(f"{text}{between}g()\n")
        assert [(c.name, c.arguments) for c in both] == [("f", arguments), ("g", {})]
    body = FORM.render([call, call]).removeprefix(FORM.opening).removesuffix(FORM.closing)
    assert same(FORM.parse(body), [ToolCall("f", arguments)] * 2)


@pytest.mark.parametrize("text", ["f(", "f(1)", "f(a=)", "f(a=b)", "f(a='x)", "f(a=g())", "[f()]"])
def test_refuses_what_is_no_call(text: str) -> None:
    """No name, no value, code in a value's place: nothing of it is made up."""
    with pytest.raises(ValueError, match=r"call|argument"):
        FORM.parse(text)
