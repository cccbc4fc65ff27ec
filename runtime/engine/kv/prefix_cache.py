"""The prefix cache: a tree over token ids of KV cache pages that sessions have computed.

A node is one page of 256 positions and the tokens on it; its path from the root is what the page
was computed behind. A session that begins like others takes over their pages as far as its tokens
are the same, to the token: on the last page it continues on a copy, or in place if all of the page
is the same and no other session does. Only tokens are compared, since the bits of a page follow
from them.

Where a model has recurrent layers, pages are of use only up to a place where the state is known
too: copies of states are kept beside the tree, by the tokens before them, and a session resumes
behind one of these or not at all.

A node holds its page. When memory is needed, leaves that no session has are evicted, first those
that would be quickest to compute again by the time since they were last used. The pages of a text
that is likely to be continued soon can be pinned until a time, within a share of the memory.

A session finds what sessions of its own namespace have computed, and what those without one have;
nothing of others, so that response times do not reveal what others have computed.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....jit.kernels.kvcache import PAGE
from ...forward.kv import KVCache, KVLayout, Page
from ...forward.state import Checkpoint, SequenceState

MOST_STATES = 6  # that are kept for sessions to come, beside those that are kept until a time
KEPT_SHARE = 0.5  # of the memory, that may be kept until a time


@dataclass(eq=False, slots=True)
class Node:
    """A node of the prefix tree: one KV cache page and the tokens on it."""

    tokens: list[int]
    """Tokens on the page, at most PAGE."""
    page: Page | None
    parent: Node | None
    depth: int = 0
    """Pages before it."""
    used: int = 0
    """The tree's clock when it was last found or added."""
    views: bool = True
    """Whether it holds the windowed layers of its page."""
    namespace: str = ""
    """The namespace that it belongs to; "": visible to all."""
    until: float = 0.0
    """When its pin ends, by `time.monotonic`."""
    children: list[Node] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether its page is complete, so that a sequence can resume on it."""
        return self.views and self.page is not None and self.page.whole

    def take(self, page: Page) -> None:
        """Hold `page` instead of the current one."""
        page.share(len(self.tokens))
        self.leave()
        self.page, self.views = page, True

    def leave(self) -> None:
        """Release the page."""
        if self.page is not None:
            self.page.release(views=self.views)

    def text(self) -> list[int]:
        """Return all tokens from the root to this node."""
        parts: list[list[int]] = []
        node: Node | None = self
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return [token for part in reversed(parts) for token in part]

    def alone(self, pages: int) -> bool:
        """Return whether `pages` pages follow this one without a branch."""
        node = self
        for _ in range(pages):
            if len(node.children) != 1:
                return False
            node = node.children[0]
        return True

    def common(self, ids: Sequence[int]) -> int:
        """Return the length of the common prefix of the page's tokens and `ids`."""
        if self.tokens == ids[: len(self.tokens)]:
            return len(self.tokens)
        pairs = zip(self.tokens, [*ids, -1], strict=False)
        return next(n for n, (mine, other) in enumerate(pairs) if mine != other)


class KnownStates:
    """An LRU cache of recurrent states, by the tokens before them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bytes], Checkpoint] = {}
        self._until: dict[tuple[int, bytes], float] = {}

    def add(self, state: SequenceState, ids: list[int], count: int, namespace: str) -> None:
        """Add a sequence's checkpoints within the first `count` of `ids`."""
        known, copies = set(self._kept.values()), state.layout.copies
        for one in state.checkpoints:
            if one not in known and one.position <= count:
                key = one.position, _digest(ids, one.position, namespace)
                self._kept.setdefault(key, one)
        now = time.monotonic()
        while len(self._kept) > 1:
            free = [key for key in self._kept if self._until.get(key, 0.0) <= now]
            if len(free) <= MOST_STATES and copies.used <= copies.budget:
                break
            # The last one is the newest of this text.
            first = free[0] if len(free) > 1 else min(self._kept, key=self._until_of)
            del self._kept[first]
            self._until.pop(first, None)

    def keep(self, ids: list[int], until: float, namespace: str, most: float) -> None:
        """Pin the deepest state within `ids` until a time; all pinned take `most` bytes at most."""
        found = self._place(ids, len(ids), ("", namespace))
        if found is None:
            return
        self._until[found] = max(until, self._until_of(found))
        order = sorted(self._until, key=self._until_of)
        total = sum(self._kept[key].data.nbytes for key in order)
        for key in order:
            if total > most or self._until[key] <= time.monotonic():
                total -= self._kept[key].data.nbytes
                del self._until[key]

    def _until_of(self, key: tuple[int, bytes]) -> float:
        return self._until.get(key, 0.0)

    def find(self, ids: list[int], count: int, namespace: str) -> Checkpoint | None:
        """Return the deepest state within the first `count` of `ids`, if there is one."""
        key = self._place(ids, count, ("", namespace))
        if key is None:
            return None
        self._kept[key] = found = self._kept.pop(key)  # as the last one
        return found

    def _place(
        self, ids: list[int], count: int, namespaces: tuple[str, ...]
    ) -> tuple[int, bytes] | None:
        places = {position for position, _ in self._kept if position <= count}
        for position in sorted(places, reverse=True):
            for namespace in dict.fromkeys(namespaces):
                key = position, _digest(ids, position, namespace)
                if key in self._kept:
                    return key
        return None


def _digest(ids: list[int], count: int, namespace: str) -> bytes:
    digest = hashlib.sha256(np.array(ids[:count], np.int64).tobytes())
    digest.update(namespace.encode())
    return digest.digest()


class PrefixCache:
    """The prefix tree of one engine. Safe to use from several threads.

    Attributes:
        nbytes: memory of the pages that it holds, those that sessions have too among them.
        evicted_pages: pages evicted so far.
        running: whether what a sequence computes is known while it runs, not only at its end; a
            benchmark turns it off to see what that gives.
    """

    def __init__(
        self, layout: KVLayout, evicted: Callable[[list[int], Page, str], None] | None = None
    ) -> None:
        """evicted: called with a page's tokens from the root, the page, and its namespace."""
        self._layout, self._evicted = layout, evicted
        self._root = Node([], None, None)
        self.lock = threading.RLock()
        self._states = KnownStates()
        self._clock = 0
        self.evicted_pages = 0
        self.running = True

    @property
    def nbytes(self) -> int:
        with self.lock:
            return sum(page.nbytes for page in {node.page for node in self._nodes()} if page)

    def find(self, ids: list[int], namespace: str = "") -> tuple[list[Page], int]:
        """Return the pages that hold the longest cached prefix of `ids`, and its length."""
        with self.lock:
            self._clock += 1
            pages, at = list[Page](), 0
            for node, common in self._path(ids, namespace):
                assert node.page is not None, "only the root has no page"
                node.used = self._clock
                pages.append(node.page)
                at += common
            return self._seen(pages, at)

    def count(self, ids: list[int], namespace: str = "") -> int:
        """Return the length of the prefix of `ids` that a new sequence could adopt."""
        with self.lock:
            count = self.find(ids, namespace)[1]
            if self._layout.states is None:
                return count
            state = self._states.find(ids, count, namespace)
            return state.position if state is not None else 0

    def keep(self, ids: list[int], until: float, namespace: str = "") -> None:
        """Pin the cached prefix of `ids` until a time of `time.monotonic`.

        Pinned pages take at most `KEPT_SHARE` of the memory: pins that end first are dropped first.
        All are dropped where no sequence could continue otherwise.
        """
        with self.lock:
            for node, _ in self._path(ids, namespace):
                node.until = max(node.until, until)
            now = time.monotonic()
            kept = [node for node in self._nodes() if node.until > now]
            budget = self._layout.memory.budget
            most = math.inf if budget is None else KEPT_SHARE * budget
            total = sum(node.page.nbytes for node in kept if node.page is not None)
            # A page is kept at least as long as those behind it.
            for node in sorted(kept, key=lambda n: (n.until, -n.depth)):
                if total <= most:
                    break
                node.until = 0.0
                total -= node.page.nbytes if node.page is not None else 0
            if self._layout.states is not None:
                most = KEPT_SHARE * self._layout.states.copies.budget
                self._states.keep(ids, until, namespace, most)

    def _path(self, ids: list[int], namespace: str) -> Iterator[tuple[Node, int]]:
        """Yield the nodes that hold the beginning of `ids`, and how many tokens each holds."""
        node, at = self._root, 0
        while at < len(ids):
            best, common = _best(node, ids[at : at + PAGE], namespace)
            if best is None:
                return
            yield best, common
            at += common
            if common < PAGE:
                return
            node = best

    def _seen(self, pages: list[Page], at: int) -> tuple[list[Page], int]:
        """Shorten a match to where a sequence can resume, as windowed layers may lack rows."""
        while pages and not self._layout.can_resume_at(pages, at):
            pages.pop()
            at = len(pages) * PAGE
        return pages, at

    def adopt(self, cache: KVCache, ids: list[int], least: int, namespace: str = "") -> int:
        """Attach the known prefix of `ids` to a cache, if beyond `least`; return its length."""
        with self.lock:
            pages, count, state = self._known(cache, ids, namespace)
            if count <= least:
                return least
            own = [] if cache.state is None else list(cache.state.checkpoints)
            cache.adopt(pages[: -(-count // PAGE)], count)
            if cache.state is not None and state is not None:
                cache.state.adopt(state, [one for one in own if one.position < count])
            return count

    def knows(self, cache: KVCache, ids: list[int], least: int, namespace: str = "") -> bool:
        """Return whether `adopt` would find a prefix of `ids` of at least `least` tokens."""
        with self.lock:
            return self._known(cache, ids, namespace)[1] >= least

    def _known(
        self, cache: KVCache, ids: list[int], namespace: str
    ) -> tuple[list[Page], int, Checkpoint | None]:
        """Find the prefix of `ids` that a cache can use, with its state if it needs one."""
        pages, count = self.find(ids, namespace)
        if cache.state is None:
            return pages, count, None
        state = self._states.find(ids, count, namespace)
        return pages, state.position if state is not None else 0, state

    def add(self, cache: KVCache, ids: list[int], count: int, namespace: str = "") -> None:
        """Add a cache's pages of the first `count` of `ids` to the tree.

        A partial page is added with its tokens so far; it grows as the cache does. Drafts that
        follow `ids` in the cache, and may yet be refused, are not added.
        """
        count = min(count, len(ids))
        with self.lock:
            self._clock += 1
            if cache.state is not None:
                self._states.add(cache.state, ids, count, namespace)
            node = self._root
            for depth, page in enumerate(cache.held[: -(-count // PAGE)]):
                part = ids[depth * PAGE : min(count, depth * PAGE + PAGE)]
                best, common = _best(node, part, namespace)
                mine = best is not None and best.namespace == namespace
                if best is not None and common == len(part) and (best.page is not page or not mine):
                    following = best  # known already
                    if mine and common == len(best.tokens) and page.whole > best.whole:
                        best.take(page)
                elif best is not None and common == len(best.tokens) and best.page is page and mine:
                    page.fix(len(part))
                    best.tokens = part if len(part) > len(best.tokens) else best.tokens
                    following = best
                else:
                    following = Node(part, None, node, depth, namespace=namespace)
                    following.take(page)
                    node.children.append(following)
                following.used = self._clock
                if len(part) < PAGE:
                    return
                node = following

    def make_room(self, nbytes: int) -> bool:
        """Evict pages that no session uses until `nbytes` more fit; return whether they do."""
        memory = self._layout.memory
        with self.lock:
            if lacks := memory.lacks(nbytes):
                self.evict(lacks)
            return not memory.lacks(nbytes)

    def evict(self, wanted: int, *, kept: bool = False) -> int:
        """Evict leaves that no session uses until `wanted` bytes are free; return the bytes freed.

        Pinned leaves are evicted only if `kept`, and last. First go the windowed layers of pages
        that no sequence is likely to resume from.
        """
        with self.lock:
            freed = self._release_window(wanted)
            while freed < wanted:
                now = time.monotonic()
                nodes = list(self._nodes())
                holders = Counter(n.page for n in nodes)
                leaves = [n for n in nodes if not n.children and _unused(n, holders)]
                leaves = [n for n in leaves if kept or n.until <= now]
                if not leaves:
                    return freed
                # Deep pages took longer to compute than those at the beginning of a text.
                worst = min(leaves, key=lambda n: (max(n.until, now), n.used, -n.depth))
                freed += self._remove(worst)
        return freed

    def freed_by(self, gone: Counter[Page]) -> int:
        """Return the bytes freed if sessions released these pages and the tree evicted them.

        gone: by page, how many sessions release it.
        """
        with self.lock:
            nodes, now = list(self._nodes()), time.monotonic()
            holders = Counter(node.page for node in nodes)
            stay = set[int]()  # nodes, by identity
            held = set[Page | None]()  # their pages
            for node in reversed(nodes):  # children before their parents
                page = node.page
                used = page is not None and page.refcount != holders[page] + gone[page]
                if used or node.until > now or any(id(child) in stay for child in node.children):
                    stay.add(id(node))
                    held.add(page)
            return sum(
                page.nbytes
                for page, count in gone.items()
                if page.refcount == holders[page] + count and page not in held
            )

    def forget(self, page: Page) -> None:
        """Evict a page of a single session and all below it, so that the session can write."""
        with self.lock:
            nodes = [node for node in self._nodes() if node.page is page]
            if page.refcount != len(nodes) + 1:
                return
            below = list(nodes)
            for node in below:  # it grows
                below += node.children
            for node in reversed(list({id(node): node for node in below}.values())):
                self._remove(node)

    def clear(self) -> None:
        """Drop all nodes and states; pages that sessions use stay with them."""
        with self.lock:
            for node in list(self._nodes()):
                node.leave()
            self._root = Node([], None, None)
            self._states = KnownStates()

    def _release_window(self, wanted: int) -> int:
        """Release the windowed layers of pages well before the next fork or end of a text."""
        if not wanted or not self._layout.window:
            return 0
        behind = self._layout.window // PAGE + 2  # pages that follow, at least
        found = [node for node in self._nodes() if node.whole and node.alone(behind)]
        freed = 0
        for node in sorted(found, key=lambda n: n.used):
            if freed >= wanted:
                break
            if node.page is not None and node.page.viewers == 1 and node.until <= time.monotonic():
                node.views = False
                freed += node.page.release_window()
        return freed

    def _remove(self, node: Node) -> int:
        assert node.parent is not None, "the root is no leaf"
        assert node.page is not None, "only the root has no page"
        node.parent.children.remove(node)
        freed = node.page.nbytes if node.page.refcount == 1 else 0
        try:
            if self._evicted is not None:
                self._evicted(node.text(), node.page, node.namespace)
        finally:
            node.leave()
            self.evicted_pages += 1
        return freed

    def _nodes(self) -> Iterator[Node]:
        left = list(self._root.children)
        while left:
            node = left.pop()
            left += node.children
            yield node


def _best(node: Node, ids: list[int], namespace: str) -> tuple[Node | None, int]:
    """Return the visible child that shares most of its beginning with `ids`, and how much."""
    best, most = None, 0
    for child in node.children:
        if child.namespace and child.namespace != namespace:
            continue
        if child.tokens[0] == ids[0] and (common := child.common(ids)) > most:
            best, most = child, common
    return best, most


def _unused(node: Node, holders: Counter[Page | None]) -> bool:
    """Return whether only nodes hold its page (several where texts branch), and no session."""
    return node.page is not None and node.page.refcount == holders[node.page]
