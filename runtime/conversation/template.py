"""Renders a model's chat template: Jinja text from its GGUF file, in the `sandbox`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any

import jinja2

from ...errors import TemplateError
from .sandbox import MAX_TEXT, RefusalError, Sandbox

MAX_SOURCE = 64 << 10
"""Maximum length of a template in characters, about twice the longest that models ship."""
STEPS = 8_000
"""Step budget of one render (see `sandbox`), and what each message and tool adds to it.

The templates that models ship take a few hundred; using all of them up takes about 20 ms."""
STEPS_EACH = 500

_NAME = "<chat template>"


class TemplateRefusalError(TemplateError):
    """Error of a template that refuses the conversation through ``raise_exception``."""


class TemplateOmissionError(TemplateError):
    """Error of a template that silently leaves a message out."""


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja text.
        bos, eos: text of the tokens that begin and end a sequence; templates write them.
        now: what ``strftime_now`` formats; the time of this call if not given. Fixed, so that what
            is rendered later in a conversation agrees with what was rendered first.

    Raises:
        TemplateError: the source is too long or does not compile.
    """

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", now: datetime | None = None
    ) -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateError(
                f"the chat template has {len(source):,} characters; "
                f"{MAX_SOURCE:,} is the most that is accepted"
            )
        self.source = source
        self.variables: frozenset[str] = frozenset()
        """Free variables of the template, which a caller may set."""
        self.rendered = 0
        """Total characters rendered so far."""
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._sandbox = Sandbox(now or datetime.now())
        self._lock = threading.Lock()  # the sandbox counts the steps of one render at a time
        try:
            code, self.variables = _compiled(source)
            self._template = self._sandbox.template_class.from_code(
                self._sandbox, code, self._sandbox.make_globals(None)
            )
        except Exception as error:  # whatever a stranger's text does to lexer and compiler
            raise _explain("the chat template cannot be compiled", error) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation, up to the assistant's next turn.

        Args:
            messages: plain JSON data: role, content and what else the template reads.
            tools: OpenAI-style schemas.
            options: further variables of the template, e.g. ``enable_thinking``.

        Raises:
            TemplateRefusalError: the template does not accept this conversation.
            TemplateError: it failed, took too many steps, or reached for what it may not.
        """
        variables = {
            **self._tokens,
            **(options or {}),
            "messages": [_named(message) for message in messages],
            "tools": [dict(tool) for tool in tools] if tools else None,
            "add_generation_prompt": True,
        }
        with self._lock:
            self._sandbox.steps = STEPS + STEPS_EACH * (len(messages) + len(tools or ()))
            self._sandbox.text = MAX_TEXT
            try:
                text = self._template.render(variables)
            except RefusalError as error:
                raise TemplateRefusalError(
                    f"the chat template refuses this conversation: {error}"
                ) from error
            except Exception as error:
                raise _explain("the chat template failed", error) from error
            self.rendered += len(text)
            return text


@lru_cache(maxsize=16)
def _compiled(source: str) -> tuple[CodeType, frozenset[str]]:
    """Compile a template; return its code and its free variables.

    Cached, since each agent has a sandbox of its own, and compiling takes tens of ms.
    """
    sandbox = Sandbox(datetime.min)
    return sandbox.compile(source, name=_NAME, filename=_NAME), sandbox.names


def _named(message: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a message; set its thinking under both keys that templates read."""
    names = ("reasoning_content", "thinking", "reasoning")
    thought = next((message[name] for name in names if message.get(name) is not None), None)
    if thought is None:
        return dict(message)
    return {"thinking": thought, **message, "reasoning_content": thought}


def _explain(what: str, error: Exception) -> TemplateError:
    """Convert an exception to a TemplateError that names the failed template line."""
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else 0
    trace = error.__traceback__
    while trace is not None:  # jinja maps the frames of a template to its own lines
        if trace.tb_frame.f_code.co_filename == _NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)[:300]
    where = f", line {line}" if line else ""
    return TemplateError(
        f"{what}{where}: {reason or type(error).__name__}; another template can be given to the "
        "agent (chat_template=…)"
    )
