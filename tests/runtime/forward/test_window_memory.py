"""What 131,072 tokens take in models with windows: what their layers see, and a little more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.counted import counted, laid_out

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.forward.kv import KVCache, KVLayout, resident_positions
from triplepoint.runtime.hub.aliases import by_alias
from triplepoint.runtime.synthetic.write import SyntheticModel

CONTEXT = 131_072
GIB = 1 << 30
# GiB in BF16 of all positions, and of what is left with a window and 512 positions: of layers
# counted by hand (32 bits of key and value a dim, global layers and those with windows).
FIGURES = {
    "gemma3:4b": (17.0, 2.7),
    "gemma4-e2b": (2.25, 0.76),
    "gemma4-e4b": (7.0, 2.0),
    "gemma4-26b-a4b": (27.5, 2.8),
    "gpt-oss-20b": (6.0, 3.0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_long_context(tmp_path: Path, name: str) -> None:
    """A sequence of that length, grown page by page, takes at most 1.1 times the least; `show`
    says the same beforehand."""
    whole, least = FIGURES[name]
    with _layout(name, tmp_path) as layout:
        assert layout.position_bytes * CONTEXT == pytest.approx(whole * GIB, rel=0.02)
        cache = KVCache(layout, CONTEXT)
        for end in range(PAGE, CONTEXT + 1, PAGE):  # as passes do; nobody touches the memory
            cache.make_writable(end - PAGE, end)
            cache.computed(end)
            cache.slide(end)
        taken = layout.memory.used
        cache.clear()

        assert taken < 1.1 * least * GIB
        shown = (
            resident_positions(CONTEXT, layout.window, layout.near_share) * layout.position_bytes
        )
        assert shown == pytest.approx(least * GIB, rel=0.03)
        assert taken == pytest.approx(shown, rel=0.1)


@contextmanager
def _layout(name: str, folder: Path) -> Iterator[KVLayout]:
    known = by_alias(name)
    if known is None:
        with counted(f"{name}:q4_0", folder) as model:
            yield model.layout
        return
    with laid_out(SyntheticModel(name, "q4_0", known.shape), folder) as model:
        yield model.layout
