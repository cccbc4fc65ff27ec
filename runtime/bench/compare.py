"""Comparison with llama.cpp: the same GGUF, the same rows, in turns.

Two figures that were measured minutes apart cannot be compared on a shared machine. Here
each repetition of a row is ours, theirs with flash attention, theirs without, and so on: a ratio is
of neighbors in time. llama.cpp runs in a process of its own (`baseline_worker.py`), which answers
only when all its threads rest; ours rest as soon as a pass is over.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import Closing
from ...errors import EngineError, SettingError
from ..engine.engine_timer import EngineTimer
from .runner import Result, Samples, spent

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..physics.machine import RooflineProbe
    from ..physics.timed_passes import Case

SCRIPT = Path(__file__).with_name("baseline_worker.py")
GOODBYE_S = 10.0  # patience with a peer that has been asked to end
INSTALL = (
    "install it natively (CMAKE_ARGS='-DGGML_NATIVE=ON' pip install llama-cpp-python), and name "
    "another interpreter that has it with --baseline-python"
)


class Baseline(Closing):
    """The process of the baseline, llama.cpp (`baseline_worker.py`)."""

    def __init__(self, python: str | Path, script: Path = SCRIPT) -> None:
        """Start `script` with the interpreter `python`.

        Raises:
            EngineError: there is no such interpreter.
        """
        self._python = str(python)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.name, self.system = "", ""
        """Name and version of the baseline, and its build information."""
        self.settings: list[str] = []
        """Settings of the baseline to measure; the best one of each row counts."""
        self.idle_cpu_s = 0.0
        """CPU seconds that the baseline spent during our turns."""
        try:
            self._process = subprocess.Popen(
                [self._python, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            self._stderr.close()
            raise SettingError(f"cannot start {self._python}: {error.strerror}") from None

    def load(self, model: Path, context: int, threads: int) -> None:
        """Load a GGUF file in the baseline.

        Raises:
            EngineError: it cannot.
        """
        response = self._request(op="load", model=str(model), context=context, threads=threads)
        self.name, self.system = str(response["engine"]), str(response["system"])
        self.settings = [str(name) for name in response["settings"]]

    def measure(self, setting: str, case: Case, ids: Sequence[int]) -> float:
        """Time the passes of `case` with the given tokens; return their seconds."""
        response = self._request(
            op="measure",
            setting=setting,
            before=list(ids[: case.start]),
            ids=list(ids[case.start : case.start + case.tokens]),
            one_by_one=bool(case.generate),
        )
        self.idle_cpu_s += float(response["idle_cpu_s"])
        return float(response["seconds"])

    def batch(
        self, setting: str, prompts: Sequence[Sequence[int]], generate: int, most: int
    ) -> tuple[float, float]:
        """Time several prompts, then `generate` tokens of each; return the seconds of both.

        most: the maximum of sequences in any later call.
        """
        decodes = [[(ids[0] + n) % max(ids) for n in range(generate)] for ids in prompts]
        response = self._request(
            op="batch",
            setting=setting,
            prompts=[list(ids) for ids in prompts],
            decodes=decodes,
            most=most,
        )
        self.idle_cpu_s += float(response["idle_cpu_s"])
        return float(response["prompt_s"]), float(response["decode_s"])

    def close(self) -> None:
        """Terminate the process."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._stderr.close()

    def _request(self, **request: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        if not line:
            raise EngineError(f"the peer ended: {self._last_words()}")
        try:
            response = json.loads(line)
        except ValueError:
            raise EngineError(f"the peer said no JSON: {line[:200]!r}") from None
        if "error" in response:
            message = str(response["error"])
            if message.startswith(("ModuleNotFoundError", "ImportError")):
                message = f"{self._python} has no usable llama-cpp-python ({message}); {INSTALL}"
            raise EngineError(message)
        return response

    def _last_words(self) -> str:
        """Return its status, and the last line that it wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        return f"status {self._process.returncode}, {last}"


@dataclass(frozen=True)
class Pair:
    """The results of one case: ours, and the baseline's with each setting."""

    case: Case
    ours: Result
    theirs: dict[str, Result]

    @property
    def setting(self) -> str:
        """The baseline's fastest setting here."""
        return max(self.theirs, key=lambda name: self.theirs[name].median)

    @property
    def best(self) -> Result:
        """The baseline's times with that setting."""
        return self.theirs[self.setting]

    @property
    def ratio(self) -> float:
        """Our median over theirs: above 1, ours is faster."""
        return self.ours.median / self.best.median

    @property
    def ratios(self) -> list[float]:
        """Ratio of our speed to the baseline's best, for each repetition."""
        return [a / b for a, b in zip(self.ours.rates, self.best.rates, strict=True)]

    @property
    def ratio_spread(self) -> float:
        """Standard deviation of `ratios`; 0 for a single repetition."""
        return statistics.stdev(self.ratios) if len(self.ratios) > 1 else 0.0


class PairedBenchmark:
    """Cases that both engines run in turns.

    Depth is prepared once for rows that follow each other with a growing one.
    """

    def __init__(
        self,
        engine: Engine,
        peer: Baseline,
        todo: Sequence[Case],
        *,
        repeat: int = 5,
        limits: RooflineProbe | None = None,
    ) -> None:
        """Load the model in the baseline.

        Raises:
            EngineError: a case is too long, or the peer cannot load the model.
        """
        from ..physics.machine import RooflineProbe

        self.engine, self.peer, self.todo, self.repeat = engine, peer, todo, repeat
        self._timer = EngineTimer(engine, todo)
        self._limits = limits or RooflineProbe(engine.loaded.library, engine.loaded.pool)
        longest = max(case.end for case in todo)
        peer.load(engine.model.path, longest, engine.threads)

    def run(self) -> Iterator[Pair]:
        """Measure the cases one after another."""
        for case in self.todo:
            yield self.match(case)

    def match(self, case: Case) -> Pair:
        """Measure one case, after a warm-up round that fills the KV cache to its depth."""
        ours = Samples(case)
        theirs = {name: Samples(case) for name in self.peer.settings}
        for n in range(-1, self.repeat):
            before = self._limits.sample()
            seconds = self._timer.measure(case)
            where = spent(self._timer.session)
            limits = before.merged(self._limits.sample())
            others = {name: self.peer.measure(name, case, self._timer.ids) for name in theirs}
            if n < 0:
                continue
            ours.seconds.append(seconds)
            ours.limits.append(limits)
            ours.spent.append(where)
            for name, other in theirs.items():
                other.seconds.append(others[name])
                other.limits.append(limits)
        found = {name: samples.result(self.engine) for name, samples in theirs.items()}
        return Pair(case, ours.result(self.engine), found)
