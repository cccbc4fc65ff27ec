"""Where a phase's time went, layer by layer, from the time stamps of its ops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...traces.records import LayerRecord

if TYPE_CHECKING:
    from ...jit.tape import NativeTape

_FFN = ("ffn", "route", "group")  # beginnings of the names of a layer's second half
_OP = re.compile(r"blk\.([0-9]+)\.(.*)", re.DOTALL)


def layer_times(tapes: Iterable[NativeTape]) -> list[LayerRecord]:
    """Time by layer since the tapes were reset, in seconds, as the mean over their threads.

    The work and the waiting of every op of ``blk.N.`` are layer N's. What belongs to no layer comes
    first, with ``layer`` None.
    """
    found: dict[int | None, LayerRecord] = {}
    for tape in tapes:
        if not tape.passes:
            continue
        work, wait = tape.work_seconds().mean(axis=0), tape.wait_seconds().mean(axis=0)
        for name, busy, waited in zip(tape.names, work.tolist(), wait.tolist(), strict=True):
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
