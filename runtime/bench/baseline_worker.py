"""llama.cpp behind a pipe, the baseline of benchmarks: see `compare.py`.

This file is run as a script by an interpreter that has llama-cpp-python, which need not be ours:
it uses only that package and the standard library, and runs on Python 3.8.

Each line of stdin is a JSON object, each is answered by one line on stdout:

    {"op": "load", "model": PATH, "context": N, "threads": T}
        {"engine": NAME, "system": TEXT, "settings": [NAME, …]}
    {"op": "measure", "setting": NAME, "before": [id, …], "ids": [id, …], "one_by_one": BOOL}
        {"seconds": S, "idle_cpu_s": C}
    {"op": "batch", "setting": NAME, "prompts": [[id, …], …], "decodes": [[id, …], …], "most": B}
        {"prompt_s": S, "decode_s": S, "idle_cpu_s": C}
    anything that fails
        {"error": TEXT}

`before` is put into the KV cache without being timed; of it, what is there already stays, and a
memory that cannot drop its end (that of a recurrence) is set back to a copy. Then the passes over
`ids` are timed: batches of up to 512 tokens, or single tokens. C is the CPU time that
this process spent between its last answer and this request, when it should have spent none.

A batch is sequences with prompts alike in length, in passes of up to 512 tokens, and then a token
of each in every pass, as llama-batched-bench has it. B: the maximum of sequences in any request.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = {"flash attention": 1, "no flash attention": 0}
BATCH = 512
SETTLED_S = 0.001  # CPU seconds within LOOK_S that count as rest
LOOK_S = 0.01
PATIENCE_S = 3.0


class BaselineWorker:
    """A loaded model with one context for each setting, created on first use."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        import llama_cpp  # pyright: ignore[reportMissingImports]

        self.lib = lib = llama_cpp
        lib.llama_backend_init()
        self.silent = lib.llama_log_callback(lambda level, text, user: None)
        lib.llama_log_set(self.silent, ctypes.c_void_p(0))
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.context, self.threads = context, threads
        self.contexts: dict = {}
        self.cached: dict = {name: [] for name in SETTINGS}
        self.saved: dict = {}  # tokens and state by setting, where memory cannot drop its end
        queries = (getattr(lib, "llama_model_is_" + kind, None) for kind in ("recurrent", "hybrid"))
        self.keeps = any(has is not None and has(self.model) for has in queries)

    def about(self) -> dict:
        """Describe the peer: engine, system and settings."""
        system = self.lib.llama_print_system_info().decode("utf-8", "replace").strip()
        name = "llama.cpp (llama-cpp-python " + self.lib.__version__ + ")"
        return {"engine": name, "system": system, "settings": list(SETTINGS)}

    def measure(self, setting: str, before: list, ids: list, one_by_one: bool) -> float:
        """Time the passes over `ids` behind a KV cache of `before`; return their seconds."""
        # One token first, untimed: whoever ran in between has had the caches.
        self._fill(setting, before[:-1])
        self._decode(setting, before[-1:] or ids[:1])
        if not before:
            self._fill(setting, [])
        parts = [[i] for i in ids] if one_by_one else self._batches(ids)
        started = time.perf_counter()
        for part in parts:
            self._pass(setting, part)
        self.lib.llama_synchronize(self.contexts[setting])
        return time.perf_counter() - started

    def batch(self, setting: str, prompts: list, decodes: list, max_tokens: int) -> tuple:
        """Time several sequences in shared passes; return the seconds of prompts and of decodes."""
        lib = self.lib
        length = len(prompts[0]) + len(decodes[0])
        context = self._open_batch(setting, max_tokens, -(-length // 256) * 256)
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        rows = [(s, at, i) for s, ids in enumerate(prompts) for at, i in enumerate(ids)]
        last = len(prompts[0]) - 1
        began = time.perf_counter()
        for part in self._batches(rows):
            self._rows(context, part, last)
        lib.llama_synchronize(context)
        middle = time.perf_counter()
        for step in range(len(decodes[0])):
            at = last + 1 + step
            self._rows(context, [(s, at, ids[step]) for s, ids in enumerate(decodes)], at)
        lib.llama_synchronize(context)
        return middle - began, time.perf_counter() - middle

    def _rows(self, context, rows: list, outputs_from: int) -> None:
        """Run a pass of (sequence, position, token), with logits from row `outputs_from` on."""
        lib = self.lib
        batch = lib.llama_batch_init(len(rows), 0, 1)
        try:
            batch.n_tokens = len(rows)
            for n, (sequence, at, token) in enumerate(rows):
                batch.token[n], batch.pos[n] = token, at
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, sequence
                batch.logits[n] = at >= outputs_from
            status = lib.llama_decode(context, batch)
        finally:
            lib.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode failed with {status} on {len(rows)} rows")

    def _open_batch(self, setting: str, sequences: int, length: int):
        """Open a context for `sequences` sequences of `length` tokens."""
        key = setting, sequences, length
        if key not in self.contexts:
            self.contexts[key] = self._new(setting, sequences * length, sequences)
        return self.contexts[key]

    def _fill(self, setting: str, ids: list) -> None:
        """Leave exactly `ids` in the cache."""
        lib, context, have = self.lib, self._open(setting), self.cached[setting]
        same = 0
        for a, b in zip(ids, have):  # noqa: B905 - Python 3.9 knows no strict
            if a != b:
                break
            same += 1
        memory = lib.llama_get_memory(context)
        if same < len(have) and not lib.llama_memory_seq_rm(memory, 0, same, -1):
            lib.llama_memory_clear(memory, True)
            same = self._restore(setting, ids)
        self.cached[setting] = ids[:same]
        self._decode(setting, ids[same:])
        if self.keeps and len(ids) > same:
            self._keep(setting)

    def _keep(self, setting: str) -> None:
        """Save a copy of the memory."""
        lib, context = self.lib, self.contexts[setting]
        size = lib.llama_state_seq_get_size(context, 0)
        state = (ctypes.c_uint8 * size)()
        self.saved.pop(setting, None)
        if lib.llama_state_seq_get_data(context, state, size, 0):
            self.saved[setting] = list(self.cached[setting]), state

    def _restore(self, setting: str, ids: list) -> int:
        """Restore the copy if `ids` begin with its tokens; return how many they are."""
        tokens, state = self.saved.get(setting, ([], None))
        if not tokens or ids[: len(tokens)] != tokens:
            return 0
        context = self.contexts[setting]
        if not self.lib.llama_state_seq_set_data(context, state, len(state), 0):
            raise RuntimeError("llama.cpp does not take back its own state")
        return len(tokens)

    def _decode(self, setting: str, ids: list) -> None:
        for part in self._batches(ids):
            self._pass(setting, part)
        self.lib.llama_synchronize(self.contexts[setting])

    def _batches(self, ids: list) -> list:
        return [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]

    def _pass(self, setting: str, ids: list) -> None:
        array = (self.lib.llama_token * len(ids))(*ids)
        batch = self.lib.llama_batch_get_one(array, len(ids))
        status = self.lib.llama_decode(self.contexts[setting], batch)
        if status:
            raise RuntimeError(f"llama_decode failed with {status} on {len(ids)} tokens")
        self.cached[setting] += ids

    def _open(self, setting: str):
        if setting not in self.contexts:
            self.contexts[setting] = self._new(setting, self.context, 1)
        return self.contexts[setting]

    def _new(self, setting: str, positions: int, sequences: int):
        params = self.lib.llama_context_default_params()
        params.n_ctx = positions
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = self.threads
        params.swa_full = False  # layers with a window read no more than it, as in llama-bench
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = SETTINGS[setting]
        else:  # before October 2025
            params.flash_attn = bool(SETTINGS[setting])
        context = self.lib.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError(f"llama.cpp gives no context of {positions} tokens")
        return context


def settle() -> None:
    """Wait until no thread of this process spins, before the other engine's turn."""
    patient_until = time.monotonic() + PATIENCE_S
    while time.monotonic() < patient_until:
        used = time.process_time()
        time.sleep(LOOK_S)
        if time.process_time() - used < SETTLED_S:
            return


def answer(peer, request: dict, idle_cpu_s: float):
    """Answer one request; return the peer and the response."""
    if request["op"] == "load":
        peer = BaselineWorker(request["model"], request["context"], request["threads"])
        return peer, peer.about()
    if request["op"] == "measure" and peer is not None:
        wanted = (request[name] for name in ("setting", "before", "ids", "one_by_one"))
        return peer, {"seconds": peer.measure(*wanted), "idle_cpu_s": idle_cpu_s}
    if request["op"] == "batch" and peer is not None:
        wanted = (request[name] for name in ("setting", "prompts", "decodes", "most"))
        prompt_s, decode_s = peer.batch(*wanted)
        return peer, {"prompt_s": prompt_s, "decode_s": decode_s, "idle_cpu_s": idle_cpu_s}
    raise ValueError(f"no such request: {request['op']!r}")


def main() -> None:
    """Answer requests until stdin ends."""
    # This file's folder is ours: what lies in it must not stand in for anyone's import.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != HERE]
    # Whatever a library prints goes to stderr; stdout carries answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer, rested_at = None, time.process_time()
    for line in sys.stdin:
        idle = time.process_time() - rested_at
        try:
            peer, response = answer(peer, json.loads(line), idle)
            settle()
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(response) + "\n")
        answers.flush()
        rested_at = time.process_time()


if __name__ == "__main__":
    main()
