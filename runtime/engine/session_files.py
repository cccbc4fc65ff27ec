"""Sessions saved to disk: another process continues one without recomputing it.

    FOLDER/index.json     what it is of, its tokens, and the SHA-256 of each page
    FOLDER/<key>.kv       the bytes of a page of 256 positions, as they lie in memory
    FOLDER/<key>-far.kv   the same without layers whose windows do not reach it any more
    FOLDER/<key>.state    of a model with recurrent layers, a state behind so many tokens

What a page holds is decided by the model, the layout and every token up to its end. The SHA-256 of
these is its key: a save writes only pages whose key is new, and a page of other tokens is never
found. The bytes have a SHA-256 too, which is compared before they are used. Pages are complete
before the index names them, and the index is replaced at once, so a save that is killed leaves the
one before it. Where there are states, pages are of use up to the last of them that is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import interrupts
from ...arguments import as_path
from ...errors import ContextOverflowError, EngineError
from ...jit.kernels.kvcache import PAGE
from .. import checked_files
from ..checked_files import UnreadableError
from ..forward.state import Checkpoint
from .kv.page_keys import fingerprint, page_keys
from .passes.request import Request

if TYPE_CHECKING:
    from ..forward.kv import KVCache
    from .model.loaded_model import LoadedModel
    from .passes.scheduler import Scheduler
    from .passes.sequence import TokenSequence

VERSION = 2
INDEX = "index.json"
SUFFIX, STATE_SUFFIX = ".kv", ".state"
FAR = "-far"  # behind the name of a page without its layers that have a window
READERS = 4
_OURS = re.compile(r"[0-9a-f]{64}(-far)?\.kv|[0-9a-f]{64}\.state")
_UNFINISHED = re.compile(rf"{_OURS.pattern}|{INDEX}")
_FOLDER = "the folder of a session"


@dataclass(frozen=True)
class Saved:
    """The result of saving a session."""

    pages: int
    """Pages of the session."""
    written: int
    """Bytes written: of pages and states that were not in the folder."""
    seconds: float


def save(loaded: LoadedModel, session: TokenSequence, folder: str | Path) -> Saved:
    """Save a session's tokens and KV cache to a folder; see `Session.save`.

    Raises:
        EngineError: they cannot be written; what was there before still is.
    """
    began = time.perf_counter()
    where = as_path(folder, _FOLDER, EngineError)
    try:
        checked_files.make_folder(where)
        with loaded.lock:
            tokens = list(session.tokens)
            cached = min(session.n_cached, len(tokens))
            names = list(page_keys(loaded, tokens[:cached]))
            old = _digests(where)

            def put(number: int) -> tuple[str, str, int]:
                data, name = session.cache.page(number), names[number]
                path = where / f"{name}{SUFFIX}"
                if (digest := old.get(name)) and _size(path) == session.cache.page_bytes:
                    return name, digest, 0
                if data.nbytes < session.cache.page_bytes:
                    name += FAR
                    path = where / f"{name}{SUFFIX}"
                    if (digest := old.get(name)) and _size(path) == data.nbytes:
                        return name, digest, 0
                return name, checked_files.write(path, data.data), data.nbytes

            with ThreadPoolExecutor(READERS) as pool:
                done = list(interrupts.results(pool, put, range(len(names))))
            states, bytes_of_states = _save_states(loaded, session.cache, where, tokens[:cached])
        body = {
            "version": VERSION,
            "of": fingerprint(loaded),
            "tokens": tokens,
            "cached": cached,
            "pages": [[name, digest] for name, digest, _ in done],
            **({"states": states} if states else {}),
        }
        checked_files.write_sealed(where / INDEX, body)
        _sweep(where, {f"{name}{SUFFIX}" for name, *_ in done} | {
            f"{name}{STATE_SUFFIX}" for _, name, _ in states})  # fmt: skip
    except OSError as error:
        raise EngineError(f"the session cannot be saved in {where}: {error.strerror}") from error
    written = bytes_of_states + sum(nbytes for *_, nbytes in done)
    return Saved(len(names), written, time.perf_counter() - began)


def _save_states(
    loaded: LoadedModel, cache: KVCache, where: Path, tokens: list[int]
) -> tuple[list[list[Any]], int]:
    """Save the state behind these tokens, and checkpoints likely to be rolled back to.

    Returns their positions, names and SHA-256, and the bytes that were written.
    """
    if cache.state is None or not tokens:
        return [], 0
    last, others = cache.state.known(len(tokens))
    old = _digests(where, "states")
    entries: list[list[Any]] = []
    written = 0
    for one in [*others[:1], *others[1:][-2:], last]:
        if one.position:
            name = list(page_keys(loaded, tokens[: one.position]))[-1]
            path, digest = where / f"{name}{STATE_SUFFIX}", old.get(name)
            if digest is None or _size(path) != one.data.nbytes:
                digest = checked_files.write(path, one.data.view(np.uint8).data)
                written += one.data.nbytes
            entries.append([one.position, name, digest])
    return entries, written


def load(
    loaded: LoadedModel,
    session: TokenSequence,
    folder: str | Path,
    scheduler: Scheduler,
) -> str:
    """Fill a new session with one saved in a folder; see `Engine.load_session`.

    scheduler: makes room for its pages, and may evict them at any time, as it does others'.

    Returns why some of it could not be used; an empty text otherwise.

    Raises:
        EngineError: no session is there, or it is damaged, of another model, or too long.
    """
    where = as_path(folder, _FOLDER, EngineError)
    body = _read_index(where)
    of, here = body["of"], fingerprint(loaded)
    if of != here:
        what = [
            f"{key}: {of.get(key)} there, {here[key]} here"
            if key != "layout"
            else "layout: of another version of triplepoint"
            for key in here
            if of.get(key) != here[key]
        ]
        raise EngineError(
            f"the session in {where} was saved with other settings ({'; '.join(what)}), so its "
            f"tokens have to be prefilled again; {INDEX} has them"
        )
    tokens, cached, cache = body["tokens"], body["cached"], session.cache
    if len(tokens) > session.context:
        raise EngineError(
            f"the session in {where} has {len(tokens)} tokens, but the context holds "
            f"{session.context}; load the model with a larger context"
        )
    loaded.check_ids(tokens)
    session.tokens = list(tokens)
    names = list(page_keys(loaded, tokens[:cached]))
    digests = dict(body["pages"])

    def get(number: int) -> np.ndarray | str:
        name, size = names[number], cache.page_bytes
        if name not in digests and name + FAR in digests:
            name, size = name + FAR, loaded.layout.far_bytes
        path = where / f"{name}{SUFFIX}"
        try:
            return checked_files.map_bytes(path, size, digests.get(name, ""))
        except UnreadableError as error:
            return str(error)
        except ValueError as error:
            with contextlib.suppress(OSError):  # the next save is not to take it for whole
                path.unlink()
            return str(error)

    wrong = ""
    with ThreadPoolExecutor(READERS) as pool:
        for number, page in enumerate(interrupts.results(pool, get, range(len(names)))):
            if isinstance(page, str):  # what follows it is of no use: this has to be read first
                wrong = f"page {number + 1} of {len(names)} on disk {page}"
                break
            with loaded.lock, scheduler.mutex:
                if session.n_cached != number * PAGE:  # evicted meanwhile
                    break
                end = min(cached, (number + 1) * PAGE)
                if not _has_room(session, tokens[session.n_cached : end], scheduler):
                    wrong = f"the KV memory has no room for page {number + 1} of {len(names)}"
                    break
                cache.append(page)
                loaded.layout.memory.promised = 0
                session.n_cached = end
                session.used = time.monotonic()
    with scheduler.mutex:
        if cache.state is not None:
            state = _load_states(loaded, session, where, body.get("states", []))
            if cache.state.position < session.n_cached:
                wrong = wrong or state
                session.n_cached = cache.state.position
                if not session.n_cached:
                    cache.clear()
        if not cache.can_resume_at(session.n_cached):
            session.rollback(0)  # what its windows would see there was released
        cache.slide(session.n_cached)
    return wrong


def _has_room(session: TokenSequence, ids: list[int], scheduler: Scheduler) -> bool:
    """Return whether memory has room for these tokens after a session's, as for a pass."""
    try:
        return scheduler.admit(Request(session, session.n_cached, ids))
    except ContextOverflowError:
        return False


def _load_states(
    loaded: LoadedModel, session: TokenSequence, where: Path, entries: list[list[Any]]
) -> str:
    """Resume behind the last intact state within the pages; return why not a later one."""
    state, found, wrong = session.cache.state, list[Checkpoint](), ""
    assert state is not None, "of a model with recurrent layers"
    for position, _, digest in entries:
        if position > session.n_cached:
            continue
        name = list(page_keys(loaded, session.tokens[:position]))[-1]
        path = where / f"{name}{STATE_SUFFIX}"
        try:
            data = checked_files.map_bytes(path, state.layout.nbytes, digest)
            found.append(Checkpoint(position, data.view(np.float32)))
        except ValueError as error:
            wrong = f"the state after {position} tokens on disk {error}"
            if not isinstance(error, UnreadableError):
                with contextlib.suppress(OSError):
                    path.unlink()
    if found:
        last = max(found, key=lambda one: one.position)
        state.adopt(last, [one for one in found if one is not last])
    return wrong


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        body = json.loads(checked_files.read_sealed(path))
        tokens, cached, pages = body["tokens"], body["cached"], body["pages"]
        sound = (
            body["version"] == VERSION
            and isinstance(body["of"], dict)
            and all(type(token) is int for token in tokens)
            and type(cached) is int
            and 0 <= cached <= len(tokens)
            and all(isinstance(name, str) and isinstance(digest, str) for name, digest in pages)
            and all(
                type(at) is int and 0 < at <= cached and isinstance(digest, str)
                for at, _, digest in body.get("states", [])
            )
        )
    except FileNotFoundError:
        raise EngineError(f"there is no session in {folder}") from None
    except (ValueError, KeyError, TypeError) as error:
        what = (
            str(error)
            if type(error) is ValueError
            else "has a format that this version does not read"
        )
        raise EngineError(f"{path} {what}") from None
    if not sound:
        raise EngineError(f"{path} has a format that this version does not read")
    return body


def _digests(folder: Path, what: str = "pages") -> dict[str, str]:
    """Return the SHA-256 of the pages, or states, in a folder, by key."""
    try:
        return {entry[-2]: entry[-1] for entry in _read_index(folder).get(what, [])}
    except EngineError:
        return {}


def _size(path: Path) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _sweep(folder: Path, names: set[str]) -> None:
    """Remove pages that are no longer of the session, and what killed saves have left."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in names:
            path.unlink(missing_ok=True)
        checked_files.sweep_unfinished(path, _UNFINISHED)


def is_cache(path: Path) -> bool:
    """Return whether a file is a page or a state, by its name."""
    return _OURS.fullmatch(path.name) is not None
