# type: ignore  (the clients are installed elsewhere)
"""openai-python: every call shape that its users have, and a loop with a tool."""

from __future__ import annotations

import json

import openai
from common import LONG, QUESTION, URL, search
from pydantic import BaseModel

SCHEMA = {
    "name": "search",
    "description": "Search the files for a pattern.",
    "parameters": {
        "type": "object",
        "properties": {"pattern": {"type": "string"}},
        "required": ["pattern"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Found(BaseModel):
    """A typed answer."""

    found: bool


told = {}
with openai.OpenAI(base_url=f"{URL}/v1", api_key="x", max_retries=0) as client:
    told["models"] = [model.id for model in client.models.list()]
    told["model"] = client.models.retrieve("nano").id
    asked = [{"role": "user", "content": QUESTION}]
    chat = client.chat.completions
    whole = chat.create(model="nano", messages=asked, max_tokens=8)
    text, usage = "", None
    options = {"include_usage": True}
    for chunk in chat.create(
        model="nano", messages=asked, max_tokens=8, stream=True, stream_options=options
    ):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    told["same"] = text == whole.choices[0].message.content
    told["usage"] = usage.total_tokens == whole.usage.total_tokens
    raw = chat.with_raw_response.create(model="nano", messages=asked, max_tokens=1)
    told["raw"] = raw.status_code
    told["typed"] = (
        chat.parse(model="nano", messages=asked, response_format=Found, max_tokens=40)
        .choices[0]
        .message.parsed.model_dump()
    )
    tools = [{"type": "function", "function": SCHEMA}]
    pieces = 0
    with chat.stream(
        model="nano", messages=asked, tools=tools, tool_choice="required", max_tokens=200
    ) as stream:
        for event in stream:
            pieces += event.type == "tool_calls.function.arguments.delta"
        message = stream.get_final_completion().choices[0].message
    told["pieces"] = pieces
    results = [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": search(**json.loads(call.function.arguments)),
        }
        for call in message.tool_calls
    ]
    said = message.model_dump(exclude_none=True, exclude={"parsed"})
    for call in said["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    second = chat.create(model="nano", messages=[*asked, said, *results], tools=tools)
    told["answer"] = second.choices[0].message.content
    told["completion"] = client.completions.create(
        model="nano", prompt="The log", max_tokens=4
    ).usage.completion_tokens
    response = client.responses.create(model="nano", input=QUESTION)
    with client.responses.stream(model="nano", input=QUESTION) as stream:
        for _ in stream:
            pass
        told["responses"] = stream.get_final_response().output_text == response.output_text
    errors = {}
    for name, more in {
        "too long": {"messages": [{"role": "user", "content": LONG}]},
        "no model": {"messages": asked, "model": "agent:none"},
        "image": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}
                    ],
                }
            ]
        },
    }.items():
        try:
            chat.create(**{"model": "nano", **more})
        except openai.APIStatusError as error:
            errors[name] = [type(error).__name__, error.code, error.param]
    told["errors"] = errors
print(json.dumps(told))
