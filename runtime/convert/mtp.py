"""Draft layers of a checkpoint (multi-token prediction): blocks after the last layer.

A file has them as llama.cpp's converter writes them: `blk.L.nextn.*` beside the tensors of a layer,
counted in `block_count` and in `nextn_predict_layers`. Qwen keeps them apart (`mtp.*`), GLM and
DeepSeek as layers behind the last.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ...errors import ModelError
from ..models import drafts
from .checkpoint_settings import CheckpointSettings

_OUTSIDE = {
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
    "norm": "nextn.shared_head_norm",
}
_SEPARATE = re.compile(r"(?:^|\.)mtp\.(?:layers\.(\d+)\.(.+)|(\w+)\.weight)")
_BEHIND = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_NEEDED = ("eh_proj", "enorm", "hnorm")


def renamed(name: str, s: CheckpointSettings) -> str:
    """Rename a tensor of a separate draft block to that of a layer after the last; else keep it."""
    found = _SEPARATE.search(name) if s.mtp else None
    if found is None:
        return name
    number, part, outside = found.groups()
    if number is not None:
        return f"model.layers.{s.layers + int(number)}.{part}"
    into = _OUTSIDE.get(outside)
    return name if into is None else f"model.layers.{s.layers}.{into}.weight"


def count(names: Collection[str], s: CheckpointSettings) -> int:
    """Return the number of complete draft blocks in a checkpoint with these tensors."""
    if not drafts(s.architecture):
        return 0
    if any(name.endswith("mtp.fc.weight") for name in names):
        found = (match[1] for name in names if (match := _SEPARATE.search(name)))
        # Several of them share what stands before the first: only that one could be run.
        return min(1, len({number for number in found if number is not None}))
    found = {
        int(match[1])
        for name in names
        if name.endswith(".eh_proj.weight") and (match := _BEHIND.search(name))
    }
    return len([number for number in found if number >= s.layers])


def add(names: Collection[str], s: CheckpointSettings) -> None:
    """Add the number of draft blocks to the settings and the metadata."""
    s.mtp = count(names, s)
    if not s.mtp:
        return
    a, m = s.architecture, s.metadata
    m[f"{a}.block_count"] = s.layers + s.mtp
    m[f"{a}.nextn_predict_layers"] = s.mtp
    recurrent = m.get(f"{a}.attention.recurrent_layers")
    if isinstance(recurrent, list):
        m[f"{a}.attention.recurrent_layers"] = [*map(bool, recurrent), *[False] * s.mtp]


def left_out(name: str, s: CheckpointSettings) -> bool:
    """Return whether a tensor belongs to a draft block that is not converted."""
    if s.mtp and (found := _SEPARATE.search(name)):
        return found[3] not in _OUTSIDE and (found[1] is None or int(found[1]) >= s.mtp)
    return False


def check_complete(have: set[str], s: CheckpointSettings) -> None:
    """Raise ModelError for a checkpoint with an incomplete draft block.

    Raises:
        ModelError: it names what is missing.
    """
    attending = next(
        (n for n, kind in enumerate(s.kinds) if kind == "full_attention"), s.layers - 1
    )
    like = {name.split(".", 2)[2] for name in have if name.startswith(f"blk.{attending}.")}
    like |= {f"nextn.{part}.weight" for part in _NEEDED}
    for n in range(s.layers, s.layers + s.mtp):
        missing = sorted(f"blk.{n}.{part}" for part in like if f"blk.{n}.{part}" not in have)
        if missing:
            raise ModelError(
                f"the checkpoint lacks what {', '.join(missing[:5])} would be made from"
            )
