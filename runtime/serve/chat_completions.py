"""``POST /v1/chat/completions``: OpenAI's chat format, and llama-server's additions to it."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.requests import Request

from .agent_models import agent_request
from .api_error import APIError
from .chat_writer import ChatWriter
from .generate import GenerationRequest
from .models import LoadedModel
from .openai_messages import (
    Effort,
    ResponseFormat,
    Talk,
    ToolChoice,
    choice_of,
    messages_of,
    offered,
    output_of,
)
from .prompts import Conversation
from .sampling_body import StreamBody, check_logprobs
from .settings import Limits
from .turns import check_choice, tools_of
from .wire import Answer, read_body


class ChatBody(StreamBody, Talk):
    """See OpenAI's reference; what is not here is refused by name."""

    max_tokens: int | None = Field(default=None, ge=-1)
    max_completion_tokens: int | None = Field(default=None, ge=-1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    reasoning_budget: int | None = Field(default=None, ge=-1)
    n_probs: int | None = Field(default=None, ge=0)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def conversation(self, limits: Limits) -> Conversation:
        """What the model is asked.

        Raises:
            APIError: a parameter makes no sense beside the others.
        """
        begun = self.messages[-1].role == "assistant"
        if not begun and (self.continue_final_message or not self.add_generation_prompt):
            name = "continue_final_message" if self.continue_final_message else None
            raise APIError(
                "it cannot continue a last message that is not the assistant's",
                param=name or "add_generation_prompt",
            )
        tools, notes = tools_of(offered(self.tools), limits, schema="function.parameters")
        calls, call_of = choice_of(self.tool_choice or "auto")
        check_choice(calls, call_of, tools)
        return Conversation(
            messages_of(self.messages),
            tools,
            calls,
            call_of,
            not self.parallel_tool_calls,
            self._output(limits),
            self.chat_template_kwargs,
            self.reasoning_effort,
            self.reasoning_budget,
            goes_on=True,
            output_param="response_format" if self.json_schema is None else "json_schema",
            notes=notes,
        )

    def _output(self, limits: Limits) -> dict[str, Any] | str | None:
        form = self.output_format(limits)
        if form is None:
            return output_of(self.response_format, limits)
        name = "grammar" if isinstance(form, str) else "json_schema"
        if self.response_format is not None:
            raise APIError(f"give {name} or response_format", param=name)
        if name == "grammar" and self.tools:
            raise APIError("a grammar cannot be combined with tools", param=name)
        return form

    @property
    def told_logprobs(self) -> int | None:
        """Likeliest tokens that are told beside each one; None: no probabilities are told."""
        if self.logprobs:
            return self.top_logprobs or 0
        return self.n_probs or None

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """What is asked of the engine."""
        return GenerationRequest(
            model.prompts.prompt(self.conversation(limits)),
            self.sampling(model.engine.tokenizer),
            self.most_tokens(self.max_completion_tokens, self.max_tokens),
            self.stops(limits),
            self.n,
            self.told_logprobs,
            self.return_progress and self.stream,
            self.stream,
            self.cache_prompt,
            timed=self.timings_per_token and self.stream,
            ends=self.ends(model.engine.tokenizer),
            min_tokens=self.min_tokens,
            predict_s=self.predict_s,
        )


async def chat_completions(request: Request) -> Answer:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, ChatBody)
    body.check(limits)
    check_logprobs(body.logprobs, body.top_logprobs, limits)
    check_logprobs(True, body.n_probs, limits, "n_probs")
    shown, name, folder = service.models.answering(body.model)
    writer = ChatWriter(
        shown,
        usage=body.stream_options is not None and body.stream_options.include_usage,
        progress=body.return_progress,
        logprobs=body.told_logprobs is not None,
    )

    def prepare(model: LoadedModel) -> GenerationRequest:
        writer.of(model)
        if folder is None:
            return body.generation(model, limits)
        talk = body.conversation(limits)
        count = body.most_tokens(body.max_completion_tokens, body.max_tokens)
        sampling = body.sampling(model.engine.tokenizer)
        return agent_request(model, folder, talk, body.told, sampling, count, service)

    return Answer(service, name, prepare, writer, streamed=body.stream, ping_s=body.ping_s)
