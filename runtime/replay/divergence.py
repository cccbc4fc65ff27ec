"""Why a replay may differ from its recording: the logit margin, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...traces.events import PhaseEvent, RunStart
from .constraints import sampling_of

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.session import Session

ROUNDING = 1e-2
"""Logit margin, as a share of the logits' range, that sums in another order can explain."""


def margin_between(
    session: Session, at: int, recorded: int | None, replayed: int | None
) -> float | None:
    """Return the logit margin of two tokens after the first `at` tokens, by the logits' range.

    Computes the logits again: the session keeps `at` tokens. None where one token is missing.
    """
    if recorded is None or replayed is None:
        return None
    session.truncate(at)
    session.prefill([])
    logits = session.logits
    spread = float(logits.max() - logits.min())
    if not 0 <= recorded < len(logits) or not spread > 0:
        return None
    return abs(float(logits[replayed]) - float(logits[recorded])) / spread


@dataclass(frozen=True)
class Setting:
    """A setting that differs between the recording and now."""

    name: str
    recorded: str
    now: str
    effect: str
    """What it can change: the ``order`` of sums, the ``numbers`` in them, the ``code`` that makes
    or reads tokens, and so perhaps anything; or nothing by design: ``none``."""

    def __str__(self) -> str:
        return f"{self.name}: recorded with {self.recorded}, now {self.now}"


def what_differs(header: RunStart, engine: Engine) -> list[Setting]:
    """Return the recorded settings that affect tokens and that differ now."""
    from ..agent.run_metadata import versions

    if not header.model.name and not header.versions:  # refused before it reached a model
        return []
    model, now, drafts = engine.model, versions(), engine.core.drafting.settings.as_dict()
    pairs = [
        ("target", header.target, engine.target, "order"),
        ("KV cache format", header.kv, engine.kv, "numbers"),
        *((name, header.versions.get(name), now.get(name), "code") for name in _MAKERS),
        ("threads", header.threads or None, engine.threads, "none"),
        ("draft tokens", header.config.get("draft_tokens"), drafts["draft_tokens"], "none"),
        ("jump-forward", header.config.get("jump_forward"), drafts["jump_forward"], "none"),
    ]
    found = [
        Setting(name, str(was), str(is_now), effect)
        for name, was, is_now, effect in pairs
        if was not in (None, "") and str(was) != str(is_now)
    ]
    if "kernels" not in header.versions:
        old = "an older version, which did not say which"
        found.append(Setting("kernels", old, now["kernels"], "code"))
    if not header.model.sha256:  # another hash is refused before anything runs
        was = f"{header.model.path or header.model.name}, whose hash is not in the trace"
        found.append(Setting("model file", was, str(model.path), "numbers"))
    return found


def likely_cause(header: RunStart, engine: Engine, phase: PhaseEvent, margin: float | None) -> str:
    """Explain a divergence in a sentence: the changed settings and their known effects."""
    differs = what_differs(header, engine)
    drawn = not sampling_of(phase).greedy
    shown = [*map(str, differs)]
    if drawn:
        shown.append(
            "sampling: tokens are drawn at random, so a small difference can pick another one"
        )
    able = [one for one in differs if one.effect != "none"]
    if not able and not drawn:
        but = f"{'; '.join(shown)}; this changes no token. Apart from that, " if shown else ""
        return (
            f"{but}nothing that a trace records differs; either the trace was changed or this is "
            "a bug, because the same settings on the same machine give the same tokens"
        )
    if [one.effect for one in able] != ["order"]:
        return "; ".join(shown)
    if margin is None:
        return f"{'; '.join(shown)}, which adds in a different order"
    if margin <= ROUNDING:
        return (
            f"{'; '.join(shown)}; the two tokens are as close as a different order of sums can "
            "make them"
        )
    return (
        f"{'; '.join(shown)}; but the two tokens are too far apart for a different order of sums "
        "alone"
    )


_MAKERS = ("kernels", "llvmlite", "numpy", "triplepoint", "llguidance", "tokenizers")
