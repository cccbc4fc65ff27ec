"""Serves an agent as a model: it reads files of one folder, and answers questions about them.

To a chat client it is a model like others. Its steps are streamed as reasoning: what it calls, and
how much came back. Its tools only read, and only in that folder; a request can give it no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ....tools import FileTools, ToolSet
from ....traces import log
from ....traces.events import PhaseEvent
from ....traces.writer import new_run_id
from ...agent.agent import Agent
from ...agent.events import (
    Notice,
    PhaseFinished,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from ...agent.prompt import system_prompt
from ...agent.result import footnotes
from ...agent.run_metadata import run_start
from ...conversation.messages import Message
from ...conversation.turn import Limits, TurnRequest
from ...files import make_folder
from ..http.api_error import APIError, unsupported
from ..http.request_ids import in_config
from ..models.events import Done, PromptRead, Text, Thought
from ..models.generate import Generation, GenerationRequest
from ..models.model_request import ModelRequest
from ..models.prompts import Conversation, Prompt

if TYPE_CHECKING:
    from ...agent.events import AgentEvent
    from ...engine.engine import Engine
    from ...engine.sampling.settings import Sampling
    from ...tokens.tokenizer import Tokenizer
    from ..models.loaded_model import LoadedModel
    from ..models.writer import Writer
    from ..settings import Limits as ServerLimits
    from .service import Service

UNSUPPORTED = (
    *("tools", "tool_choice", "n", "logprobs", "top_logprobs", "stop", "stop_sequences", "grammar"),
    *("parallel_tool_calls", "chat_template_kwargs", "n_probs", "json_schema", "include"),
    *("return_progress", "cache_prompt", "timings_per_token", "t_max_predict_ms"),
    *("stop_token_ids", "min_tokens"),
)
"""Parameters that agents do not support."""
_NOTES = re.compile(r"\n(?:\n\[[^\]\n]+\] [^\n]*)+\s*\Z")


class ChatRequest(Protocol):
    """The body of a request that a model or an agent can answer."""

    model: str | None
    stream: bool

    @property
    def fields_set(self) -> set[str]:
        """Names of the parameters that the client set."""
        ...

    @property
    def ping_s(self) -> float | None:
        """See `ModelRequest.ping_s`."""

    @property
    def max_answer(self) -> int | None:
        """Maximum tokens of an answer; None: as many as fit."""

    def conversation(self, model: LoadedModel, limits: ServerLimits, /) -> Conversation:
        """Return the conversation that the model continues.

        Raises:
            APIError: a parameter contradicts another one.
        """
        ...

    def sampling(self, tokenizer: Tokenizer, /) -> Sampling:
        """Return the sampling settings of the request."""
        ...

    def request_for(
        self, prompt: Prompt, model: LoadedModel, limits: ServerLimits
    ) -> GenerationRequest:
        """Build the engine request for one prompt."""
        ...


def chat_request(
    service: Service, body: ChatRequest, writer_for: Callable[[str], Writer]
) -> ModelRequest:
    """Build the request to a model, or to an agent if the name is an agent's.

    `writer_for` makes the writer, given the name that clients are shown.
    """
    shown, name, folder = service.models.answering(body.model)
    limits = service.settings.limits

    def prepare(model: LoadedModel) -> GenerationRequest:
        if folder is not None:
            return _agent_request(service, model, folder, body)
        prompt = model.prompts.prompt(body.conversation(model, limits))
        return body.request_for(prompt, model, limits)

    return ModelRequest(name, [prepare], writer_for(shown), body.stream, ping_s=body.ping_s)


def _agent_request(
    service: Service, model: LoadedModel, folder: Path, body: ChatRequest
) -> GenerationRequest:
    """Build the request to the agent of a folder.

    Raises:
        APIError: agents lack a parameter, or the last message is no question.
    """
    traces, settings = service.traces, service.settings
    conversation = body.conversation(model, settings.limits)
    sampling = body.sampling(model.engine.tokenizer)
    given, effort = body.fields_set, conversation.effort
    held = {conversation.output_param: conversation.output, "reasoning_effort": effort}
    for name in (*UNSUPPORTED, *held):
        if held.get(name) is not None or (name in given and name not in held):
            raise unsupported(name, "by agents")
    messages = conversation.messages
    if not messages or messages[-1].role != "user" or not messages[-1].content.strip():
        raise APIError("the last message must be the user's question", param="messages")
    *before, question = messages
    if any(message.role == "tool" or message.calls for message in before):
        raise APIError("messages to an agent cannot contain its own tool calls", param="messages")
    tools = ToolSet(FileTools(folder))
    system = "\n\n".join(m.content for m in before if m.role == "system")
    system = system or system_prompt(tools)
    thinking = conversation.thinking_tokens
    history = [without_notes(m) for m in before if m.role != "system"]

    def work(generation: Generation, engine: Engine) -> None:
        trace: Path | bool = False
        if traces.which == "all":
            try:
                make_folder(traces.folder)
                trace = traces.folder / f"{new_run_id()}.jsonl"
            except OSError as error:
                log.warning(f"an agent answers without a trace: {traces.folder}: {error.strerror}")
        agent = Agent(
            engine,
            workspace=folder,
            system=system,
            sampling=sampling,
            trace=trace,
            compact=True,
            thinking_tokens=None if thinking == -1 else thinking,
            max_tokens=body.max_answer,
            **settings.agent_options,
        )
        generation.track(agent)
        session = generation.track(agent.session)
        # Before anything is computed: other keys do not find what this one reads.
        session.sequence.namespace = generation.namespace
        if history:
            own = agent.setup.config.system  # with what its harness adds
            first = [Message("system", own)] if own else []
            agent.setup.conversation.load_history([*first, *history], len(history) // 2)
        header = run_start(agent.setup, question.content)
        header.config |= in_config(generation.record.request_id)
        agent.trace.write(header)
        try:
            _run(agent, question.content, generation)
        finally:
            if isinstance(trace, Path) and trace.exists():
                traces.make_room(trace)

    # What it will read first; so its turn and its deadline are known as those of others.
    instructions = [Message("system", system)] if system else []
    read = [*instructions, *history, question]
    prompt = model.prompts.prompt(Conversation(read, tools.schemas()))
    turn = TurnRequest(sampling, limits=Limits(body.max_answer))
    return GenerationRequest(Prompt(prompt.ids), turn, by=work)


def without_notes(message: Message) -> Message:
    """Return an earlier answer without its footnotes: the model is not to write any itself."""
    if message.role != "assistant":
        return message
    return replace(message, content=_NOTES.sub("", message.content))


def _run(agent: Agent, question: str, generation: Generation) -> None:
    """Run the agent, and emit its events as those of a request."""
    emit, session = generation.emit, agent.session
    read: PromptRead | None = None
    phases: list[PhaseEvent] = []
    for event in agent.stream(question):
        generation.check()
        if isinstance(event, ToolCallStarted) and not event.by:  # the harness has looked already
            generation.pauses.tool_began(session, event.name)
        elif isinstance(event, ToolCallFinished):
            generation.pauses.tool_ended(session)
        if isinstance(event, PhaseFinished):
            phase = event.phase
            if read is None:
                read = PromptRead(phase.kv_after, phase.cached_tokens, phase.wall_s)
                emit(read)
            else:
                phases.append(phase)
            generation.record.phase_ended(session, 0)
        elif isinstance(event, TextDelta):
            emit(Text(0, event.text))
        elif isinstance(event, RunFinished):
            decodes = [one for one in phases if one.phase == "decode"]
            for one in phases:
                if read and one.phase == "prefill":  # of tools' results; writers have this event
                    read.tokens += one.tokens
                    read.cached += one.shared_tokens
                    read.seconds += one.wall_s
            result = event.result
            if not result.answer and result.message:
                emit(Text(0, result.message))
            if notes := footnotes(result.sources, result.unsupported):
                emit(Text(0, "\n\n" + "\n".join(notes)))
            reason = "stop" if event.status == "answered" else "length"
            written, seconds = sum(e.tokens for e in decodes), sum(e.wall_s for e in decodes)
            emit(Done(0, reason, written, 0, seconds))
        elif read is not None and (text := _step(event)):
            emit(Thought(0, text))


def _step(event: AgentEvent) -> str:
    """Return the text of an agent event that is streamed as reasoning; empty if there is none."""
    if isinstance(event, ThinkingDelta):
        return event.text
    if isinstance(event, ToolCallStarted):
        return f"\n{event.name}({json.dumps(event.arguments, ensure_ascii=False)})\n"
    if isinstance(event, ToolCallFinished):
        outcome = event.error or f"{len(event.result):,} characters"
        return f"→ {outcome} in {event.duration_s:.2f} s\n"
    return f"{event.message}\n" if isinstance(event, Notice) else ""
