"""RoPE frequencies: the angle of each pair of dims from one position to the next.

    angle(p, i) = p f_i / factor_i,  f_i = base^(-2i / dims)

`factor_i` is 1, or one number for all (linear scaling), or a tensor's (Llama 3, Phi 3), or between
1 and one number by how often a turn fits into the original context (YaRN: Peng et al. 2023,
arXiv:2309.00071, where cos and sin grow by 0.1 ln(factor) + 1 too, over 0.1 m ln(factor) + 1 with
a log multiplier m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedModelError
from ...jit.kernels.rope import frequencies, tables_of
from ..gguf.file import GGUFFile
from ..gguf.header import shown
from ..weights.loader import WeightLoader

SCALINGS = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Rotation:
    """A kind of rotation (RoPE): the angle of each pair, and a factor of cos and sin."""

    frequencies: np.ndarray
    magnitude: float = 1.0

    def tables(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cos and sin: float32 [positions, pairs] each."""
        return tables_of(positions, self.frequencies, self.magnitude)

    def slowed(self, factors: np.ndarray | float) -> Rotation:
        """Return the rotation with every frequency divided by its factor."""
        return Rotation(self.frequencies / factors, self.magnitude)


def rotated_dims(gguf: GGUFFile, a: str, head_dim: int, suffix: str = "") -> int:
    """Return the number of rotated dims of a head; suffix: of the key of layers with their own."""
    key, usual = f"{a}.rope.dimension_count{suffix}", head_dim
    if suffix:
        usual = min(head_dim, gguf.integer(f"{a}.rope.dimension_count", head_dim, low=8))
    dims = gguf.integer(key, usual, low=8, high=head_dim)
    if dims % 8:
        raise UnsupportedModelError(
            f"{gguf.path}: {key} = {dims} is not supported: it must be a multiple of 8"
        )
    return dims


def plain_rotation(
    gguf: GGUFFile, a: str, head_dim: int, base: float, suffix: str = ""
) -> Rotation:
    """Return the unscaled rotation with the metadata's base, or else `base`."""
    key = f"{a}.rope.freq_base{suffix}"
    base = gguf.number(key, base)
    if not base > 1.0:
        gguf.refuse(key, f"{base} is not a base of rotary frequencies")
    return Rotation(frequencies(rotated_dims(gguf, a, head_dim, suffix), base))


def read_rotation(
    gguf: GGUFFile, weights: WeightLoader, a: str, head_dim: int, *, whole_pairs: bool = True
) -> Rotation:
    """Return the rotation that the metadata of `a` and the tensor `rope_freqs.weight` define.

    whole_pairs: whether the range that YaRN mixes begins and ends at a pair, as no key says.

    Raises:
        UnsupportedModelError: positions are scaled in a way that is not supported.
    """
    rotation = plain_rotation(gguf, a, head_dim, 10000.0)
    # The oldest files have one key for linear scaling; a factor without a type means the same.
    old = gguf.number(f"{a}.rope.scale_linear", 1.0)
    factor = _above_0(gguf, f"{a}.rope.scaling.factor", old)
    scaling = gguf.string(f"{a}.rope.scaling.type", "none" if factor == 1.0 else "linear")
    if scaling not in SCALINGS:
        known = ", ".join(SCALINGS)
        raise UnsupportedModelError(
            f"{gguf.path}: rope scaling {shown(scaling)} is not supported; supported: {known}"
        )
    if scaling == "longrope" and "rope_factors_long.weight" not in gguf.tensors:
        raise UnsupportedModelError(
            f"{gguf.path}: its rope scaling is 'longrope', but it has no factors"
        )
    if scaling == "linear":
        rotation = rotation.slowed(factor)
    elif scaling == "yarn":
        rotation = _yarn(gguf, a, rotation, factor, whole_pairs)
    if "rope_freqs.weight" in gguf.tensors:
        rotation = rotation.slowed(_factors(gguf, weights, "rope_freqs.weight", rotation))
    return rotation


def long_and_short(
    gguf: GGUFFile, weights: WeightLoader, a: str, rotation: Rotation
) -> tuple[Rotation, Rotation]:
    """Return two rotations: for contexts longer than the original one, and for shorter ones."""
    magnitude = gguf.number(f"{a}.rope.scaling.attn_factor", 1.0)
    plain = Rotation(rotation.frequencies, magnitude)
    names = [f"rope_factors_{which}.weight" for which in ("long", "short")]
    if not any(name in gguf.tensors for name in names):
        return rotation, rotation
    long, short = (plain.slowed(_factors(gguf, weights, name, rotation)) for name in names)
    return long, short


def _factors(gguf: GGUFFile, weights: WeightLoader, name: str, rotation: Rotation) -> np.ndarray:
    factors = weights.vector(name, len(rotation.frequencies)).astype(np.float64)
    if not (factors > 0).all():
        raise UnsupportedModelError(f"{gguf.path}: tensor {name} has factors that are not above 0")
    return factors


def _above_0(gguf: GGUFFile, key: str, default: float) -> float:
    value = gguf.number(key, default)
    if not value > 0:
        gguf.refuse(key, f"{value} is not above 0")
    return value


def _yarn(gguf: GGUFFile, a: str, rotation: Rotation, factor: float, whole_pairs: bool) -> Rotation:
    original = gguf.integer(
        f"{a}.rope.scaling.original_context_length",
        gguf.integer(f"{a}.context_length", low=1),
        low=1,
    )
    pairs = len(rotation.frequencies)
    turns = [_above_0(gguf, f"{a}.rope.scaling.yarn_beta_{n}", d) for n, d in _BETAS.items()]
    # The pair that turns so often within the original context; fractional.
    log_base = -math.log(float(rotation.frequencies[-1])) * pairs / max(1, pairs - 1)
    first, last = (pairs * math.log(original / (t * 2 * math.pi)) / log_base for t in turns)
    if whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    low, high = max(first, 0), min(last, 2 * pairs - 1)
    slow = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0.0, 1.0)
    scaled = rotation.frequencies * (1 - slow + slow / factor)
    log = math.log(factor) if factor > 1 else 0.0
    key = f"{a}.rope.scaling.yarn_log_multiplier"
    multiplier = gguf.number(key, 0.0)
    if multiplier < 0:
        gguf.refuse(key, f"{multiplier} is below 0")
    usual = 1.0 + 0.1 * log
    # Files say the whole magnitude there, if they say anything; no engine takes another one.
    given = gguf.number(f"{a}.rope.scaling.yarn_attn_factor", 1.0)
    if given != 1.0 and not math.isclose(given, usual, rel_tol=1e-4):
        raise UnsupportedModelError(
            f"{gguf.path}: {a}.rope.scaling.yarn_attn_factor = {given:g} is not supported; "
            f"supported: 1 and {usual:g}, which follows from the factor"
        )
    magnitude = usual / (1.0 + 0.1 * multiplier * log)
    more = gguf.number(f"{a}.rope.scaling.attn_factor", 1.0)
    if math.isclose(more, usual, rel_tol=1e-4):  # the whole magnitude, in OLMo 3's first files
        more = 1.0
    return Rotation(scaled, magnitude * more)


_BETAS = {"fast": 32.0, "slow": 1.0}
