"""The body of ``POST /v1/responses``."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from ...models.prompts import Conversation
from ...settings import Limits
from ..body import Body
from ..messages import Effort, Lenient
from ..sampling_body import SamplingBody
from ..tools import check_choice, tools_of
from .responses_input import (
    Item,
    TextFormat,
    Tool,
    ToolChoice,
    choice_of,
    messages_of,
    offered,
    output_of,
)

LOGPROBS = "message.output_text.logprobs"  # of `include`


class TextSetting(Body):
    """The form of answers."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningSetting(Lenient):
    """How much to think. Where summaries are wanted, they are the thoughts as they are."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    mode: Literal["standard"] | None = None


class ResponseStreamOptions(Body):
    """What a stream holds besides the answer."""

    include_obfuscation: bool = False


class ResponsesBody(SamplingBody):
    """See OpenAI's reference; what is not here is refused by name."""

    turns: ClassVar[str] = "input"
    limit_names = ("max_output_tokens",)

    input: str | list[Item] = Field(min_length=1)
    instructions: str | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    text: TextSetting = Field(default_factory=TextSetting)
    reasoning: ReasoningSetting = Field(default_factory=ReasoningSetting)
    include: list[str] = Field(default_factory=list)
    top_logprobs: int | None = Field(default=None, ge=0)
    previous_response_id: str | None = None
    store: bool = True
    # Events of this format have no place for them.
    timings_per_token: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]
    # What says nothing about the answer, or only what is done in any case:
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    metadata: dict[str, Any] | None = None
    client_metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    max_tool_calls: int | None = Field(default=None, ge=1)  # of tools that a server runs itself

    def conversation(self, _: object, limits: Limits) -> Conversation:
        tools, notes = tools_of(offered(self.tools), limits)
        calls, call_of = choice_of(self.tool_choice)
        check_choice(calls, call_of, tools)
        return Conversation(
            messages_of(self.instructions, self.input),
            tools,
            calls,
            call_of,
            not self.parallel_tool_calls,
            output_of(self.text.format, limits),
            effort=self.reasoning.effort,
            notes=notes,
        )

    @property
    def logprob_count(self) -> int | None:
        return (self.top_logprobs or 0) if LOGPROBS in self.include else None
