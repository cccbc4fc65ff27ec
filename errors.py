"""The hierarchy of errors that triplepoint raises on purpose.

    TriplepointError
     ├─ ModelError                 a model file, its metadata or its name
     │   ├─ GGUFError              a damaged or hostile GGUF file (field, byte offset)
     │   └─ UnsupportedModelError  a sound file that this version cannot run
     ├─ TargetError                a CPU target that is unknown or that this machine lacks
     ├─ CompileError               a kernel that could not be generated or loaded
     ├─ EngineError
     │   ├─ SettingError           a setting that makes no sense, or that this model cannot have
     │   ├─ ContextOverflowError   more tokens than the context holds
     │   └─ PassCancelledError     a forward pass ended by stop() or Ctrl-C
     ├─ AgentError
     │   ├─ LimitReachedError      steps, tokens, time, or calls or text that repeat
     │   ├─ ConversationError      a saved conversation that is missing or cannot be read
     │   ├─ TemplateError          a chat template that fails or misbehaves
     │   └─ GrammarError           a grammar that cannot be compiled or went wrong
     ├─ ToolError                  a failed tool call; its text is told to the model
     ├─ ToolDefinitionError        a function or schema that cannot be made into a tool
     ├─ FleetError                 a map over many rows that cannot go on
     │   └─ RowError               a row, or a file of rows or results, that cannot be used
     └─ TraceError                 a trace that cannot be read or written
         └─ ReplayError            a trace and settings that do not fit together

Every message says what is wrong, where, and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


class TriplepointError(Exception):
    """Base of all errors raised on purpose by triplepoint."""

    def __str__(self) -> str:
        # A name that the system or a caller gave may hold half of a character: no stream takes it.
        return super().__str__().encode("utf-8", "backslashreplace").decode()


class ModelError(TriplepointError):
    """A model cannot be found, read or run."""


class GGUFError(ModelError):
    """A GGUF file is damaged.

    Attributes:
        path: the file, of a split model the part; None for one that is not on disk.
        field: what was being read, e.g. ``"tensor 'blk.0.attn_q.weight' offset"``.
        offset: byte offset in the file where that field starts; None for one that is missing.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str,
        offset: int | None,
        path: Path | None = None,
        remedy: str = "download or convert the model again",
    ) -> None:
        where = field if offset is None else f"{field}, byte {offset}"
        named = f"{path}: " if path is not None else ""
        super().__init__(f"{named}{message} ({where}); {remedy}")
        self.path = path
        self.field = field
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all attributes, though the constructor's arguments have names."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class UnsupportedModelError(ModelError):
    """A valid model file needs something that this version does not support."""


class TargetError(TriplepointError):
    """A CPU target is unknown, or this machine cannot run it."""


class CompileError(TriplepointError):
    """A kernel could not be generated, verified or loaded."""


class EngineError(TriplepointError):
    """The engine cannot do what was requested."""


class SettingError(EngineError):
    """A setting is invalid, or this model does not support it; the message says what is valid."""


class ContextOverflowError(EngineError):
    """A request has more tokens than the context holds; the session keeps its earlier tokens.

    Attributes:
        memory: (tokens requested, tokens that fit), where KV cache memory was the limit.
    """

    memory: tuple[int, int] | None = None


class PassCancelledError(EngineError):
    """A forward pass was stopped early; the session keeps what it had before the pass."""


class AgentError(TriplepointError):
    """The agent cannot continue, or was set up wrongly."""


class LimitReachedError(AgentError):
    """A limit on steps, tokens or time ended the run, or calls or text that repeat."""


class ConversationError(AgentError):
    """A saved conversation is missing or cannot be read."""


class TemplateError(AgentError):
    """A chat template failed, took too long, or tried to access something forbidden."""


class GrammarError(AgentError):
    """A tool schema or grammar cannot be compiled, or a token broke it."""

    tools: dict[str, str] | None = None  # those that no grammar can be made from, and why


class ToolError(TriplepointError):
    """A tool call failed; the model gets the message as the result."""


class ToolDefinitionError(TriplepointError, TypeError, ValueError):
    """A function or a schema cannot be a tool.

    It is also what Python raises for a wrong argument, for callers that know nothing of us.
    """


class FleetError(TriplepointError):
    """A map over many rows cannot continue; finished rows are in its results."""


class RowError(FleetError):
    """A row cannot be run, or a file of rows or results cannot be used."""


class TraceError(TriplepointError):
    """A trace cannot be read or written."""


class ReplayError(TraceError):
    """A trace cannot be replayed with these settings; the message names the field."""
