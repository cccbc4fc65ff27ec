"""The API around a run: answers of a type, event loops, tools by decorator, undo and fork."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from helpers.agents import END, MakeEngine, call
from helpers.openai_server import openai_server, text
from pydantic import BaseModel, Field

from triplepoint import (
    Agent,
    AgentError,
    Engine,
    LimitReachedError,
    RemoteEngine,
    RunFinished,
    TextDelta,
    Trace,
    tool,
)
from triplepoint.errors import PassCancelledError
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces.events import RunEnd


class Fault(BaseModel):
    """What is wrong."""

    file: str
    line: Annotated[int, Field(ge=1, le=9999)]
    severe: bool


FAULT = '{"file": "app.log", "line": 12, "severe": true}'


# --- answers of a type


def test_an_answer_of_a_type(scripted: MakeEngine) -> None:
    """The answer is an object of the type; the model is told its schema."""
    agent = Agent(scripted(FAULT + END), output_type=Fault, trace=False)

    result = agent.run("What's wrong?")

    assert result.output == Fault(file="app.log", line=12, severe=True)
    assert result.answer == FAULT
    assert '"severe"' in agent.setup.config.system
    assert agent.trace.header is not None
    assert agent.trace.header.config["output"]["required"] == ["file", "line", "severe"]


def test_calls_and_a_typed_answer_in_one_run(scripted: MakeEngine, tmp_path: Path) -> None:
    """The model may call tools first; each of its tokens was allowed by the grammar."""
    (tmp_path / "app.log").write_text("x\n")
    engine = scripted(call("list_dir") + END, "\n\n" + FAULT + END)
    agent = Agent(engine, workspace=tmp_path, harness=False, output_type=Fault, trace=False)

    assert agent.run("What's wrong?").output.line == 12
    assert [t.name for t in agent.trace.tools] == ["list_dir"]


def test_thinking_before_a_typed_answer_is_free(scripted: MakeEngine) -> None:
    """Between its tags anything may be thought."""
    engine = scripted("<think>\nHm, {not JSON\n</think>\n\n" + FAULT + END)
    agent = Agent(engine, output_type=Fault, trace=False)

    result = agent.run("What's wrong?")

    assert result.output.severe
    assert result.thinking == "Hm, {not JSON"


@pytest.mark.parametrize(
    "said", ["No idea." + END, '{"file": 3' + END, '{"line": 1}' + END, "[" + END]
)
def test_nothing_else_can_be_said(scripted: MakeEngine, said: str) -> None:
    """Text, another type, another field: the grammar allows none of it."""
    with pytest.raises(AssertionError, match="is not allowed"):
        Agent(scripted(said), output_type=Fault, trace=False).run("What's wrong?")


@dataclass
class Pair:
    """Two of them."""

    left: int
    right: int | None = None


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (list[int], "[1, 2, 3]", [1, 2, 3]),
        (Pair, '{"left": 1, "right": null}', Pair(1)),
        (bool, "true", True),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_any_type_with_a_schema(
    scripted: MakeEngine, kind: type[Any], said: str, expected: object
) -> None:
    """Not only models of pydantic."""
    assert Agent(scripted(said + END), output_type=kind, trace=False).run("?").output == expected


def test_without_a_type_the_output_is_the_text(scripted: MakeEngine) -> None:
    """And there is none when there was no answer."""
    agent = Agent(scripted("Hello." + END, "word " * 50), trace=False, max_tokens=20)

    assert agent.run("Hi").output == "Hello."
    with pytest.raises(LimitReachedError):
        agent.run("Talk")
    assert agent.last_result is not None
    with pytest.raises(AgentError, match="there is no answer: the answer was cut"):
        _ = agent.last_result.output


def test_a_type_without_a_schema() -> None:
    """Is told when the agent is made."""
    with pytest.raises(AgentError, match="has no JSON schema"):
        Agent(RemoteEngine("http://x/v1", model="m"), output_type=Callable)  # pyright: ignore


def test_a_server_that_does_not_keep_to_it() -> None:
    """There is no grammar of ours there: the model is told once what does not fit."""
    with openai_server(text("It is fine."), text(FAULT)) as server:
        agent = Agent(RemoteEngine(server.url), output_type=Fault, trace=False)
        assert agent.run("What's wrong?").output.line == 12
        told = server.requests[1]["messages"][-1]
    with openai_server(text("It is fine."), text("Really.")) as server:
        agent = Agent(RemoteEngine(server.url), output_type=Fault, trace=False)
        with pytest.raises(AgentError, match="the answer does not fit output_type: Invalid JSON"):
            agent.run("What's wrong?")

    assert told["content"].startswith("That answer does not fit: Invalid JSON")
    assert server.requests[0]["response_format"]["json_schema"]["schema"]["type"] == "object"


def test_nano_writes_the_type_and_replays(tmp_path: Path) -> None:
    """The embedded model knows nothing of it, and still can write nothing else."""
    with Engine.load("nano", context=1024) as engine:
        agent: Agent[Fault] = Agent(engine, output_type=Fault, max_tokens=200, trace=False)
        first = agent.run("Which line of app.log has the error?").output
        report = verify(agent.trace, engine)

    assert isinstance(first, Fault)
    assert 1 <= first.line <= 9999
    assert report.ok


# --- tools by decorator


def test_a_tool_by_decorator(scripted: MakeEngine) -> None:
    """With and without parentheses; still callable; in the prompt and the grammar."""
    agent = Agent(scripted(call("double", number=4) + END, "Eight." + END), trace=False)

    @agent.tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    @agent.tool(name="erase", effect="write")
    def erase_all() -> str:
        """Erase."""
        return "erased"

    assert agent.run("Double 4").answer == "Eight."
    assert agent.trace.tools[0].result == "8"
    assert (double(3), agent.tools.names) == (6, ["double", "erase"])
    with pytest.raises(AgentError, match="before the first question"):
        agent.tool(erase_all.function)


def test_a_method_is_a_tool(scripted: MakeEngine) -> None:
    """What a tool needs is in its object: no context is passed around."""

    class Shop:
        def __init__(self, price: float) -> None:
            self.price = price

        def ask_price(self) -> float:
            """Tell the price."""
            return self.price

    engine = scripted(call("ask_price") + END, "Three." + END)
    agent = Agent(engine, tools=[Shop(3.0).ask_price], trace=False)
    agent.run("Price?")

    assert agent.trace.tools[0].result == "3.0"


# --- event loops


def test_run_and_stream_in_an_event_loop(scripted: MakeEngine) -> None:
    """The same events; the loop goes on meanwhile."""
    agent = Agent(scripted("One two." + END, "Three." + END), trace=False)

    async def main() -> tuple[list[str], str]:
        pieces = [e.text async for e in agent.stream_async("Hi") if isinstance(e, TextDelta)]
        return pieces, (await agent.run_async("And?")).answer

    pieces, answer = asyncio.run(main())

    assert "".join(pieces) == "One two."
    assert answer == "Three."


def test_a_stream_that_is_closed_has_ended(scripted: MakeEngine) -> None:
    """The next question may follow at once."""
    agent = Agent(scripted("One two three." + END, "Fine." + END), trace=False)

    async def main() -> str:
        async with aclosing(agent.stream_async("Hi")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        return (await agent.run_async("And?")).answer

    assert asyncio.run(main()) == "Fine."


def test_errors_cross_over(scripted: MakeEngine) -> None:
    """What the run raises is raised in the loop."""
    agent = Agent(scripted([PassCancelledError("stopped")], "Fine." + END), trace=False)

    async def main() -> None:
        with pytest.raises(PassCancelledError):
            await agent.run_async("Hi")
        assert (await agent.run_async("Hi")).answer == "Fine."

    asyncio.run(main())


def test_a_cancelled_task_ends_the_run(scripted: MakeEngine) -> None:
    """The thread is gone when the task is, and the agent is free again."""
    begun = threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        begun.set()
        time.sleep(0.1)
        return "done"

    engine = scripted(call("wait") + END, "Never." + END, "Fine." + END)
    agent = Agent(engine, tools=[wait], trace=False)

    async def main() -> None:
        task = asyncio.create_task(agent.run_async("Wait"))
        while not begun.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert not [t for t in threading.enumerate() if t.name == "agent"]
    assert agent.last_result is not None
    assert agent.last_result.status == "cancelled"
    assert agent.run("Again").status == "answered"


# --- undo and fork


def test_undo_goes_back_without_reading_again(scripted: MakeEngine, tmp_path: Path) -> None:
    """The last question is as if it had not been asked; the one before it is still there."""
    engine = scripted("Blue." + END, call("list_dir") + END, "Red." + END, "Green." + END)
    agent = Agent(engine, workspace=tmp_path, harness=False, trace=False)
    agent.run("First?")
    session: Any = agent.session
    before, prefills = list(agent.ledger.ids), len(session.prefills)
    agent.run("Second?")

    assert agent.undo() == "Second?"
    assert agent.ledger.ids == before == session.tokens
    assert len(agent.messages) == 3
    agent.run("Third?")
    said = engine.tokenizer.decode(session.tokens, special=True)
    assert ("Second" in said, "First" in said, "Third" in said) == (False, True, True)
    assert len(session.prefills) == prefills + 3  # the second's two, and the third's own
    assert agent.undo() == "Third?"
    assert agent.undo() == "First?"
    with pytest.raises(AgentError, match="no question to undo"):
        agent.undo()


def test_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    """Both have the past; neither sees the other's future; the fork's trace can be replayed."""
    with Engine.load("nano", context=2048) as engine:
        agent = Agent(engine, workspace=tmp_path, harness=False, trace=False)
        (tmp_path / "notes.txt").write_text("one\ntwo\n")
        list(agent.stream("Which files are here?"))
        other = agent.fork(trace=tmp_path / "fork.jsonl")
        past = list(agent.ledger.ids)
        assert other.ledger.ids == past
        last = [e for e in other.stream("What is on line 2 of notes.txt?")][-1]
        assert isinstance(last, RunFinished)
        other.close()
        report = verify(Trace.load(tmp_path / "fork.jsonl"), engine)

    assert agent.ledger.ids == past == other.ledger.ids[: len(past)]
    assert len(other.ledger) > len(past)
    assert report.ok
    assert other.trace.header is not None
    assert agent.trace.events[0].run == (other.trace.header.parent or "")
    taken, read = other.trace.phases[:2]
    assert (taken.purpose, taken.tokens, taken.token_ids) == ("fork", 0, past)
    assert read.tokens < 40
    assert read.cached_tokens == len(past) - 1  # the last sampled token was never computed


def test_undo_and_fork_on_a_server() -> None:
    """The same, where the conversation is text."""
    answers = (text("Blue."), text("Red."), text("Green."))
    with openai_server(*answers) as server:
        agent = Agent(RemoteEngine(server.url), trace=False)
        agent.run("First?")
        agent.run("Second?")
        agent.undo()
        agent.fork(trace=False).run("Third?")
        contents = [m["content"] for m in server.requests[-1]["messages"]]

    assert contents == ["First?", "Blue.", "Third?"]


def test_a_schema_in_place_of_a_type(scripted: MakeEngine) -> None:
    """The output is what the JSON says."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = Agent(scripted('{"n": 3}' + END), output_type=schema, trace=False)

    assert agent.run("?").output == {"n": 3}


def test_an_agent_as_a_tool(scripted: MakeEngine) -> None:
    """Each call asks a fork: it begins with what was read, and leaves nothing behind."""
    engine = scripted(
        f"Two files.{END}",
        call("ask", question="And the first?") + END,
        f"The first.{END}",
        f"It is the first.{END}",
    )
    reader = Agent(engine, trace=False)
    reader.run("How many?")
    read = list(reader.session.tokens)
    chief = Agent(engine, tools=[reader.as_tool("ask", "Ask a reader.")], trace=False)

    assert chief.run("Which file?").answer == "It is the first."
    (asked,) = chief.trace.tools
    assert (asked.name, asked.result, asked.error) == ("ask", "The first.", None)
    assert reader.session.tokens == read
    schema = chief.tools.get("ask").schema()["function"]
    assert schema["description"] == "Ask a reader."
    assert schema["parameters"]["required"] == ["question"]


def test_a_sub_agent_reads_nothing_twice() -> None:
    """On a real engine a call computes its own question and nothing of what was read before."""
    with Engine.load("nano") as engine:
        reader = Agent(engine, trace=False, system="word " * 600, max_tokens=8)
        list(reader.stream("hello"))
        before = len(reader.ledger)
        fork = reader.fork(trace=False)
        list(fork.stream("hello"))
        first = next(p for p in fork.trace.phases if p.purpose == "prompt")

    assert before > 600
    # An answer cut at its limit leaves its last token and the end of its turn to be read.
    assert first.cached_tokens >= before - 2
    assert first.tokens < 40


def test_what_all_forks_begin_with_is_read_once() -> None:
    """The system message of an agent that has not begun: by its first call as a tool, or `warm`."""
    with Engine.load("nano") as engine:

        def prompts(agent: Agent[Any], count: int) -> list[Any]:
            forks = [agent.fork(trace=False) for _ in range(count)]
            for fork in forks:
                list(fork.stream("hello"))
            return [next(p for p in f.trace.phases if p.purpose == "prompt") for f in forks]

        cold = Agent(engine, trace=False, system="word " * 600, max_tokens=8)
        (alone,) = prompts(cold, 1)
        warm = Agent(engine, trace=False, system="word " * 600, max_tokens=8)
        read = warm.prefill_system()
        again = warm.prefill_system()
        first, second = prompts(warm, 2)
        for agent in (cold, warm):
            list(agent.stream("hello"))
        helper = Agent(engine, trace=False, system="word " * 600, max_tokens=1)
        chief = Agent(engine, tools=[helper.as_tool("ask", "Ask.")], trace=False)
        ask = chief.tools.get("ask")
        with pytest.raises(LimitReachedError):
            ask.run({"question": "hello"})

    assert read > 600
    assert again == 0
    assert (alone.cached_tokens, alone.kv_after) == (0, first.kv_after)
    # What `alone` was asked is known too: agents share what they compute.
    assert min(first.cached_tokens, second.cached_tokens) >= read
    assert first.tokens < 40
    assert cold.last_result is not None
    assert warm.last_result is not None
    assert cold.last_result.answer == warm.last_result.answer != ""
    assert warm.last_result.usage.cached_tokens >= read
    assert len(helper.session.tokens) == read


@pytest.mark.slow
def test_the_output_is_typed_for_a_checker(tmp_path: Path) -> None:
    """`Agent(output_type=T).run(…).output` is a T, and a text without it."""
    import subprocess
    import sys

    checker = Path(sys.executable).with_name("basedpyright")
    if not checker.exists():
        pytest.skip("basedpyright is not installed")
    root = Path(__file__).parents[3]
    page = tmp_path / "typed.py"
    page.write_text(
        "from typing_extensions import assert_type\n"
        "from triplepoint import Agent, RemoteEngine\n"
        'engine = RemoteEngine("http://x/v1", model="m")\n'
        "assert_type(Agent(engine, output_type=list[int]).run('?').output, list[int])\n"
        "assert_type(Agent(engine).run('?').output, str)\n"
        "assert_type(Agent(engine, output_type=bool).run('?').output, str)\n"
    )
    (tmp_path / "triplepoint").symlink_to(root)
    done = subprocess.run(
        [checker, "--pythonpath", sys.executable, "--level", "error", page],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    errors = [line for line in done.stdout.splitlines() if " - error" in line]
    assert len(errors) == 1, done.stdout
    assert ":6:" in errors[0]


def test_refused_and_repaired_calls_are_counted(scripted: MakeEngine, tmp_path: Path) -> None:
    """By name, in the event that ends the run; nothing where there were none."""
    (tmp_path / "app.log").write_text("x\n")
    plain = '{"name": "read_file", "arguments": {"path": "app.log"}}'

    @tool(effect="write")
    def erase(path: str) -> str:
        """Erase a file.

        Args:
            path: Which.
        """
        raise AssertionError(path)

    engine = scripted(plain + END, call("erase", path="app.log") + END, f"No.{END}", f"Hi.{END}")
    agent = Agent(engine, workspace=tmp_path, harness=False, tools=[erase], trace=False)
    agent.run("Erase it")
    agent.run("Hello")

    first, second = (one for one in agent.trace.events if isinstance(one, RunEnd))
    assert first.totals["refused_calls"] == {"erase": 1}
    assert first.totals["repaired_calls"] == {"read_file": 1}
    assert not {"refused_calls", "repaired_calls"} & second.totals.keys()
