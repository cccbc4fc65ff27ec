"""Arguments that must name what is there are held to names, in calls of any dress."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.call_dresses import ARGUMENTS, DRESSES, TOOLS

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.held_names import HeldNames
from triplepoint.runtime.conversation.reasoning_tags import Thinking
from triplepoint.runtime.conversation.requirement import Requirement, grammar_of
from triplepoint.runtime.conversation.turn import TurnRequest
from triplepoint.runtime.engine.sampling.settings import GREEDY
from triplepoint.runtime.tokens.tokenizer import Tokenizer

PATHS = ["./", "logs/", "logs/app.log", "app.log", 'say "hi".txt', "Zoë.md", "made//", "a\\b"]
PLAIN = Requirement("hermes", TOOLS, thinking=Thinking(), dresses=True)
BEGUN = '<tool_call>\n{"name": "read_file", "arguments": {"path": "'


def held(
    tokenizer: Tokenizer, kind: str = "file", also: tuple[str, ...] = (), **more: Any
) -> HeldNames:
    """The constraint of a turn in which the path of read_file is held."""
    names = {"arguments": {"read_file": {"path": kind}}, "paths": "\n".join(PATHS)}
    fields = {**vars(PLAIN), "names": names, "also": also, **more}
    required = Requirement(**{k: v for k, v in fields.items() if k in Requirement.__match_args__})
    made = TurnRequest(GREEDY, required).constraint(tokenizer, ())
    assert isinstance(made, HeldNames)
    return made


def allows(constraint: HeldNames, token: int) -> bool:
    """Whether a token may come next."""
    mask = constraint.mask()
    return mask is None or bool(mask[token // 32] >> token % 32 & 1)


def passed(constraint: HeldNames, text: str, tokenizer: Tokenizer, *, alone: bool = False) -> str:
    """What of a text may be written; alone: each byte as a token of its own."""
    if alone:
        ids = [n for byte in text for n in tokenizer.encode(byte)]
    else:
        ids = tokenizer.encode(text, special=True)
    for n, token in enumerate(ids):
        if not allows(constraint, token):
            return tokenizer.decode(ids[:n], special=True)
        assert constraint.allows([token]) == 1
        constraint.advance(token)
    return text


@pytest.mark.parametrize(
    ("kind", "path", "fits"),
    [
        ("file", "app.log", True),
        ("file", "./logs/app.log", True),
        ("file", "logs", False),
        ("file", "logs/", False),
        ("file", "app.lo", False),
        ("file", "app.log.gz", False),
        ("file", r"say \"hi\".txt", True),
        ("file", "Zoë.md", True),
        ("file", "Zoe\u0308.md", False),  # an e and its accent: no file of this name is asked for
        ("file", r"a\\b", True),
        ("file", "made/of/anything", True),
        ("file", ".", False),
        ("folder", ".", True),
        ("folder", "./", True),
        ("folder", "logs", True),
        ("folder", "./logs/", True),
        ("folder", "app.log", False),
        ("folder", "made", True),
        ("any", "logs/", True),
        ("any", "logs/app.log", True),
        ("any", "nothing", False),
        ("any", "missing.log", True),
    ],
)
def test_what_may_be_written(tokenizer: Tokenizer, kind: str, path: str, fits: bool) -> None:
    """What is there, as the tools take it, and what the question names; nothing else."""
    constraint = held(tokenizer, kind, ("missing.log",))
    text = f'{BEGUN}{path}"}}}}\n</tool_call>'
    assert (passed(constraint, text, tokenizer) == text) == fits


@pytest.mark.parametrize("dress", sorted(set(DRESSES) - {"all braces doubled", "python by place"}))
def test_in_any_dress(tokenizer: Tokenizer, dress: str) -> None:
    """But one which the grammar lets nobody write, and one that it does not hold either."""
    for path, fits in (("logs/app.log", True), ("logs/other.log", False)):
        before, ARGUMENTS["read_file"] = ARGUMENTS["read_file"], {"path": path, "start": 3}
        try:
            text = DRESSES[dress]("read_file")
        finally:
            ARGUMENTS["read_file"] = before
        constraint = held(tokenizer)
        name = text.index(path) + len("logs/") + 1
        written = passed(constraint, text[: text.index(path) + len(path) + 1], tokenizer)
        assert (len(written) >= name) == fits


@pytest.mark.parametrize("form", ["hermes", "json", "llama", "mistral", "phi", "functionary"])
def test_in_any_format_of_json(tokenizer: Tokenizer, form: str) -> None:
    """The second call of a turn, too, where there may be several."""
    from triplepoint.runtime.conversation.formats.toolcalls import ToolCall

    for path, fits in (("app.log", True), ("other.log", False)):
        calls = [ToolCall("read_file", {"path": one}, id="c00000001") for one in ("app.log", path)]
        shown = FORMATS[form].render(calls[1:] if FORMATS[form].single else calls)
        constraint = held(tokenizer, format=form)
        written = passed(constraint, shown.strip(), tokenizer)
        assert (written == shown.strip()) == fits
        assert fits or len(written) == shown.strip().rindex("other")


def test_other_text_keeps_its_mask(tokenizer: Tokenizer) -> None:
    """Prose, and the arguments of tools that nothing is said of."""
    constraint, plain = held(tokenizer), grammar_of(tokenizer, PLAIN).constraint()
    text = 'See {"path": "x"}.<tool_call>\n{"name": "edit", "arguments": {"path": "new", "changes"'
    for token in tokenizer.encode(text, special=True):
        mine, own = constraint.mask(), plain.mask()
        assert (mine is own) or (mine == own).all()  # type: ignore[union-attr]
        assert constraint.forced() == plain.forced()
        constraint.advance(token)
        plain.advance(token)


def test_what_is_forced_is_written_as_the_tokenizer_does(tokenizer: Tokenizer) -> None:
    """From where one name is left; a mask allows nothing else there."""
    constraint = held(tokenizer)
    assert passed(constraint, f"{BEGUN}logs", tokenizer) == f"{BEGUN}logs"
    rest = []
    while (token := constraint.forced()) is not None:
        mask = constraint.mask()
        assert mask is not None
        assert sum(int(word).bit_count() for word in mask) == 1
        assert allows(constraint, token)
        rest.append(token)
        constraint.advance(token)
    assert tokenizer.decode(rest) == "/app.log"
    whole = tokenizer.encode(f"{BEGUN}logs/app.log", special=True)
    assert whole[-len(rest) :] == rest


def test_drafts_end_where_no_name_goes_on(tokenizer: Tokenizer) -> None:
    """`allows` counts what may come, and advances nothing."""
    constraint = held(tokenizer)
    passed(constraint, BEGUN, tokenizer)
    good, bad = (tokenizer.encode(text) for text in ('app.log"}}', "app.txt"))
    assert constraint.allows(good) == len(good)
    assert 0 < constraint.allows(bad) < len(bad)
    assert constraint.allows(good) == len(good)


def test_without_a_name_nothing_is_held(tokenizer: Tokenizer) -> None:
    """A tool whose files there are none of says so itself."""
    fields = {"arguments": {"read_file": {"path": "file"}}, "paths": "./\nlogs/"}
    text = f'{BEGUN}nothing.txt"}}}}\n</tool_call>'
    assert passed(held(tokenizer, names=fields), text, tokenizer) == text


def test_a_recipe_names_them_by_content(tokenizer: Tokenizer) -> None:
    """And the grammar is that of the same requirement without them."""
    names = {"arguments": {"read_file": {"path": "file"}}, "paths": "app.log"}
    fields = {k: getattr(PLAIN, k) for k in Requirement.__match_args__}
    required = Requirement(**{**fields, "names": names, "also": ["x.log"]})
    assert required.contents[required.recipe["names"]] == names
    assert required.recipe["also"] == ["x.log"]
    assert Requirement.read(required.recipe, required.contents) == required
    assert grammar_of(tokenizer, required) is grammar_of(tokenizer, PLAIN)
