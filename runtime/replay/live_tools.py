"""Runs recorded tool calls again, to compare their results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ToolError
from ...tools import FindTools
from ...traces.events import RunStart, ToolEvent
from ..agent.agent import Agent
from ..agent.run_context import CancellationToken
from ..agent.tool_executor import ToolExecutor
from ..conversation.formats.toolcalls import ToolCall
from ..evidence import Gatherer

if TYPE_CHECKING:
    from ..engine.engine import Engine


class LiveTools:
    """A function that repeats the recorded calls of read-only tools in a folder.

    A call that changed, sent or started something is not repeated: it gives None, and the recorded
    result is used.
    """

    def __init__(self, engine: Engine, header: RunStart, folder: str | Path) -> None:
        names = {tool.get("function", {}).get("name") for tool in header.tools}
        find = FindTools(folder)
        more = list(find) if names & {tool.name for tool in find} else []
        self._agent = Agent(
            engine,
            workspace=folder,
            tools=more,
            context=header.config.get("context"),
            harness=header.config.get("harness") or False,
            trace=False,
        )
        self._gatherer: Gatherer | None = None
        self._executor: tuple[int, ToolExecutor] | None = None

    def __call__(self, event: ToolEvent) -> str | None:
        """Return the result that the model would get now; None for a call that is not repeated."""
        setup = self._agent.setup
        if event.by:
            return self._looked_at(event)
        known = {tool.name for tool in setup.tools}
        if event.decision != "allowed" or event.effect != "read" or event.name not in known:
            return None
        if self._executor is None or self._executor[0] != event.turn:  # repeats count by question
            executor = ToolExecutor(setup.tools, setup.policy, setup.results, CancellationToken())
            self._executor = event.turn, executor
        call = ToolCall(event.name, event.arguments, id=event.call_id)
        return self._executor[1].run(call).result

    def _looked_at(self, event: ToolEvent) -> str:
        """Repeat a lookup of the harness, and return its result."""
        if self._gatherer is None:
            setup = self._agent.setup
            assert setup.files is not None, "it has a folder"
            self._gatherer = Gatherer(setup.files, setup.policy, background=False)
        try:
            return self._gatherer.rerun(event.name, event.arguments)
        except ToolError as error:
            return f"error: {error}"
