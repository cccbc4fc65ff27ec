"""triplepoint in Inspect (https://inspect.aisi.org.uk): our agent as a solver, our engine as a
model provider.

    pip install inspect-ai
    python examples/eval/inspect_triplepoint.py incident
    python examples/eval/inspect_triplepoint.py arithmetic --model qwen3:4b

``incident`` runs our own agent, with its tools, grammar and limits, and scores its answers.
``arithmetic`` runs Inspect's own tools on our engine.

`inspect eval` looks for the model's provider before it reads this file, so run this file; from
Python, import it and call `inspect_ai.eval(…, model="triplepoint/nano")`. Logs are Inspect's, in
`logs/`: `inspect view` shows them.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

import anyio.to_thread
from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, ToolCall, ToolChoice, ToolFunction, ToolInfo, tool

from triplepoint import Agent, Engine, Sampling
from triplepoint.runtime.conversation.chat import Message
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall as OurCall
from triplepoint.runtime.serve.models.prompts import Conversation, Prompts

INCIDENT = Path(__file__).resolve().parents[1] / "incident"


@functools.cache
def engine_of(name: str) -> tuple[Engine, Prompts]:
    """The engine of a model, loaded once: solver and provider share it."""
    engine = Engine.load(name)
    return engine, Prompts(engine.tokenizer)


# --- our agent as a solver


@solver
def triplepoint_agent(model: str = "nano", workspace: str | None = None, **options: Any) -> Solver:
    """Answers each sample with an agent of its own; its usage goes into the sample's metadata.

    Args:
        model: for `Engine.load`.
        workspace: folder that the agent may look at.
        options: further arguments of `Agent`.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        def ask() -> Any:
            engine, _ = engine_of(model)
            settings = {"trace": False, **options}
            with Agent(engine, workspace=workspace, **settings) as agent:
                for _ in agent.stream(state.input_text):
                    pass
                return agent.last_result

        result = await anyio.to_thread.run_sync(ask)
        state.output = ModelOutput.from_content(f"triplepoint/{model}", result.answer)
        state.messages.append(state.output.message)
        state.metadata |= {"status": result.status, "usage": vars(result.usage)}
        return state

    return solve


@task
def incident(model: str = "nano") -> Task:
    """Questions about the files of `examples/incident`."""
    samples = [
        Sample("Which file mentions retry?", target="app.log"),
        Sample("Which files are in this folder?", target="worker.log"),
    ]
    return Task(samples, solver=triplepoint_agent(model, str(INCIDENT)), scorer=includes())


# --- our engine as a model provider


@modelapi(name="triplepoint")
def triplepoint_provider() -> type[ModelAPI]:
    """``triplepoint/NAME``, with NAME as `Engine.load` takes it."""
    return TriplepointAPI


class TriplepointAPI(ModelAPI):
    """Messages and tools go through the model's own chat template and call format.

    Requests that come at once share the engine's passes; each has a session of its own, and what
    it has in common with earlier ones is not computed again.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())

    def max_connections(self) -> int:
        """Requests at once."""
        return 4

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """One reply."""
        ask = functools.partial(self._generate, input, tools, tool_choice, config)
        return await anyio.to_thread.run_sync(ask)

    def _generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        engine, prompts = engine_of(self.model_name)
        prompt = prompts.prompt(_conversation(input, tools, tool_choice, config))
        assert prompt.turn is not None
        session = engine.session()
        session.shares = True
        try:
            read = session.prefill(prompt.ids, borders=prompt.borders)
            reader = prompt.turn.reader(engine.tokenizer, config.stop_seqs or ())
            most = min(config.max_tokens or 1024, session.context - len(session.tokens))
            count = 0
            for count, token in enumerate(  # noqa: B007
                session.decode(
                    max_tokens=most,
                    stop=engine.tokenizer.stop_ids,
                    constraint=prompt.turn.constraint(),
                    sampling=_sampling(config),
                ),
                1,
            ):
                reader.push(token)
                if reader.stopped:
                    break
        finally:
            session.close()
        reply = reader.finish()
        calls = [
            ToolCall(id=f"call_{len(input)}_{n}", function=call.name, arguments=call.arguments)
            for n, call in enumerate(reply.calls)
        ]
        usage = ModelUsage(
            input_tokens=len(prompt.ids),
            output_tokens=count,
            total_tokens=len(prompt.ids) + count,
            input_tokens_cache_read=read.shared_tokens,
        )
        message = ChatMessageAssistant(
            content=reply.answer, tool_calls=calls or None, model=self.model_name, source="generate"
        )
        why = "tool_calls" if calls else "max_tokens" if count == most else "stop"
        choice = ChatCompletionChoice(message=message, stop_reason=why)
        return ModelOutput(model=self.model_name, choices=[choice], usage=usage)


def _conversation(
    input: list[ChatMessage],
    tools: list[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
) -> Conversation:
    """What is asked, as our templates and grammars take it."""
    schemas = [
        {
            "type": "function",
            "function": {
                "name": one.name,
                "description": one.description,
                "parameters": one.parameters.model_dump(exclude_none=True),
            },
        }
        for one in tools
    ]
    named = tool_choice.name if isinstance(tool_choice, ToolFunction) else None
    choice = "required" if named or tool_choice == "any" else tool_choice
    schema = config.response_schema
    return Conversation(
        [_message(one) for one in input],
        tools=schemas,
        calls=choice if schemas else "auto",  # type: ignore[arg-type]
        call_of=() if named is None else (named,),
        output=schema.json_schema.model_dump(exclude_none=True) if schema else None,
    )


def _message(message: ChatMessage) -> Message:
    if isinstance(message, ChatMessageTool):
        name, call = message.function or "", message.tool_call_id or ""
        text = message.error.message if message.error else message.text
        return Message("tool", text, name=name, call_id=call)
    if isinstance(message, ChatMessageAssistant):
        calls = tuple(
            OurCall(call.function, call.arguments, id=call.id) for call in message.tool_calls or ()
        )
        return Message("assistant", message.text, calls=calls, text=message.text)
    return Message(message.role, message.text)


def _sampling(config: GenerateConfig) -> Sampling:
    given = {name: getattr(config, name) for name in ("temperature", "top_k", "top_p", "seed")}
    return Sampling(**{name: value for name, value in given.items() if value is not None})


@tool
def add() -> Tool:
    """A tool of Inspect's."""

    async def execute(a: int, b: int) -> str:
        """Add two whole numbers.

        Args:
            a: the first.
            b: the second.
        """
        return str(a + b)

    return execute


@task
def arithmetic() -> Task:
    """A sum that Inspect's tool can compute, asked of our engine."""
    samples = [Sample("What is 1234 + 4321? Use the tool.", target="5555")]
    return Task(samples, solver=[use_tools(add()), generate()], scorer=includes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="triplepoint in Inspect.")
    parser.add_argument("task", choices=("incident", "arithmetic"))
    parser.add_argument("--model", default="nano", help="as `Engine.load` takes it (nano)")
    args = parser.parse_args()
    asked = incident(args.model) if args.task == "incident" else arithmetic()
    for log in eval(asked, model=f"triplepoint/{args.model}", display="plain"):
        print(log.status, log.location)
        for score in log.results.scores if log.results else ():
            print(score.name, {name: one.value for name, one in score.metrics.items()})
