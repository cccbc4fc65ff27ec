# type: ignore  (the clients are installed elsewhere)
"""LangChain's ChatOpenAI: tools, streams, structured output, and a prompt that is too long."""

from __future__ import annotations

import json

from common import LONG, QUESTION, URL, search
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Found(BaseModel):
    """A typed answer."""

    found: bool


told = {}
model = ChatOpenAI(model="nano", base_url=f"{URL}/v1", api_key="x", max_tokens=200, max_retries=0)
asked = [HumanMessage(QUESTION)]
bound = model.bind_tools([search])
first = None
for chunk in model.bind_tools([search], tool_choice="required").stream(asked):
    first = chunk if first is None else first + chunk
results = [
    ToolMessage(search(**call["args"]), tool_call_id=call["id"]) for call in first.tool_calls
]
second = bound.invoke([*asked, first, *results])
told["answer"], told["usage"] = second.content, second.usage_metadata["output_tokens"] > 0
found = model.with_structured_output(Found, method="json_schema").invoke(asked)
told["typed"] = found.model_dump()
try:
    model.invoke([HumanMessage(LONG)])
except Exception as error:
    told["too long"] = [one.__name__ for one in type(error).__mro__]
print(json.dumps(told))
