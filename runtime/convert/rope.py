"""Rotary positions of a checkpoint: normalized settings, and frequency factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ModelError
from .checkpoint_settings import CheckpointSettings
from .fields import refuse

NEVER = 1e30  # what the frequencies of pairs that stay as they are are divided by


def rope_settings(c: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return rotary settings for `full_attention` or `sliding_attention`, as in transformers 5."""
    given = c.get("rope_parameters") or {}
    if isinstance(given.get(kind), dict):
        given = given[kind]
    out: dict[str, Any] = {}
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        if c.get(key) is not None:
            out[key] = c[key]
    scaling = c.get("rope_scaling") or {}
    if kind == "sliding_attention":
        out["rope_theta"], scaling = c.get("rope_local_base_freq", 10000.0), {}
    out |= {k: v for k, v in scaling.items() if v is not None and not isinstance(v, dict)}
    out |= {k: v for k, v in given.items() if v is not None and not isinstance(v, dict)}
    out["rope_type"] = out.get("rope_type") or out.pop("type", None) or "default"
    return out


def add_scaling(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add the metadata of RoPE scaling; refuse kinds of scaling that GGUF has no keys for."""
    a, rope, kind = s.architecture, s.rope, s.rope["rope_type"]
    key = f"{a}.rope.scaling.".__add__
    if kind in ("default", "llama3"):  # what llama3 does is in a tensor
        return
    if kind in ("longrope", "su") and a == "phi3":
        return  # see `settings._add_phi3`
    if kind == "proportional" and a == "gemma4":
        return
    if kind not in ("linear", "yarn"):
        refuse(c, "rope scaling", kind)
    s.metadata[key("type")] = kind
    s.metadata[key("factor")] = _factor(rope)
    if kind == "yarn":
        if bool(rope.get("truncate", True)) != (a != "gpt-oss"):
            refuse(c, "rope scaling's truncate", rope.get("truncate", True))
        _add_magnitude(s, c)
        original = rope.get("original_max_position_embeddings") or c["max_position_embeddings"]
        s.metadata[key("original_context_length")] = int(original)
        for name in ("beta_fast", "beta_slow"):
            if rope.get(name) is not None:
                s.metadata[key(f"yarn_{name}")] = float(rope[name])


def _factor(rope: dict[str, Any]) -> float:
    value = rope.get("factor")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ModelError(
            f"config.json: rope scaling {rope['rope_type']!r} needs a factor, a number above 0; "
            f"it is {value!r}"
        )
    return float(value)


def _add_magnitude(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add YaRN's factor of cos and sin, where it is not the usual 1 + 0.1 ln(factor).

    The same as in transformers, which takes `attention_factor` before anything else, and `mscale`
    and `mscale_all_dim` only where both are given.
    """
    a, rope = s.architecture, s.rope
    given, usual = rope.get("attention_factor"), 1 + 0.1 * math.log(max(1.0, _factor(rope)))
    mscale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    key = f"{a}.rope.scaling.yarn_log_multiplier"
    if a == "mistral3":
        if mscale not in (None, 1.0):
            refuse(c, "rope scaling's mscale", mscale)
        s.metadata[key] = float(all_dim) if mscale and all_dim and given is None else 0.0
    elif a == "deepseek2":
        if mscale != all_dim:
            refuse(c, "rope scaling's mscale", mscale)
        if all_dim:  # in this architecture's files a tenth of it
            s.metadata[key] = 0.1 * float(all_dim)
            if given not in (None, 1.0):  # those files' magnitude is 1, as it is without the key
                refuse(c, "rope scaling's attention_factor beside mscale_all_dim", given)
            return
    else:
        for name, value in (("mscale", mscale), ("mscale_all_dim", all_dim)):
            if value is not None:
                refuse(c, f"rope scaling's {name}", value)
    if given is not None and abs(given / usual - 1) > 1e-6:
        s.metadata[f"{a}.rope.scaling.attn_factor"] = float(given / usual)


def frequency_factors(s: CheckpointSettings) -> dict[str, np.ndarray]:
    """Return the RoPE frequency factor tensors by name: divisors, float32 [rotated / 2]."""
    kind, half = s.rope["rope_type"], s.rotated // 2
    if kind == "proportional":
        rotated = int(half * float(s.rope.get("partial_rotary_factor", 1.0)))
        slower = _factor({"factor": 1.0} | s.rope)
        factors = np.where(np.arange(half) < rotated, slower, NEVER).astype(np.float32)
        return {"rope_freqs.weight": factors}
    if kind in ("longrope", "su"):
        out = {}
        for which in ("long", "short"):
            factors = np.array(s.rope[f"{which}_factor"], np.float32)
            if factors.shape != (half,):
                raise ModelError(f"config.json: {which}_factor needs {half} numbers")
            out[f"rope_factors_{which}.weight"] = factors
        return out
    if kind != "llama3":
        return {}
    try:
        given = [float(s.rope[key]) for key in _LLAMA3]
    except KeyError as missing:
        raise ModelError(f"config.json: rope scaling 'llama3' needs {missing}") from None
    base = float(s.rope.get("rope_theta", 10000.0))
    return {"rope_freqs.weight": llama3_factors(s.rotated, base, *given)}


_LLAMA3 = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")


def llama3_factors(
    dims: int, base: float, factor: float, original: float, low: float = 1.0, high: float = 4.0
) -> np.ndarray:
    """Return the divisors of Llama 3's rotary frequencies: float32 [dims / 2].

    A wavelength that fits `high` times into the original context stays; one that fits less than
    `low` times is stretched by `factor`; between them there is a ramp.
    """
    length = 2 * math.pi * base ** (np.arange(0, dims, 2) / dims)
    smooth = np.clip((original / length - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
