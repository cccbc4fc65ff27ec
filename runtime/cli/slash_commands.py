"""Commands of a chat, which begin with a slash."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...arguments import as_path
from ...errors import AgentError, TriplepointError
from ...traces.sanitize import printable, short
from ...traces.timeline import call_text, duration, rate
from ...traces.writer import new_run_id
from ..files import private_opener
from .conversation import begin, show_trace
from .exit_codes import explain
from .load_engine import load_model
from .output import Output
from .transcript import show_prompt

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..conversation.messages import Message
    from ..engine.engine import Engine
    from ..remote import RemoteEngine


_NO_ANSWER = "(no answer)"


@dataclass
class ChatSet:
    """The conversations of one chat, of which one is current."""

    args: argparse.Namespace
    output: Output
    engine: Engine | RemoteEngine
    agents: list[Agent] = field(default_factory=list)
    current: int = 0

    @property
    def agent(self) -> Agent:
        """Return the current conversation's agent."""
        return self.agents[self.current]

    def close(self) -> None:
        """Close the traces and the engine."""
        for agent in self.agents:
            agent.close()
        self.engine.close()


def run_command(line: str, chats: ChatSet) -> None:
    """Run a line that begins with a slash; report its errors."""
    name, _, rest = line.partition(" ")
    known = COMMANDS.get(name)
    if known is None:
        there = ", ".join(COMMANDS)
        chats.output.error(f"no such command: {short(name, 40)}; choose from {there}")
        return
    try:
        known.run(chats, rest.strip())
    except (TriplepointError, OSError) as error:
        chats.output.error(explain(error)[1])


def show_help(chats: ChatSet, _: str) -> None:
    """Print a line for each command."""
    for name, command in COMMANDS.items():
        usage = f"{name} {command.argument}".strip()
        chats.output.words(f"{usage:<14} {command.help}", "", indent=15)


def _tools(chats: ChatSet, _: str) -> None:
    mode = chats.agent.setup.policy.mode
    for tool in chats.agent.tools:
        mark = "" if tool.effect == "read" else f" [{tool.effect}, {mode}]"
        chats.output.line(f"{tool.name}: {short(tool.description, 100)}{mark}")


def _trace(chats: ChatSet, _: str) -> None:
    if chats.agent.turn:
        show_trace(chats.output, chats.agent.trace)
    else:
        chats.output.line("no question yet")


def _regimes(chats: ChatSet, _: str) -> None:
    """Print the tokens and time by regime."""
    phases = chats.agent.trace.phases if chats.agent.turn else []
    if not phases:
        chats.output.line("no question yet")
        return
    whole = sum(phase.wall_s for phase in phases) or 1.0
    names = sorted({phase.regime for phase in phases}, key=[p.regime for p in phases].index)
    for name in names:
        those = [phase for phase in phases if phase.regime == name]
        seconds = sum(phase.wall_s for phase in those)
        tokens = sum(phase.tokens for phase in those)
        speed = f"{rate(tokens / seconds)} tok/s" if seconds else ""
        count = f"{len(those)} phase{'s' * (len(those) > 1)}"
        chats.output.line(
            f"{name:<24} {count:>10}  {tokens:>8,} tokens  {duration(seconds):>10}  "
            f"{seconds / whole:>4.0%}  {speed}"
        )


def _undo(chats: ChatSet, _: str) -> None:
    chats.output.line(f"removed: {short(chats.agent.undo(), 80)}")


def _compact(chats: ChatSet, _: str) -> None:
    chats.output.line(chats.agent.compact())


def _fork(chats: ChatSet, rest: str) -> None:
    """Continue in a copy of this conversation, or in another one."""
    if rest:
        number = int(rest) if rest.isdecimal() else 0
        if not 1 <= number <= len(chats.agents):
            count = len(chats.agents)
            there = "is only conversation 1" if count == 1 else f"are conversations 1 to {count}"
            raise AgentError(f"there {there}; /fork starts another")
        chats.current = number - 1
    else:
        chats.agents.append(chats.agent.fork())
        chats.current = len(chats.agents) - 1
    total = len(chats.agents)
    chats.output.line(
        f"in conversation {chats.current + 1} of {total}; /fork N switches to another"
    )


def _save(chats: ChatSet, rest: str) -> None:
    """Write the conversation as Markdown; never overwrite a file."""
    agent = chats.agent
    if not agent.turn:
        raise AgentError("no question yet")
    text = transcript(agent.messages, f"Chat with {printable(agent.setup.engine.model.name)}")
    try:
        path = as_path(rest or f"chat-{new_run_id()}.md", "FILE", AgentError).expanduser()
    except RuntimeError:
        raise AgentError(f"{rest}: there is no such user") from None
    made = False
    try:
        with open(path, "x", encoding="utf-8", opener=private_opener) as file:
            made = True
            file.write(text)
    except FileExistsError:
        raise AgentError(f"{rest} exists; give another name") from None
    except OSError as error:
        if made:  # a part of it would be in the way of the next try
            path.unlink(missing_ok=True)
        raise AgentError(f"cannot write {path}: {error.strerror or error}") from None
    chats.output.line(f"saved: {path}")


def _model(chats: ChatSet, rest: str) -> None:
    """Print the current model, or continue with another one."""
    if not rest:
        model = chats.engine.model
        details = ", ".join(part for part in (model.architecture, model.quant) if part)
        chats.output.line(
            f"{model.name}{f' ({details})' if details else ''} on {chats.engine.target}"
        )
        return
    asked = argparse.Namespace(**vars(chats.args))
    asked.model, asked.chosen_by = rest, ""
    engine = load_model(asked, chats.output)
    try:
        agent = begin(engine, asked, chats.output, chats.agent.setup.files)
        agent.load_history(dialogue(chats.agent))
    except BaseException:
        engine.close()
        raise
    others = len(chats.agents) - 1
    chats.close()
    chats.args, chats.engine = asked, engine
    chats.agents, chats.current = [agent], 0
    turns = len(agent.messages) // 2
    plural, closed = "s" * (turns != 1), ""
    if others:
        noun = "conversation" if others == 1 else "conversations"
        closed = f"; closed {others} {noun} of the previous model"
    chats.output.line(
        f"now {engine.model.name}; it gets the {turns} question{plural} and answer{plural} "
        f"so far, but not the tool calls{closed}"
    )


def dialogue(agent: Agent) -> list[tuple[str, str]]:
    """Return the questions and answers that the conversation still contains."""
    pairs: list[tuple[str, str]] = []
    for message in agent.messages:
        if message.role == "user":
            pairs.append((message.content, ""))
        elif message.role == "assistant" and pairs:
            answer = message.content if message.text is None else message.text
            pairs[-1] = pairs[-1][0], "" if message.calls else answer
    return [(question, answer) for question, answer in pairs if answer]


def transcript(messages: Sequence[Message], title: str) -> str:
    """Format the current conversation as Markdown, for people."""
    parts: list[str] = [f"# {title}"]
    waiting: list[str] = []  # calls whose results are still to come
    answered = True
    for message in messages:
        if message.by:  # what the harness looked at and said is no part of what was said
            continue
        if message.role == "user":
            parts += [] if answered else [_NO_ANSWER]
            answered = False
            parts.append(f"## {short(message.content, 100)}")
            if "\n" in message.content:
                parts.append(printable(message.content, block=True))
        elif message.role == "tool":
            outcome = f"{len(message.content):,} characters"
            if message.content.startswith("error: "):
                outcome = printable(short(message.content, 200))
            name = waiting.pop(0) if waiting else message.name
            parts.append(f"- `{name}`: {outcome}")
        elif message.role == "assistant":
            waiting = [short(call_text(call.name, call.arguments), 200) for call in message.calls]
            answer = message.content if message.text is None else message.text
            if answer.strip():
                parts.append(printable(answer, block=True))
                answered = not message.calls
    parts += [] if answered else [_NO_ANSWER]
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Command:
    """A slash command: its function, help and argument."""

    run: Callable[[ChatSet, str], None]
    help: str
    argument: str = ""


COMMANDS: dict[str, Command] = {
    "/tools": Command(_tools, "list the tools"),
    "/trace": Command(_trace, "show the table of phases so far"),
    "/prompt": Command(
        lambda on, _: show_prompt(
            on.output, on.agent.ledger, on.agent.session.phases.core.loaded.tokenizer
        ),
        "show the conversation as the model reads it",
    ),
    "/regimes": Command(_regimes, "show tokens and time by regime"),
    "/undo": Command(_undo, "undo the last question"),
    "/compact": Command(_compact, "remove older tool results from the context"),
    "/fork": Command(_fork, "continue in a copy of the conversation, or in conversation N", "[N]"),
    "/save": Command(_save, "write the conversation to a Markdown file", "[FILE]"),
    "/model": Command(_model, "show the model, or switch to another", "[MODEL]"),
    "/help": Command(show_help, "list the commands"),
    "/exit": Command(lambda *_: None, "end the chat (also Ctrl-D, or Ctrl-C on an empty line)"),
}
