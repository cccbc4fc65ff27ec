"""Suggestion of a larger model that suits this machine, where the embedded model gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import SettingError
from ..nano.refusals import is_refusal
from .output import Output

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..bench.reach import Reach
    from ..hub.settings import HubSettings


def suggest_model(agent: Agent, answer: str, output: Output) -> None:
    """Name the best model for this machine, if nano gave up and nobody has chosen a default."""
    if not is_refusal(answer):
        return
    from ..config import default_model
    from ..engine.engine import NANO, Engine

    engine = agent.setup.engine
    if not (isinstance(engine, Engine) and engine.model.path == NANO):
        return
    try:
        if not default_model().is_built_in:
            return
    except SettingError:  # who names a model needs no sound file of defaults
        return
    from ..bench.reach import best_here
    from ..hub.settings import HubSettings
    from ..memory import available_bytes

    found = best_here(engine.machine, available_bytes())
    if found is None:
        output.note("the embedded model is small; `triplepoint models` lists larger ones")
        return
    output.note(f"the embedded model is small; {how_to_get(found, HubSettings.from_environ())}")


def how_to_get(found: Reach, settings: HubSettings) -> str:
    """Describe the best model, and the commands that make it the default."""
    from ..hub.find import is_pulled

    alias = found.model.alias
    steps = "" if is_pulled(found.model, settings) else f"`triplepoint pull {alias}`, then "
    return (
        f"the best for this machine is {alias}, at about {found.decode:.0f} tokens per second: "
        f"{steps}`triplepoint use {alias}`"
    )
