"""The cost of a trace file: the same run with one and without, in turns.

    python -m labs.bench.tracing [MODEL] [REPETITIONS]

Both kinds of run make the same events; the one has them in memory only. The time inside
`TraceWriter.write` (with the hashing, the JSON and the system call) is taken too: on a noisy
machine it is the better figure, since the difference of two medians may be all noise.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.engine.engine import Engine
from triplepoint.traces.writer import TraceWriter

if TYPE_CHECKING:
    from triplepoint.traces.events import Event

_FILES = 40  # in the folder that the question is about
_TOKENS = 256  # at most: a model of random weights never ends
_QUESTION = "What's the error in app.log?"


def measure(engine: Engine, repetitions: int) -> dict[str, float]:
    """Return the median seconds of a run by kind, and of the writes in one."""
    runs: dict[str, list[float]] = {"memory": [], "file": []}
    writing: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (f"10:{n:02}:00 INFO http: GET /health 200 in {n} ms" for n in range(_FILES))
        text = "\n".join([*lines, "10:59:00 ERROR disk: no space left on device"])
        (folder / "app.log").write_text(text)
        for number in range(repetitions + 1):
            for kind, times in runs.items():
                path = folder / f"{number}.jsonl" if kind == "file" else False
                engine.core.prefix_cache.clear()  # every run computes all of its own
                with _timed_writes() as spent:
                    began = time.perf_counter()
                    with Agent(engine, workspace=folder, trace=path, max_tokens=_TOKENS) as agent:
                        for _ in agent.stream(_QUESTION):
                            pass
                    took = time.perf_counter() - began
                if number:  # the first of each kind warms up
                    times.append(took)
                    if kind == "file":
                        writing.append(spent[0])
    medians = {kind: statistics.median(times) for kind, times in runs.items()}
    return {**medians, "writing": statistics.median(writing)}


@contextlib.contextmanager
def _timed_writes() -> Iterator[list[float]]:
    """Add up the seconds inside `TraceWriter.write`."""
    spent, write = [0.0], TraceWriter.write

    def timed(self: TraceWriter, event: Event) -> Any:
        began = time.perf_counter()
        try:
            return write(self, event)
        finally:
            spent[0] += time.perf_counter() - began

    TraceWriter.write = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        TraceWriter.write = write  # type: ignore[method-assign]


def main(model: str = "nano", repetitions: str = "40") -> None:
    """Measure and print."""
    with Engine.load(model) as engine:
        found = measure(engine, int(repetitions))
    memory, file, writing = found["memory"], found["file"], found["writing"]
    print(f"{model}, {repetitions} runs of each kind in turns, medians")
    print(f"  trace in memory  {memory * 1e3:9.3f} ms")
    print(f"  trace in a file  {file * 1e3:9.3f} ms  ({file / memory - 1:+.2%})")
    print(f"  writing events   {writing * 1e3:9.3f} ms  ({writing / file:.2%} of the run)")


if __name__ == "__main__":
    main(*sys.argv[1:3])
