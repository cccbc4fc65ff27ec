"""Clients that go at any moment leave nothing behind."""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import threading
import time

import numpy as np
import pytest
from helpers.serving import Server


def goes(server: Server, chance: random.Random) -> float:
    """A client that asks and goes; seconds from then on until its request has ended."""
    text = " ".join(chance.choices(("one", "two", "three", "four"), k=chance.randrange(1, 200)))
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 400,
        "stream": chance.random() < 0.8,
        "n": chance.choice((1, 1, 1, 3)),
        "temperature": chance.choice((0.0, 1.0)),
    }
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + data)
        time.sleep(chance.choice((0.0, 0.05, 0.3)) * chance.random())
    gone = time.perf_counter()
    server.idle()
    return time.perf_counter() - gone


def left() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.parametrize(
    "count",
    [
        20,
        pytest.param(300, marks=pytest.mark.exhaustive),
        pytest.param(1000, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_clients_that_go(server: Server, count: int) -> None:
    """No request, page, thread, descriptor or task of theirs is left; the next one is served."""
    chance = random.Random(count)
    parallel = server.settings.limits.parallel
    ready = [threading.Thread(target=server.chat) for _ in range(parallel)]
    for thread in ready:  # so that the pools have all their threads
        thread.start()
    for thread in ready:
        thread.join()
    server.idle()
    time.sleep(0.2)
    before = left()

    took = [goes(server, chance) for _ in range(count)]

    until = time.monotonic() + 20
    while (now := left()) > before and time.monotonic() < until:
        time.sleep(0.05)  # connections that are being closed
    descriptors, threads = now
    assert descriptors <= before[0]
    assert threads <= before[1] + 2 * parallel  # of its pools
    (model,) = server.service.models.loaded()
    model.engine.core.prefix_cache.clear()
    assert model.engine.loaded.layout.memory.used == 0
    assert server.chat().status_code == 200
    p50, p99 = np.quantile(took, (0.5, 0.99))
    print(f"{count} clients went: stopped after {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms")
