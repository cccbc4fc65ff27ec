"""How models of each family talk: a short template that behaves like theirs, and what they write.

The templates are our own. They do what matters in the published ones: where calls, results and
thoughts stand, what ends a turn, and what is left out of a history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall

TEMPLATES = Path(__file__).parent / "families"
IM_END = "<|im_end|>"
GLM_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
Reply = Callable[[str, str, ToolCall | None], str]


@dataclass(frozen=True)
class Family:
    """A family of models, as far as talking to them goes."""

    name: str
    """Of the family and of its template."""
    form: str
    reply: Reply
    """What a model writes: of a thought, a text and a call."""
    tags: tuple[str, ...] = ()
    """User-defined tokens of its vocabulary."""
    control: tuple[str, ...] = ()
    eot: str = ""
    thinks: bool = True
    keeps: bool = False
    """Whether old thoughts stay."""
    asked: bool | None = None
    """The switch for thinking, where it has to be turned."""
    nests: bool = False
    """Whether the template takes results as part of the message that called."""
    in_text: tuple[str, str] | None = None
    """The tags, where the template takes thoughts as part of a text."""

    @property
    def template(self) -> str:
        """Its Jinja text."""
        return (TEMPLATES / f"{self.name}.jinja").read_text(encoding="utf-8")

    def said(self, thought: str, text: str, call: ToolCall | None = None) -> dict[str, Any]:
        """The same as a message for the template."""
        if self.in_text is not None and thought:
            text = f"{self.in_text[0]}{thought}{self.in_text[1]}{text}"
        said: dict[str, Any] = {"role": "assistant", "content": text}
        if thought and self.in_text is None:
            said["reasoning_content"] = thought
        if call is not None:
            function = {"name": call.name, "arguments": call.arguments}
            said["tool_calls"] = [{"type": "function", "id": call.id, "function": function}]
        return said


def _harmony(thought: str, text: str, call: ToolCall | None) -> str:
    head = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
    if call is not None:
        return f"{head}{FORMATS['harmony'].render([call])}<|call|>"
    return f"{head}<|channel|>final<|message|>{text}<|return|>"


def _with(form: str, think: str, end: str, called: str = "", between: str = "") -> Reply:
    """Thinking, text and call one behind the other.

    Args:
        form: of the call.
        think: a thought with what follows it, ``{}`` in its place; for none it is left out.
        end: of a turn.
        called: that of a turn with a call.
        between: what stands between a text and a call.
    """

    def reply(thought: str, text: str, call: ToolCall | None) -> str:
        said = think.format(thought) if thought else ""
        if call is None:
            return said + text + end
        written = _WRITTEN.get(form, FORMATS[form].render)([call])
        return said + text + (between if text else "") + written + (called or end)

    return reply


def _in_a_line(calls: list[ToolCall]) -> str:
    return FORMATS["glm"].render(calls).replace("\n", "")


_WRITTEN: Mapping[str, Callable[[list[ToolCall]], str]] = {"glm": _in_a_line}
_TOOL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_THINK = ("<think>", "</think>")
_OPENED = "{}\n</think>\n\n"
QWEN = {"form": "qwen3-coder", "tags": (*_TOOL, *_THINK)}


def _laguna(thought: str, text: str, call: ToolCall | None) -> str:
    said = f"\n{thought}\n</think>\n" + (f"{text}\n" if text else "")
    return said + (FORMATS["glm"].render([call]) + "\n" if call else "") + "</assistant>"


GEMMA4 = Family(
    "gemma4",
    "gemma4",
    _with("gemma4", "<|channel>thought\n{}\n<channel|>", "<turn|>", "<|tool_response>"),
    tags=(
        *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'),
        *("<|channel>", "<channel|>"),
    ),
    control=("<|turn>", "<turn|>", "<|think|>", "<|tool>", "<tool|>"),
    asked=True,
)
FAMILIES = (
    Family(
        "harmony",
        "harmony",
        _harmony,
        control=(
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|call|>", "<|return|>"),
        ),
    ),
    Family(
        "lfm2",
        "lfm2",
        _with("lfm2", "<think>{}</think>", IM_END),
        tags=("<|tool_call_start|>", "<|tool_call_end|>", *_THINK),
        keeps=True,
    ),
    Family(
        "glm",
        "glm",
        _with("glm", "{}</think>", "<|user|>", "<|observation|>"),
        tags=(*_TOOL, *_THINK, *GLM_TAGS),
        control=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        eot="<|user|>",
    ),
    GEMMA4,
    replace(GEMMA4, name="gemma4first", nests=True),
    Family(
        "qwen3",
        "hermes",
        _with("hermes", "<think>\n{}\n</think>\n\n", IM_END, "", "\n"),
        tags=(*_TOOL, *_THINK),
    ),
    Family("qwen3instruct", "hermes", _with("hermes", "", IM_END, "", "\n"), _TOOL, thinks=False),
    Family(
        "olmo3",
        "olmo3",
        _with("olmo3", "", IM_END),
        tags=("<functions>", "</functions>", "<function_calls>", "</function_calls>"),
        thinks=False,
    ),
    Family("qwen35", reply=_with("qwen3-coder", _OPENED, IM_END, "", "\n\n"), **QWEN),
    Family("qwen36", reply=_with("qwen3-coder", _OPENED, IM_END, "", "\n\n"), **QWEN, keeps=True),
    Family(
        "nemotron3", reply=_with("qwen3-coder", "{}\n</think>\n", IM_END, f"\n{IM_END}"), **QWEN
    ),
    Family(
        "granite4",
        "hermes",
        _with("hermes", "", "<|end_of_text|>", "", "\n"),
        tags=_TOOL,
        control=("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        thinks=False,
    ),
    Family(
        "mistral3",
        "mistral-args",
        _with("mistral-args", "[THINK]{}[/THINK]", IM_END),
        control=(
            *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"),
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
            *("[THINK]", "[/THINK]"),
        ),
        keeps=True,
        in_text=("[THINK]", "[/THINK]"),
    ),
    Family(
        "laguna",
        "glm",
        _laguna,
        tags=(*_TOOL, *_THINK, *GLM_TAGS),
        control=("<system>", "</system>", "<user>", "</user>", "<assistant>", "</assistant>"),
        eot="</assistant>",
        keeps=True,
        asked=True,
    ),
)
