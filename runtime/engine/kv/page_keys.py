"""Keys of KV cache pages: the SHA-256 of everything that their bytes depend on.

What a page holds is decided by the model, the layout and every token up to its end. So a page of
other tokens, or of another model, is never found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ....jit.compile import source_hash
from ....jit.kernels import cache_q8, conv, kvcache, latent, rope, state_tile, stored_rows
from ....jit.kernels.kvcache import PAGE

if TYPE_CHECKING:
    from ..model.loaded_model import LoadedModel

_LAYOUT = (kvcache, cache_q8, rope, latent, state_tile, conv, stored_rows)
"""Modules that define the byte layout of pages and states."""


def fingerprint(loaded: LoadedModel) -> dict[str, Any]:
    """Return what a page's bytes depend on besides tokens; computed once for each engine."""
    if loaded not in _FINGERPRINTS:
        _FINGERPRINTS[loaded] = _fingerprint(loaded)
    return _FINGERPRINTS[loaded]


_FINGERPRINTS: WeakKeyDictionary[LoadedModel, dict[str, Any]] = WeakKeyDictionary()


def _fingerprint(loaded: LoadedModel) -> dict[str, Any]:
    rotary = hashlib.sha256()
    for pair in loaded.rotary:
        for table in pair:
            rotary.update(table[:PAGE].tobytes())
    norms = hashlib.sha256()
    for found in loaded.network.key_norms:
        norms.update(rope.to_bf16(found).tobytes())
    return {
        "model": loaded.model.sha256,
        "kv": loaded.kv,
        "target": str(loaded.target),
        "shape": [
            PAGE,
            *([h.kv_heads, h.head_dim, h.out_dim] if h else [] for h in loaded.layout.shapes),
            *([loaded.layout.row_width] if loaded.layout.row_width else []),
        ],
        "windows": list(loaded.layout.windows),
        "rotary": rotary.hexdigest(),
        "keys": loaded.network.key_forms(loaded.layout),
        "key_norms": norms.hexdigest(),
        "layout": source_hash(*_LAYOUT),
    }


def page_keys(loaded: LoadedModel, tokens: list[int], namespace: str = "") -> Iterator[str]:
    """Yield the key of each page of these tokens; each namespace has keys of its own."""
    running = hashlib.sha256(json.dumps(fingerprint(loaded), sort_keys=True).encode())
    if namespace:
        running.update(hashlib.sha256(namespace.encode()).digest())
    for at in range(0, len(tokens), PAGE):
        running.update(np.array(tokens[at : at + PAGE], np.int64).tobytes())
        yield running.hexdigest()
