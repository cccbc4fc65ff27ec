"""Rebuilds the requests of recorded decodes from their recipes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ReplayError
from ..conversation.turn import Limits, TurnRequest

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent, RunStart
    from ...traces.reader import Trace
    from ..engine.engine import Engine
    from ..engine.sampling.settings import Sampling


class RecordedTurns:
    """The turns of a recorded run, from its trace alone.

    Args:
        engine: has the recorded model.
        run: one run of a trace.
        header: of that run.
    """

    def __init__(self, engine: Engine, run: Trace, header: RunStart) -> None:
        self._tokenizer, self._contents = engine.tokenizer, run.contents
        self._first = functools.partial(_first_recipe, engine, header)

    def request(self, phase: PhaseEvent, prompt: Sequence[int]) -> TurnRequest:
        """Rebuild the request of a decode that follows the tokens `prompt`, with its length.

        Raises:
            ReplayError: this version cannot build the recorded constraint.
        """
        recipe = phase.recipe
        if recipe is None:
            recipe = self._first(phase, prompt)
        return TurnRequest.read(
            recipe,
            self._contents,
            prompt,
            sampling=sampling_of(phase),
            limits=Limits(len(phase.token_ids)),
            ends=frozenset(phase.stop),
        )


def _first_recipe(
    engine: Engine, header: RunStart, phase: PhaseEvent, prompt: Sequence[int]
) -> dict[str, Any] | None:
    """Return the recipe of a decode of version 0.1.0, whose header has one for the whole run."""
    from ..conversation.chat import CHATML
    from ..conversation.reasoning_tags import NO_THINKING, thinking_of
    from ..conversation.requirement import Requirement

    config, tokenizer, name = header.config, engine.tokenizer, phase.constraint
    minimum = config.get("min_tokens", (0, ()))[0]
    limits = {"min_tokens": minimum} if minimum else {}
    if name is None:
        return limits or None
    tools = [] if name == "text" else header.tools
    thinks, prefix = config.get("thinking", True), int(config.get("said", 0))
    own = tokenizer.tool_template if tools else tokenizer.chat_template
    thinking = thinking_of(own or CHATML, tokenizer) if thinks else NO_THINKING
    required = Requirement(
        "hermes" if name == "text" else name,
        tools,
        config.get("tool_choice", "auto"),
        bool(config.get("single_call")),
        config.get("output"),
        thinking,
        bool(config.get("answer_forms") and tokenizer.answer_forms),
    )
    begun = len(prompt) - prefix
    head = tokenizer.decode(list(prompt[max(0, begun - 4) : begun]), special=True)
    more = {"opened": True} if thinks and head.rstrip().endswith(thinking.opening) else {}
    return required.recipe | limits | more | ({"said": prefix} if prefix else {})


def sampling_of(phase: PhaseEvent) -> Sampling:
    """Return the recorded sampling settings; greedy when nothing was recorded.

    Raises:
        ReplayError: this version cannot sample like that.
    """
    from ..engine.sampling.settings import GREEDY, Sampling

    if not phase.sampling:
        return GREEDY
    try:
        return Sampling(**phase.sampling)
    except (TypeError, ValueError) as error:
        raise ReplayError(f"sampling differs: this version cannot do it ({error})") from error
