"""The one driver of a turn: how turns end, what comes of them, and what a trace keeps of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from triplepoint.errors import ContextOverflowError, GrammarError, PassCancelledError
from triplepoint.runtime.conversation.reasoning_tags import Thinking
from triplepoint.runtime.conversation.requirement import Requirement
from triplepoint.runtime.conversation.turn import (
    THINKING_END,
    Limits,
    Turn,
    TurnRequest,
    TurnResult,
)
from triplepoint.runtime.engine.sampling.settings import GREEDY

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"type": "function", "function": {"name": "read_file", "parameters": PARAMETERS}}
REPLY = Requirement("hermes", [READ], thinking=Thinking())
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call><|im_end|>'


def written(
    scripted: Any, said: Any, required: Requirement | None = REPLY, context: int = 4096, **more: Any
) -> TurnResult:
    """The result of a turn in which the model says this."""
    engine = scripted(said, context=context)
    session = engine.session()
    session.prefill(engine.tokenizer.encode("hello"))
    request = TurnRequest(GREEDY, required, more.pop("limits", Limits()), **more)
    turn = Turn(session, request, engine.tokenizer)
    for _ in turn.tokens():
        pass
    return turn.finish()


@pytest.mark.parametrize(
    ("said", "more", "reason", "answer"),
    [
        ("Hello.<|im_end|>", {}, "end", "Hello."),
        ("one two three<|im_end|>", {"stops": ("two",)}, "stop", "one"),
        ("one two three four", {"limits": Limits(3)}, "max_tokens", None),
        ("hello there. " * 200, {"stops_repetition": True}, "repetition", None),
        ("a b\nc d<|im_end|>", {"limits": Limits(line_seconds=1e-9)}, "time", "a b\n"),
        ("a b c d e f g h i j", {"context": 8}, "context", None),
    ],
)
def test_how_a_turn_ends(
    scripted: Any, said: str, more: dict[str, Any], reason: str, answer: str | None
) -> None:
    """Each way has its own reason, and no other is told."""
    result = written(scripted, said, **more)

    assert result.reason == reason
    assert result.reply.answer == answer or answer is None
    assert result.phase is not None
    assert result.phase.token_ids == result.ids
    assert result.phase.finish_reason == ("repetition" if reason == "repetition" else "")


def test_a_call_is_the_result_of_its_turn(scripted: Any) -> None:
    """With the recipe that its grammar can be made of again."""
    result = written(scripted, CALL)

    (call,) = result.reply.calls
    assert (call.name, call.arguments) == ("read_file", {"path": "a"})
    phase = result.phase
    assert phase is not None
    assert (phase.purpose, phase.constraint) == ("tool_call", "hermes")
    assert Requirement.read(phase.recipe or {}, REPLY.contents) == REPLY


def test_a_turn_that_is_left_early_has_a_result(scripted: Any) -> None:
    """What was decoded until then is in it, with its phase."""
    engine = scripted("one two three<|im_end|>")
    session = engine.session()
    session.prefill(engine.tokenizer.encode("hello"))
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise PassCancelledError("stopped")

    turn = Turn(session, TurnRequest(GREEDY, REPLY), engine.tokenizer, check)
    with pytest.raises(PassCancelledError):
        list(turn.tokens())
    result = turn.finish()

    assert result.reason == ""
    assert len(result.ids) == 3  # the third was sampled, and not read
    assert turn.count == 2
    assert result.phase is not None
    assert turn.finish() is result


@pytest.mark.parametrize("first", [True, False])
def test_memory_that_runs_out(scripted: Any, first: bool) -> None:
    """What there is so far is a reply; before the first token there is none."""
    missing = ContextOverflowError("the memory is full")
    if first:
        with pytest.raises(ContextOverflowError, match="memory"):
            written(scripted, missing)
        return
    result = written(scripted, ["Hello", missing])
    assert (result.reason, result.error, result.reply.answer) == ("context", missing, "Hello")


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ('{"name": "read_file", "arguments": {"path": "a"}}<|im_end|>', True),
        ('{"name": "read_file", "arguments": {"path": 1}}<|im_end|>', False),
        ('```json\n{{"name": "read_file", "arguments": {"path": "a"}}}\n```<|im_end|>', True),
        ('{"name": "open_file", "arguments": {"path": "a"}}<|im_end|>', False),
    ],
)
def test_calls_in_plain_text_are_judged(scripted: Any, said: str, fits: bool) -> None:
    """Whether the grammar would have let them pass; who asked decides what they are."""
    result = written(scripted, said)
    assert (len(result.reply.calls), result.reply.repaired, result.fits) == (1, True, fits)


def test_calls_in_plain_text_that_are_cut_are_no_answer(scripted: Any) -> None:
    """Neither where the reply was too long, nor where it repeated itself."""
    one = '{"name": "read_file", "arguments": {"path": "a"}}\n'
    ends: list[dict[str, Any]] = [{"limits": Limits(60)}, {"stops_repetition": True}]
    for more in ends:
        result = written(scripted, one * 40, **more)
        assert result.reply.answer == ""
        assert result.reply.calls == []
        assert (result.reply.cut_call or "").startswith(one)


def test_an_answer_that_no_grammar_holds_whole_is_checked(scripted: Any) -> None:
    """By its schema; one that fits has nothing against it."""
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "not": {"const": 3}}},
        "required": ["n"],
    }
    required = Requirement("hermes", output=schema, thinking=Thinking())
    assert "3" in written(scripted, '{"n": 3}<|im_end|>', required).misfit
    assert written(scripted, '{"n": 4}<|im_end|>', required).misfit == ""


def test_a_text_goes_on_without_a_turn(scripted: Any) -> None:
    """Nothing in it is a thought or a call; indentation ends it where that was asked for."""
    assert written(scripted, CALL, None).reply.calls == []
    result = written(scripted, "f(x):\n  a\nb", None, limits=Limits(indent=2))
    assert (result.reason, result.rest) == ("stop", [])


def test_what_was_said_must_fit(scripted: Any) -> None:
    """A reply that was begun goes on under the same grammar, or is refused."""
    required = Requirement("hermes", output={"const": "yes"}, thinking=Thinking())
    tokenizer = scripted().tokenizer
    said = tokenizer.encode('"y')
    assert TurnRequest(GREEDY, required, prefill=said).constraint(tokenizer, said) is not None
    wrong = tokenizer.encode('"no')
    with pytest.raises(GrammarError):
        TurnRequest(GREEDY, required, prefill=wrong).constraint(tokenizer, wrong)


def test_a_recipe_says_all_that_held_a_decode() -> None:
    """A request that is read from it, and from contents, holds a decode to the same."""
    full = TurnRequest(
        GREEDY,
        Requirement(
            *("llama", [READ], "required", True, {"type": "object"}, Thinking(title="t")),
            dresses=True,
        ),
        Limits(None, 3, 1.5, 4, 0, thinking_end="Enough."),
        opened=True,
        prefill=[7, 8],
    )
    recipe = json.loads(json.dumps(full.recipe))
    assert full.required is not None
    contents = json.loads(json.dumps(full.required.contents))
    assert TurnRequest.read(recipe, contents, [5, 6, 7, 8], sampling=GREEDY) == full
    assert "read_file" not in json.dumps(recipe)  # it names contents by digest

    free = TurnRequest(GREEDY)
    assert free.recipe is None
    assert TurnRequest.read(None, {}, [5], sampling=GREEDY) == free
    later = TurnRequest(GREEDY, limits=Limits(min_tokens=2))
    assert TurnRequest.read(later.recipe, {}, [5], sampling=GREEDY) == later


def test_thinking_ends_with_its_budget(scripted: Any) -> None:
    """The sentence and the tag are forced, the answer follows; a recipe has the tokens reached."""
    tokenizer = scripted().tokenizer
    thought = "one two three four"
    count = len(tokenizer.encode(thought))
    first = tokenizer.decode(tokenizer.encode(thought)[:1])
    cases = [(Limits(thinking_tokens=count), thought, count)]
    cases.append((Limits(thinking_tokens=count, thinking_seconds=1e-9), first, 1))
    for limits, said, reached in cases:
        script = f"{said}{THINKING_END}</think>Yes.<|im_end|>"
        result = written(scripted, script, limits=limits, opened=True)
        assert result.reply.thinking == f"{said}{THINKING_END}".strip()
        assert (result.reply.answer, result.thinking_ended) == ("Yes.", reached)
        assert result.phase is not None
        recipe = result.phase.recipe or {}
        assert (recipe["thinking_tokens"], recipe["thinking_end"]) == (reached, THINKING_END)
        assert "thinking_seconds" not in recipe


def test_a_budget_is_of_thinking_alone(scripted: Any) -> None:
    """A thought that ends by itself, and an answer of any length, are left alone; with none, a
    thought that begins is closed at once."""
    said = "<think>one</think>" + "two " * 40 + "<|im_end|>"
    result = written(scripted, said, limits=Limits(thinking_tokens=30))
    assert (result.thinking_ended, result.reply.thinking) == (None, "one")
    none = written(scripted, "<think>\n</think>Yes.<|im_end|>", limits=Limits(thinking_tokens=0))
    assert (none.reply.answer, none.thinking_ended) == ("Yes.", 0)
    with pytest.raises(AssertionError, match="not allowed"):
        written(scripted, said, limits=Limits(thinking_tokens=0))


def test_a_budget_breaks_no_character(scripted: Any) -> None:
    """It waits for the last byte, and is told of each token by which a constraint goes on."""
    tokenizer = scripted().tokenizer
    request = TurnRequest(GREEDY, REPLY, Limits(thinking_tokens=1), opened=True)
    made: Any = request.constraint(tokenizer, [])
    first, *rest = tokenizer.encode("\u4e2d")
    made.advance(first)
    assert made.forced() is None or not rest
    for token in rest:
        made.advance(token)
    end = [*tokenizer.encode(THINKING_END), *tokenizer.encode("</think>", special=True)]
    assert made.allows(end[:1]) == 1
    assert made.allows(tokenizer.encode("no")) == 0
    for token in end:
        assert made.forced() == token
        made.advance(token)
    assert made.forced() is None
