"""Shared prefixes: sequences of a pass that begin with the same pages, whose rows can share reads.

Pages of agents that begin alike, and of forks, are the same memory (`kv.py`). Sorted by their
pages, sequences that have most in common are neighbors: a tree, of which a tile of the pass gets a
part. Its walks (`jit/kernels/batch.py`) follow the tree from its root: first the pages of all,
then those of some, at last each sequence's own.

Who joins whom changes no bit of a row's result: each meets its chunks in their order, by the same
operations. It changes how often memory is read: once for each tile, not for each sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...jit.kernels.kvcache import PAGE

if TYPE_CHECKING:
    from .kv import KVCache

ALL = 1 << 40  # pages: of a sequence and itself


class JoinedWalk(NamedTuple):
    """A walk of members first … end - 1 over pages start … stop - 1; stop 0: to each one's end."""

    first: int
    end: int
    start: int
    stop: int


class JoinedTile(NamedTuple):
    """The spans of a pass that make up one tile, and its walks."""

    spans: Sequence[int]
    walks: Sequence[JoinedWalk]


class Together(NamedTuple):
    """Shared reads of a span: the first positions, and the average number of readers."""

    positions: int = 0
    readers: float = 1.0


class Reading(NamedTuple):
    """The shared reads of the spans of a pass."""

    spans: Sequence[Together]
    """The shared reads of each span."""
    ones: tuple[int, Together]
    """Number of one-row spans with shared reads, and the average of their shared reads."""


ALONE = Together()
NO_SHARING = Reading((), (0, ALONE))


class SharedPrefix:
    """The shared prefixes of a pass's sequences, valid while their pages stay the same.

    order: spans of the pass with a shared prefix, sorted so that neighbors share most pages.
    common: how many whole pages each of them has in common with the one before it.
    counts: rows of each span of the pass.
    """

    def __init__(self, order: Sequence[int], common: Sequence[int], counts: Sequence[int]) -> None:
        self.order, self.common, self.counts = order, common, counts
        self._tiles: dict[tuple[int, int], list[JoinedTile]] = {}
        self._reading: dict[tuple[int, int], Reading] = {}
        self._readers: dict[int, int] = {}

    def tiles(self, max_rows: int, min_tiles: int = 1) -> list[JoinedTile]:
        """Build tiles of several spans, up to `max_rows` rows each; at least `min_tiles`, if any.

        A span that fills half a tile stays by itself: its rows read together anyway.
        """
        found = self._tiles.get((max_rows, min_tiles))
        if found is None:
            rows = sum(self.counts[span] for span in self.order)
            size = min(max_rows, -(-rows // min_tiles))
            found = self._tiles[max_rows, min_tiles] = list(self._packed(size))
        return found

    def reading(self, max_rows: int, min_tiles: int = 1) -> Reading:
        """Return the shared reads of the spans in joined tiles of at most `max_rows` rows."""
        found = self._reading.get((max_rows, min_tiles))
        if found is None:
            spans = [ALONE] * len(self.counts)
            for tile in self.tiles(max_rows, min_tiles):
                for n, span in enumerate(tile.spans):
                    spans[span] = _together([w for w in tile.walks if w.first <= n < w.end])
            ones = [
                span
                for span, rows in zip(spans, self.counts, strict=True)
                if rows == 1 and span.positions
            ]
            found = self._reading[max_rows, min_tiles] = Reading(spans, (len(ones), _average(ones)))
        return found

    def readers(self, max_rows: int) -> int:
        """Return how many tiles read the cache if tiles of several spans have `max_rows` rows."""
        found = self._readers.get(max_rows)
        if found is None:
            spared = sum(len(tile.spans) - 1 for tile in self.tiles(max_rows))
            found = self._readers[max_rows] = len(self.counts) - spared
        return found

    def _packed(self, max_rows: int) -> Iterator[JoinedTile]:
        spans: list[int] = []
        common: list[int] = []  # of each with the one before it
        rows, fewest = 0, ALL
        for span, pages in zip(self.order, self.common, strict=True):
            fewest, count = min(fewest, pages), self.counts[span]
            if 2 * count > max_rows:
                continue
            if not fewest or rows + count > max_rows:
                if len(spans) > 1:
                    yield JoinedTile(spans, list(_walks(common, 0, len(spans), 0)))
                spans, common, rows = [], [], 0
            spans.append(span)
            common.append(fewest)
            rows, fewest = rows + count, ALL
        if len(spans) > 1:
            yield JoinedTile(spans, list(_walks(common, 0, len(spans), 0)))


def _walks(common: Sequence[int], first: int, end: int, start: int) -> Iterator[JoinedWalk]:
    """Return the walks of members first … end - 1 from page `start` on, shared ones first."""
    if end - first == 1:
        yield JoinedWalk(first, end, start, 0)
        return
    stop = min(common[first + 1 : end])
    if stop > start:
        yield JoinedWalk(first, end, start, stop)
    at = first
    for n in range(first + 1, end + 1):
        if n == end or common[n] == stop:
            yield from _walks(common, at, n, stop)
            at = n


def _together(walks: Sequence[JoinedWalk]) -> Together:
    """Summarize the consecutive walks of one member."""
    shared = [walk for walk in walks if walk.stop]
    if not shared:
        return ALONE
    stop = shared[-1].stop
    read = sum((walk.stop - walk.start) / (walk.end - walk.first) for walk in shared)
    return Together(stop * PAGE, stop / read)


def _average(spans: Sequence[Together]) -> Together:
    """Average the shared reads of several spans."""
    positions = sum(one.positions for one in spans)
    if not positions:
        return ALONE
    return Together(
        positions // len(spans), positions / sum(one.positions / one.readers for one in spans)
    )


class PrefixFinder:
    """A cache of shared prefixes, recomputed only when pages change."""

    def __init__(self) -> None:
        self._key: list[tuple[int, int, int]] = []
        self._found: SharedPrefix | None = None

    def find(
        self, key: list[tuple[int, int, int]], caches: Iterable[KVCache]
    ) -> SharedPrefix | None:
        """Find the shared prefixes of a pass's spans; None for nothing shared or a single span.

        key: of each span its cache's version, the whole pages before its first row, and its rows.
        Where that is as in the last pass, the same object is returned.
        """
        if key != self._key:
            self._found = _find(key, list(caches))
            self._key = key
        return self._found


def _find(key: list[tuple[int, int, int]], caches: Sequence[KVCache]) -> SharedPrefix | None:
    families: dict[int, list[int]] = {}  # by the first page
    for span, (_, whole, _) in enumerate(key):
        if whole:
            families.setdefault(int(caches[span].pages[0]), []).append(span)
    order: list[int] = []
    common: list[int] = []
    for spans in families.values():
        if len(spans) < 2:
            continue
        # Pages of which all rows see all: those that end before the first row.
        pages = {n: caches[n].pages[: key[n][1]].tolist() for n in spans}
        spans.sort(key=pages.__getitem__)
        before: list[int] = []
        for span in spans:
            common.append(_common(before, pages[span]))
            before = pages[span]
        order += spans
    return SharedPrefix(order, common, [rows for _, _, rows in key]) if order else None


def _common(a: list[int], b: list[int]) -> int:
    """Count the common leading pages of two tables."""
    same, differ = 0, min(len(a), len(b)) + 1
    while differ - same > 1:
        middle = (same + differ) // 2
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            differ = middle
    return same
