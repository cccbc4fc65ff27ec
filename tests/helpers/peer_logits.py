"""Logits by llama.cpp: a script for an interpreter that has llama-cpp-python, be it ours or not.

    PYTHON peer_logits.py MODEL IDS.json OUT.bin CACHE

OUT gets float32 [len(ids), n_vocab]. CACHE is the type of the KV cache, f32 or f16. It uses that
package and the standard library only. `peer_python` below says which interpreter that is.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys

VARIABLE = "TRIPLEPOINT_PEER_PYTHON"


def peer_python() -> str | None:
    """An interpreter that has llama-cpp-python: the one that the variable names, or this one."""
    for python in (os.environ.get(VARIABLE, ""), sys.executable):
        if python and shutil.which(python):
            found = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True)
            if found.returncode == 0:
                return python
    return None


def main(path: str, ids_path: str, out_path: str, cache: str) -> None:
    """Write the logits of every position."""
    import llama_cpp as lib  # pyright: ignore[reportMissingImports]

    with open(ids_path) as file:
        ids = json.load(file)
    lib.llama_backend_init()
    quiet = lib.llama_log_callback(lambda level, text, user: None)
    if not os.environ.get("PEER_TALKS"):
        lib.llama_log_set(quiet, ctypes.c_void_p(0))
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    settings = lib.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = len(ids)
    settings.n_threads = settings.n_threads_batch = 1
    settings.type_k = settings.type_v = lib.GGML_TYPE_F32 if cache == "f32" else lib.GGML_TYPE_F16
    if hasattr(settings, "flash_attn_type"):
        settings.flash_attn_type = 0
    context = lib.llama_init_from_model(model, settings)
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for n, token in enumerate(ids):
        batch.token[n], batch.pos[n], batch.logits[n] = token, n, 1
        batch.n_seq_id[n], batch.seq_id[n][0] = 1, 0
    if lib.llama_decode(context, batch):
        raise SystemExit("llama_decode failed")
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    with open(out_path, "wb") as file:
        for n in range(len(ids)):
            row = lib.llama_get_logits_ith(context, n)
            file.write(ctypes.string_at(row, 4 * n_vocab))


if __name__ == "__main__":
    main(*sys.argv[1:])
