"""The native executor on other machines: self-contained objects, a run of aarch64 under qemu."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.elf import undefined_symbols
from helpers.runners import GCC, QEMU, emulation_lacks

from triplepoint.jit import executor, pool_block
from triplepoint.jit.compile import build_assembly, build_ir, build_object, spec
from triplepoint.jit.targets import TARGETS, CpuTarget

EXECUTOR = spec(executor.EXECUTOR)


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_objects_are_self_contained(target: CpuTarget) -> None:
    """C library functions are called through the pool's block only; all entry points are there."""
    data, text = build_object(EXECUTOR, target), build_ir(EXECUTOR, target)

    assert undefined_symbols(data) == []
    for name in executor.FUNCTIONS[1:]:
        assert f"@{name}(" in text.replace('"', "")


def test_clocks_and_pauses() -> None:
    """Each architecture's own counter of constant rate, and its hint to a spinning core."""
    x86 = build_assembly(EXECUTOR, TARGETS["avx2"])
    arm = build_assembly(EXECUTOR, TARGETS["neon"])

    assert "rdtsc" in x86
    assert "pause" in x86
    assert "cntvct_el0" in arm.lower()
    assert "yield" in arm


# The same ring as in test_pool.py: every step needs what other threads wrote in the step before.
PROGRAM = r"""
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int64_t tp_run(int64_t *, int64_t *, int64_t, int64_t, int64_t, int64_t *, int64_t);
int64_t tp_run_elastic(int64_t *, int64_t *, int64_t *, int64_t, int64_t, int64_t, int64_t *,
                       int64_t);
void tp_worker(int64_t *, int64_t);
void tp_wake(int64_t *);
int64_t tp_cycles(void);

enum { SIZE = 13, STEPS = 40, MOST = 3 };
static int64_t pool[POOL_SLOTS] __attribute__((aligned(64)));
static int64_t ops[STEPS * 8] __attribute__((aligned(64)));
static int64_t groups[STEPS * 8] __attribute__((aligned(64)));
static int64_t counters[STEPS * MOST * COUNTER_SLOTS], args[STEPS][2], units = SIZE;
static int64_t a[SIZE], b[SIZE], stats[MOST][STEPS][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void step(int64_t *arg, int64_t begin, int64_t end, int64_t tid) {
    int64_t *from = (int64_t *)arg[0], *to = (int64_t *)arg[1];
    for (int64_t i = begin; i < end; i++)
        to[i] = (int64_t)(3ull * from[i] + from[(i + 1) % SIZE] + 1);
}

static void *serve(void *tid) { tp_worker(pool, (int64_t)tid); return 0; }

static int64_t run_elastic(int64_t budget) {
    return tp_run_elastic(pool, ops, groups, STEPS, 0, budget, &stats[0][0][0], sizeof stats[0]);
}

static int64_t run(int64_t budget) {
    return tp_run(pool, ops, STEPS, 0, budget, &stats[0][0][0], sizeof stats[0]);
}

int main(void) {
    int64_t want[SIZE], next[SIZE], second = 1ll << 40;
    pthread_t threads[MOST];
    for (int i = 0; i < SIZE; i++) want[i] = i;
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < SIZE; i++)
            next[i] = (int64_t)(3ull * want[i] + want[(i + 1) % SIZE] + 1);
        memcpy(want, next, sizeof want);
        args[s][0] = (int64_t)(s % 2 ? b : a);
        args[s][1] = (int64_t)(s % 2 ? a : b);
        int64_t *op = ops + 8 * s;
        op[OP_FN] = (int64_t)step;
        op[OP_ARGS] = (int64_t)args[s];
        op[OP_UNITS] = (int64_t)&units;
        op[OP_MODE] = s % 3 == 0 ? DYNAMIC : STATIC;
        op[OP_CHUNK] = 2;
        op[OP_BARRIER] = 1;
        op[OP_COUNTER] = (int64_t)(counters + MOST * COUNTER_SLOTS * s);
        int64_t *group = groups + 8 * s;
        group[G_FIRST] = s;
        group[G_COUNT] = group[G_BARRIER] = 1;
        group[G_CHUNK] = s % 3 == 0 ? 2 : 0;
        group[G_COUNTERS] = op[OP_COUNTER];
    }
    pool[THREADS] = pool[ACTIVE] = MOST;
    pool[LOCK_FN] = (int64_t)pthread_mutex_lock;
    pool[UNLOCK_FN] = (int64_t)pthread_mutex_unlock;
    pool[WAIT_FN] = (int64_t)pthread_cond_wait;
    pool[BROADCAST_FN] = (int64_t)pthread_cond_broadcast;
    pool[YIELD_FN] = (int64_t)sched_yield;
    pool[MUTEX] = (int64_t)&mutex;
    pool[COND] = (int64_t)&cond;
    for (int64_t t = 1; t < MOST; t++) pthread_create(&threads[t], 0, serve, (void *)t);
    for (int round = 0; round < 60; round++) {
        pool[ACTIVE] = 1 + round % MOST;
        pool[SPIN_BARRIER] = pool[SPIN_IDLE] = round % 2 ? 0 : 20000;
        for (int i = 0; i < SIZE; i++) a[i] = i;
        if (round % 3) tp_wake(pool);
        pool[YIELD_AFTER] = round % 4 ? second : 0;
        if ((round % 5 ? run_elastic(second) : run(second)) != STEPS) return 1;
        if (memcmp(a, want, sizeof want)) return 2;
    }
    pool[STOP] = 1;
    if (run(second) != 1) return 3;
    pool[STOP] = 0;
    if (run(-second) != 1) return 4; /* a time slice that is over already */
    if (run_elastic(-second) != 1) return 7;
    if (run(second) != STEPS) return 5;
    pool[SHUTDOWN] = 1;
    tp_wake(pool);
    for (int t = 1; t < MOST; t++) pthread_join(threads[t], 0);
    int64_t now = tp_cycles();
    if (tp_cycles() < now || stats[0][0][0] <= 0) return 6;
    puts("run");
    return 0;
}
"""


@pytest.mark.slow
def test_aarch64_plays(tmp_path: Path) -> None:
    """On three threads under qemu: shares, barriers, parking, time slices, stop and shutdown."""
    lacks = emulation_lacks()
    if lacks:
        pytest.skip(lacks)
    target = TARGETS["neon"]
    source, native = tmp_path / "program.c", tmp_path / "executor.o"
    source.write_text(PROGRAM)
    native.write_bytes(build_object(EXECUTOR, target))
    slots = {name: value for name, value in vars(pool_block).items() if isinstance(value, int)}
    defines = [f"-D{name}={value}" for name, value in slots.items() if name.isupper()]
    program = tmp_path / "program"
    linked = f"-Wl,--defsym,tp_run={EXECUTOR.symbol(target)}"
    command = [GCC, "-O1", "-static", "-pthread", *defines, source, native, linked, "-o", program]
    subprocess.run([str(part) for part in command], check=True)
    ran = subprocess.run(
        [QEMU, "-cpu", "max", str(program)], capture_output=True, text=True, timeout=120
    )

    assert (ran.returncode, ran.stdout) == (0, "run\n"), ran
