"""A phase's time by layer, from the time stamps of its ops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...traces.records import LayerRecord

if TYPE_CHECKING:
    from ...jit.tape import TapeTimes
    from .model.plan import Plan

_FFN = ("ffn", "route", "group")  # beginnings of the names of a layer's second half
_OP = re.compile(r"blk\.([0-9]+)\.(.*)", re.DOTALL)


def layer_times(measured: Mapping[Plan, TapeTimes]) -> list[LayerRecord]:
    """Return the time by layer of a sequence's passes: seconds, as the mean over the threads.

    The work and the waiting of every op of ``blk.N.`` are layer N's. What belongs to no layer comes
    first, with ``layer`` None.
    """
    found: dict[int | None, LayerRecord] = {}
    for plan, times in measured.items():
        if not times.passes:
            continue
        work, wait = times.work_seconds().mean(axis=0), times.wait_seconds().mean(axis=0)
        for name, busy, waited in zip(plan.tape.names, work.tolist(), wait.tolist(), strict=True):
            match = _OP.fullmatch(name)
            number = int(match[1]) if match else None
            record = found.setdefault(number, LayerRecord(layer=number))
            if match is None:
                record.other_s += busy
            elif match[2].startswith(_FFN):
                record.ffn_s += busy
            else:
                record.attention_s += busy
            record.wait_s += waited
            record.wall_s += busy + waited
    return sorted(found.values(), key=lambda r: -1 if r.layer is None else r.layer)
