"""Results of tools within a budget: what is cut is said, and can be read on to its end."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call

from triplepoint import Agent, tool
from triplepoint.errors import ToolError
from triplepoint.runtime.agent.tool_output import ToolOutputStore


def words(text: str) -> int:
    """A token a word or line end, as a stand-in for a tokenizer."""
    return len(re.findall(r"\S+|\n", text))


def test_what_fits_stays_as_it_is() -> None:
    """Up to the budget nothing is added or taken."""
    results = ToolOutputStore(100, words)

    for text in ("", "short", "word " * 100, "x" * 1500):
        assert results.truncate(text) == text


def test_what_is_cut_is_said() -> None:
    """Without a way to read on the note says to ask for less."""
    text = "\n".join(f"line {number}" for number in range(1000))

    cut = ToolOutputStore(100, words).truncate(text)

    body, note = cut.rsplit("\n", 1)
    assert text.startswith(body)
    assert words(body) <= 100
    left = len(text) - len(body) - 1  # the line end is cut off
    assert note == f"[cut: {left:,} of {len(text):,} characters not shown; ask for less]"


@pytest.mark.parametrize("text", ["word " * 3000, "x" * 30_000, "ä\n" * 5000, "😀" * 9000])
def test_a_cut_result_can_be_read_to_its_end(text: str) -> None:
    """Following the notes gives every character, each page within the budget."""
    results = ToolOutputStore(200, lambda part: len(part.encode()) // 2)
    read = results.tool()
    page = results.truncate(text)
    seen, pages = 0, 1
    whole = ""
    while found := re.search(r'\n\[cut: .*read_result\(id="(r1)", start=(\d+)\)\]$', page):
        start = int(found[2])
        assert seen < start
        assert text[seen:start].rstrip() == page[: found.start()]
        assert len(text[seen:start].encode()) // 2 <= 200
        whole += text[seen:start]
        seen, pages = start, pages + 1
        page = read.call({"id": found[1], "start": start})

    assert whole + page == text
    assert pages < len(text.encode()) // 2 / 150


def test_a_huge_result_is_cut_quickly() -> None:
    """Only what could fit is counted."""
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text) // 4

    ToolOutputStore(1000, count).truncate("x" * 50_000_000)

    assert counted < 500_000


def test_old_results_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; a result that is gone is named as such."""
    monkeypatch.setattr("triplepoint.runtime.agent.tool_output.MAX_STORED", 5000)
    results = ToolOutputStore(10, words)
    read = results.tool()
    for _ in range(3):
        results.truncate("word " * 500)

    with pytest.raises(ToolError, match="no such result: r1; there are r2, r3"):
        read.call({"id": "r1", "start": 0})
    with pytest.raises(ToolError, match="start=2500 is past its end"):
        read.call({"id": "r3", "start": 2500})
    assert read.effect == "read"


@tool(effect="net")
def many(what: str) -> str:
    """Gives many lines.

    Args:
        what: Of what.
    """
    return "\n".join(f"{what} {number}" for number in range(3000))


def _notes(agent: Agent[Any]) -> list[str]:
    """What the results that the model was given name to read on in."""
    told = [message.content for message in agent.messages if message.role == "tool"]
    return [name for text in told for name in re.findall(r'read_result\(id="(r\d+)"', text)]


def test_a_fork_reads_on_in_what_it_was_given(scripted: MakeEngine) -> None:
    """The notes that it took over name the same results there, and new results have new names."""
    first, second = call("many", what="apple"), call("many", what="pear")
    reads = call("read_result", id="r1", start=9000)
    engine = scripted(first + END, "Ok." + END, second + END, reads + END, "Ok." + END)
    agent = Agent(engine, tools=[many], policy="yes", trace=False, result_tokens=300)
    agent.run("Apples?")
    fork = agent.fork(trace=False)
    fork.run("And pears?")

    assert _notes(fork) == ["r1", "r2", "r1"]
    assert "apple" in fork.messages[-2].content
    assert "pear" not in fork.messages[-2].content


def test_names_go_on_in_a_conversation_from_elsewhere(scripted: MakeEngine) -> None:
    """A kept session's notes name what is gone; a new result does not take its place."""
    engine = scripted(call("many", what="apple") + END, "Ok." + END)
    agent = Agent(engine, tools=[many], policy="yes", trace=False, result_tokens=300)
    agent.run("Apples?")
    engine = scripted(call("many", what="pear") + END, "Ok." + END)
    later = Agent(engine, tools=[many], policy="yes", trace=False, result_tokens=300)
    later.setup.conversation.load_history(agent.messages, agent.turn)
    later.run("And pears?")

    assert _notes(later) == ["r1", "r2"]
    with pytest.raises(ToolError, match="no such result: r1; there are r2"):
        later.tools.get("read_result").call({"id": "r1", "start": 0})
