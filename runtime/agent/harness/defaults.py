"""The shipped policies and their settings: builds the default harness of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....arguments import check_switch, check_whole
from ....errors import SettingError
from .merged import Harness
from .policy import Policy

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...remote import RemoteEngine

TOKENS = 1500  # of evidence

DEFAULTS: dict[str, object] = {
    "evidence": True,  # evidence.py: look before the model is asked
    "evidence_tokens": TOKENS,
    "best_lines": 5,  # at most: of the evidence, that stand again before the question
    "examples": False,  # examples.py: worked answers in the system message; cost 0.5B elsewhere
    "plain_tools": False,  # tools/plain.py: plain descriptions; count, table. Did not pay on 0.5B
    "no_repeats": True,  # no_repeats.py: a call that gives the same again ends the looking
    "paths": True,  # paths.py: what must exist can only be named as it is
    "claims": True,  # claims.py: who says that a file was written has called a tool
    "grounded": False,  # grounded.py: what no line says is asked for again, or not found
}
"""Settings of the harness, as `--harness KEY=VALUE` and `Agent(harness={…})` take them."""

_MINIMUM = {"evidence_tokens": 64}

Given = bool | Mapping[str, object] | Harness | None


def is_bare(engine: object) -> bool:
    """Return whether the model was trained on the bare loop: its file declares answer forms."""
    return getattr(getattr(engine, "tokenizer", None), "answer_forms", None) is not None


def harness_of(given: Given, engine: Engine | RemoteEngine, *, grounded: bool = False) -> Harness:
    """Build the harness of one conversation.

    By default a model on a server has none, since nothing is known here of what it was trained on,
    and neither has one whose file declares the forms of its answers: it was trained on the bare
    loop. Others have the settings that `doctor --agent` found for the file, if it did.

    Args:
        given: None: the default of the model; True or False: all policies or none; settings, see
            `DEFAULTS`; or a `Harness`.
        engine: runs the model.
        grounded: turn the setting of this name on, whatever `given` says.

    Raises:
        SettingError: there is no such setting, or its value is wrong.
    """
    if isinstance(given, Harness):
        return given
    bare = is_bare(engine)
    if given is False or (given is None and (bare or not hasattr(engine, "tokenizer"))):
        if not grounded:
            return Harness(sources=given is None and not bare)
        given = {name: False for name, value in DEFAULTS.items() if value is True}
    from .claims import Claims  # a run without it needs no index
    from .evidence import EvidenceFirst
    from .grounded import Grounded
    from .no_repeats import NoRepeats
    from .paths import ExistingPaths
    from .tuned import tuned_for

    found = tuned_for(engine.model.sha256) if given is None else None
    tuned = {} if found is None else {n: v for n, v in found.settings.items() if n in DEFAULTS}
    note = f"harness settings tuned for this model: {found.text}" if found and tuned else ""
    settings = checked(tuned if given is None or given is True else given)
    settings["grounded"] |= grounded
    looks = EvidenceFirst(settings["evidence_tokens"], settings["best_lines"])
    makers: dict[str, Callable[[], Policy]] = {
        "evidence": lambda: looks,
        "no_repeats": NoRepeats,
        "paths": lambda: ExistingPaths(looks if settings["evidence"] else None),
        "claims": Claims,
        "grounded": lambda: Grounded(settings["evidence"]),
    }
    policies = [make() for name, make in makers.items() if settings[name]]
    return Harness(policies, settings, note=note)


def checked(given: object) -> dict[str, Any]:
    """Check settings of the harness; return them with defaults for the rest.

    Raises:
        SettingError: see `harness_of`.
    """
    if not isinstance(given, Mapping):
        raise SettingError(f"harness must be True, False or settings by name, not {given!r}")
    for name, value in given.items():
        if name not in DEFAULTS:
            raise SettingError(f"the harness has no setting {name!r}; it has {', '.join(DEFAULTS)}")
        if isinstance(DEFAULTS[name], bool):
            check_switch(value, f"harness {name}", SettingError)
        else:
            check_whole(value, f"harness {name}", SettingError, _MINIMUM.get(name, 1))
    return {**DEFAULTS, **given}
