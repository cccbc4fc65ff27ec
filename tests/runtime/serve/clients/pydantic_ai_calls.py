# type: ignore  (the clients are installed elsewhere)
"""pydantic-ai: an agent with a tool and a typed answer, through three wires."""

from __future__ import annotations

import json

from common import QUESTION, URL, search
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.output import NativeOutput
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Found(BaseModel):
    """A typed answer."""

    found: bool


openai = OpenAIProvider(base_url=f"{URL}/v1", api_key="x")
models = {
    "chat": OpenAIChatModel("nano", provider=openai),
    "responses": OpenAIResponsesModel("nano", provider=openai),
    "messages": AnthropicModel("nano", provider=AnthropicProvider(base_url=URL, api_key="x")),
}
told = {}
for name, model in models.items():
    result = Agent(model, tools=[search]).run_sync(QUESTION)
    told[name] = {"answer": result.output, "requests": result.usage.requests}
typed = Agent(models["chat"], output_type=NativeOutput(Found)).run_sync(QUESTION)
told["typed"] = typed.output.model_dump()
print(json.dumps(told))
