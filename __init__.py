"""triplepoint: an agent runtime for the CPU you own.

    from triplepoint import Agent, Engine

    agent = Agent(Engine.load("nano"), workspace="examples/incident")
    print(agent.run("What's the error in app.log?").answer)

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AgentError,
    CompileError,
    ContextOverflowError,
    ConversationError,
    EngineError,
    FleetError,
    GGUFError,
    GrammarError,
    LimitReachedError,
    ModelError,
    PassCancelledError,
    ReplayError,
    RowError,
    SettingError,
    TargetError,
    TemplateError,
    ToolDefinitionError,
    ToolError,
    TraceError,
    TriplepointError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from .runtime import replay
    from .runtime.agent.agent import Agent
    from .runtime.agent.events import (
        AgentEvent,
        Notice,
        PhaseFinished,
        RunFinished,
        RunStarted,
        TextDelta,
        ThinkingDelta,
        ToolCallFinished,
        ToolCallStarted,
    )
    from .runtime.agent.result import RunResult, Usage
    from .runtime.agent.session_store import SavedConversation, open_conversation
    from .runtime.engine.engine import Engine
    from .runtime.engine.sampling.settings import Sampling
    from .runtime.engine.session import Session
    from .runtime.fleet.api import map_rows
    from .runtime.remote import RemoteEngine
    from .tools import (
        CommandTools,
        EditTools,
        FetchTools,
        FileTools,
        FindTools,
        PermissionRequest,
        Policy,
        Rule,
        Tool,
        ToolSet,
        tool,
    )
    from .traces.events import PhaseEvent
    from .traces.reader import Trace

__version__ = "0.1.0"

_PLACES = {
    "runtime": ("replay",),
    "runtime.agent.agent": ("Agent",),
    "runtime.engine.engine": ("Engine",),
    "runtime.fleet.api": ("map_rows",),
    "runtime.agent.events": (
        "AgentEvent",
        "Notice",
        "PhaseFinished",
        "RunFinished",
        "RunStarted",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallFinished",
        "ToolCallStarted",
    ),
    "runtime.remote": ("RemoteEngine",),
    "runtime.agent.result": ("RunResult", "Usage"),
    "runtime.agent.session_store": ("SavedConversation", "open_conversation"),
    "runtime.engine.sampling.settings": ("Sampling",),
    "runtime.engine.session": ("Session",),
    "tools": (
        "CommandTools",
        "EditTools",
        "FetchTools",
        "FileTools",
        "FindTools",
        "Policy",
        "PermissionRequest",
        "Rule",
        "Tool",
        "ToolSet",
        "tool",
    ),
    "traces.events": ("PhaseEvent",),
    "traces.reader": ("Trace",),
}
_RENAMED = {
    "Request": "PermissionRequest",
    "SavedSession": "SavedConversation",
    "SessionError": "ConversationError",
    "map": "map_rows",
    "open_session": "open_conversation",
}
"""Former public names and their successors: `Session` now means only an engine's session."""
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Agent",
    "AgentError",
    "AgentEvent",
    "CommandTools",
    "CompileError",
    "ContextOverflowError",
    "ConversationError",
    "EditTools",
    "Engine",
    "EngineError",
    "FetchTools",
    "FileTools",
    "FindTools",
    "FleetError",
    "GGUFError",
    "GrammarError",
    "LimitReachedError",
    "ModelError",
    "Notice",
    "PassCancelledError",
    "PermissionRequest",
    "PhaseEvent",
    "PhaseFinished",
    "Policy",
    "RemoteEngine",
    "ReplayError",
    "RowError",
    "Rule",
    "RunFinished",
    "RunResult",
    "RunStarted",
    "Sampling",
    "SavedConversation",
    "Session",
    "SettingError",
    "TargetError",
    "TemplateError",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCallFinished",
    "ToolCallStarted",
    "ToolDefinitionError",
    "ToolError",
    "ToolSet",
    "Trace",
    "TraceError",
    "TriplepointError",
    "UnsupportedModelError",
    "Usage",
    "__version__",
    "map_rows",
    "open_conversation",
    "replay",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module; raise ImportError for a renamed one."""
    if name in _RENAMED:  # an AttributeError would lose its text in `from triplepoint import …`
        raise ImportError(f"triplepoint.{name} is now triplepoint.{_RENAMED[name]}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'triplepoint' has no attribute {name!r}")
    place = f".{_MODULE_OF[name]}"
    value = getattr(import_module(place, __name__), name, None)
    if value is None:  # a module itself
        value = import_module(f"{place}.{name}", __name__)
    globals()[name] = value  # the next time it is found without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULE_OF})
