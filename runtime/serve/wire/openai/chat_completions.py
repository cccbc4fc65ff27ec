"""``POST /v1/chat/completions``: OpenAI's chat format, and llama-server's additions to it."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.requests import Request

from ...http.api_error import APIError
from ...models.asked import Asked
from ...models.generate import GenerationRequest
from ...models.loading import LoadedModel
from ...models.prompts import Conversation
from ...settings import Limits
from ..body import read_body
from ..messages import (
    Effort,
    ResponseFormat,
    Talk,
    ToolChoice,
    choice_of,
    messages_of,
    offered,
    output_of,
)
from ..sampling_body import StreamBody, check_logprobs
from ..tools import check_choice, tools_of
from .chat_writer import ChatWriter


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
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def conversation(self, _: object, limits: Limits) -> Conversation:
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

    @property
    def max_answer(self) -> int | None:
        """See `ChatRequest.max_answer`."""
        return self.most_tokens(self.max_completion_tokens, self.max_tokens)

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """See `ChatRequest.generation`."""
        return GenerationRequest(
            model.prompts.prompt(self.conversation(model, limits)),
            max_tokens=self.max_answer,
            logprobs=self.told_logprobs,
            pieces=self.stream,
            **self.options(model.engine.tokenizer, limits),
        )


async def chat_completions(request: Request) -> Asked:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, ChatBody)
    body.check(limits)
    check_logprobs(body.logprobs, body.top_logprobs, limits)
    return Asked.chat(
        service,
        body,
        lambda shown: ChatWriter(
            shown,
            usage=body.wants_usage,
            progress=body.return_progress,
            logprobs=body.told_logprobs is not None,
        ),
    )
