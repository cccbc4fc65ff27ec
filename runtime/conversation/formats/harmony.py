"""Harmony (gpt-oss): a turn of several messages, each with a header.

<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant
<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "app.log"}<|call|>
<|channel|>final<|message|>The disk is full.<|return|>

There are no line breaks between them. The template opens the first message (`<|start|>assistant`).
`analysis` is thinking; what stands in `commentary` without a recipient is said before a call. The
template writes the recipient before the channel, which the model may do too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .toolcalls import (
    CallPrefix,
    Headers,
    Tag,
    ToolCall,
    ToolFormat,
    Tools,
    any_of,
    letters_of,
    quoted,
    read_json,
)

_CALL = re.compile(r"to=(?:functions\.)?([^\s<]+)[^{]*?<\|message\|>(.*)", re.DOTALL)
_ANY = letters_of({})
_CHANNELS = ("commentary", "analysis")


class Harmony(ToolFormat):
    """The Harmony format of gpt-oss: at most one call per turn, which ends the turn."""

    name = "harmony"
    openings = (
        *(CallPrefix(f"<|channel|>{name} to=functions.", in_call=True) for name in _CHANNELS),
        CallPrefix(" to=functions.", in_call=True),
    )
    headers = Headers(
        start="<|start|>",
        role="assistant",
        channel="<|channel|>",
        message="<|message|>",
        end="<|end|>",
        thinking="analysis",
        recipient="to=",
    )
    call_head = re.compile(r"to=functions\.([^\s<]+)[^{]*<\|message\|>\s*(?=\{)")
    inner = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>")
    reserved = ("<|call|>", "<|return|>")
    example = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|><arguments>"
    single = True

    def speaks(self, template: str) -> bool:
        return "to=functions." in template or "<|channel|>commentary" in template

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        channel, message = tag("<|channel|>"), tag("<|message|>")
        kind = f'(" " {tag("<|constrain|>")}? "json")? {message}'
        count = len(tools)
        rules = [f"kept_{i}: {any_of('call', count)}" for i in range(len(_CHANNELS))]
        rules.append(f"kept_{len(_CHANNELS)}: {any_of('aside', count)}")
        channels = " | ".join(map(quoted, _CHANNELS))
        for i, tool in enumerate(tools):
            name = quoted(tool["function"]["name"])
            rules.append(f"call_{i}: {name} {kind} arguments_{i}")
            rules.append(f"aside_{i}: {name} {channel} ({channels}) {kind} arguments_{i}")
        return rules

    def turn(self, tag: Tag, *, calls: bool, answer: str | None) -> str:
        channel, message, end = map(tag, ("<|channel|>", "<|message|>", "<|end|>"))
        heads = {name: f"{channel} {quoted(name)}" for name in (*_CHANNELS, "final")}
        before = " | ".join(f"{heads[name]} {message}" for name in _CHANNELS)
        last = [] if answer is None else [f"{heads['final']} {message} {answer}"]
        if calls:
            starts = [*(heads[name] for name in _CHANNELS), ""]
            last += [f'{head} " to=functions." kept_{i}' for i, head in enumerate(starts)]
        rules = [
            f'start: (({before}) said {tag("<|start|>")} "assistant")* ({" | ".join(last)})',
            f"said: SAID? {end}" if end.startswith("<[") else f"said[lazy]: {_ANY} {end}",
            f"SAID: {_ANY}",
        ]
        return "\n".join(rules)

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the call of a message, header included."""
        match = _CALL.search(body)
        if match is None:
            raise ValueError(f"a tool call must be to=functions.NAME…, not {body[:60]!r}")
        name, text = match.groups()
        arguments = read_json(text)
        if not isinstance(arguments, dict):
            raise ValueError(f"{name}: the arguments must be a JSON object")
        return [ToolCall(name, arguments, body.strip())]

    def render(self, calls: Sequence[ToolCall]) -> str:
        before, _, after = self.example.removesuffix("<arguments>").partition("NAME")
        texts = (f"{before}{call.name}{after}{call.json_arguments}" for call in calls)
        return "<|call|><|start|>assistant".join(texts)
