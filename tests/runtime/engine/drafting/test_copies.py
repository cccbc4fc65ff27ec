"""Texts as they are written where they are copied to: JSON strings, and without line numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.engine.drafting import lookup
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.drafting.copies import Index, NormalizedSources, without_numbers
from triplepoint.runtime.engine.drafting.drafter import Drafter
from triplepoint.runtime.engine.drafting.ngram_index import LONG, Match
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.engine.teacher_forcing import decode_teacher_forced
from triplepoint.tools import EditTools, ToolSet
from triplepoint.traces.events import PhaseEvent

BARE = """def greet(name):
    'Says hello.'
    path = "C:\\\\users"

    print(f"hi\\t{name}")
"""
LINES = BARE.split("\n")[:-1]
NUMBERED = "\n".join(f"{n}\t{line}" for n, line in enumerate(LINES, 9))


def _copies(session: Session) -> NormalizedSources:
    source = session.phases.drafting.source("lookup")
    assert isinstance(source, lookup.LookupSource)
    return source.copies


@pytest.fixture(scope="module")
def nano() -> Iterator[Engine]:
    """The embedded model."""
    with Engine.load("nano", draft_tokens=0) as engine:
        yield engine


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (NUMBERED, BARE[:-1]),
        ("   9  a\n  10  \n  11    b", "a\n\n  b"),
        ("7: a\n8: b\n[cut: 3 more lines]", "a\nb\n[cut: 3 more lines]"),
        ("1\ta\n7\tb", "a\n7\tb"),  # numbers that do not count up are the text's own
        ("no numbers\nat all", "no numbers\nat all"),
        ("10:01 ERROR", "10:01 ERROR"),
        ("", ""),
    ],
)
def test_numbers_of_lines_are_left_out(text: str, bare: str) -> None:
    """In the forms in which tools and programs write them."""
    assert without_numbers(text) == bare


def test_the_copy_is_the_text_as_json_writes_it(nano: Engine) -> None:
    """Cut into tokens as a model would; a text that is no different has no copy."""
    tokenizer = nano.tokenizer
    copies = NormalizedSources(tokenizer)
    texts = [tokenizer.encode(one) for one in (NUMBERED, "one line")]

    copies.of(texts)
    for escaped, wanted in ((False, BARE[:-1]), (True, json.dumps(BARE[:-1])[1:-1])):
        index = copies.index(escaped)
        assert index.tokens == [*tokenizer.encode(wanted), -1]
        assert copies.index(escaped) is index

    copies.of([*texts, texts[0]])
    assert copies.index(True).tokens.count(-1) == 2
    copies.of(texts[1:])
    assert copies.index(True).tokens == []


def test_places_are_found_and_followed() -> None:
    """The place with the most in common, the latest of such; what follows ends with its text."""
    index = Index()
    index.add([1, 2, 3, 4, 5])
    index.add([9, 1, 2, 3, 6, 7])
    assert index.find([8, 1, 2]) is None

    assert index.find([8, 1, 2, 3]) == Match(10, 3)
    assert index.draft(Match(10, 3), 9) == [6, 7]
    assert index.find([9, 1, 2, 3]) == Match(10, 4)
    assert index.find([9, 1, 2, 3, 6]) == Match(11, 5)
    index.forget()
    assert index.find([0, 0, 0, 0, 6]) is None

    index.add(range(100, 200))
    tokens = list(range(100, 103))
    for n in range(103, 199):
        match = index.find(tokens)
        assert match is not None
        assert (index.draft(match, 1), match.same) == ([n], min(LONG, n - 100))
        tokens.append(n)


EDIT = ToolCall("edit_file", {"path": "a.py", "old": BARE, "new": BARE.replace("hello", "bye")})


def forced(engine: Engine, tools: ToolSet, sources: bool) -> PhaseEvent:
    """Decode an edit of a file that was read."""
    grammar = CallGrammar(engine.tokenizer, tools.schemas(), "hermes")
    opening = engine.tokenizer.encode("<tool_call>", special=True)
    file = engine.tokenizer.encode(NUMBERED)
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(jump_forward=False, draft_tokens=8)
    session.phases.drafting.sources = [(0, len(file))] if sources else []
    session.prefill(file + opening)
    text = grammar.form.render([EDIT])
    ids = engine.tokenizer.encode(text, special=True)[len(opening) :]
    constraint = grammar.constraint()
    for token in opening:
        constraint.advance(token)
    return decode_teacher_forced(session, ids, constraint=constraint)


def test_an_edit_is_drafted_past_the_ends_of_lines(nano: Engine, tmp_path: Any) -> None:
    """The lines of a file in a JSON string: most of them come as drafts."""
    tools = ToolSet(EditTools(tmp_path))

    without, phase = forced(nano, tools, False), forced(nano, tools, True)

    first = len(nano.tokenizer.encode(json.dumps(BARE)))  # the second copy is found in any case
    assert phase.accepted_tokens - without.accepted_tokens > first // 3
    assert phase.passes < without.passes
    assert phase.token_ids == without.token_ids


@pytest.mark.parametrize("output", [False, True])
def test_the_text_is_the_same(nano: Engine, tmp_path: Any, output: bool) -> None:
    """In calls and in answers of a schema, greedy and drawn, with any number of drafts."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 200}}}
    schema |= {"required": ["text"], "additionalProperties": False}
    tools = [] if output else ToolSet(EditTools(tmp_path)).schemas()
    grammar = CallGrammar(nano.tokenizer, tools, "hermes", schema if output else None)
    encode = nano.tokenizer.encode
    file, opening = encode(NUMBERED), [] if output else encode("<tool_call>", special=True)
    begun = '{"text": "def greet' if output else '\n{"name": "write_file", "arguments": {"path": "'
    copied = 0
    for seed in range(4):
        sampling = Sampling(0.7, seed=seed) if seed else GREEDY
        seen = []
        for most in (0, 3, 16):
            constraint = grammar.constraint()
            session = nano.session()
            session.phases.drafting.settings = SpeculativeConfig(draft_tokens=most)
            session.phases.drafting.sources = [(0, len(file))]
            given = [*opening, *encode(begun)]
            session.prefill(file + given)
            for token in given:
                constraint.advance(token)
            out = list(
                session.decode(
                    max_tokens=60,
                    constraint=constraint,
                    sampling=sampling,
                    stop=nano.tokenizer.stop_ids,
                )
            )
            seen.append(out)
            assert session.tokens == file + given + out
            copied += len(_copies(session).index(True).tokens)
        assert seen[0] == seen[1] == seen[2]
    assert copied


@pytest.mark.parametrize(("cost_s", "made"), [(0.0, True), (1e3, False)])
def test_a_short_answer_does_not_wait_for_copies(
    nano: Engine, monkeypatch: pytest.MonkeyPatch, cost_s: float, made: bool
) -> None:
    """Texts are written anew once the answer has taken as long as that does."""
    monkeypatch.setattr(lookup, "COPY_S", cost_s)
    monkeypatch.setattr(Drafter, "_cheap", False)
    file = nano.tokenizer.encode(NUMBERED)
    session = nano.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens="auto")
    session.phases.drafting.sources = [(0, len(file))]
    session.prefill(file)
    copies = _copies(session)
    assert copies.missing([file]) == len(file)
    for _ in session.decode(max_tokens=8):
        pass
    assert (copies.missing([file]) == 0) == made
