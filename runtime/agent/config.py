"""The settings of an agent, their checks, and values derived from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import TypeIs

from ...arguments import as_list, as_path, check_switch, check_whole, is_number
from ...errors import AgentError, SettingError
from ...tools import Tool, formats

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.sampling.settings import Sampling
    from ..remote import RemoteEngine

ToolLike: TypeAlias = "Tool[..., Any] | Callable[..., Any]"

MAX_STEPS = 25
TURN_TOKENS = 4096
"""Maximum tokens of each reply, thinking included, for a run without a token limit."""
BARE_STEPS, BARE_TOKENS = 8, 1024
"""Maximum steps and tokens of a run, for models that were trained on the bare loop."""
OWN_FORMS = (
    "this model was trained to answer in forms of its own, not by a schema or a grammar; use a "
    "larger model for that"
)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent; its trace's header records them."""

    max_steps: int = MAX_STEPS
    max_tokens: int | None = None
    """Maximum generated tokens of a run; None: each reply may have `TURN_TOKENS`."""
    context: int | None = None
    system: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None
    timeout: float | None = None
    output: Mapping[str, Any] | None = None
    """JSON schema that answers must fit."""
    compact: bool = False
    repetition_stop: bool = True
    answer_forms: bool = True
    thinking_tokens: int | None = None
    thinking_seconds: float | None = None
    """Maximum seconds of each reply's thinking; None: no limit."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens", "context"):
            if getattr(self, name) is not None:
                check_whole(getattr(self, name), name, SettingError, 1)
        if self.thinking_tokens is not None:
            check_whole(self.thinking_tokens, "thinking_tokens", SettingError, 0)
        for name in ("timeout", "thinking_seconds"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 < value < inf):
                raise SettingError(f"{name} must be above 0 seconds and finite, not {value!r}")
        for name in ("compact", "repetition_stop", "answer_forms"):
            check_switch(getattr(self, name), name, SettingError)
        if self.sampling is not None:
            from ..engine.sampling.settings import Sampling

            if not isinstance(self.sampling, Sampling):
                raise SettingError(f"sampling must be a Sampling, not {self.sampling!r}")


def check_engine(engine: object) -> None:
    """Check that it is a local or remote engine.

    Raises:
        AgentError: it is no engine; says how to get one.
    """
    if all(hasattr(engine, name) for name in ("model", "context", "kv")):
        return
    if isinstance(engine, str | PathLike):
        remote = str(engine).startswith(("http://", "https://"))
        make = "RemoteEngine" if remote else "Engine.load"
        raise AgentError(
            f"engine is a name, not an engine; write Agent({make}({str(engine)!r}), …)"
        )
    raise AgentError(f"engine is {engine!r}, not an Engine or RemoteEngine; see Engine.load")


def is_remote(engine: Engine | RemoteEngine) -> TypeIs[RemoteEngine]:
    """Return whether the model runs on a server."""
    return not hasattr(engine, "tokenizer")


def check_text(name: str, value: object, *, needed: bool = False) -> None:
    """Check that a setting is a string, if given; `needed` refuses an empty one.

    Raises:
        SettingError: it is none; names it.
    """
    if (needed and not value) or (value is not None and not isinstance(value, str)):
        raise SettingError(f"{name} must be a string, not {value!r}")


def check_trace(trace: object) -> None:
    """Check that a trace destination is a path, True, False or None.

    Raises:
        SettingError: it does not.
    """
    if trace is not None and not isinstance(trace, bool):
        as_path(trace, "trace", SettingError)


def check_template_options(options: object, thinking: bool | None) -> dict[str, Any]:
    """Return the chat template's variables as the trace header records them.

    Args:
        options: as given.
        thinking: whether models that can think are to; None leaves it to them.

    Raises:
        SettingError: they are no names with JSON values, or thinking is not True or False.
    """
    if thinking is not None:
        check_switch(thinking, "thinking", SettingError)
    refusal = SettingError(f"template_options must map names to JSON values, not {options!r:.200}")
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise refusal
    if not all(isinstance(name, str) and name.isidentifier() for name in given):
        raise refusal
    try:
        found = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise refusal from None
    return found if thinking is None else {**found, "enable_thinking": thinking}


def check_task(task: object) -> None:
    """Check that the question is a string with text.

    Raises:
        AgentError: it is no text, or has nothing but space in it.
    """
    if not isinstance(task, str):
        raise AgentError(f"the question must be a string, not {task!r}")
    if not task.strip():
        raise AgentError("the question is empty")


def engine_notes(config: AgentConfig, engine: Engine) -> list[str]:
    """Return notes for the user on a model under an agent's settings."""
    formed = config.output is not None and engine.tokenizer.answer_forms is not None
    return [OWN_FORMS] * formed + sampling_notes(config, engine)


def sampling_notes(config: AgentConfig, engine: Engine) -> list[str]:
    """Return notes on the sampling settings of the model's file, used and unused."""
    from ..engine.sampling.settings import Sampling

    given, found = config.sampling or Sampling(), engine.sampling
    used = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in found.given().items()
        if getattr(given, name) is None
    ]
    if not used or given.over(found).filled().plain:
        return list(engine.loaded.sampling_notes)
    return [
        f"sampling settings from the model file: {', '.join(used)}",
        *engine.loaded.sampling_notes,
    ]


def max_result_chars(context: int) -> int:
    """Return the maximum characters of a file tool's result for a context size.

    Half as many characters as the context has tokens: a few results fit even where a token is
    little more than a character, and the rest of a result can be read by another call.
    """
    return min(formats.MAX_CHARS, max(1024, context // 2))


def max_result_tokens(context: int, given: int | None = None) -> int:
    """Return the maximum tokens of any other tool's result for a context size.

    Raises:
        SettingError: `given` is not a positive whole number.
    """
    if given is None:
        return min(4096, max(256, context // 4))
    check_whole(given, "result_tokens", SettingError, 1)
    return given


def flatten_tools(
    tools: ToolLike | Iterable[ToolLike | Iterable[ToolLike]] | None,
) -> Iterator[ToolLike]:
    """Yield tools in order from one tool, many, or groups such as `FileTools`."""
    if tools is None:
        return
    if isinstance(tools, Tool) or callable(tools):
        yield tools
        return
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise AgentError(f"{tools!r} is not a tool; give functions, Tool objects or groups of them")
    for item in as_list(tools, "tools must be functions, Tool objects or groups", AgentError):
        if isinstance(item, str):  # what iterates over itself
            raise AgentError(f"{item!r} is a name, not a tool; give the function itself")
        if item is None:
            raise AgentError("None is not a tool; leave it out")
        yield from flatten_tools(item)
