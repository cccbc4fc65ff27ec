"""The token ledger: spans, reuse, and the first token that differs."""

from __future__ import annotations

import pytest

from triplepoint.runtime.conversation.ledger import Reuse, Span, TokenLedger
from triplepoint.runtime.conversation.reasoning_spans import THOUGHT, Thoughts


def conversation() -> TokenLedger:
    """A prompt, a call and its result."""
    ledger = TokenLedger()
    ledger.append([1, 2], "template")
    ledger.append([3, 4, 5], "system", message=0)
    ledger.append([6], "tools")
    ledger.append([7, 8], "user", message=1)
    ledger.append([], "template")
    ledger.append([9, 10], "model", message=2)
    ledger.append([11, 12, 13, 14], "tool_result", message=3, label="read_file")
    return ledger


def test_spans_cover_every_token() -> None:
    """Spans follow each other without a gap, and tokens of one origin make one span."""
    ledger = conversation()
    ledger.append([15], "tool_result", message=3, label="read_file")

    assert ledger.ids == list(range(1, 16))
    assert ledger.spans[0].start == 0
    assert all(a.end == b.start for a, b in zip(ledger.spans, ledger.spans[1:], strict=False))
    assert ledger.spans[-1] == Span(10, 15, "tool_result", 3, "read_file")
    assert len(ledger.spans) == 6


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ([1, 2, 3, 99, *range(5, 15)], "token 3 differs, in the content of message 0 (system)"),
        ([1, 99, *range(3, 15)], "token 1 differs, in the template text (template)"),
        ([*range(1, 6), 99, *range(7, 15)], "token 5 differs, in the tool schemas (tools)"),
        ([*range(1, 9), 99, *range(10, 15)], "the generated tokens of message 2 (model)"),
        ([*range(1, 14), 99], "token 13 differs, in the content of message 3 (read_file)"),
        (list(range(1, 14)), "token id 14 in the ledger, nothing in the session"),
        ([*range(1, 15), 99], "token 14 differs, past the end of the conversation: nothing in"),
        ([], "token 0 differs"),
    ],
)
def test_a_miss_is_named(tokens: list[int], says: str) -> None:
    """Where a session is not the ledger, token, message and field are named."""
    assert says in str(conversation().first_difference(tokens))


def test_the_same_tokens_are_no_miss() -> None:
    """A session that holds exactly the ledger's tokens passes."""
    assert conversation().first_difference(list(range(1, 15))) is None


@pytest.mark.parametrize("length", range(15))
def test_truncate(length: int) -> None:
    """What is taken back is gone, whatever span it cuts, and the rest is as before."""
    ledger = conversation()
    before = {i: ledger.span_at(i) for i in range(length)}

    ledger.truncate(length)

    assert ledger.ids == list(range(1, length + 1))
    assert sum(span.tokens for span in ledger.spans) == length
    for i, span in before.items():
        now = ledger.span_at(i)
        assert span is not None
        assert now is not None
        assert (now.start, now.origin, now.message) == (span.start, span.origin, span.message)


def test_lengths_say_how_long_what_is() -> None:
    """Every token is counted once, under a name that a person knows."""
    ledger = conversation()

    lengths = dict(ledger.lengths())

    assert sum(lengths.values()) == len(ledger)
    assert lengths["system and tools"] == 4
    assert lengths["question (message 1)"] == 2
    assert lengths["read_file (message 3)"] == 4


def test_reuse_reads_as_a_sentence() -> None:
    """The report that is shown after a prefill."""
    assert str(Reuse(16266, 16480)) == "reused 16,266 of 16,480 tokens"


def test_a_long_thought_is_one_span() -> None:
    """Not one a token: what goes through the spans would take time with the thought's square."""
    ledger = TokenLedger()
    ledger.append(range(100), "user", message=0)
    ledger.append(range(5000), "model", message=1)
    silent = [*range(2, 4000), *range(4010, 4020)]

    Thoughts(ledger).label(100, silent, 1, opened=False, opening=None)

    assert [(s.start, s.end, s.label) for s in ledger.spans if s.origin == "model"] == [
        (100, 102, ""),
        (102, 4100, THOUGHT),
        (4100, 4110, ""),
        (4110, 4120, THOUGHT),
        (4120, 5100, ""),
    ]
    assert ledger.ids == [*range(100), *range(5000)]
