"""What a session of its own computes: what one in company is compared with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session


def read_alone(engine: Engine, ids: list[int]) -> Session:
    """A session that has read `ids`."""
    session = engine.session()
    session.prefill(ids)
    return session


def logits_alone(engine: Engine, ids: list[int]) -> np.ndarray:
    """float32 [vocabulary] after `ids`."""
    return read_alone(engine, ids).logits.copy()


def remembered(engine: Engine) -> Callable[[list[int]], np.ndarray]:
    """As `logits_alone`; what was asked before is not computed again."""
    known = functools.cache(lambda ids: logits_alone(engine, list(ids)))
    return lambda ids: known(tuple(ids))


def decode_alone(engine: Engine, ids: list[int], steps: int, **settings: Any) -> list[int]:
    """What it decodes after `ids`."""
    return list(read_alone(engine, ids).decode(max_tokens=steps, **settings))
