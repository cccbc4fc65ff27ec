"""Runs one row on one engine: builds, asks and closes an agent, and never raises.

Everything here can be pickled: an actor on another machine does the same as a thread of this one.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import (
    ContextOverflowError,
    EngineError,
    LimitReachedError,
    ModelError,
    PassCancelledError,
    SettingError,
    ToolDefinitionError,
    ToolError,
    TraceError,
    TriplepointError,
)
from ...tools.groups import make_group
from ...traces import log
from ..agent.agent import Agent
from ..agent.events import AgentEvent, result_of
from ..agent.local_conversation import LocalConversation
from ..remote import RemoteEngine

if TYPE_CHECKING:
    from ...tools import Tool, Workspace
    from ..agent.result import RunResult, Usage
    from ..engine.engine import Engine
    from ..engine.sampling.settings import Sampling
    from .rows import Row

Status = Literal["answered", "limit", "error", "retry", "away", "dropped", "lost", "cancelled"]
"""``retry``: another try may succeed; ``away``: the server is at fault, not the row; ``dropped``:
the server went away during the row, which may be why; ``lost``: the worker died during the row."""
AgentFactory = Callable[["Engine | RemoteEngine", "dict[str, Any]"], "Agent[Any]"]

_COLLECT_EVERY = 64  # agents of a factory, each of which holds a descriptor of its folder
_MADE = itertools.count(1)


@dataclass
class Outcome:
    """The outcome of one try of a row.

    Attributes:
        usage: tokens of all its prompts, of these computed and found in the KV cache, generated
            tokens, and the number of the model's replies.
        host: name of the machine, if it is another one.
        trace: contents of the trace file, if it is on another machine.
        traced: whether the trace was written, if one was wanted.
    """

    status: Status
    answer: str = ""
    output: Any = None
    error: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    model: str = ""
    host: str = ""
    trace: bytes | None = None
    traced: bool = True


@dataclass
class Recipe:
    """The options that all agents of a run share; called with an engine and a row, it builds one.

    Attributes:
        dir: folder of rows that name none; None: they have no files.
        mode: which calls may run; policy: a file of rules that come before it.
        agent: further arguments of `Agent`.
    """

    dir: str | None = None
    schema: dict[str, Any] | None = None
    tools: tuple[str, ...] = ()
    mode: Literal["read-only", "yes"] = "read-only"
    policy: str | None = None
    allow_private_network: bool = False
    max_steps: int | None = None
    max_tokens: int | None = None
    sampling: Sampling | None = None
    agent: dict[str, Any] = field(default_factory=dict)

    def make(self, engine: Engine | RemoteEngine, row: Row) -> Agent[Any]:
        """Build an agent for this row."""
        from ...tools import Policy, Workspace

        folder = self.dir if row.dir is None else row.dir
        files = None if folder is None else Workspace(folder)
        names = self.tools if row.tools is None else row.tools
        schema = self.schema if row.schema is None else row.schema
        policy = Policy(self.mode) if not self.policy else Policy.load(self.policy, self.mode)
        return Agent(
            engine,
            workspace=files,
            tools=self._tools(names, files),
            policy=policy,
            max_steps=self.max_steps,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            output_type=schema,
            **self.agent,
        )

    def _tools(self, names: tuple[str, ...], files: Workspace | None) -> list[Tool[..., Any]]:
        made: list[Tool[..., Any]] = []
        for name in names:
            try:
                made += make_group(name, files, private=self.allow_private_network)
            except ToolError as error:
                raise error if files else ToolError(f"{error}; give the row a dir") from None
        return made


class Stopper:
    """The set of running agents, so that all can be stopped."""

    def __init__(self) -> None:
        self.stopped = False
        self._agents: set[Agent[Any]] = set()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Stop all agents; later ones are refused."""
        with self._lock:
            self.stopped = True
            for agent in self._agents:
                agent.stop()

    def add(self, agent: Agent[Any]) -> None:
        """Register an agent that starts."""
        with self._lock:
            if self.stopped:
                raise PassCancelledError("the run ends")
            self._agents.add(agent)

    def discard(self, agent: Agent[Any]) -> None:
        """Remove an agent that has ended."""
        with self._lock:
            self._agents.discard(agent)


def answer(
    engine: Engine | RemoteEngine,
    row: Row,
    make: Recipe | AgentFactory,
    trace: Path | None,
    stopper: Stopper,
    hidden: Sequence[Path] = (),
) -> Outcome:
    """Ask an agent the row's question; return the outcome, errors included.

    Args:
        make: builds the agent.
        trace: path of its trace; None: no trace.
        hidden: paths hidden from its tools: files of the run itself.
    """
    agent: Agent[Any] | None = None
    untraced: Path | None = None
    outcome = Outcome("retry", model=engine.model.name)
    try:
        agent = make.make(engine, row) if isinstance(make, Recipe) else _made(make, engine, row)
        if (files := agent.setup.files) is not None:
            files.hide(hidden)
        if trace is not None:
            with contextlib.suppress(OSError):  # of a try that did not come to its end
                trace.unlink()
        agent.trace_to(False if trace is None else trace)
        stopper.add(agent)
        last: AgentEvent | None = None
        for last in agent.stream(row.question):  # noqa: B007
            if stopper.stopped:  # perhaps before the run had begun
                agent.stop()
        result = result_of(last)
        outcome.status, outcome.answer = "answered", result.answer
        if agent.setup.output is not None:
            outcome.output = _plain(result.output)
    except BaseException as error:  # a tool's sys.exit() ends its row; else it would be lost
        outcome.status, outcome.error = _judged(error, stopper, engine)
        untraced = trace if isinstance(error, TraceError) else None
    if agent is not None:
        stopper.discard(agent)
        _close(agent, outcome)
        files = agent.setup.files
        if files is not None and isinstance(make, Recipe):
            files.close()
        elif files is not None and next(_MADE) % _COLLECT_EVERY == 0:
            # It may be shared with other agents, so it cannot be closed here. Its agent refers to
            # itself, and among many rows the collector comes too late: descriptors would run out.
            gc.collect()
    if untraced is not None:  # the row is not at fault, and its answer counts without a trace
        log.warning(f"a row is asked without a trace: {outcome.error}")
        with contextlib.suppress(OSError):  # what there is of it is of no answer
            untraced.unlink()
        outcome = answer(engine, row, make, None, stopper, hidden)
        outcome.traced = False
    return outcome


def _made(make: AgentFactory, engine: Engine | RemoteEngine, row: Row) -> Agent[Any]:
    folder = {} if row.dir is None else {"dir": row.dir}
    agent = make(engine, row.fields | folder)
    if not isinstance(agent, Agent):
        raise SettingError(f"the agent factory must return an Agent, not {type(agent).__name__}")
    return agent


def _judged(
    error: BaseException, stopper: Stopper, engine: Engine | RemoteEngine
) -> tuple[Status, str]:
    """Classify the error of a try; return the row's status and a message."""
    text = str(error) or type(error).__name__
    if stopper.stopped:
        return "cancelled", text
    if isinstance(error, LimitReachedError | ContextOverflowError):
        return "limit", text
    if isinstance(error, SettingError | ToolError | ToolDefinitionError):
        return "error", text  # it would go the same way again
    if isinstance(error, EngineError | ModelError) and isinstance(engine, RemoteEngine):
        return _blamed(engine, error), text
    if isinstance(error, TriplepointError) and not isinstance(error, EngineError | TraceError):
        return "error", text
    return "retry", text if isinstance(
        error, TriplepointError
    ) else f"{type(error).__name__}: {text}"


def _blamed(engine: RemoteEngine, error: Exception) -> Status:
    """Return the status for a server's error: ``retry`` if the server still responds."""
    from ..remote.exchange import BusyError, KeyRefusedError

    if isinstance(error, BusyError) and not error.dropped:
        return "away"
    try:
        return "dropped" if why_silent(engine) else "retry"
    except KeyRefusedError:
        return "retry"


def why_silent(engine: RemoteEngine) -> str:
    """Return why a server does not list its models; empty if it does.

    Raises:
        KeyRefusedError: it requires an API key, or another one.
        SettingError: a proxy or certificates of the environment cannot be used.
    """
    from ..remote.exchange import KeyRefusedError, fetch_json
    from ..remote.server import CONNECT

    try:
        fetch_json(engine.server, "/models", timeout=CONNECT)
    except (KeyRefusedError, SettingError):
        raise
    except EngineError as error:
        return str(error)
    return ""


def _close(agent: Agent[Any], outcome: Outcome) -> None:
    result: RunResult[Any] | None = agent.last_result
    if result is not None:
        outcome.usage, outcome.seconds = usage_of(result.usage), result.usage.wall_s
        outcome.answer = result.answer
    if isinstance(agent.setup.conversation, LocalConversation):
        with contextlib.suppress(EngineError):
            agent.session.close()
    agent.close()


def usage_of(usage: Usage) -> dict[str, int]:
    """Return a run's tokens as results record them."""
    return {
        "prompt": usage.input_tokens,
        "computed": usage.input_tokens - usage.cached_tokens,
        "cached": usage.cached_tokens,
        "generated": usage.output_tokens,
        "steps": usage.steps,
    }


def _plain(value: Any) -> Any:
    """Return an answer of a declared type as JSON values."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)
