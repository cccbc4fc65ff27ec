"""Autotuning: execution settings chosen at load, corrected by measurements, recorded in traces.

| setting | chosen from | corrected by |
|---|---|---|
| threads of a pass | profiles by number of threads, the model, tokens and KV length | trials in \
decode (`online_ab.py`); cores that others have (`contention.py`); threads that wake late |
| tokens of a prefill pass | profile and model | |
| attention of a short pass split by parts of the KV cache | the model's KV heads, threads, KV \
length and profile, before each pass | |
| spinning between passes | expected time of a decode pass | threads that park within a decode |
| tiles of the GEMMs | what was measured of other ones here | |
| large pages | what they were measured to bring here | |
| time of a pass of k tokens, for speculation | cost model | times of phases |

A setting that was given is left alone. None changes a bit of the results: that holds for chunks,
tiles and threads by the way that kernels add up. Corrections are bounded: threads of decode move
one way, spinning is raised twice at most and then given up, and each correction is a line of the
phase in which it was made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....errors import SettingError
from ....jit.pool import SPIN_BARRIER_S, Pool
from ...forward.shared_prefix import ALONE, NO_SHARING, Reading
from ...forward.split_kv import TOKENS as SPLIT_TOKENS
from ...physics.costs import Part
from ...physics.latency_model import (
    LatencyEstimate,
    class_middle,
    even_part,
    expect_mixed,
    length_class,
)
from ...physics.register_tiles import MAX_TILE, constants
from .choices import (
    SPIN_MOST_S,
    Decision,
    TuningInputs,
    at_best,
    choose_chunk,
    choose_max_single_tile,
    choose_spin,
    choose_split,
    choose_threads,
    choose_tile,
    neighbors,
    override,
)
from .contention import ContentionMonitor
from .online_ab import OnlineABTest
from .pass_correction import PassCorrection

SWITCHES = ("kv_split", "pages", "head_bound", "adaptive")
KEYS = ("threads", "chunk", "spin", "tile", "max_single_tile", *SWITCHES)
SEEN = 64  # passes that wait to be compared with what the cost model says of them
DEPTH = 11  # log2 of the KV length up to which decode is one kind of pass; then each doubling
AWAKE_S = 100e-6  # in which a thread that was woken has its core, unless another process is there
LATE_S = 2e-3  # a pass that the caller runs alone in this time does not wait for the others


@dataclass(frozen=True, slots=True)
class Overrides:
    """Execution settings that the caller gave; None: chosen by the tuner."""

    threads: int | None = None
    """Threads of every pass."""
    chunk: int | None = None
    """Maximum tokens of a prefill pass."""
    kv_split: bool | None = None
    """Whether attention of short passes is split by parts of the KV cache."""
    spin: float | None = None
    """Seconds between two passes before a thread parks."""
    tile: int | None = None
    """Tokens of a GEMM's register tile."""
    max_single_tile: int | None = None
    """Tokens up to which a pass is one tile."""
    pages: bool | None = None
    """Whether the system is to use huge pages."""
    head_bound: bool = True
    """Whether greedy passes may read a part of the output head: see `head_bound.py`."""
    adaptive: bool = True
    """Whether choices are corrected by measurements."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Overrides:
        """Parse overrides from values, or from texts such as ``512``, ``300us``, ``on``.

        Raises:
            SettingError: an unknown setting, or a value that it cannot have.
        """
        found: dict[str, Any] = {}
        for key, value in (given or {}).items():
            if key not in KEYS:
                raise SettingError(f"unknown setting {key!r}; known: {', '.join(KEYS)}")
            found[key] = _value(key, value)
        return cls(**found)


def _value(key: str, value: Any) -> int | float | bool:
    text = str(value).strip().lower()
    if key in SWITCHES:
        if text not in ("on", "off", "true", "false"):
            raise SettingError(f"{key} must be on or off, not {value!r}")
        return text in ("on", "true")
    if key == "spin":
        unit = next((u for u in ("us", "ms", "s") if text.endswith(u)), "")
        try:
            seconds = float(text.removesuffix(unit)) * {"us": 1e-6, "ms": 1e-3}.get(unit, 1.0)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= 10:
            raise SettingError(f"spin must be a time up to 10 s, such as 300us, not {value!r}")
        return seconds
    number = int(text) if text.isascii() and text.isdigit() else 0
    most = {"threads": 256, "tile": MAX_TILE, "max_single_tile": MAX_TILE}.get(key, 8192)
    if not 1 <= number <= most:
        raise SettingError(f"{key} must be from 1 to {most}, not {value!r}")
    return number


class ActiveThreads:
    """The threads of a pool that may run passes, as `ContentionMonitor` sets them.

    Attributes:
        threads, worker_ids: as of `Pool`.
        active: how many of them may run.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool, self.worker_ids = pool, pool.worker_ids
        self.active = self.threads = pool.threads

    @property
    def elastic(self) -> bool:
        """Whether passes continue without threads that have no core."""
        return self.pool.elastic

    @elastic.setter
    def elastic(self, on: bool) -> None:
        self.pool.set_elastic(on)

    @property
    def all_run(self) -> bool:
        """Whether all threads run and passes are not elastic, since no core is contended."""
        return self.active == self.threads and not self.pool.elastic

    def put_last(self, worker: int) -> None:
        """Swap the core of a worker with that of the last active worker."""
        if 0 <= worker < self.active - 2:
            self.pool.swap_cores(worker, self.active - 2)


class Autotuner:
    """The execution settings of one engine.

    Attributes:
        chunk: tokens of a prefill pass at most.
        spin: seconds that a thread spins between two passes.
        tiles: constants of the GEMMs' kernels, where their tiles are not the usual ones.
        fixed: settings that the caller gave.
        trial: the test that gets the time of the running pass from `after`; None: no test does.
    """

    def __init__(
        self,
        pool: Pool,
        thread_set: ActiveThreads,
        contention: ContentionMonitor,
        known: TuningInputs,
        fixed: Overrides,
        pages: Decision,
    ) -> None:
        self.pool, self.active_threads, self.contention = pool, thread_set, contention
        self.known, self.fixed = known, fixed
        self._chunk = override(fixed.chunk) or choose_chunk(known, 1 << 20)
        self._spin = override(fixed.spin) or choose_spin(known)
        self._pages = override(fixed.pages) or pages
        self._tile = override(fixed.tile) or choose_tile(known)
        self._max_single_tile = override(fixed.max_single_tile) or choose_max_single_tile(
            known, int(self._tile.value)
        )
        self.tiles = constants(
            known.target, int(self._tile.value), int(self._max_single_tile.value)
        )
        self.chunk, self.spin = int(self._chunk.value), float(self._spin.value)
        self._always = min(fixed.threads, pool.threads) if fixed.threads else None
        if fixed.threads is None and (len(known.machines) == 1 or pool.threads == 1):
            self._always = pool.threads
        alone = fixed.threads is not None or pool.threads == 1
        self._decode_always = self._always if alone else None
        self._prefill: dict[tuple[int, int], int] = {}
        self._decode: dict[int, OnlineABTest] = {}
        self._filled: dict[tuple[int, int, int], bool] = {}
        self._correction = PassCorrection()
        self._seen: deque[tuple[int, int, float]] = deque()  # what it does not know of yet
        self._expected: dict[tuple[int, int], float] = {}
        self._mixed: dict[tuple[Any, ...], LatencyEstimate] = {}
        self._splits: dict[tuple[int, int, int, int], Decision] = {}
        self._decode_split = False
        self._raised = 0  # times that spinning was raised; -1: given up
        self._contended = len(contention.changes)
        self._lines: list[str] = []
        self.trial: OnlineABTest | None = None
        self._patience, self._late = AWAKE_S, 0  # passes that were not run by all
        self.apply()

    def override(self, more: Mapping[str, Any]) -> Autotuner:
        """Return a new tuner with more settings given; measurements start anew."""
        fixed = {key: getattr(self.fixed, key) for key in KEYS}
        known = {key: value for key, value in {**fixed, **more}.items() if value is not None}
        return Autotuner(
            self.pool,
            self.active_threads,
            self.contention,
            self.known,
            Overrides.of(known),
            self._pages,
        )

    def renewed(self, known: TuningInputs) -> Autotuner:
        """Return a new tuner for new machine limits, with the same given settings."""
        return Autotuner(
            self.pool, self.active_threads, self.contention, known, self.fixed, self._pages
        )

    @property
    def large_pages(self) -> bool:
        """Whether the system is to use huge pages."""
        return bool(self._pages.value)

    def apply(self) -> None:
        """Apply these settings to the pool: at first, and after another engine has used it."""
        self.pool.set_spin(SPIN_BARRIER_S, self.spin)
        self._parks = self.pool.parks

    def prepare(self) -> None:
        """Choose the threads for short contexts ahead of the first passes, which it would delay."""
        if not self._always:
            for bits in range(2, self.chunk.bit_length() + 1):
                self._prefill_threads(min(3 << bits - 2, self.chunk), 0)
        if not self._decode_always and 0 not in self._decode:
            self._decode[0] = self._trials(0)

    # --- before and after each pass

    def before(self, tokens: int, start: int, tiles: int = 0) -> bool:
        """Set the threads of a pass at context `start`; return whether its attention is split.

        tiles: see `choose_split`.
        """
        if time.perf_counter() >= self.contention.next_look:
            self.contention.look()
        want = self._decode_threads(start) if tokens == 1 else self._prefill_threads(tokens, start)
        count = min(want, self.active_threads.active)
        if count > 1 and not self.pool.elastic and self.pool.parked:
            count = self._awake(count, tokens, start)
        if count != self.pool.active:
            self.pool.set_active(count)
        if self.pool.arranges:
            self.pool.arrange(fill=self._fills(tokens, start, count))
        if self.trial is not None:
            self._began = time.perf_counter()
        return tokens <= SPLIT_TOKENS and self.split(tokens, start, tiles)

    def after(self) -> None:
        """Report the time of the pass that has just ended to `trial`."""
        assert self.trial is not None, "the pass is of no trial"
        if not self.active_threads.all_run:
            self.trial.interrupted()
        else:
            self.trial.took(time.perf_counter() - self._began)
            if self.trial.changes:
                self._lines += self.trial.changes
                self.trial.changes = []
        self.trial = None

    def _awake(self, count: int, tokens: int, start: int) -> int:
        """Return how many of `count` threads run a pass when some of them sleep.

        Where one does not come, a short pass is run by the caller alone: to wait for the end of
        another process's slice, 3 to 4 ms, would take longer. Late threads join the next pass.
        """
        if self.fixed.threads is not None or not (self.fixed.adaptive and self.contention.on):
            return count
        patience, self._patience = self._patience, AWAKE_S
        if self.pool.await_workers(patience) or count * self.pass_s(tokens, start) > LATE_S:
            return count
        self._patience = 0.0  # they have been waited for once
        self._late += 1
        if self.trial is not None:
            self.trial.interrupted()
            self.trial = None
        return 1

    def _decode_threads(self, start: int) -> int:
        if self._decode_always:
            return self._decode_always
        kind = (start >> DEPTH).bit_length()
        found = self._decode.get(kind)
        if found is None:
            found = self._decode[kind] = self._trials(start)
        if not found.todo or not self.active_threads.all_run:
            return found.threads
        threads = found.next()
        self.trial = found if found.timed else None
        return threads

    def _trials(self, start: int) -> OnlineABTest:
        threads = int(choose_threads(self.known, 1, start).value)
        if not self.fixed.adaptive:
            return OnlineABTest(threads, [])
        return OnlineABTest(threads, neighbors(self.known, start, threads, self.pool.threads))

    def _prefill_threads(self, tokens: int, start: int) -> int:
        if self._always:
            return self._always
        kind = tokens.bit_length(), (start >> DEPTH).bit_length()
        found = self._prefill.get(kind)
        if found is None:
            found = self._prefill[kind] = int(choose_threads(self.known, tokens, start).value)
        return found

    def _fills(self, tokens: int, start: int, threads: int) -> bool:
        """Return whether a pass's threads are to share a cache: where barriers bound it."""
        if threads == self.pool.threads:
            return False
        kind = tokens.bit_length(), (start >> DEPTH).bit_length(), threads
        found = self._filled.get(kind)
        if found is None:
            found = self._filled[kind] = self.known.dispatch_bound(tokens, start, threads)
        return found

    def split(self, tokens: int, start: int, tiles: int = 0) -> bool:
        """Return whether the attention of a short pass is split by parts of the cache.

        tiles: see `choose_split`.
        """
        given, threads = self.fixed.kv_split, self.pool.active
        if given is not None:
            return given
        if threads == 1 or (tokens == 1 and self.known.model.kv_heads % threads == 0):
            return False
        key = tokens, length_class(start), threads, tiles
        found = self._splits.get(key)
        if found is None:
            found = self._splits[key] = choose_split(self.known, *key)
        split = bool(found.value)
        if tokens == 1 and split != self._decode_split and self.trial is None:
            self._decode_split = split
            line = f"kv_split of decode: {'on' if split else 'off'}, {found.why}"
            if line not in self._lines:
                self._lines.append(line)
        return split

    def next_chunk(self, tokens: int, limit: int) -> int:
        """Return the size of the next prefill chunk: of `tokens` left, at most `limit`."""
        return even_part(tokens, min(limit, self.chunk))

    # --- what was seen of a phase

    def observe(self, tokens: int, start: int, seconds: float) -> None:
        """Record how long a pass of `tokens` tokens at context `start` took."""
        if self.fixed.adaptive and seconds > 0:
            self._seen.append((tokens, start, seconds))
            if len(self._seen) > SEEN:
                _ = self.correction

    @property
    def correction(self) -> PassCorrection:
        """The cost model's correction by measured times, updated when read (0.1 ms)."""
        with suppress(IndexError):  # another thread may have taken the last one
            while self._seen:
                tokens, start, seconds = self._seen.popleft()
                self._correction.add(tokens, seconds / self._expect(tokens, start))
        return self._correction

    @correction.setter
    def correction(self, other: PassCorrection) -> None:
        self._seen.clear()
        self._correction = other

    def pass_s(self, tokens: int, start: int) -> float:
        """Predict the seconds of a pass of `tokens` tokens at context `start`.

        From the cost model, times the recent ratio of measured to predicted seconds for passes of
        about as many rows.
        """
        return self.correction.factor(tokens) * self._expect(tokens, start)

    def expect_mixed(
        self, parts: Sequence[Part], reading: Reading = NO_SHARING
    ) -> tuple[LatencyEstimate, float]:
        """Predict a pass of several sequences with unequal rows: estimate, and corrected seconds.

        reading: prefixes that the parts share. The seconds are corrected by recent passes of about
        as many rows.
        """
        # One for all decodes, since time grows with the KV length in a straight line; of a few
        # lengths, so that many passes have the same.
        ones = behind = 0
        others: list[Part] = []
        for tokens, start, outputs, _, _ in parts:
            if tokens == outputs == 1:
                ones, behind = ones + 1, behind + start
            else:
                span = ones + len(others)
                common, readers = reading.spans[span] if span < len(reading.spans) else ALONE
                start = class_middle(start, common)
                others.append(Part(tokens, start, outputs, common, round(readers, 1)))
        threads = min(self.active_threads.active, self.known.most)
        joined, (common, readers) = reading.ones
        at = class_middle(behind // ones, common) if ones else 0
        key = threads, ones, at, reading.ones, tuple(others)
        found = self._mixed.get(key)
        if found is None:
            if len(self._mixed) > 4096:
                self._mixed.clear()
            known = self.known
            machine = known.machines.get(threads) or at_best(known.machines[known.most], threads)
            joined = min(ones, joined)
            alike = [Part(1, at, 1, min(common, at), readers)] * joined
            rows = [Part(1, at, 1)] * (ones - joined) + alike + others
            found = expect_mixed(known.model, machine, known.reached, known.passes, rows)
            self._mixed[key] = found
        return found, found.seconds * self.correction.factor(found.tokens)

    def observe_mixed(self, expected: LatencyEstimate, seconds: float) -> None:
        """Record the seconds of a pass that the cost model predicted as `expected`."""
        if self.fixed.adaptive and seconds > 0:
            self.correction.add(expected.tokens, seconds / expected.seconds)

    def _expect(self, tokens: int, start: int) -> float:
        """Return the cost model's seconds, for a KV length rounded down to one of a few steps."""
        key = tokens, length_class(start)
        found = self._expected.get(key)
        if found is None:
            if len(self._expected) > 4096:
                self._expected.clear()
            found = self._expected[key] = self.known.seconds(*key)
        return found

    def phase(self, decode: bool, tokens: int, start: int, passes: int, wall_s: float) -> list[str]:
        """Learn from a finished phase; return a line for each correction since the last phase."""
        if decode and passes and tokens - passes in (0, 1):
            self.observe(1, start + passes // 2, wall_s / passes)
        elif passes == 1 and tokens > 1:
            self.observe(tokens, start, wall_s)
        self._correct_spin(decode, passes)
        for change in self.contention.changes[self._contended :]:
            self._lines.append(change.text)
        self._contended = len(self.contention.changes)
        if self._late:
            count = "a pass" if self._late == 1 else f"{self._late} passes"
            self._lines.append(f"threads: 1 in {count}, whose other threads had no core when woken")
            self._late = 0
        lines, self._lines = self._lines, []
        return lines

    def _correct_spin(self, decode: bool, passes: int) -> None:
        """Spin longer if workers park within a decode; give up where that does not help."""
        before, self._parks = self._parks, self.pool.parks
        parks = self._parks - before
        running = self.pool.active - 1
        if not (self.fixed.adaptive and self.fixed.spin is None and decode and running):
            return
        if self._raised < 0 or passes < 8 or parks < passes * running / 2:
            return
        if self.spin < SPIN_MOST_S and self._raised < 2:
            self._raised += 1
            self.spin = min(SPIN_MOST_S, 8 * self.spin)
            why = f"threads parked {parks} times in {passes} passes"
        else:  # whatever comes in between takes longer: spinning is in vain
            self._raised = -1
            self.spin = float(self._spin.value)
            why = "longer spinning did not pay off"
        self.apply()
        self._lines.append(f"spin: {self.spin * 1e6:.0f} µs, {why}")

    # --- for traces and people

    def describe(self) -> dict[str, dict[str, Any]]:
        """Describe each setting: its value as it was chosen, and why."""
        return {name: {"value": c.value, "why": c.why} for name, c in self._choices.items()}

    @cached_property
    def _choices(self) -> dict[str, Decision]:
        decode, short = (self._threads_choice(n) for n in (1, 16))
        return {
            "decode threads": decode,
            "short prefill threads": short,
            "prefill threads": self._threads_choice(self.chunk),
            "prefill chunk": self._chunk,
            "kv split": self._split_choice(int(decode.value)),
            "spin_s": self._spin,
            "tile": self._tile,
            "max single tile": self._max_single_tile,
            "large pages": self._pages,
            "adaptive": Decision(self.fixed.adaptive, "corrected by what is seen"),
        }

    def _threads_choice(self, tokens: int) -> Decision:
        if self.fixed.threads:
            return Decision(min(self.fixed.threads, self.pool.threads), "given")
        return choose_threads(self.known, tokens, 0)

    def _split_choice(self, threads: int) -> Decision:
        """Return the KV length from which decode's attention is split; False: it never is."""
        if self.fixed.kv_split is not None:
            return Decision(self.fixed.kv_split, "given")
        lengths = [1 << n for n in range(8, 18)]
        found = [choose_split(self.known, 1, start, threads) for start in lengths]
        at = next((n for n, choice in enumerate(found) if choice.value), None)
        if at is None:
            return Decision(False, found[-1].why)
        return Decision(lengths[at], f"KV length from which decode is split: {found[at].why}")
