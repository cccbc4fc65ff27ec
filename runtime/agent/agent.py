"""The agent: answers questions about files by calling tools, one conversation on one session.

agent = Agent(Engine.load("nano"), workspace="examples/incident")
result = agent.run("What's the error in app.log?")
print(result.answer, result.trace.path)
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from ...arguments import as_list
from ...errors import AgentError, LimitReachedError, SettingError
from ...tools import FileTools, Policy, Tool, ToolSet, Workspace
from ...tools import tool as make_tool
from ...tools.policy import Mode
from ...tools.timeouts import on_abandon
from ..conversation.chat import Message
from .compaction import dropped_text, moved
from .config import (
    MAX_STEPS,
    MAX_TOKENS,
    AgentConfig,
    ToolLike,
    check_count,
    check_engine,
    check_task,
    check_template_options,
    flatten_tools,
    max_result_chars,
    max_result_tokens,
)
from .events import AgentEvent, RunFinished
from .history import History
from .local_conversation import LocalConversation
from .loop import Run
from .prompt import LEFT_BY_STOP, SYSTEM_PROMPT, WORKING_PROMPT
from .result import RunResult
from .run_metadata import begin_trace, prepare, run_start
from .structured_output import OutputType
from .tool_output import ToolOutputStore

if TYPE_CHECKING:
    from ...tools import Effect
    from ...tools.timeouts import TimedTask
    from ...traces.events import PhaseEvent
    from ...traces.reader import Trace
    from ..conversation.chat import Chat
    from ..conversation.grammar import CallGrammar
    from ..conversation.ledger import TokenLedger
    from ..inference.engine import Engine
    from ..inference.sampling import Sampling
    from ..inference.session import Session
    from .conversation import Conversation
    from .remote import RemoteEngine

Output = TypeVar("Output", default=str)

_BUSY = "this agent is running already; finish or close that stream first"


class Agent(Generic[Output]):
    """An agent and its conversation. Every run goes on where the one before it ended.

    Args:
        engine: the model that answers: an `Engine`, or a `RemoteEngine` for another server.
        workspace: folder that the file tools may look at, or a `Workspace` of it; none without it.
        tools: further tools: functions, `Tool` objects, or what iterates over them.
        system: the system message; by default the one for questions about files, if there are
            tools at all.
        max_steps: times the model is asked in one run, at most.
        max_tokens: tokens that it generates in one run, at most.
        timeout: seconds that one run may take; none without it. A tool is not waited for any
            longer either: with a timeout, tools run in threads of their own.
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
        template_options: further variables of the template, as ``{"reasoning_effort": "high"}`` for
            gpt-oss, or ``{"preserve_thinking": False}``.
        sampling: how tokens are picked; greedy by default.
        compact: when the context is full, take old results of tools out of it and say so, instead
            of ending the run.
        repetition_stop: end a reply that does nothing but repeat itself: an answer with a notice,
            a call unrun, after telling the model once.
        output_type: what answers are to be: a pydantic model, a dataclass, ``list[int]``, …;
            text without it. The model cannot write anything else, and `RunResult.output` has it.
            A JSON schema will do too; then the output is what `json.loads` gives.

    Raises:
        TemplateError: the model's chat template cannot be used.
        GrammarError: no grammar can be made from a tool's schema, or from that of the answer.
        AgentError: the engine is none, a tool is none, or output_type has no schema.
        ToolError: the workspace is no folder.
        SettingError: a number makes no sense, the context is larger than the engine's, or a logit
            bias names no token.

    Attributes:
        session, ledger, messages: the conversation as the engine has it, token by token with
            origins, and as messages.
        files: the workspace as the file tools see it; None without one.
    """

    def __init__(
        self,
        engine: Engine | RemoteEngine,
        *,
        workspace: str | Path | Workspace | None = None,
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
        template_options: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        compact: bool = False,
        repetition_stop: bool = True,
        output_type: type[Output] | Mapping[str, Any] | None = None,
    ) -> None:
        check_engine(engine)
        for name, value in (("context", context), ("result_tokens", result_tokens)):
            if value is not None:
                check_count(name, value)
        for name, value in (("system", system), ("chat_template", chat_template)):
            if value is not None and not isinstance(value, str):
                raise SettingError(f"{name} must be a text, not {value!r}")
        options = check_template_options(template_options)
        options |= {} if thinking is None else {"enable_thinking": thinking}
        self.engine = engine
        size = engine.context if context is None else context
        self.results = ToolOutputStore(result_tokens or max_result_tokens(size), self._count)
        looking = (
            None if workspace is None else FileTools(workspace, max_chars=max_result_chars(size))
        )
        self._looking: Iterable[Tool] = () if looking is None else looking
        self.files = None if looking is None else looking.workspace
        self.workspace = None if self.files is None else self.files.root
        self._given = [one if isinstance(one, Tool) else Tool(one) for one in flatten_tools(tools)]
        self.policy = policy if isinstance(policy, Policy) else Policy(policy)
        self.output = None if output_type is None else OutputType(output_type)
        self._output_type = output_type
        self._system, self._result_tokens = system, result_tokens
        self._chat_template, self._profile = chat_template, profile
        self.config = AgentConfig(
            max_steps,
            max_tokens,
            context,
            "",
            options,
            sampling,
            timeout,
            None if self.output is None else self.output.schema,
            compact,
            repetition_stop,
        )
        self.tools, self.conversation = self._begin()
        self._checkpoints: list[tuple[Any, int]] = []
        self.messages: list[Message] = []
        self.on_progress: Callable[[int, int, float], None] | None = None
        """Called during a long prefill with tokens done, tokens in all and tokens a second."""
        self.turn = 0
        self.last_result: RunResult[Output] | None = None
        """The result of the last run that ended, also of one that a limit ended."""
        self._trace_path = trace
        self._redact = redact
        self._trace: Trace | None = None
        self._running = False
        self.stopping = False
        """Whether `stop` was called during the current run."""
        self.timed_task: TimedTask[str] | None = None
        """The call that the current run waits for, where it need not wait for ever."""
        prepare(self)

    @property
    def trace(self) -> Trace:
        """The trace of the conversation; begun when first needed."""
        if self._trace is None:
            self._trace = begin_trace(self._trace_path, redact=self._redact)
            weakref.finalize(self, self._trace.close)
        return self._trace

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        effect: Effect = "read",
        preview: Callable[..., str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Give the agent one more tool, as a decorator; see `triplepoint.tool`.

        Raises:
            AgentError: the conversation has begun; the model has been told of its tools.
        """

        def add(decorated: Callable[..., Any]) -> Tool[..., Any]:
            if self.turn:
                raise AgentError("tools are given before the first question, and stay the same")
            made = make_tool(name=name, effect=effect, preview=preview, timeout=timeout)(decorated)
            self._given.append(made)
            try:
                self.tools, self.conversation = self._begin()
            except BaseException:
                self._given.remove(made)
                raise
            return made

        return add if function is None else add(function)

    def run(self, task: str) -> RunResult[Output]:
        """Answer a question.

        Raises:
            LimitReachedError: steps, tokens or repeated calls ended the run before an answer;
                `last_result` has what there was of it.
            ContextOverflowError: something did not fit in the context; says how long what was.
            PassCancelledError: `stop` was called.
            AgentError: the question is empty or no text, the conversation cannot go on, or the
                answer does not fit output_type.
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
        check_task(task)
        return self._events(lambda: Run(self, task))

    def resume(self, task: str, new: Sequence[Message], step: int) -> Iterator[AgentEvent]:
        """As `stream`, from the middle of a run: the messages `new` are fed, and a step asked for.

        Args:
            task: the question of the run.
            new: what the model has not read yet, such as the results of its last calls.
            step: number of the step that is asked for.
        """
        return self._events(lambda: Run(self, task, new, step))

    def _events(self, begin: Callable[[], Run]) -> Iterator[AgentEvent]:
        if self._running:
            raise AgentError(_BUSY)
        self._running = True
        self.stopping = False
        try:
            yield from begin().events()
        finally:
            self._running = False

    async def run_async(self, task: str) -> RunResult[Output]:
        """As `run`, in an event loop; cancelling it ends the run and keeps the conversation."""
        result = None
        async for event in self.stream_async(task):
            if isinstance(event, RunFinished):
                result = event.result
        assert result is not None, "a stream that did not raise ends in RunFinished"
        if result.status == "limit":
            raise LimitReachedError(result.message)
        return result

    async def stream_async(self, task: str) -> AsyncIterator[AgentEvent]:
        """As `stream`, in an event loop; leaving it ends the run and keeps the conversation."""
        from .aio import in_thread

        async for event in in_thread(lambda: self.stream(task), self.stop):
            yield event

    def undo(self) -> str:
        """Forget the last question and everything since; returns the question.

        Nothing is computed again: the tokens before it are still there. What tools have changed
        stays changed.

        Raises:
            AgentError: there is none, or a run goes on.
        """
        if self._running or not self._checkpoints:
            raise AgentError("there is no question to take back" if not self._running else _BUSY)
        mark, messages = self._checkpoints.pop()
        asked = [one.content for one in self.messages[messages:] if one.role == "user"]
        self.conversation.rewind(mark)
        self.messages = self.messages[:messages]
        return asked[0] if asked else ""

    def load_history(self, turns: Iterable[tuple[str, str]]) -> None:
        """Begin with questions and answers of another conversation, as if they were this one's.

        Raises:
            AgentError: the conversation has begun.
        """
        if self.turn or self.messages:
            raise AgentError("a conversation that has begun cannot be given another past")
        says = "turns must be pairs of a question and an answer"
        pairs = [tuple(as_list(one, says, AgentError)) for one in as_list(turns, says, AgentError)]
        if not all(len(one) == 2 and all(isinstance(text, str) for text in one) for one in pairs):
            raise AgentError(f"{says}, both texts")
        if pairs and self.config.system:
            self.messages.append(Message("system", self.config.system))
        for question, answer in pairs:
            self.messages += [Message("user", question), Message("assistant", answer)]
        self.conversation.load_history(self.messages)

    def fork(self, *, trace: str | Path | bool | None = None) -> Agent[Output]:
        """Another agent that goes on from here, with the same tools; this one stays as it is.

        On a local engine nothing is recomputed: both share the KV cache up to here.

        Raises:
            AgentError: a run goes on.
        """
        if self._running:
            raise AgentError(_BUSY)
        config = self.config
        other = Agent(
            self.engine,
            workspace=self.files,
            tools=list(self._given),
            system=self._system,
            max_steps=config.max_steps,
            max_tokens=config.max_tokens,
            timeout=config.timeout,
            policy=self.policy,
            result_tokens=self._result_tokens,
            context=config.context,
            trace=trace,
            redact=self._redact,
            profile=self._profile,
            chat_template=self._chat_template,
            template_options=config.options,
            sampling=config.sampling,
            compact=config.compact,
            repetition_stop=config.repetition_stop,
            output_type=self._output_type,
        )
        other.on_progress = self.on_progress
        if self.messages:
            other.messages, other.turn = list(self.messages), self.turn
            other._checkpoints = list(self._checkpoints)
            start = run_start(other, "")
            start.parent = self.trace.run
            other.trace.write(start)
            other.trace.write(History.of(self).event())
        if (phase := other.conversation.fork_from(self.conversation)) is not None:
            phase.turn = other.turn
            other.trace.write(phase)
        return other

    def prefill_system(self) -> int:
        """Read the system message and the tools before the first question; returns their tokens.

        Neither this agent nor its forks read them again. 0 where there was nothing to do.
        """
        return (
            self.conversation.prefill_system()
            if isinstance(self.conversation, LocalConversation) and not self._running
            else 0
        )

    def as_tool(self, name: str, description: str, *, effect: Effect = "read") -> Tool[..., Any]:
        """This agent as a tool of another: each call asks a fork of it, which is then forgotten.

        A fork shares what this conversation has read (see `fork`), at least the system message
        and the tools, which the first call reads for all (see `warm`). Calls do not know of each
        other. The other agent's limits do not hold for it, its own do.

        Args:
            name: of the tool.
            description: what the model is told of it.
            effect: what it can do at worst; say more than "read" where its policy allows more.
        """

        def ask(question: str) -> str:
            self.prefill_system()
            with self.fork(trace=False) as helper, on_abandon(helper.stop):
                return helper.run(question).answer

        ask.__doc__ = f"{description}\n\nArgs:\n    question: What to ask, in whole sentences."
        return make_tool(name=name, effect=effect)(ask)

    def compact(self) -> str:
        """Take the results of tools before the last question out of the context; says which.

        What follows the first of them is read once more. What was taken out is in the trace.

        Raises:
            AgentError: there is none, a run goes on, or the model runs in another server.
        """
        if self._running:
            raise AgentError(_BUSY)
        phase = self.compact_to_fit(None)
        if phase is None:
            raise AgentError("there is no older result of a tool to take out")
        phase.turn = self.turn
        self.trace.write(phase)
        return dropped_text(phase)

    def compact_to_fit(self, room: int | None) -> PhaseEvent | None:
        """Compact the conversation for so many tokens (None: as far as it goes); for runs."""
        asked = [i for i, one in enumerate(self.messages) if one.role == "user"]
        # Within a run the results so far are old too: the model has answered to them.
        before = len(self.messages) if self._running or not asked else asked[-1]
        marks = [(self._local.current(mark), n) for mark, n in self._checkpoints]
        lengths = [(mark, n, mark.tokens) for mark, n in marks]
        spans = list(self._local.ledger.spans)
        phase = self._local.compact(before, room)
        if phase is not None:
            self._checkpoints = [
                (replace(mark, tokens=moved(at, spans, phase.dropped)), n)
                for mark, n, at in lengths
            ]
        return phase

    def reset(self) -> None:
        """An empty conversation, as before the first question."""
        self.tools, self.conversation = self._begin()
        self.messages, self._checkpoints, self.turn = [], [], 0

    def use_trace(self, trace: Trace | None) -> None:
        """Record into this one; None begins the agent's own when it is next needed."""
        self._trace = trace

    def checkpoint(self) -> None:
        """Remember where a question begins, for `undo`; a run does so."""
        self._checkpoints.append((self.conversation.checkpoint(), len(self.messages)))

    def stop(self) -> None:
        """End the running phase, from any thread; the run ends as cancelled."""
        self.stopping = True  # also between two phases, where there is no pass to end
        self.conversation.stop()
        if (timed_task := self.timed_task) is not None:
            timed_task.abandon(LEFT_BY_STOP)

    def close(self) -> None:
        """Close the trace file; the conversation is over."""
        if self._trace is not None:
            self._trace.close()

    def __enter__(self) -> Agent[Output]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notes(self) -> list[str]:
        """What had to be done because the model file or a tool's schema lack something."""
        notes = list(self.conversation.notes)
        if refused := self.policy.refused(self.tools):
            notes.append(
                f"the policy is {self.policy.mode}, so no call of {', '.join(refused)} will run"
            )
        return notes

    # The conversation as a local engine has it.

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
    def _local(self) -> LocalConversation:
        if not isinstance(self.conversation, LocalConversation):
            raise AgentError("the model runs in another server: its tokens are not known here")
        return self.conversation

    def _begin(self) -> tuple[ToolSet, Conversation]:
        """The tools and an empty conversation in which the model is told of them."""
        from .remote import RemoteEngine

        more = list(self._given)
        if any(one.effect in ("net", "exec") for one in more):  # results of any length
            more.append(self.results.tool())
        tools = ToolSet((*self._looking, *more))
        system = self._system
        if system is None:
            reads = all(one.effect == "read" for one in tools)
            system = (SYSTEM_PROMPT if reads else WORKING_PROMPT) if len(tools) else ""
        if self.output is not None:
            system = f"{system}\n\n{self.output.prompt}".lstrip()
        self.config = replace(self.config, system=system)
        if isinstance(self.engine, RemoteEngine):
            from .remote.conversation import RemoteConversation

            return tools, RemoteConversation(self.engine, self.config, tools.schemas())
        conversation = LocalConversation(
            self.engine, self.config, tools.schemas(), self._chat_template
        )
        conversation.session.profile = self._profile
        return tools, conversation

    def _count(self, text: str) -> int:
        return self.conversation.count(text)
