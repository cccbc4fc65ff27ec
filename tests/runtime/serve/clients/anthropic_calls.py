# type: ignore  (the clients are installed elsewhere)
"""The anthropic client: messages, streams, a loop with a tool, and a count."""

from __future__ import annotations

import json

import anthropic
from common import QUESTION, URL, search

told = {}
with anthropic.Anthropic(base_url=URL, api_key="x", max_retries=0) as client:
    asked = [{"role": "user", "content": QUESTION}]
    tools = [
        {
            "name": "search",
            "description": "Search the files for a pattern.",
            "input_schema": {
                "type": "object",
                "properties": {"pattern": {"type": "string"}},
                "required": ["pattern"],
            },
        }
    ]
    told["count"] = client.messages.count_tokens(model="nano", messages=asked).input_tokens
    pieces = 0
    with client.messages.stream(
        model="nano", messages=asked, tools=tools, tool_choice={"type": "any"}, max_tokens=200
    ) as stream:
        for event in stream:
            pieces += event.type == "input_json"
        first = stream.get_final_message()
    told["pieces"], told["stop"] = pieces, first.stop_reason
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": search(**block.input)}
        for block in first.content
        if block.type == "tool_use"
    ]
    said = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
    second = client.messages.create(
        model="nano",
        messages=[*asked, said, {"role": "user", "content": results}],
        tools=tools,
        max_tokens=200,
    )
    told["answer"] = "".join(block.text for block in second.content if block.type == "text")
    told["cached"] = second.usage.cache_read_input_tokens
    runner = client.beta.messages.tool_runner(
        model="nano", messages=asked, tools=[anthropic.beta_tool(search)], max_tokens=200
    )
    told["runner"] = runner.until_done().content[-1].text
    told["names"] = [model.display_name for model in client.models.list()]
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    try:
        client.messages.create(
            model="nano", messages=[{"role": "user", "content": [image]}], max_tokens=8
        )
    except anthropic.APIStatusError as error:
        told["image"] = [type(error).__name__, error.body["error"]["param"]]
print(json.dumps(told))
