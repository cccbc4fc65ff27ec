# type: ignore  (the clients are installed elsewhere)
"""openai-agents: an agent with a tool, through Responses."""

from __future__ import annotations

import asyncio
import json

import agents
import openai
from common import QUESTION, URL, search

agents.set_tracing_disabled(True)


async def ask() -> None:
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="x") as client:
        model = agents.OpenAIResponsesModel(model="nano", openai_client=client)
        agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(search)])
        result = await agents.Runner.run(agent, QUESTION)
    kinds = [item.type for item in result.new_items]
    print(json.dumps({"answer": result.final_output, "kinds": kinds}))


asyncio.run(ask())
