"""llama.cpp's logits behind a pipe: see `LlamaCpp` in `exactness.py`.

    PYTHON llama_logits.py MODEL CACHE CONTEXT THREADS

This file is run as a script by an interpreter that has llama-cpp-python, which need not be ours: it
uses only that package and the standard library. CACHE is f32 (without flash attention), f16 or
q8_0; other settings are llama.cpp's own. The first line of stdout is a JSON object, version and
n_vocab. Then each line of stdin is a JSON list, a position and ids: they are read behind so many
others, 0 empties the cache, and answered by float32 [len(ids), n_vocab].
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

CHUNK = 256  # tokens of a pass: of each of them the logits are held


def main(path: str, cache: str, length: int, threads: int) -> None:
    import llama_cpp as lib  # pyright: ignore[reportMissingImports]

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no answer
    lib.llama_backend_init()
    silent = lib.llama_log_callback(lambda level, text, user: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    of_model = lib.llama_model_default_params()
    of_model.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(os.fsencode(path), of_model)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_batch = length, CHUNK
    settings.n_threads = settings.n_threads_batch = threads
    settings.type_k = settings.type_v = getattr(lib, f"GGML_TYPE_{cache.upper()}")
    if cache == "f32":
        settings.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = lib.llama_init_from_model(model, settings)
    if not context:
        raise SystemExit(f"llama.cpp makes no context with a cache in {cache}")
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    about = {"version": lib.__version__, "n_vocab": n_vocab}
    out.write(json.dumps(about).encode() + b"\n")
    out.flush()
    for line in sys.stdin:
        position, ids = json.loads(line)
        if not position:
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            batch = lib.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for n, token in enumerate(part):
                batch.token[n], batch.pos[n], batch.logits[n] = token, position + start + n, 1
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, 0
            failed = lib.llama_decode(context, batch)
            lib.llama_batch_free(batch)
            if failed:
                raise SystemExit(f"llama.cpp cannot read {len(ids)} tokens")
            for n in range(len(part)):
                out.write(ctypes.string_at(lib.llama_get_logits_ith(context, n), 4 * n_vocab))
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
