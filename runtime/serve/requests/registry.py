"""Counters and histograms by name and labels, and their text for Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Histogram:
    """A histogram: counts of values between fixed bounds."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    """Count of the values in each bucket, not cumulative; the last one is above all bounds."""
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Add a value to its bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """Yield the sample lines of the histogram."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield sample(f"{name}_bucket", (*labels, ("le", _number(bound))), total)
        yield sample(f"{name}_sum", labels, self.sum)
        yield sample(f"{name}_count", labels, total)


class Registry:
    """The counters and histograms of a server; hold its `lock` to count or to read.

    Args:
        bounds: of each histogram, by name.
    """

    def __init__(self, bounds: Mapping[str, Sequence[float]]) -> None:
        self.lock = threading.Lock()
        self._bounds = bounds
        self._counters: defaultdict[str, Counter[Labels]] = defaultdict(Counter)
        self._histograms: defaultdict[str, dict[Labels, Histogram]] = defaultdict(dict)

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Add an amount to a counter."""
        counter = self._counters[name]
        counter[tuple(labels.items())] += amount  # pyright: ignore[reportArgumentType]

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Add a value to a histogram."""
        found, key = self._histograms[name], tuple(labels.items())
        if key not in found:
            found[key] = Histogram(self._bounds[name])
        found[key].observe(value)

    def counter(self, name: str) -> dict[Labels, float]:
        """Return the values of a counter, by labels."""
        return dict(self._counters[name])

    def histogram(self, name: str) -> dict[Labels, Histogram]:
        """Return the histograms of a name, by labels."""
        return self._histograms[name]


def sample(name: str, labels: Labels, value: float) -> str:
    """Format one sample line."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def family(name: str, kind: str, text: str, lines: Iterable[str]) -> str:
    """Format a metric: its help and type lines, then its samples."""
    return "\n".join((f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines, ""))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
