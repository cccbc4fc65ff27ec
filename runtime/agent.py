"""The agent: answers questions about files by calling tools, one conversation on one session.

agent = Agent(Engine.load("nano"), workspace="examples/incident")
result = agent.run("What's the error in app.log?")
print(result.answer, result.trace.path)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import AgentError, LimitReachedError
from ..tools import FileTools, Policy, Tool, ToolSet, formats
from ..tools.policy import Mode
from ..traces.reader import Trace
from ..traces.writer import new_run_id
from .chat import Message
from .events import AgentEvent, RunFinished
from .local import LocalTalk
from .loop import Run
from .prompt import SYSTEM_PROMPT, WORKING_PROMPT
from .result import RunResult
from .results import Results

if TYPE_CHECKING:
    from .chat import Chat
    from .engine import Engine
    from .grammar import CallGrammar
    from .ledger import TokenLedger
    from .remote import RemoteEngine
    from .sampling import Sampling
    from .session import Session
    from .talk import Talk

ToolLike: TypeAlias = "Tool[..., Any] | Callable[..., Any]"

MAX_STEPS = 8
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent; they are in the header of its trace."""

    max_steps: int = MAX_STEPS
    max_tokens: int = MAX_TOKENS
    context: int | None = None
    system: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, not {self.timeout}")


class Agent:
    """An agent and its conversation. Every run goes on where the one before it ended.

    Args:
        engine: the model that answers: an `Engine`, or a `RemoteEngine` for another server.
        workspace: folder that the file tools may look at; none without it.
        tools: further tools: functions, `Tool` objects, or what iterates over them.
        system: the system message; by default the one for questions about files, if there are
            tools at all.
        max_steps: times the model is asked in one run, at most.
        max_tokens: tokens that it generates in one run, at most.
        timeout: seconds that one run may take; none without it.
        policy: which calls may run: a `Policy`, or "read-only" (only tools that just read) or
            "yes" (all).
        result_tokens: tokens of one tool result, at most; by default a share of the context.
        context: tokens that the conversation may hold; by default what the engine was loaded for.
        trace: file that the trace is appended to; by default a new one in the user's state folder;
            False keeps it in memory.
        redact: write neither text nor token ids to that file.
        profile: record the time of each layer in every phase.
        thinking: for models that can think before they answer: whether to; None leaves it to them.
        chat_template: Jinja text to use instead of the model's own.
        sampling: how tokens are picked; greedy by default.

    Raises:
        TemplateError: the model's chat template cannot be used.
        GrammarError: no grammar can be made from a tool's schema.
        ToolError: the workspace is no folder.
        EngineError: the context is larger than the engine's.

    Attributes:
        session, ledger, messages: the conversation as the engine has it, token by token with
            origins, and as messages.
    """

    def __init__(
        self,
        engine: Engine | RemoteEngine,
        *,
        workspace: str | Path | None = None,
        tools: ToolLike | Iterable[ToolLike | Iterable[ToolLike]] | None = None,
        system: str | None = None,
        max_steps: int = MAX_STEPS,
        max_tokens: int = MAX_TOKENS,
        timeout: float | None = None,
        policy: Policy | Mode = "read-only",
        result_tokens: int | None = None,
        context: int | None = None,
        trace: str | Path | bool | None = None,
        redact: bool = False,
        profile: bool = False,
        thinking: bool | None = None,
        chat_template: str | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.engine = engine
        self.workspace = None if workspace is None else Path(workspace)
        size = engine.context if context is None else context
        self.results = Results(result_tokens or _tokens(size), self._count)
        files = () if self.workspace is None else FileTools(self.workspace, max_chars=_share(size))
        given = [one if isinstance(one, Tool) else Tool(one) for one in _flat(tools)]
        if any(one.effect in ("net", "exec") for one in given):  # of any length
            given.append(self.results.tool())
        self.tools = ToolSet((*files, *given))
        self.policy = policy if isinstance(policy, Policy) else Policy(policy)
        if system is None:
            reads = all(one.effect == "read" for one in self.tools)
            system = (SYSTEM_PROMPT if reads else WORKING_PROMPT) if len(self.tools) else ""
        options = {} if thinking is None else {"enable_thinking": thinking}
        self.config = AgentConfig(
            max_steps, max_tokens, context, system, options, sampling, timeout
        )
        self.talk: Talk = self._begin_talk(chat_template)
        if isinstance(self.talk, LocalTalk):
            self.talk.session.profile = profile
        self.messages: list[Message] = []
        self.on_progress: Callable[[int, int, float], None] | None = None
        """Called during a long prefill with tokens done, tokens in all and tokens a second."""
        self.turn = 0
        self.last_result: RunResult | None = None
        """The result of the last run that ended, also of one that a limit ended."""
        self._trace_path = trace
        self._redact = redact
        self._trace: Trace | None = None
        self._running = False
        self.stopping = False
        """Whether `stop` was called during the current run."""

    @property
    def trace(self) -> Trace:
        """The trace of the conversation; begun when first needed."""
        if self._trace is None:
            self._trace = self._begin_trace()
        return self._trace

    def run(self, task: str) -> RunResult:
        """Answer a question.

        Raises:
            LimitReachedError: steps, tokens or repeated calls ended the run before an answer;
                `last_result` has what there was of it.
            ContextOverflowError: something did not fit in the context; says how long what was.
            PassCancelledError: `stop` was called.
            AgentError: the conversation cannot go on.
            TraceError: the trace cannot be written.
        """
        result = None
        for event in self.stream(task):
            if isinstance(event, RunFinished):
                result = event.result
        assert result is not None, "a stream that did not raise ends in RunFinished"
        if result.status == "limit":
            raise LimitReachedError(result.message)
        return result

    def stream(self, task: str) -> Iterator[AgentEvent]:
        """Answer a question, and yield what happens as it happens.

        The last event is `RunFinished`, also when a limit ended the run. Leaving the iterator
        early, Ctrl-C and `stop` end the run as cancelled and keep the conversation.

        Raises:
            As `run`, except for LimitReachedError.
        """
        if self._running:
            raise AgentError("this agent is running already; finish or close that stream first")
        self._running = True
        self.stopping = False
        try:
            yield from Run(self, task).events()
        finally:
            self._running = False

    def stop(self) -> None:
        """End the running phase, from any thread; the run ends as cancelled."""
        self.stopping = True  # also between two phases, where there is no pass to end
        self.talk.stop()

    def close(self) -> None:
        """Close the trace file; the conversation is over."""
        if self._trace is not None:
            self._trace.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notes(self) -> list[str]:
        """What had to be done because the model file or a tool's schema lack something."""
        notes = list(self.talk.notes)
        if refused := self.policy.refused(self.tools):
            notes.append(
                f"the policy is {self.policy.mode}, so no call of {', '.join(refused)} will run"
            )
        return notes

    # The conversation as an engine of ours has it.

    @property
    def session(self) -> Session:
        """The tokens in the engine, and their KV cache."""
        return self._local.session

    @property
    def ledger(self) -> TokenLedger:
        """The same tokens, and whose they are."""
        return self._local.ledger

    @property
    def chat(self) -> Chat:
        """How the model is talked to."""
        return self._local.chat

    @property
    def grammar(self) -> CallGrammar:
        """What its calls may be made of."""
        return self._local.grammar

    @property
    def _local(self) -> LocalTalk:
        if not isinstance(self.talk, LocalTalk):
            raise AgentError("the model runs in another server: its tokens are not known here")
        return self.talk

    def _begin_talk(self, chat_template: str | None) -> Talk:
        from .remote import RemoteEngine

        schemas = self.tools.schemas()
        if isinstance(self.engine, RemoteEngine):
            from .remote.talk import RemoteTalk

            return RemoteTalk(self.engine, self.config, schemas)
        return LocalTalk(self.engine, self.config, schemas, chat_template)

    def _count(self, text: str) -> int:
        return self.talk.count(text)

    def _begin_trace(self) -> Trace:
        run = new_run_id()
        if self._trace_path is False:
            return Trace()
        path = self._trace_path
        if path is None or path is True:
            from platformdirs import user_state_path

            path = user_state_path("triplepoint", appauthor=False) / "traces" / f"{run}.jsonl"
        trace = Trace.to_file(path, run=run, redact=self._redact)
        weakref.finalize(self, trace.close)
        return trace


def _share(context: int) -> int:
    """Characters that one result of a file tool may have where `context` tokens fit.

    Half as many characters as tokens: a few results fit even where a token is little more than a
    character, and what is left out can be read on.
    """
    return min(formats.MAX_CHARS, max(1024, context // 2))


def _tokens(context: int) -> int:
    """Tokens that one result of any other tool may have."""
    return min(4096, max(256, context // 4))


def _flat(tools: ToolLike | Iterable[ToolLike | Iterable[ToolLike]] | None) -> Iterator[ToolLike]:
    """The tools in order: one, many, or groups of them such as `FileTools`."""
    if tools is None:
        return
    if isinstance(tools, Tool) or callable(tools):
        yield tools
        return
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise AgentError(f"{tools!r} is not a tool: give functions, Tool objects or groups of them")
    for item in tools:
        yield from _flat(item)
