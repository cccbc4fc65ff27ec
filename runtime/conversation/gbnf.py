r"""Translates grammars from GBNF, llama.cpp's notation, to Lark.

    root ::= "yes" | "no" | [0-9]+ "."

The library translates it. Four things are decided before: characters that are written by four or
eight digits (``\u00e9``, ``\U0001F600``) become themselves, as the library writes them so that it
cannot read them again; ``.`` is any character, line breaks included; and a rule called ``start``,
or whose name begins with a digit, gets another name, as Lark has a meaning for these; a text is its
characters one by one, as GBNF knows no lexer and the library's takes ``"ab"`` wherever it can,
also where ``. .`` is meant. One thing is decided after it has parsed: a repetition inside another
one keeps its parentheses.

A text between slashes (``/[a-z]+/``), with which no grammar can begin, is a regular expression.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import GrammarError

_PIECES = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*")|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<any>\.)"""
    r"""|(?P<count>\{[^}]*\})|(?P<name>[A-Za-z0-9][A-Za-z0-9-]*)""",
    re.DOTALL,
)
_IN_REGEX = re.compile(r"\\.|/|\n", re.DOTALL)
_LETTER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def lark_of(grammar: str) -> str:
    """Translate a GBNF grammar to Lark; its first rule is `start`.

    Raises:
        GrammarError: it is not GBNF; says where.
    """
    if len(grammar) > 1 and grammar[0] == grammar[-1] == "/":
        inner = _IN_REGEX.sub(lambda m: {"/": r"\/", "\n": r"\n"}.get(m[0], m[0]), grammar[1:-1])
        return f"start: /{inner or '(?:)'}/"
    from llguidance import gbnf_to_lark as library

    try:
        rules = library.GrammarParser().parse(_PIECES.sub(_decided, grammar))
        library.resolve(rules)
        for rule in rules.values():
            _parenthesize(rule, library)
        ordered = sorted(rules.values(), key=lambda rule: rule.order)
        return "%llguidance {}\n\n" + "\n\n".join(map(str, ordered))
    except RecursionError:
        raise GrammarError("the GBNF grammar is nested too deeply") from None
    except Exception as error:  # the library raises plain ones
        raise GrammarError(f"not a GBNF grammar: {str(error).splitlines()[0]}") from error


def _parenthesize(node: Any, library: Any) -> None:
    """Parenthesize nested repetitions: the library prints ``(x{2})?`` as ``x{2}?``."""
    for child in node.children():
        if isinstance(node, library.RepetitionNode) and isinstance(child, library.RepetitionNode):
            node.node = library.SequenceNode([child])
        _parenthesize(child, library)


def _decided(piece: re.Match[str]) -> str:
    if piece["any"]:
        return r'(. | "\n")'
    if piece["comment"] or piece["count"]:
        return piece[0]
    if name := piece["name"]:
        return f"rule-{name}" if name == "start" or name[0].isdigit() else name
    if (text := piece["text"]) and len(letters := _LETTER.findall(text[1:-1])) > 1:
        return "(" + " ".join(_ESCAPED.sub(_character, f'"{letter}"') for letter in letters) + ")"
    return _ESCAPED.sub(_character, piece[0])


def _character(escape: re.Match[str]) -> str:
    number = escape[1] or escape[2]
    if number is None:
        return escape[0]
    code = int(number, 16)
    if code < 0x80:
        return f"\\x{code:02x}"
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise GrammarError(f"not a GBNF grammar: {escape[0]} is no character")
    return chr(code)
