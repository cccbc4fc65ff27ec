"""Drafting state of one sequence, shared by all of its decodes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .config import SOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine_drafting import EngineDrafting
    from .source import DraftSource


class SequenceDrafting:
    """Drafting settings and sources of a sequence; `Drafter` is of one decode."""

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        """tokens: the sequence's own list; call `truncate` and `reset` when it changes."""
        self.engine = engine
        """Drafting state that all sequences of the engine share."""
        self.settings = engine.settings
        """Speculative decoding settings; by default the engine's."""
        self.sources: Sequence[tuple[int, int]] = ()
        """Ranges of positions, first and end, that are likely to be quoted."""
        self.reset(tokens)

    def reset(self, tokens: list[int]) -> None:
        """Set the list of tokens, and drop all sources with what they have learned."""
        self._tokens = tokens
        self._made: dict[str, DraftSource] = {}

    def source(self, name: str) -> DraftSource:
        """Return the sequence's source of this name, which is created on first use."""
        if name not in self._made:
            module = import_module(f".{name}", __package__)
            self._made[name] = getattr(module, SOURCES[name])(self.engine, self._tokens)
        return self._made[name]

    def begin(self) -> dict[str, DraftSource]:
        """Return the sources that may draft in the decode that begins."""
        wanted = {name: self.source(name) for name in SOURCES if self.settings.uses(name)}
        return {
            name: source
            for name, source in wanted.items()
            if source.begin(self.settings, self.sources)
        }

    def truncate(self, n: int) -> None:
        """Drop the tokens from `n` on from the sources, before the sequence drops them."""
        for source in self._made.values():
            source.truncate(n)
