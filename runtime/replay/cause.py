"""Why a replay may have left its recording: how near the two tokens were, and what is different."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...traces.events import PhaseEvent, RunStart
from .decoding import sampling_of

if TYPE_CHECKING:
    from ..inference.engine import Engine
    from ..inference.session import Session

ROUNDING = 1e-2
"""Share of the logits' range below which two tokens are as near as sums in another order."""


def margin_between(
    session: Session, at: int, recorded: int | None, replayed: int | None
) -> float | None:
    """How far apart two tokens' logits are after the first `at` tokens, by the range of them all.

    Computes the logits again: the session keeps `at` tokens. None where one token is missing.
    """
    if recorded is None or replayed is None or not getattr(session, "engine", None):
        return None
    session.truncate(at)
    session.prefill([])
    logits = session.logits
    spread = float(logits.max() - logits.min())
    if not 0 <= recorded < len(logits) or not spread > 0:
        return None
    return abs(float(logits[replayed]) - float(logits[recorded])) / spread


def likely_cause(header: RunStart, engine: Engine, phase: PhaseEvent, margin: float | None) -> str:
    """In a sentence: what of that which differs can lead to another token, the likeliest first."""
    causes = [*_numeric(header, engine), *_versions(header)]
    if not sampling_of(phase).greedy:
        causes.append("sampling: tokens are drawn, so that a small difference picks another one")
    if not header.model.sha256:
        causes.append("model.sha256 is not in the trace: it may be another file")
    if not causes:
        return (
            "nothing that a trace records differs: the trace was changed, or this is a bug, "
            "since the same settings on the same machine give the same tokens"
        )
    if margin is None:
        return "; ".join(causes)
    if margin <= ROUNDING:
        return f"{'; '.join(causes)}: the tokens are as near as sums in another order make them"
    return f"{'; '.join(causes)}; but the tokens are far apart, which rounding alone does not make"


def _numeric(header: RunStart, engine: Engine) -> list[str]:
    """Settings under which sums are made in another order or from other numbers."""
    found = []
    if header.target and header.target != str(engine.target):
        found.append(f"target: recorded with {header.target}, now {engine.target}")
    if header.kv and header.kv != engine.kv:
        found.append(f"kv: recorded with a {header.kv} cache, now {engine.kv}")
    return found


def _versions(header: RunStart) -> list[str]:
    """Versions that make or choose: of the kernels, their compiler, and the grammar."""
    from ..agent.header import versions

    now = versions()
    pairs = ((name, header.versions.get(name), now.get(name)) for name in _MAKERS)
    found = [f"{name}: recorded with {a}, now {b}" for name, a, b in pairs if a and a != b]
    if "kernels" not in header.versions:
        found.insert(0, "kernels: an older version recorded this, which did not say with which")
    return found


_MAKERS = ("kernels", "llvmlite", "triplepoint", "llguidance", "tokenizers")
