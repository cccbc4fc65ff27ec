"""Stands in for llama-cpp-python where it is not installed: the calls that `baseline_worker.py`
makes.

It computes nothing. It keeps what a KV cache would hold, refuses tokens that do not follow it, and
writes what happened, one JSON list a line, to the file that FAKE_LLAMA_LOG names.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from types import SimpleNamespace
from typing import Any

__version__ = "0.0-fake"
llama_token = ctypes.c_int32
SPIN_S = float(os.environ.get("FAKE_LLAMA_SPIN_S", "0"))  # how long a thread outlasts its work
CAN_FORGET = os.environ.get("FAKE_LLAMA_FORGETS", "1") == "1"


def _note(*what: Any) -> None:
    log = os.environ.get("FAKE_LLAMA_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


def llama_backend_init() -> None:
    print("noise on stdout that is no answer", flush=True)


def llama_log_callback(function: Any) -> Any:
    return function


def llama_log_set(function: Any, user: Any) -> None:
    pass


def llama_print_system_info() -> bytes:
    return b"CPU : FAKE = 1 | "


def llama_model_default_params() -> SimpleNamespace:
    return SimpleNamespace(n_gpu_layers=-1)


def llama_model_load_from_file(path: bytes, params: SimpleNamespace) -> Any:
    assert params.n_gpu_layers == 0
    return SimpleNamespace(path=path) if os.path.exists(path) else None


def llama_context_default_params() -> SimpleNamespace:
    return SimpleNamespace(flash_attn_type=-1)


def llama_init_from_model(model: Any, params: SimpleNamespace) -> SimpleNamespace:
    _note("open", params.flash_attn_type, params.n_ctx, params.n_threads, params.n_threads_batch)
    return SimpleNamespace(
        flash=params.flash_attn_type, room=params.n_ctx, cache=[], sequences=params.n_seq_max
    )


def llama_get_memory(context: SimpleNamespace) -> SimpleNamespace:
    return context


def llama_memory_seq_rm(memory: SimpleNamespace, sequence: int, first: int, last: int) -> bool:
    assert (sequence, last) == (0, -1)
    if not CAN_FORGET and first > 0:
        return False
    del memory.cache[first:]
    return True


def llama_memory_clear(memory: SimpleNamespace, data: bool) -> None:
    memory.cache.clear()


def llama_model_is_hybrid(model: Any) -> bool:
    return not CAN_FORGET


def llama_state_seq_get_size(context: SimpleNamespace, sequence: int) -> int:
    return 4 * len(context.cache)


def llama_state_seq_get_data(context: SimpleNamespace, state: Any, size: int, sequence: int) -> int:
    held = (ctypes.c_int32 * len(context.cache))(*context.cache)
    ctypes.memmove(state, held, size)
    return size


def llama_state_seq_set_data(context: SimpleNamespace, state: Any, size: int, sequence: int) -> int:
    assert not context.cache
    held = (ctypes.c_int32 * (size // 4))()
    ctypes.memmove(held, state, size)
    context.cache += list(held)
    _note("restore", context.flash, len(held))
    return size


def llama_batch_get_one(array: Any, count: int) -> list[int]:
    return list(array)[:count]


def llama_batch_init(count: int, embedding: int, sequences: int) -> SimpleNamespace:
    assert (embedding, sequences) == (0, 1)
    lists = {name: [0] * count for name in ("token", "pos", "n_seq_id", "logits")}
    return SimpleNamespace(n_tokens=0, seq_id=[[0] for _ in range(count)], **lists)


def llama_batch_free(batch: SimpleNamespace) -> None:
    batch.token = None


def _decode_rows(context: SimpleNamespace, batch: SimpleNamespace) -> int:
    for n in range(batch.n_tokens):
        (sequence,) = batch.seq_id[n]
        assert (batch.n_seq_id[n], sequence < context.sequences) == (1, True)
        assert batch.pos[n] == sum(one == sequence for one, _ in context.cache)
        context.cache.append((sequence, batch.token[n]))
    _note("rows", context.flash, batch.n_tokens, sum(map(bool, batch.logits)))
    return 1 if len(context.cache) > context.room else 0


def llama_decode(context: SimpleNamespace, batch: Any) -> int:
    if isinstance(batch, SimpleNamespace):
        return _decode_rows(context, batch)
    if len(context.cache) + len(batch) > context.room:
        return 1
    _note("decode", context.flash, len(context.cache), batch)
    context.cache += batch
    return 0


def llama_synchronize(context: SimpleNamespace) -> None:
    def spin() -> None:
        until = time.monotonic() + SPIN_S
        while time.monotonic() < until:
            pass

    if SPIN_S:
        threading.Thread(target=spin, daemon=True).start()
