"""Texts that end an answer."""

from __future__ import annotations

import itertools

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.conversation.stop_strings import StopTexts
from triplepoint.runtime.tokens.tokenizer import Tokenizer


def _shown(text: str, cuts: tuple[int, ...], stops: list[str]) -> tuple[list[str], str | None]:
    """What is let through of a text that comes in pieces, cut at these places."""
    filtered = StopTexts(stops)
    pieces = [filtered.push(text[a:b]) for a, b in itertools.pairwise((0, *cuts, len(text)))]
    return [*pieces, filtered.flush()], filtered.found


def test_cut_at_every_place() -> None:
    """However the text is cut, the same is let through, and never a part of what ends it."""
    for text, stops, want, found in (
        ("a word END more", ["END"], "a word ", "END"),
        ("ENENEND", ["END"], "ENEN", "END"),
        ("one\n\ntwo", ["\n\n", "two"], "one", "\n\n"),
        ("abcd", ["bcx", "c"], "ab", "c"),
        ("abcd", ["bc", "bcd"], "a", "bc"),
        ("nothing EN", ["END"], "nothing EN", None),
        ("naïve 🦉 ends", ["🦉"], "naïve ", "🦉"),
        ("text", [], "text", None),
    ):
        for cuts in itertools.combinations_with_replacement(range(len(text) + 1), 2):
            pieces, met = _shown(text, cuts, stops)
            assert "".join(pieces) == want, (text, cuts)
            assert (met is None) == (found is None)


def test_of_two_at_one_place_the_first_complete_one_ends() -> None:
    """All at once the longer one counts, letter by letter the shorter: the text is the same."""
    assert _shown("abcd", (), ["bc", "bcd"]) == (["a", ""], "bcd")
    assert _shown("abcd", (1, 2, 3), ["bc", "bcd"])[1] == "bc"


def _read(tokenizer: Tokenizer, text: str, stops: list[str]) -> tuple[str, str, ReplyReader]:
    """What was streamed, and what the answer is."""
    reader = ReplyReader(tokenizer, FORMATS["hermes"], stops=stops)
    streamed = ""
    for token in tokenizer.encode(text, special=True):
        streamed += "".join(piece for mode, piece in reader.push(token) if mode == "answer")
        if reader.stopped:
            break
    reply = reader.finish()
    streamed += "".join(piece for mode, piece in reader.rest if mode == "answer")
    assert streamed == reply.answer
    return streamed, reply.thinking, reader


def test_in_what_a_model_says(tokenizer: Tokenizer) -> None:
    """Across token borders, in the answer alone; blank space before it goes, as at any end."""
    assert (
        _read(tokenizer, "The error is on line 12: disk full", ["line 1"])[0] == "The error is on"
    )
    assert _read(tokenizer, "First.\n\nSecond.", ["\n\n"])[0] == "First."
    text = "<think>\nNot here: STOP\n</think>\n\nHere: STOP more<|im_end|>"
    answer, thinking, reader = _read(tokenizer, text, ["STOP"])
    assert (answer, thinking, reader.stopped) == ("Here:", "Not here: STOP", True)


def test_calls_are_not_looked_into(tokenizer: Tokenizer) -> None:
    """A text in an argument ends nothing; one before the call does, and there is no call then."""
    call = '<tool_call>\n{"name": "f", "arguments": {"x": "STOP"}}\n</tool_call>'
    reader = ReplyReader(tokenizer, FORMATS["hermes"], stops=["STOP"])
    for token in tokenizer.encode(call + "<|im_end|>", special=True):
        reader.push(token)
    assert [one.arguments for one in reader.finish().calls] == [{"x": "STOP"}]
    assert not reader.stopped

    answer, _, reader = _read(tokenizer, f"STOP{call}", ["STOP"])
    assert (answer, reader.stopped, reader.finish().calls) == ("", True, [])


def test_what_is_held_back_comes_at_the_end(tokenizer: Tokenizer) -> None:
    """The beginning of a text that does not come is streamed after all."""
    assert _read(tokenizer, "It says STO<|im_end|>", ["STOP"])[0] == "It says STO"
    assert _read(tokenizer, "It says STO", ["STOP"])[0] == "It says STO"
