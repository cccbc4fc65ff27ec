"""Prefixes that were computed already, of running and of finished sessions: a tree over token ids.

A node is one page of 256 positions and the tokens on it; its path from the root is what the page
was computed behind. A session that begins like others takes over their pages as far as its tokens
are the same, to the token: on the last page it goes on with a copy. Nothing is looked at but
tokens, since the bits of a page follow from them.

Where a model has recurrent layers, pages are of use only up to a place where the state is known
too: copies of states are kept beside the tree, by the tokens before them, and a session goes on
behind one of these or not at all.

A node holds its page. When memory is wanted, leaves that no session has are let go of, first those
that would be quickest to compute again by the time since they were last used.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...jit.kernels.kvcache import PAGE
from ..forward.kv import KVCache, KVLayout, Page
from ..forward.state import Checkpoint, SequenceState

MOST_STATES = 6  # that are kept for sessions to come


@dataclass(eq=False, slots=True)
class Node:
    """See above.

    Attributes:
        tokens: on the page, PAGE at most.
        depth: pages before it.
        views: whether it wants the layers with windows of its page.
        used: the tree's clock when it was last found or added.
    """

    tokens: list[int]
    page: Page | None
    parent: Node | None
    depth: int = 0
    used: int = 0
    views: bool = True
    children: list[Node] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether a text can go on here, as far as this page goes."""
        return self.views and self.page is not None and self.page.whole

    def take(self, page: Page) -> None:
        """Hold this page, in place of the one before."""
        page.share(len(self.tokens))
        self.leave()
        self.page, self.views = page, True

    def leave(self) -> None:
        """Let go of the page."""
        if self.page is not None:
            self.page.release(views=self.views)

    def text(self) -> list[int]:
        """All tokens from the root on."""
        parts: list[list[int]] = []
        node: Node | None = self
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return [token for part in reversed(parts) for token in part]

    def alone(self, pages: int) -> bool:
        """Whether so many pages follow, one behind the other."""
        node = self
        for _ in range(pages):
            if len(node.children) != 1:
                return False
            node = node.children[0]
        return True

    def common(self, ids: Sequence[int]) -> int:
        """How many tokens of the page are the first of `ids`."""
        if self.tokens == ids[: len(self.tokens)]:
            return len(self.tokens)
        pairs = zip(self.tokens, [*ids, -1], strict=False)
        return next(n for n, (mine, other) in enumerate(pairs) if mine != other)


class KnownStates:
    """Copies of states, by the tokens before them; the last ones that were of use."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bytes], Checkpoint] = {}

    def add(self, state: SequenceState, ids: list[int], count: int) -> None:
        """Keep the copies that a sequence has of its state behind the first `count` of `ids`."""
        known, copies = set(self._kept.values()), state.layout.copies
        for one in state.checkpoints:
            if one not in known and one.position <= count:
                self._kept.setdefault((one.position, _digest(ids, one.position)), one)
        while len(self._kept) > 1 and (
            len(self._kept) > MOST_STATES or copies.used > copies.budget
        ):
            del self._kept[next(iter(self._kept))]

    def find(self, ids: list[int], count: int) -> Checkpoint | None:
        """The state behind most of `ids`, the first `count` of them at most."""
        places = {position for position, _ in self._kept if position <= count}
        for position in sorted(places, reverse=True):
            key = position, _digest(ids, position)
            if key in self._kept:
                self._kept[key] = found = self._kept.pop(key)  # as the last one
                return found
        return None


def _digest(ids: list[int], count: int) -> bytes:
    return hashlib.sha256(np.array(ids[:count], np.int64).tobytes()).digest()


class PrefixCache:
    """The tree of one engine. Safe to use from several threads.

    Attributes:
        nbytes: memory of the pages that it holds, those that sessions have too among them.
        evicted_pages: of which memory let go so far.
    """

    def __init__(
        self, layout: KVLayout, evicted: Callable[[list[int], Page], None] | None = None
    ) -> None:
        """evicted: hears of pages that memory lets go of, and of the tokens up to their ends."""
        self._layout, self._evicted = layout, evicted
        self._root = Node([], None, None)
        self._lock = threading.RLock()
        self._states = KnownStates()
        self._clock = 0
        self.evicted_pages = 0

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(node.page.nbytes for node in self._nodes() if node.page is not None)

    def find(self, ids: list[int]) -> tuple[list[Page], int]:
        """Pages that hold the beginning of `ids`, and how many tokens of it."""
        with self._lock:
            self._clock += 1
            node, pages, at = self._root, list[Page](), 0
            while at < len(ids):
                part = ids[at : at + PAGE]
                best, common = _best(node, part)
                if best is None or best.page is None:
                    break
                best.used = self._clock
                pages.append(best.page)
                at += common
                if common < PAGE:
                    break
                node = best
            return self._seen(pages, at)

    def _seen(self, pages: list[Page], at: int) -> tuple[list[Page], int]:
        """As much of it as a sequence can go on behind, where there are windows."""
        while pages and not self._layout.goes_on(pages, at):
            pages.pop()
            at = len(pages) * PAGE
        return pages, at

    def adopt(self, cache: KVCache, ids: list[int], least: int) -> int:
        """Give a cache what is known of `ids`, if that is more than `least` tokens; how many."""
        with self._lock:
            pages, count, state = self._known(cache, ids)
            if count <= least:
                return least
            own = [] if cache.state is None else list(cache.state.checkpoints)
            cache.adopt(pages[: -(-count // PAGE)], count)
            if cache.state is not None and state is not None:
                cache.state.adopt(state, [one for one in own if one.position < count])
            return count

    def knows(self, cache: KVCache, ids: list[int]) -> bool:
        """Whether `adopt` would find all of `ids`."""
        with self._lock:
            return self._known(cache, ids)[1] >= len(ids)

    def _known(self, cache: KVCache, ids: list[int]) -> tuple[list[Page], int, Checkpoint | None]:
        """What is known of `ids` to a cache that may have to know a state, too."""
        pages, count = self.find(ids)
        if cache.state is None:
            return pages, count, None
        state = self._states.find(ids, count)
        return pages, state.position if state is not None else 0, state

    def add(self, cache: KVCache, ids: list[int], count: int) -> None:
        """Keep what a cache holds of the first `count` tokens `ids`.

        A page that is not full yet is known by what is on it so far; it grows as the cache does.
        Drafts that follow `ids` in the cache, and may yet be refused, are not kept.
        """
        count = min(count, len(ids))
        with self._lock:
            self._clock += 1
            if cache.state is not None:
                self._states.add(cache.state, ids, count)
            node = self._root
            for depth, page in enumerate(cache.held[: -(-count // PAGE)]):
                part = ids[depth * PAGE : min(count, depth * PAGE + PAGE)]
                best, common = _best(node, part)
                if best is not None and common == len(part) and best.page is not page:
                    following = best  # known already
                    if common == len(best.tokens) and page.whole > best.whole:
                        best.take(page)
                elif best is not None and common == len(best.tokens) and best.page is page:
                    page.fixed = max(page.fixed, len(part))
                    best.tokens = part if len(part) > len(best.tokens) else best.tokens
                    following = best
                else:
                    following = Node(part, None, node, depth)
                    following.take(page)
                    node.children.append(following)
                following.used = self._clock
                if len(part) < PAGE:
                    return
                node = following

    def evict(self, wanted: int) -> int:
        """Let go of leaves that no session has until `wanted` bytes are free; how many are.

        Before them go layers with windows of pages that nobody is likely to go on from.
        """
        with self._lock:
            freed = self._look_away(wanted)
            while freed < wanted:
                leaves = [n for n in self._nodes() if not n.children and _unused(n)]
                if not leaves:
                    return freed
                # Deep pages took longer to compute than those at the beginning of a text.
                worst = min(leaves, key=lambda n: (n.used, -n.depth))
                freed += self._remove(worst)
        return freed

    def clear(self) -> None:
        """Forget everything; pages that sessions have stay theirs."""
        with self._lock:
            for node in list(self._nodes()):
                node.leave()
            self._root = Node([], None, None)
            self._states = KnownStates()

    def _look_away(self, wanted: int) -> int:
        """Let go of what windows show of pages well before the next fork or end of a text."""
        if not wanted or not self._layout.window:
            return 0
        behind = self._layout.window // PAGE + 2  # pages that follow, at least
        found = [node for node in self._nodes() if node.whole and node.alone(behind)]
        freed = 0
        for node in sorted(found, key=lambda n: n.used):
            if freed >= wanted:
                break
            if node.page is not None and node.page.viewers == 1:
                node.views = False
                freed += node.page.look_away()
        return freed

    def _remove(self, node: Node) -> int:
        assert node.parent is not None, "the root is no leaf"
        assert node.page is not None, "only the root has no page"
        node.parent.children.remove(node)
        freed = node.page.nbytes
        if self._evicted is not None:
            self._evicted(node.text(), node.page)
        node.leave()
        self.evicted_pages += 1
        return freed

    def _nodes(self) -> Iterator[Node]:
        left = list(self._root.children)
        while left:
            node = left.pop()
            left += node.children
            yield node


def _best(node: Node, ids: list[int]) -> tuple[Node | None, int]:
    """The child that has most of `ids` at its beginning, and how much."""
    best, most = None, 0
    for child in node.children:
        if child.tokens[0] == ids[0] and (common := child.common(ids)) > most:
            best, most = child, common
    return best, most


def _unused(node: Node) -> bool:
    return node.page is not None and node.page.refcount == 1
