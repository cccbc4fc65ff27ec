"""Tools that take longer than they or the run may: the run ends, and the conversation goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, run_all

from triplepoint import (
    Agent,
    AgentError,
    LimitReachedError,
    PassCancelledError,
    Policy,
    Tool,
    ToolError,
    tool,
)
from triplepoint.traces.events import RunEnd


class Stuck:
    """A tool that returns when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.go, self.returned = (threading.Event() for _ in range(3))

    def stuck(self) -> str:
        """Wait."""
        self.begun.set()
        self.go.wait()
        self.returned.set()
        return "late"


@pytest.fixture
def slow() -> Iterator[Stuck]:
    one = Stuck()
    yield one
    one.go.set()


def test_a_run_does_not_wait_for_a_tool_beyond_its_time(scripted: MakeEngine, slow: Stuck) -> None:
    """It ends as at any limit, the trace has the call, and the next question is answered."""
    engine = scripted(call("stuck") + END, "Fine." + END)
    agent = Agent(engine, tools=[slow.stuck], timeout=0.1, trace=False)

    with pytest.raises(LimitReachedError, match=r"no answer within 0\.1 seconds"):
        agent.run("Wait")

    assert not slow.returned.is_set()
    (event,) = agent.trace.tools
    assert event.error == "the time of the run, 0.1 s, was up before the tool had returned"
    assert event.result == f"error: {event.error}"
    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "limit"
    slow.go.set()
    assert slow.returned.wait(60)
    agent.setup.config = agent.setup.config.__class__(8, 1024)
    assert agent.run("And now?").answer == "Fine."
    assert len(agent.trace.tools) == 1


def test_a_tool_has_a_time_of_its_own(scripted: MakeEngine, slow: Stuck) -> None:
    """The model is told, and the run goes on."""
    limited = tool(timeout=0.05)(slow.stuck)
    agent = Agent(scripted(call("stuck") + END, "Slow." + END), tools=[limited], trace=False)

    assert agent.run("Wait").answer == "Slow."

    (event,) = agent.trace.tools
    assert event.result == "error: took longer than 0.05 s and was not waited for"
    assert limited.timeout == 0.05


def test_a_tool_in_time_is_as_without_a_limit(scripted: MakeEngine) -> None:
    """Results and errors are those of the function."""

    def odd(n: int) -> int:
        """Take odd numbers.

        Args:
            n: A number.
        """
        if n % 2 == 0:
            raise ToolError(f"{n} is even")
        return n

    both = call("odd", n=3) + "\n" + call("odd", n=4) + END
    seen = []
    for timeout in (None, 60):
        agent = Agent(scripted(both, "Done." + END), tools=[odd], timeout=timeout, trace=False)
        _, result = run_all(agent, "Odd?")
        assert result.status == "answered"
        seen.append([(one.result, one.error) for one in agent.trace.tools])
    assert seen[0] == seen[1] == [("3", None), ("error: 4 is even", "4 is even")]


def test_what_is_allowed_too_late_does_not_run(scripted: MakeEngine) -> None:
    """The run was stopped, or its time was up, while a person was asked."""
    written: list[str] = []

    @tool(effect="write")
    def write() -> str:
        """Write."""
        written.append("x")
        return "done"

    for timeout, error in ((None, PassCancelledError), (60, PassCancelledError)):
        agent = Agent(scripted(call("write") + END), tools=write, timeout=timeout, trace=False)

        def ask(request: object, agent: Agent = agent) -> Any:
            agent.stop()
            return "yes"

        agent.setup.policy.mode, agent.setup.policy.ask = "ask", ask
        with pytest.raises(error):
            agent.run("Write")
        (event,) = agent.trace.tools
        assert event.error == "the run had ended before the tool was called"
    assert written == []


def test_a_mistake_in_who_asks_ends_the_run(scripted: MakeEngine) -> None:
    """It is not told to the model; the next question goes on behind the call."""

    @tool(effect="write")
    def write() -> str:
        """Write."""
        return "done"

    def ask(request: object) -> Any:
        raise OSError("no terminal")

    engine = scripted(call("write") + END, "Fine." + END)
    agent = Agent(engine, tools=write, policy=Policy("ask", ask=ask), trace=False)
    with pytest.raises(AgentError, match="ask failed: OSError: no terminal"):
        agent.run("Write")
    assert agent.run("And now?").answer == "Fine."


def test_stop_does_not_wait_for_a_tool_under_a_limit(scripted: MakeEngine, slow: Stuck) -> None:
    """From another thread; the run ends as cancelled."""
    agent = Agent(scripted(call("stuck") + END), tools=[slow.stuck], timeout=600, trace=False)

    def stop() -> None:
        slow.begun.wait()
        agent.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(PassCancelledError):
        agent.run("Wait")
    stopper.join()

    (event,) = agent.trace.tools
    assert event.error == "the run was stopped before the tool had returned"


def test_an_agent_as_a_tool_is_stopped(scripted: MakeEngine, slow: Stuck) -> None:
    """When the outer run's time is up, the inner run ends too: it would keep the engine."""
    inner = Agent(
        scripted(call("stuck") + END, "Never." + END),
        tools=[slow.stuck],
        timeout=600,
        trace=False,
    )
    ended = threading.Event()
    helper = inner.as_tool("ask", "Asks.")

    def asks(question: str) -> str:
        """Asks.

        Args:
            question: What.
        """
        try:
            return helper.function(question)
        except PassCancelledError:
            ended.set()
            raise

    outer = Agent(
        scripted(call("asks", question="q") + END), tools=[asks], timeout=0.3, trace=False
    )
    with pytest.raises(LimitReachedError):
        outer.run("Ask")

    assert slow.begun.is_set()
    assert ended.wait(60)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    """When the tool is made."""

    def noop() -> None:
        """Nothing."""

    with pytest.raises(ValueError, match="timeout must be above 0"):
        Tool(noop, timeout=seconds)
