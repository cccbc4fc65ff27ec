"""llama.cpp's answers: a script for an interpreter that has llama-cpp-python, be it ours or not.

    PYTHON peer_logits.py MODEL IDS.json OUT.bin CACHE           logits of every position
    PYTHON peer_logits.py MODEL PROMPTS.json OUT.json CACHE 256  greedy ids after each prompt

OUT.bin gets float32 [len(ids), n_vocab]; OUT.json gets lists of 256 ids. CACHE is the type of the
KV cache, f32 or f16. It uses that package and the standard library only. `peer_python` below says
which interpreter that is.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

VARIABLE = "TRIPLEPOINT_PEER_PYTHON"


def peer_python() -> str | None:
    """An interpreter that has llama-cpp-python: the one that the variable names, or this one."""
    for python in (os.environ.get(VARIABLE, ""), sys.executable):
        if python and shutil.which(python):
            found = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True)
            if found.returncode == 0:
                return python
    return None


def theirs(python: str, path: Path, ids: list[int]) -> np.ndarray:
    """llama.cpp's logits of every position, by this script: float32 [len(ids), n_vocab]."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        asked, out = os.path.join(folder, "ids.json"), os.path.join(folder, "logits.bin")
        with open(asked, "w") as file:
            json.dump(ids, file)
        script = [python, __file__, str(path), asked, out, "f32"]
        subprocess.run(script, check=True, timeout=300)
        return np.fromfile(out, np.float32).reshape(len(ids), -1)


def _load(path: str, cache: str, length: int) -> tuple[Any, Any, Any]:
    """The library, the model, and a context of `length` tokens that one pass may fill."""
    import llama_cpp as lib  # pyright: ignore[reportMissingImports]

    lib.llama_backend_init()
    if not os.environ.get("PEER_TALKS"):
        lib.llama_log_set(_QUIET, ctypes.c_void_p(0))
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    settings = lib.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = length
    settings.n_threads = settings.n_threads_batch = 1
    settings.type_k = settings.type_v = lib.GGML_TYPE_F32 if cache == "f32" else lib.GGML_TYPE_F16
    if hasattr(settings, "flash_attn_type"):
        settings.flash_attn_type = 0
    return lib, model, lib.llama_init_from_model(model, settings)


_QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def _compute(lib: Any, context: Any, ids: list[int], start: int, every: bool) -> None:
    """One pass over `ids`, which stand from position `start` on."""
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for n, token in enumerate(ids):
        batch.token[n], batch.pos[n] = token, start + n
        batch.logits[n] = 1 if every or n == len(ids) - 1 else 0
        batch.n_seq_id[n], batch.seq_id[n][0] = 1, 0
    failed = lib.llama_decode(context, batch)
    lib.llama_batch_free(batch)
    if failed:
        raise SystemExit("llama_decode failed")


def write_logits(path: str, ids_path: str, out_path: str, cache: str) -> None:
    """Write the logits of every position."""
    with open(ids_path) as file:
        ids = json.load(file)
    lib, model, context = _load(path, cache, len(ids))
    _compute(lib, context, ids, 0, every=True)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    with open(out_path, "wb") as file:
        for n in range(len(ids)):
            row = lib.llama_get_logits_ith(context, n)
            file.write(ctypes.string_at(row, 4 * n_vocab))


def write_greedy(path: str, prompts_path: str, out_path: str, cache: str, steps: int) -> None:
    """Write the likeliest `steps` tokens after each prompt, one after the other."""
    with open(prompts_path) as file:
        prompts = json.load(file)
    lib, model, context = _load(path, cache, max(map(len, prompts)) + steps)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    answers = []
    for ids in prompts:
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        answer, fed, start = [], ids, 0
        for _ in range(steps):
            _compute(lib, context, fed, start, every=False)
            start += len(fed)
            row = lib.llama_get_logits_ith(context, -1)
            logits = array("f", ctypes.string_at(row, 4 * n_vocab))
            fed = [max(range(n_vocab), key=logits.__getitem__)]
            answer += fed
        answers.append(answer)
    with open(out_path, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    model_path, given, written, kind, *count = sys.argv[1:]
    if count:
        write_greedy(model_path, given, written, kind, int(count[0]))
    else:
        write_logits(model_path, given, written, kind)
