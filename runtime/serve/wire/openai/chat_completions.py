"""``POST /v1/chat/completions``: OpenAI's chat format, and llama-server's additions to it."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.requests import Request

from ...http.api_error import APIError
from ...models.model_request import ModelRequest
from ...models.prompts import Conversation
from ...requests.agent_models import chat_request
from ...settings import Limits
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

    limit_names = ("max_completion_tokens", "max_tokens")

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
            continues=True,
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
    def logprob_count(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else super().logprob_count


async def chat_completions(request: Request, body: ChatBody) -> ModelRequest:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body.check(limits)
    check_logprobs(body.logprobs, body.top_logprobs, limits)
    return chat_request(
        service,
        body,
        lambda shown: ChatWriter(
            shown,
            usage=body.wants_usage,
            progress=body.return_progress,
            logprobs=body.logprob_count is not None,
        ),
    )
