"""The agent: answers questions about files with tools, in one conversation on one session.

agent = Agent(Engine.load("nano"), workspace="examples/incident")
result = agent.run("What's the error in app.log?")
print(result.answer, result.trace.path)
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from ...arguments import ProcessBound, check_switch
from ...errors import AgentError, GrammarError, SettingError
from ...tools import FileTools, Policy, Tool, ToolSet, Workspace
from ...tools import tool as make_tool
from ...tools.policy import Mode
from ...tools.schema_tool import SchemaTool
from ...tools.timeouts import on_abandon
from ..conversation.chat import Message
from .compaction import dropped_text
from .config import (
    BARE_STEPS,
    BARE_TOKENS,
    MAX_STEPS,
    AgentConfig,
    ToolLike,
    check_engine,
    check_task,
    check_template_options,
    check_text,
    check_trace,
    flatten_tools,
    is_remote,
    max_result_chars,
    max_result_tokens,
)
from .events import AgentEvent, RunFinished, result_of
from .harness.defaults import Given, harness_of, is_bare
from .harness.examples import with_examples
from .history import messages_of
from .local_conversation import LocalConversation
from .loop import Run
from .prompt import system_prompt
from .result import RunResult
from .run_context import CancellationToken, RunContext
from .run_metadata import RunSetup, begin_trace, prepare, write_continuation
from .structured_output import OutputType
from .tool_output import ToolOutputStore

if TYPE_CHECKING:
    from ...tools import Effect
    from ...traces.reader import Trace
    from ..conversation.ledger import TokenLedger
    from ..engine.engine import Engine
    from ..engine.sampling.settings import Sampling
    from ..engine.session import Session
    from ..remote import RemoteEngine

Output = TypeVar("Output", default=str)

MOVED = {
    "chat": "setup.conversation.chat",
    "config": "setup.config",
    "conversation": "setup.conversation",
    "engine": "setup.engine",
    "files": "setup.files",
    "grammar": "setup.conversation.grammar",
    "harness": "setup.harness",
    "notes": "setup.notes",
    "on_progress": "setup.on_progress",
    "output": "setup.output",
    "policy": "setup.policy",
    "results": "setup.results",
    "workspace": "setup.workspace",
}
"""Former attributes of an agent, with the paths that replace them."""

_BUSY = "this agent is already running; finish or close the open stream first"


class Agent(Generic[Output], ProcessBound):
    """An agent and its conversation. Each run continues where the last one ended.

    Args:
        engine: the model that answers: an `Engine`, or a `RemoteEngine` for a model on a server.
        workspace: folder that the file tools can read, or a `Workspace`; None: no file tools.
        tools: more tools: functions, `Tool` objects, or iterables of them.
        system: the system message; default: one for questions about files, if there are tools.
        max_steps: maximum number of model calls per run; default: 25, or 8 for models that were
            trained on the bare loop, such as nano.
        max_tokens: maximum number of generated tokens per run; default: none, but 4,096 per reply.
            For models that were trained on the bare loop: 1,024.
        timeout: maximum seconds per run; default: no limit. With a timeout, tools run in threads of
            their own, and the run does not wait for them any longer than this.
        policy: which calls may run: a `Policy`, "read-only" (tools that only read) or "yes" (all).
        result_tokens: maximum tokens per tool result; default: a share of the context.
        context: maximum tokens of the conversation; default: the engine's context.
        trace: file to append to; default: a new one in the state folder; False: in memory.
        redact: write neither text nor token ids to that file.
        profile: record the time of each layer in every phase.
        thinking: whether a model that can think does so before it answers; None: the model decides,
            or a budget does.
        thinking_tokens, thinking_seconds: budget of each reply's thinking; default: none. When it
            is used up, the runtime closes the thinking with a sentence, and the answer follows.
        chat_template: Jinja text to use instead of the model's own template.
        template_options: more variables for the template, such as ``{"reasoning_effort": "high"}``
            for gpt-oss, or ``{"preserve_thinking": False}``.
        sampling: how tokens are picked; default: the model file's settings, else greedy.
        compact: when the context is full, remove old tool results instead of ending the run.
        repetition_stop: stop a reply that only repeats itself. An answer ends with a notice; a call
            is not run, and the model is warned once.
        answer_forms: if the model's file declares forms of its answers, as nano's does, hold the
            model to them: what it quotes then comes from the question or a result.
        output_type: type of the answers: a pydantic model, a dataclass, ``list[int]``, … or a JSON
            schema; default: text. A model here can write nothing else, and `RunResult.output` is
            the parsed value (for a JSON schema, what `json.loads` gives).
        harness: what is done around the model: True or False for all policies or none, settings
            by name (`runtime/agent/harness/defaults.py`), or a `Harness` of your own policies;
            default: all, except for models that were trained on the bare loop, such as nano, and
            models on a server.
        grounded: an answer with a fact that no line of what was read carries is not taken: the
            model gets one more try, with the cited lines, and else the answer is that nothing was
            found.

    Raises:
        TemplateError: the model's chat template cannot be used.
        GrammarError: no grammar can be made from a tool's schema, or from that of the answer.
        AgentError: the engine or a tool has the wrong type, or output_type has no schema.
        ToolError: the workspace is not a folder.
        SettingError: a number is out of range, the context is larger than the engine's, or a logit
            bias is for a token that does not exist.

    Attributes:
        setup: who answers, with which settings, tools and harness, in which conversation.
        last_result: the result of the last run that ended, also of one that a limit ended.
    """

    _instead = "Agent.fork copies it here, open_conversation saves it for elsewhere"

    def __init__(
        self,
        engine: Engine | RemoteEngine,
        *,
        workspace: str | Path | Workspace | None = None,
        tools: ToolLike | Iterable[ToolLike | Iterable[ToolLike]] | None = None,
        system: str | None = None,
        max_steps: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        policy: Policy | Mode = "read-only",
        result_tokens: int | None = None,
        context: int | None = None,
        trace: str | Path | bool | None = None,
        redact: bool = False,
        profile: bool = False,
        thinking: bool | None = None,
        thinking_tokens: int | None = None,
        thinking_seconds: float | None = None,
        chat_template: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        compact: bool = False,
        repetition_stop: bool = True,
        answer_forms: bool = True,
        output_type: type[Output] | Mapping[str, Any] | None = None,
        harness: Given = None,
        grounded: bool = False,
    ) -> None:
        check_engine(engine)
        check_switch(grounded, "grounded", SettingError)
        check_text("system", system)
        check_text("chat_template", chat_template)
        policy = policy if isinstance(policy, Policy) else Policy(policy)
        output = None if output_type is None else OutputType(output_type)
        bare = is_bare(engine)
        if thinking is None and (thinking_tokens is not None or thinking_seconds is not None):
            thinking = thinking_tokens != 0
        config = AgentConfig(
            max_steps=(BARE_STEPS if bare else MAX_STEPS) if max_steps is None else max_steps,
            max_tokens=BARE_TOKENS if max_tokens is None and bare else max_tokens,
            context=context,
            options=check_template_options(template_options, thinking),
            sampling=sampling,
            timeout=timeout,
            output=None if output is None else output.schema,
            compact=compact,
            repetition_stop=repetition_stop,
            answer_forms=answer_forms,
            thinking_tokens=thinking_tokens,
            thinking_seconds=thinking_seconds,
        )
        size = engine.context if context is None else context
        self._result_tokens = max_result_tokens(size, result_tokens)
        chars = max_result_chars(size)
        kind = FileTools
        if harness_of(harness, engine).settings.get("plain_tools"):
            from ...tools import PlainFileTools as kind
        self._file_tools = (
            None if workspace is None else kind(workspace, max_chars=chars, policy=policy)
        )
        files = None if self._file_tools is None else self._file_tools.workspace
        self.setup = RunSetup(engine, config, policy, output, files)
        self._given = [one if isinstance(one, Tool) else Tool(one) for one in flatten_tools(tools)]
        self._system, self._chat_template = system, chat_template
        self._redact, self._profile = redact, profile
        self._harness_given, self._grounded = harness, grounded
        self._start(trace)

    def _start(self, trace: str | Path | bool | None) -> None:
        """Start an empty conversation with its own trace."""
        self.setup.results = ToolOutputStore(
            self._result_tokens,
            lambda text: self.setup.conversation.count(text),
            lambda: self.messages,
        )
        check_trace(trace)
        self._trace_path, self._running = trace, False
        self._trace: Trace | None = None
        self.reset()
        self.last_result: RunResult[Output] | None = None
        self._cancellation = CancellationToken()
        prepare(self.setup)

    @property
    def tools(self) -> ToolSet:
        """Return the tools that the model can call."""
        return self.setup.tools

    @property
    def messages(self) -> list[Message]:
        """Return the messages in the model's context, with notes in place of evicted results."""
        return self.setup.conversation.messages

    @property
    def turn(self) -> int:
        """Return the number of the last question."""
        return self.setup.conversation.turn

    @property
    def trace(self) -> Trace:
        """Return the conversation's trace; it starts on first use."""
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
        """Register a function as a tool, as a decorator; see `triplepoint.tool`.

        Raises:
            AgentError: the conversation has begun; the model has its tools already.
        """

        def add(decorated: Callable[..., Any]) -> Tool[..., Any]:
            if self.turn:
                raise AgentError("tools can be added only before the first question")
            made = make_tool(name=name, effect=effect, preview=preview, timeout=timeout)(decorated)
            self._given.append(made)
            messages = self.messages
            try:
                self.reset()
            except BaseException:
                self._given.remove(made)
                raise
            self.setup.conversation.load_history(messages)
            return made

        return add if function is None else add(function)

    def run(self, task: str) -> RunResult[Output]:
        """Answer a question.

        Raises:
            LimitReachedError: a limit (steps, tokens, time, repetition) ended the run before an
                answer; `last_result` has what there was of it.
            ContextOverflowError: something did not fit in the context; says how long what was.
            PassCancelledError: `stop` was called.
            AgentError: the question is empty or no text, the conversation cannot continue, or the
                answer does not fit output_type.
            TraceError: the trace cannot be written.
        """
        last = None
        for last in self.stream(task):  # noqa: B007
            pass
        return result_of(last)

    def stream(self, task: str) -> Iterator[AgentEvent]:
        """Answer a question and yield events as they happen.

        The last event is `RunFinished`, even if a limit ended the run. Leaving the iterator
        early, Ctrl-C and `stop` end the run as cancelled and keep the conversation.

        Raises:
            As `run`, except for LimitReachedError.
        """
        check_task(task)
        return self._events(task)

    def resume(self, task: str, new: Sequence[Message], step: int) -> Iterator[AgentEvent]:
        """Continue a run in the middle, as `stream`: feed the messages `new`, then take a step.

        Args:
            task: the question of the run.
            new: what the model has not read yet, such as the results of its last calls.
            step: number of the step to take.
        """
        return self._events(task, new, step)

    def _events(
        self, task: str, new: Sequence[Message] = (), step: int = 1
    ) -> Iterator[AgentEvent]:
        self._check_idle()
        self._running = True
        setup, conversation = self.setup, self.setup.conversation
        self._cancellation = CancellationToken(setup.config.timeout)
        try:
            trace = self.trace  # where it cannot be written, nothing was asked
            if not new:  # else the question was asked before
                conversation.checkpoint()
            conversation.turn += 1
            context = RunContext(
                setup.config,
                trace,
                conversation.turn,
                files=setup.files,
                cancellation=self._cancellation,
                on_progress=setup.on_progress,
            )
            run = Run(setup, context, task, new, step)
            try:
                yield from run.events()
            finally:
                self.last_result = run.result or self.last_result
            assert run.result is not None
            yield RunFinished(run.result)
        finally:
            self._running = False

    async def run_async(self, task: str) -> RunResult[Output]:
        """Answer a question as `run` does, in an event loop; cancelling keeps the conversation."""
        from .aio import last_of

        return result_of(await last_of(self.stream_async(task)))

    def stream_async(self, task: str) -> AsyncGenerator[AgentEvent]:
        """Yield events, as `stream`, in an event loop. Leave early inside `contextlib.aclosing(…)`,
        which ends the run and keeps the conversation; a bare `break` does so some time later.
        """
        from .aio import in_thread

        return in_thread(lambda: self.stream(task), self.stop)

    def undo(self) -> str:
        """Forget the last question and everything since; return the question.

        Nothing is recomputed. Changes that tools made are not undone.

        Raises:
            AgentError: there is no question, or a run is active.
        """
        self._check_idle()
        return self.setup.conversation.undo()

    def load_history(self, turns: Iterable[tuple[str, str]]) -> None:
        """Start with questions and answers from another conversation.

        Raises:
            AgentError: the conversation has begun.
        """
        if self.turn or self.messages:
            raise AgentError("load_history works only before the first question")
        self.setup.conversation.load_history(messages_of(turns, self.setup.config.system))

    def fork(self, *, trace: str | Path | bool | None = None) -> Agent[Output]:
        """Return a copy that continues from here with the same tools; this one is unchanged.

        On a local engine nothing is recomputed: both share the KV cache up to here. Without
        `trace` its trace is a new file, or kept in memory where this agent's is.

        Raises:
            AgentError: a run is active.
        """
        self._check_idle()
        other: Agent[Output] = object.__new__(type(self))
        vars(other).update(vars(self), _given=list(self._given), setup=replace(self.setup))
        other._start(False if trace is None and self._trace_path is False else trace)
        other.setup.results.take_over(self.setup.results)
        phase = other.setup.conversation.fork_from(self.setup.conversation)
        if self.messages:
            write_continuation(other.trace, other.setup, parent=self.trace.run)
        if phase is not None:
            phase.turn = other.turn
            other.trace.write(phase)
        return other

    def trace_to(self, path: str | Path | bool) -> None:
        """Write the trace to this file (see ``trace``); raise AgentError once it has started."""
        if self._trace is not None:
            raise AgentError("the trace has started; set its path before the first question")
        check_trace(path)
        self._trace_path = path

    def prefill_system(self) -> int:
        """Prefill the system message and the tools; return their number of tokens.

        This agent and its forks reuse their KV cache. Returns 0 if there was nothing to do.
        """
        return 0 if self._running else self.setup.conversation.prefill_system()

    def as_tool(self, name: str, description: str, *, effect: Effect = "read") -> Tool[..., Any]:
        """Return this agent as a tool of another: each call asks a temporary fork of it.

        A fork shares what this conversation has read (see `fork`): at least the system message and
        the tools, which the first call reads for all (see `prefill_system`). Calls are independent
        of each other. This agent's limits apply, not the other agent's.

        Args:
            name: of the tool.
            description: for the model.
            effect: what it can do at worst; say more than "read" where its policy allows more.
        """
        check_text("name", name, needed=True)
        check_text("description", description, needed=True)

        def ask(question: str) -> str:
            self.prefill_system()
            with self.fork(trace=False) as helper, on_abandon(helper.stop):
                return helper.run(question).answer

        ask.__doc__ = f"{description}\n\nArgs:\n    question: What to ask, in whole sentences."
        return make_tool(name=name, effect=effect)(ask)

    def compact(self) -> str:
        """Remove tool results before the last question from the context; describe which.

        The tokens after the first of them are recomputed. The trace records what was removed.

        Raises:
            AgentError: there is nothing to remove, a run is active, or the model runs on a server.
        """
        self._check_idle()
        phase = self._local.compact()
        if phase is None:
            raise AgentError("there is no older tool result to remove")
        phase.turn = self.turn
        self.trace.write(phase)
        return dropped_text(phase)

    def reset(self) -> None:
        """Start an empty conversation, as another run in the trace's file; no run may be active."""
        self._check_idle()
        if self._trace is not None and self._trace.events:
            self._trace.close()
            self._trace = None
        setup, more = self.setup, list(self._given)
        if any(one.effect in ("net", "exec") for one in more):  # results of any length
            more.append(setup.results.tool())
        tools = ToolSet((*(self._file_tools or ()), *more))
        setup.harness = harness_of(self._harness_given, setup.engine, grounded=self._grounded)
        system = system_prompt(tools) if self._system is None else self._system
        if self._file_tools is not None and setup.harness.settings.get("examples"):
            system = with_examples(system)
        if setup.output is not None:
            system = setup.output.added_to(system)
        config = replace(setup.config, system=system)
        if is_remote(setup.engine):
            from .remote_conversation import RemoteConversation

            conversation = RemoteConversation(setup.engine, config, tools.schemas())
        else:
            conversation, tools = self._local_conversation(setup.engine, config, tools)
        setup.tools, setup.config, setup.conversation = tools, config, conversation

    def _local_conversation(
        self, engine: Engine, config: AgentConfig, tools: ToolSet
    ) -> tuple[LocalConversation, ToolSet]:
        """Start an empty conversation; MCP servers without a grammar lose their tools."""
        template, notes = self._chat_template, list[str]()
        optional = {one.name for one in tools if isinstance(one, SchemaTool)}
        while True:
            schemas = tools.schemas()
            try:
                made = LocalConversation(engine, config, schemas, template, profile=self._profile)
                if optional:
                    made.grammar.check()
                made.left_out = notes
                return made, tools
            except GrammarError as error:
                found = {n: why for n, why in (error.tools or {}).items() if n in optional}
                if not found:
                    raise
                notes += [f"left out: {why}" for why in found.values()]
                tools = ToolSet(one for one in tools if one.name not in found)

    def _check_idle(self) -> None:
        if self._running:
            raise AgentError(_BUSY)

    def stop(self) -> None:
        """End the run, from any thread: a pass at once, a tool if it or the run has a timeout."""
        self._cancellation.cancel()
        self.setup.conversation.stop()

    def close(self) -> None:
        """Close the trace file and the harness; no more questions can be asked."""
        self.setup.harness.close()
        if self._trace is not None:
            self._trace.close()

    def __enter__(self) -> Agent[Output]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def session(self) -> Session:
        """Return the session: the tokens in the engine and their KV cache."""
        return self._local.session

    @property
    def ledger(self) -> TokenLedger:
        """Return the session's tokens with their origins."""
        return self._local.ledger

    @property
    def _local(self) -> LocalConversation:
        if not isinstance(self.setup.conversation, LocalConversation):
            raise AgentError("the model runs on a server, so its tokens are not known here")
        return self.setup.conversation

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; it names the new place of an attribute that has moved."""
            hint = f"; it is now Agent.{MOVED[name]}" if name in MOVED else ""
            raise AttributeError(f"an Agent has no attribute {name!r}{hint}")

        def __setattr__(self, name: str, value: object) -> None:
            """Set an attribute; one that has moved would be set without an effect."""
            if name in MOVED:
                self.__getattr__(name)
            super().__setattr__(name, value)
