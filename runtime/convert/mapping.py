"""The mapping of a Hugging Face checkpoint's tensors to GGUF: names and row order.

    mapping = map_checkpoint(json.load(open("config.json")), names_in_the_checkpoint)
    mapping.architecture        what `general.architecture` must say
    mapping.metadata            the model's keys and values, `llama.block_count` and so on
    for tensor in mapping.tensors:                       in the file's order
        array = tensor.make([load(name) for name in tensor.sources])

Nothing is read here: sources are opened by the caller when it comes to them, so that a checkpoint
of any size passes through one tensor at a time. Neither torch nor transformers is needed.

Tokenizer and `general.*` keys are the caller's. Names and rules: llama.cpp's GGUF files, which any
engine must be able to read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ModelError
from ..models import class_of
from . import mtp
from .checkpoint_settings import CheckpointSettings, Value
from .names import View, mappings
from .recurrent import Change, change_of
from .rope import frequency_factors
from .settings import read_settings


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor of the GGUF file.

    Attributes:
        name: in the GGUF file.
        sources: in the checkpoint; several are stacked (experts); none for a constant.
        heads: if not 0, the rows of so many heads are rearranged: see `adjacent_pairs`.
        plus_one: whether 1 is added (weights of Gemma's norms are stored as what differs from 1).
        view: what of its source it is, if not all, with `width`, that of the model's x.
        change: what else is done to its values; see `recurrent.py`.
        constant: float32 values that come from the configuration.
    """

    name: str
    sources: tuple[str, ...]
    heads: int = 0
    plus_one: bool = False
    constant: np.ndarray | None = None
    view: View | None = None
    width: int = 0
    change: Change | None = None

    @property
    def is_vector(self) -> bool:
        """Whether the tensor is float32: norms, biases, rotary factors, short convolutions."""
        short = self.name.endswith((".bias", "ssm_a", "ssm_d", "conv1d.weight", ".conv.weight"))
        return self.constant is not None or "norm" in self.name or short

    @property
    def needs_floats(self) -> bool:
        """Whether the values are computed, not only moved, so that the sources must be floats."""
        return self.plus_one or self.name.endswith("ssm_a")

    def shape(self, sources: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Compute the tensor's shape (rows first) from the shapes of its sources."""
        if self.constant is not None:
            return self.constant.shape
        one = tuple(int(n) for n in sources[0])
        if self.view:
            one = self.view(np.broadcast_to(np.int8(0), one), self.width).shape
        if self.change is not None:
            one = self.change(np.broadcast_to(np.int8(0), one)).shape
        return (len(sources), *one) if self._stacked else one

    def make(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the tensor's values from those of its sources, in their dtype.

        Any dtype will do, raw bits of bfloat16 as uint16 too; only where `needs_floats` says so
        they must be floats.
        """
        if self.constant is not None:
            return self.constant
        if self._stacked:
            return np.stack(arrays)
        (array,) = arrays
        if self.view:
            return np.ascontiguousarray(self.view(array, self.width))
        if self.heads:
            return adjacent_pairs(array, self.heads)
        if self.change is not None:
            return self.change(array)
        return array + 1 if self.plus_one else array

    @property
    def _stacked(self) -> bool:
        return len(self.sources) > 1


@dataclass(frozen=True, slots=True)
class CheckpointMapping:
    """The result of `map_checkpoint`.

    Attributes:
        unused: names of the checkpoint that have no place in the file: vision towers, a copy of
            tied weights, buffers that follow from the configuration.
    """

    architecture: str
    metadata: dict[str, Value]
    tensors: list[MappedTensor]
    unused: list[str] = field(default_factory=list)


def map_checkpoint(config: dict[str, Any], names: Collection[str]) -> CheckpointMapping:
    """Map a checkpoint with this `config.json` and tensors of these names to GGUF.

    Raises:
        UnsupportedModelError: the model type, or something that its configuration asks for, is not
            supported; the message names it.
        ModelError: a setting or a tensor is missing, or a tensor has an unknown name.
    """
    settings = read_settings(config)
    sources: dict[str, dict[int | None, str]] = {}
    views: dict[str, View] = {}
    unused = []
    tied = bool(config.get("tie_word_embeddings", False))
    unread = settings.unread | ({"output.weight"} if tied else set())
    mtp.add(names, settings)
    for name in names:
        found = mappings(mtp.renamed(name, settings), settings.architecture)
        if not found or mtp.left_out(name, settings) or found[0].tensor in unread:
            unused.append(name)
            continue
        for target, expert, own in found:
            target = settings.dense_name(target)
            view = own or settings.views.get(target.partition(".")[2].partition(".")[2])
            if expert in sources.setdefault(target, {}):
                raise ModelError(f"two tensors for {target}: {sources[target][expert]} and {name}")
            sources[target][expert] = name
            if view:
                views[target] = view
    tensors = [
        _tensor(target, found, settings, views.get(target)) for target, found in sources.items()
    ]
    for name, values in frequency_factors(settings).items():
        tensors.append(MappedTensor(name, (), constant=values))
    if "output.weight" not in sources and _untied(config):
        raise ModelError(
            "the checkpoint lacks lm_head.weight, but config.json says tie_word_embeddings = "
            "false: download the missing tensor, or set it to true if the embedding table is the "
            "output head, too"
        )
    _check_complete({tensor.name for tensor in tensors}, settings)
    tensors.sort(key=lambda tensor: _order(tensor.name))
    return CheckpointMapping(settings.architecture, settings.metadata, tensors, sorted(unused))


def _untied(config: dict[str, Any]) -> bool:
    """Return whether a configuration declares an output head of its own, without contradiction."""
    parts = (config, config.get("text_config") or {})
    found = [part.get(key) for part in parts for key in ("tie_word_embeddings", "tie_embedding")]
    return False in found and True not in found


def adjacent_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows of queries or keys as llama's GGUF files have them.

    Checkpoints rotate dim i of a head with dim i + head_dim / 2, those files dim 2 i with 2 i + 1:
    of each head the rows 0, h/2, 1, h/2 + 1, … are taken. weight: [heads * head_dim, …].
    """
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def _tensor(
    target: str, found: dict[int | None, str], settings: CheckpointSettings, view: View | None
) -> MappedTensor:
    numbers = sorted(n for n in found if n is not None)
    if None not in found and numbers != list(range(settings.experts)):
        count, wanted = len(found), settings.experts
        raise ModelError(f"{target} needs {wanted} tensors, the checkpoint has {count} of them")
    ordered = tuple(found[n] for n in numbers) or (found[None],)
    heads = 0
    if class_of(settings.architecture).adjacent:
        part = target.split(".")[-2]
        heads = {"attn_q": settings.heads, "attn_k": settings.kv_heads}.get(part, 0)
    adds = settings.architecture in ("gemma2", "gemma3") or settings.delta is not None
    plus_one = adds and target.endswith("norm.weight") and not target.endswith("ssm_norm.weight")
    change = change_of(target, settings)
    return MappedTensor(
        target, ordered, heads, plus_one, view=view, change=change, width=settings.width
    )


def _check_complete(have: set[str], settings: CheckpointSettings) -> None:
    """Check that all layers of a kind have the same tensors, and that the rest exists."""
    first: dict[str, set[str]] = {}
    wanted = {"token_embd.weight", class_of(settings.architecture).last_norm}
    for n in range(settings.layers):
        kind, prefix = settings.kinds[n] if settings.kinds else "", f"blk.{n}."
        own = {name[len(prefix) :] for name in have if name.startswith(prefix)}
        wanted |= {prefix + part for part in first.setdefault(kind, own)}
    missing = sorted(wanted - have)
    if missing or not all(first.values()):
        names = ", ".join(missing[:5]) or "blk.0"
        raise ModelError(f"the checkpoint lacks what {names} would be made from")
    layers = {int(name.split(".")[1]) for name in have if name.startswith("blk.")}
    mtp.check_complete(have, settings)
    if max(layers) >= settings.layers + settings.mtp:
        raise ModelError(f"the checkpoint has layer {max(layers)} of {settings.layers}")


def _order(name: str) -> tuple[int, int]:
    """Return the sort key of read order: embedding, constants, layers, output."""
    if name.startswith("blk."):
        return 2, int(name.split(".")[1])
    last = {"output_norm.weight": 3, "token_embd_norm.weight": 3, "output.weight": 4}
    return ({"token_embd.weight": 0} | last).get(name, 1), 0
