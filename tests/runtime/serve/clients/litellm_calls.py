# type: ignore  (the clients are installed elsewhere)
"""litellm, which aider and others are built on."""

from __future__ import annotations

import json

import litellm
from common import LONG, QUESTION, URL, search

litellm.suppress_debug_info = True
where = {"model": "openai/nano", "api_base": f"{URL}/v1", "api_key": "x", "num_retries": 0}
asked = [{"role": "user", "content": QUESTION}]
told = {}
whole = litellm.completion(**where, messages=asked, max_tokens=8, temperature=0)
chunks = list(litellm.completion(**where, messages=asked, max_tokens=8, temperature=0, stream=True))
built = litellm.stream_chunk_builder(chunks, messages=asked)
told["same"] = built.choices[0].message.content == whole.choices[0].message.content
tool = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the files for a pattern.",
        "parameters": {
            "type": "object",
            "properties": {"pattern": {"type": "string"}},
            "required": ["pattern"],
        },
    },
}
chunks = list(
    litellm.completion(
        **where, messages=asked, tools=[tool], tool_choice="required", max_tokens=200, stream=True
    )
)
message = litellm.stream_chunk_builder(chunks, messages=asked).choices[0].message
results = [
    {
        "role": "tool",
        "tool_call_id": call.id,
        "content": search(**json.loads(call.function.arguments)),
    }
    for call in message.tool_calls
]
second = litellm.completion(**where, messages=[*asked, message, *results], tools=[tool])
told["answer"] = second.choices[0].message.content
try:
    litellm.completion(**where, messages=[{"role": "user", "content": LONG}])
except litellm.ContextWindowExceededError as error:
    told["too long"] = error.status_code
print(json.dumps(told))
